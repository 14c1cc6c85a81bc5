"""Robust losses for broken lines: the M-estimate is least squares on the pseudo-values of `pipeline.robust`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.hinges.points import Points
from neurecover.hinges.projection import hinge_columns
from neurecover.pipeline.robust import RobustOptions, psi, scale_of

FAR = RobustOptions().far


@dataclass(frozen=True, eq=False)
class PseudoValues:
    """The outputs `y` (n,) that least squares is given, the residuals' scale, and which rows are outliers."""

    y: np.ndarray
    scale: float
    outliers: np.ndarray


def first_curve(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return a curve (n,) through the data by least absolute deviations, with up to ten corners at quantiles."""
    points = Points.of(x, y)
    corners = int(np.clip(len(x) // 12, 0, 10))
    knots = points.place(np.linspace(0.0, len(points) - 1.0, corners + 2)[1:-1])
    X = hinge_columns((x - points.centre) / points.size, knots)
    weight = np.ones(len(x))
    for _ in range(60):  # reweighted least squares; the floor below ends it after a few dozen
        root = np.sqrt(weight)
        residual = y - X @ np.linalg.lstsq(root[:, None] * X, root * y, rcond=None)[0]
        floor = 1e-3 * float(np.median(np.abs(residual))) + np.finfo(float).tiny
        weight = 1.0 / np.maximum(np.abs(residual), floor)
    return y - residual


def pseudo_values(y: np.ndarray, fitted: np.ndarray, n_parameters: int, loss: str) -> PseudoValues:
    """Return the pseudo-values of a loss about fitted values; the scale follows from the median of |r|."""
    residual = y - fitted
    scale = scale_of(residual, n_parameters)
    if scale <= 0.0:
        return PseudoValues(y, 0.0, residual != 0.0)
    value, slope = psi(residual / scale, loss)
    return PseudoValues(fitted + scale * value / max(float(slope.mean()), 0.1), scale, np.abs(residual) > FAR * scale)
