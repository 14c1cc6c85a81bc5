"""The figure of a segmented regression: data, fit, band, and breakpoints with their intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_segments(model: Any, X: np.ndarray, y: np.ndarray, name: str, ax: Any = None) -> Figure:
    """Draw a fitted `HingeRegression` of one input on the axes, or on a new figure; return the figure."""
    if ax is None:
        from matplotlib.figure import Figure as NewFigure

        ax = NewFigure(figsize=(6.4, 4.0), layout="constrained").subplots()
    x = np.sort(np.concatenate([np.linspace(X.min(), X.max(), 200), model.breakpoints_]))
    fitted, error = model._with_errors(x[:, None])
    ax.plot(X[:, 0], y, ".", color="0.6", markersize=4, label="data")
    ax.plot(x, fitted, color="C0", label="fit")
    ax.fill_between(x, fitted - 1.96 * error, fitted + 1.96 * error, color="C0", alpha=0.2, label="95 % band")
    at = model._with_errors(model.breakpoints_[:, None])[0]
    for i, (place, (low, high), value) in enumerate(zip(model.breakpoints_, model.breakpoint_intervals_, at)):
        ax.plot([low, high], [value, value], color="C3", linewidth=2, label="break, 95 %" if i == 0 else None)
        ax.plot([place], [value], "o", color="C3")
    ax.set_xlabel(name)
    ax.legend()
    return ax.figure
