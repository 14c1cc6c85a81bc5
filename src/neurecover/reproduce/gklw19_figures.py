"""Pictures of the tables of [GKLW19, Figures 2–4].

The axis of errors is broken: below, in a panel of its own, is what is at rounding, as the estimate after least squares
is without noise, which would squeeze the others together. A colour is a form and a line style an error; lines are means
over the trials, and the shade goes from the least to the largest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from neurecover.experiment import picture

SQUARED = {"error_W": ("-", "W, squared"), "error_A": ("--", "A, squared"), "mse": (":", "outputs, mean square")}
ROOTS = {"root_error_W": "-", "root_error_A": "--"}
BREAK = 1e-12  # of the axis: errors below are rounding
ROUNDING = 1e-32  # the square of rounding: zero has no place on a logarithmic axis


@dataclass(frozen=True)
class Level:
    """What errors are compared with, drawn as a grey line: its label, and its value for a row of the table."""

    label: str
    value: Callable[[dict[str, str]], float]


def drawing(axis: str, logarithmic: bool, level: Level | None = None) -> Callable[[list[dict[str, str]], Path], None]:
    """Return how to draw a table: one column for every value of its `panel`; `axis` names x."""

    def draw(rows: list[dict[str, str]], path: Path) -> None:
        from matplotlib.lines import Line2D

        panels = list(dict.fromkeys(row["panel"] for row in rows))
        forms = list(dict.fromkeys(row["form"] for row in rows))
        size = (4.2 * len(panels) + 0.6, 6.4)
        shape = {"nrows": 2, "ncols": len(panels), "height_ratios": (2.4, 1.0), "sharex": "col", "squeeze": False}
        with picture(path, size=size, **shape) as (figure, axes):
            for column, panel in zip(axes.T, panels):
                mine = [[row for row in rows if row["panel"] == panel and row["form"] == form] for form in forms]
                _draw_panel(column, panel, mine, axis, logarithmic)
                if level is not None:
                    places = {float(row["x"]): level.value(row) for form in mine for row in form}
                    x = np.array(sorted(places))
                    y = np.array([places[at] for at in x])
                    column[0].plot(x[y > 0.0], y[y > 0.0], color="grey", linewidth=3, alpha=0.6, zorder=1)
            handles = [Line2D([], [], color=f"C{i}", label=form) for i, form in enumerate(forms)]
            handles += [Line2D([], [], color="black", linestyle=line, label=label) for line, label in SQUARED.values()]
            if level is not None:
                handles.append(Line2D([], [], color="grey", linewidth=3, alpha=0.6, label=level.label))
            figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=9, frameon=False)

    return draw


def _draw_panel(
    column: np.ndarray, panel: str, forms: list[list[dict[str, str]]], axis: str, logarithmic: bool
) -> None:
    """Draw the rows of every form on the two axes of a column: above the break, and below it."""
    roots = panel == "dimension"
    lines = ROOTS if roots else {name: line for name, (line, _) in SQUARED.items()}
    for number, rows in enumerate(forms):
        for name, line in lines.items():
            x, low, mean, high = _spread(rows, name)
            for ax, there in zip(column, (mean >= BREAK, mean < BREAK)):
                if there.any():
                    ax.plot(x[there], mean[there], line, marker=".", color=f"C{number}")
                    ax.fill_between(x, low, high, where=there, color=f"C{number}", alpha=0.12, linewidth=0)
    scale = "log" if logarithmic and not roots else "linear"
    column[1].set(xlabel="dimension" if roots else axis, xscale=scale)
    column[0].set(title=panel)
    _ticks(column[1], x, scale)
    for ax in column:
        ax.set(yscale="log", ylabel="root of error per unit" if roots else "error")
        ax.grid(alpha=0.3)


def _spread(rows: list[dict[str, str]], name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return x, and the least, the mean and the largest over the trials at each."""
    x = np.array([float(row["x"]) for row in rows])
    y = np.maximum([float(row[name]) for row in rows], ROUNDING)
    places = np.unique(x)
    groups = [y[x == place] for place in places]
    low, mean, high = (np.array([how(group) for group in groups]) for how in (np.min, np.mean, np.max))
    return places, low, mean, high


def _ticks(ax: Any, places: np.ndarray, scale: str) -> None:
    """Mark the measured places that have room for their labels: 17 % of the axis."""
    from matplotlib.ticker import NullLocator

    at = np.log(places) if scale == "log" else places
    kept = [0]
    for i in range(1, len(at)):
        if at[i] - at[kept[-1]] >= 0.17 * (at[-1] - at[0]):
            kept.append(i)
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(places[kept], [f"{place:,g}" if place < 1000 else f"{int(place):,}" for place in places[kept]])
