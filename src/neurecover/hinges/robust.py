"""Robust losses by pseudo-values.

With ψ the loss's derivative, s the residuals' scale and f the fit,

    ỹ = f + s ψ(r/s) / mean ψ'(r/s),   r = y − f,

the M-estimate is the least-squares fit to ỹ, and the residuals ỹ − f have the variance that its errors take, s² E ψ² /
(E ψ')² [Huber, 1981, 7.6]. So breaks, posterior and tests are those of least squares on ỹ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.hinges.points import Points
from neurecover.hinges.projection import hinge_columns

TUNING = {"huber": 1.345, "tukey": 4.685}  # 95 % efficiency under normal noise
FAR = 4.685  # robust standard deviations beyond which a row is named: 3 in a million of normal noise
_NORMAL = 0.6745  # median of |z|


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
    """Return the pseudo-values of a loss about fitted values, the scale by the median of |r| beyond the parameters."""
    residual = y - fitted
    size = np.sort(np.abs(residual))[min(n_parameters, len(y) // 2) :]
    scale = float(np.median(size)) / _NORMAL
    if scale <= 0.0:
        return PseudoValues(y, 0.0, residual != 0.0)
    t = residual / scale
    c = TUNING[loss]
    if loss == "huber":
        psi, slope = np.clip(t, -c, c), (np.abs(t) <= c).astype(float)
    else:
        inside = np.maximum(1.0 - (t / c) ** 2, 0.0)
        psi, slope = t * inside**2, inside**2 - 4.0 * (t / c) ** 2 * inside
    return PseudoValues(fitted + scale * psi / max(float(slope.mean()), 0.1), scale, np.abs(t) > FAR)
