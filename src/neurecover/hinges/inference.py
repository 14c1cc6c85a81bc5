"""Intervals, errors and predictions of broken lines, in the user's units.

Parameters are named: const, x (the first slope), one slope change and one break per hinge; then slopes and intercepts
of the segments. `posterior` is the mixture of `posterior.py`, `profile` inverts the F-test of the profile sum of
squares, `wald` is least squares to first order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import fdtri, stdtr, stdtrit

from neurecover.hinges.mixture import Mixture, break_interval, break_profile, linear
from neurecover.hinges.projection import hinge_columns
from neurecover.hinges.segmented import Estimated

METHODS = ("posterior", "profile", "wald")


@dataclass(frozen=True)
class Estimate:
    """One row of the table: an estimate with its standard error, the t statistic and p-value of zero, and the interval.

    t and p are nan for a break, which zero has no meaning for.
    """

    name: str
    value: float
    error: float
    t: float
    p_value: float
    low: float
    high: float


def rows_of(found: Estimated) -> dict[str, np.ndarray]:
    """Return, by name, the row ℓ (K + 2,) of every linear function in the table, or (T, K + 2) if it depends on the
    breaks.
    """
    points, over = found.points, found.posterior
    T, K = over.breaks.shape
    h = points.size
    unit = np.eye(K + 2)
    rows = {"const": unit[0] - unit[1] * points.centre / h, "x": unit[1] / h}
    rows |= {f"change{j + 1}": unit[2 + j] / h for j in range(K)}
    for k in range(K + 1):
        rows[f"slope{k + 1}"] = np.concatenate([[0.0, 1.0], np.arange(K) < k]) / h
    for k in range(K + 1):  # value of segment k continued to x = 0
        row = np.tile(rows["const"], (T, 1))
        row[:, 2 : 2 + k] = -points.x(over.breaks[:, :k]) / h
        rows[f"intercept{k + 1}"] = row
    return rows


def values_of(found: Estimated) -> dict[str, float]:
    """Return the value of every row of the table by its name: const, x, change1, break1, slope1, intercept1, …"""
    line, points = found.line, found.points
    K, h = len(line.breaks), points.size
    a, b = line.coefficients[:2]
    d, breaks = line.coefficients[2:] / h, points.x(line.breaks)
    slopes = b / h + np.concatenate([[0.0], np.cumsum(d)])
    const = a + points.level - b / h * points.centre
    intercepts = const - np.concatenate([[0.0], np.cumsum(d * breaks)])
    values = {"const": const, "x": slopes[0]}
    values |= {f"change{j + 1}": d[j] for j in range(K)} | {f"break{j + 1}": breaks[j] for j in range(K)}
    values |= {f"slope{k + 1}": slopes[k] for k in range(K + 1)}
    values |= {f"intercept{k + 1}": intercepts[k] for k in range(K + 1)}
    return {name: float(value) for name, value in values.items()}


def table(found: Estimated, level: float, method: str) -> tuple[Estimate, ...]:
    """Return every parameter with its error and interval."""
    values, rows = values_of(found), rows_of(found)
    wald = _wald_errors(found) if method == "wald" else {}
    limit = found.fit.rss * (1.0 + fdtri(1.0, max(found.dof, 1.0), level) / max(found.dof, 1.0))
    lines = []
    for name, value in values.items():
        shift = found.points.level if name.startswith(("const", "intercept")) else 0.0
        if method == "wald":
            value, error = wald[name]
            low, high = value + np.array([-1.0, 1.0]) * stdtrit(max(found.dof, 1.0), 0.5 + 0.5 * level) * error
        elif name.startswith("break"):
            j, over = int(name[5:]) - 1, found.posterior
            own = over.weight @ over.breaks[:, j]
            error = found.points.size * float(np.sqrt(over.weight @ (over.breaks[:, j] - own) ** 2))
            ends = break_interval(over, j, level) if method == "posterior" else break_profile(over, j, limit)
            low, high = found.points.x(ends)
        else:
            mixture: Mixture = linear(found.posterior, rows[name])
            error = float(np.sqrt(mixture.variance))
            low, high = shift + (mixture.interval(level) if method == "posterior" else mixture.profile(limit))
        lines.append(_line(name, value, float(error), float(low), float(high), max(found.dof, 1.0)))
    return tuple(lines)


def _line(name: str, value: float, error: float, low: float, high: float, dof: float) -> Estimate:
    if name.startswith("break"):
        return Estimate(name, value, error, np.nan, np.nan, low, high)
    t = value / error if error > 0.0 else float(np.copysign(np.inf, value)) if value else 0.0
    return Estimate(name, value, error, t, float(2.0 * stdtr(dof, -abs(t))), low, high)


def covariance(found: Estimated) -> np.ndarray:
    """Return the posterior covariance (2K + 2) of const, x, the slope changes and the breaks."""
    points, over, h = found.points, found.posterior, found.points.size
    K = over.n_hinges
    to_user = np.eye(K + 2)
    to_user[1:, 1:] /= h
    to_user[0, 1] = -points.centre / h
    centres = np.hstack([over.mean @ to_user.T, points.x(over.breaks)])
    off = centres - over.weight @ centres
    total = (over.weight[:, None] * off).T @ off
    own = np.einsum("t,tij->ij", over.weight, over.scale) * over.dof / max(over.dof - 2.0, 1.0)
    total[: K + 2, : K + 2] += to_user @ own @ to_user.T
    return total


def _wald_errors(found: Estimated) -> dict[str, tuple[float, float]]:
    """Return the value and the first-order standard error of every row of the table, at the least-squares fit."""
    fit, points = found.fit, found.points
    K, h = len(fit.breaks), points.size
    x, breaks, d = points.x(points.z) - points.centre, points.x(fit.breaks) - points.centre, fit.coefficients[2:] / h
    J = np.column_stack([hinge_columns(x, breaks), -d * (x[:, None] > breaks)])
    J = np.sqrt(points.w)[:, None] * J
    C = np.linalg.pinv(J.T @ J) * found.noise**2
    at_fit = replace(found, line=fit)
    values = values_of(at_fit)
    eye = np.eye(2 * K + 2)
    rows = {"const": eye[0] - points.centre * eye[1], "x": eye[1]}
    rows |= {f"change{j + 1}": eye[2 + j] for j in range(K)} | {f"break{j + 1}": eye[2 + K + j] for j in range(K)}
    for k in range(K + 1):
        rows[f"slope{k + 1}"] = eye[1] + eye[2 : 2 + k].sum(axis=0)
        ends = breaks[:k] + points.centre
        rows[f"intercept{k + 1}"] = rows["const"] - ends @ eye[2 : 2 + k] - d[:k] @ eye[2 + K : 2 + K + k]
    return {name: (values[name], float(np.sqrt(max(row @ C @ row, 0.0)))) for name, row in rows.items()}


def predict_errors(found: Estimated, x: np.ndarray) -> np.ndarray:
    """Return the posterior's root mean square deviation (n,) from the reported line at inputs x (n,)."""
    points, over = found.points, found.posterior
    z = (x - points.centre) / points.size
    inflate = over.dof / max(over.dof - 2.0, 1.0)
    kept = np.argsort(-over.weight, kind="stable")[:4000]  # the rest has no weight to speak of
    weight = over.weight[kept] / over.weight[kept].sum()
    reported = found.line(z)
    errors = np.empty(len(z))
    for i, place in enumerate(z):
        row = np.column_stack(
            [np.ones(len(kept)), np.full(len(kept), place), np.maximum(place - over.breaks[kept], 0.0)]
        )
        centre = np.einsum("tk,tk->t", row, over.mean[kept])
        own = np.einsum("tk,tkl,tl->t", row, over.scale[kept], row) * inflate
        errors[i] = np.sqrt(weight @ (own + (centre - reported[i]) ** 2))
    return errors
