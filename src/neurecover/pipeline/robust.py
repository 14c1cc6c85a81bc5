"""Robust losses by pseudo-values.

With ψ the derivative of the loss, s the scale of the residuals and f the fit, define

    ỹ = f + s ψ(r/s) / mean ψ'(r/s),   r = y − f.

The M-estimate is the least-squares fit to ỹ. The residuals ỹ − f have the variance s² E ψ² / (E ψ')², which is the one
that its standard errors need [Huber, 1981, 7.6]. So search, tests and certificate are those of least squares on ỹ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from neurecover.certificate import Check
from neurecover.data import ArraySource, Source
from neurecover.models import DeepNetwork, Network
from neurecover.results import Recovery

LOSSES = ("squared", "huber", "tukey")
TUNING = {"huber": 1.345, "tukey": 4.685}  # 95 % efficiency under normal noise
NORMAL = 0.6745  # median of |z|
NAMED = 12  # rows that a sentence lists


@dataclass(frozen=True)
class RobustOptions:
    """When the rounds of a robust fit end, and which rows are outliers."""

    rounds: int = 8  # largest number of fits to new pseudo-values; two to four are usual
    settled: float = 1e-3  # share of the scale: a smaller change between rounds is negligible against the fit's error
    far: float = 4.685  # robust standard deviations beyond which a row is an outlier: 3 in a million under normal noise
    first: float = 4.0  # robust deviations from the median at which outputs are clipped before the first fit
    few: float = 0.05  # largest share of rows that may be outliers: more are the tails of the noise


def psi(t: np.ndarray, loss: str) -> tuple[np.ndarray, np.ndarray]:
    """Return ψ and ψ' of residuals in units of their scale."""
    c = TUNING[loss]
    if loss == "huber":
        return np.clip(t, -c, c), (np.abs(t) <= c).astype(float)
    inside = np.maximum(1.0 - (t / c) ** 2, 0.0)
    return t * inside**2, inside**2 - 4.0 * (t / c) ** 2 * inside


def scale_of(residual: np.ndarray, n_parameters: int) -> float:
    """Estimate the standard deviation by the median of |r|, leaving out the n_parameters smallest."""
    size = np.sort(np.abs(residual))[min(n_parameters, len(residual) // 2) :]
    return float(np.median(size)) / NORMAL


def pseudo_outputs(Y: np.ndarray, F: np.ndarray, n_parameters: int, loss: str) -> tuple[np.ndarray, np.ndarray]:
    """Return ỹ (n, p) about fitted values F, and every output's residuals in units of its scale (n, p)."""
    made, apart = Y.copy(), np.zeros_like(Y)
    for o in range(Y.shape[1]):
        residual = Y[:, o] - F[:, o]
        scale = scale_of(residual, n_parameters)
        if scale > 0.0:
            apart[:, o] = residual / scale
            value, slope = psi(apart[:, o], loss)
            made[:, o] = F[:, o] + scale * value / max(float(slope.mean()), 0.1)
    return made, apart


def clipped(Y: np.ndarray, options: RobustOptions | None = None) -> np.ndarray:
    """Return outputs (n,) or (n, p) within a few robust deviations of their medians: no row is far off."""
    median = np.median(Y, axis=0)
    reach = (options or RobustOptions()).first * np.apply_along_axis(scale_of, 0, Y - median, 0)
    return np.where(reach > 0.0, np.clip(Y, median - reach, median + reach), Y)


def recover_robustly(
    source: Source,
    loss: str,
    fit: Callable[[Source], Recovery[Network | DeepNetwork]],
    options: RobustOptions | None = None,
) -> Recovery[Network | DeepNetwork]:
    """Recover the network whose weights are M-estimates for the loss, with a check that names outlying rows."""
    options = options or RobustOptions()
    if source.streams:
        raise ValueError(f"{source.origin}: a robust loss needs samples in memory. Use loss='squared' for streams.")
    (X, Y), weight = source.collect(), source.weights()
    X, Y = np.asarray(X, dtype=np.float64), np.asarray(Y, dtype=np.float64)

    def with_outputs(values: np.ndarray) -> ArraySource:
        return ArraySource(X, values, origin=source.origin, weight=weight).named_like(source)

    found = fit(with_outputs(clipped(Y, options)))
    F, rounds, settled = found.network(X), 0, False
    while not settled and rounds < options.rounds:
        found, rounds = fit(with_outputs(pseudo_outputs(Y, F, found.network.n_parameters, loss)[0])), rounds + 1
        before, F = F, found.network(X)
        scale = np.array([scale_of(y, 0) for y in (Y - F).T])
        moved = np.sqrt(np.mean((F - before) ** 2, axis=0))
        settled = bool(np.all(moved <= options.settled * np.maximum(scale, 1e-300)))
    _, apart = pseudo_outputs(Y, F, found.network.n_parameters, loss)
    rows = np.flatnonzero(np.any(np.abs(apart) > options.far, axis=1))
    sentence = f"The loss is {loss}, after {rounds} rounds. {name_rows(rows)}"
    check = Check("outliers", True, len(rows), None, sentence)
    return replace(found, certificate=replace(found.certificate, checks=(*found.certificate.checks, check)))


def outlier_check(network: Network | DeepNetwork, source: Source, options: RobustOptions | None = None) -> Check | None:
    """Return a check that names the rows far from a network fitted by least squares, if they are few."""
    options = options or RobustOptions()
    if source.streams:
        return None
    X, Y = source.collect()
    Y = np.asarray(Y, dtype=np.float64)
    rows = far_rows(Y - network(np.asarray(X, dtype=np.float64)), network.n_parameters, options)
    if not 0 < len(rows) <= options.few * len(Y):
        return None
    remedy = "Use loss='tukey', which bounds the influence of outliers, or look at these rows."
    return Check("outliers", False, len(rows), 0, f"{name_rows(rows)} {remedy}", remedy)


def far_rows(residual: np.ndarray, n_parameters: int, options: RobustOptions | None = None) -> np.ndarray:
    """Return the rows of residuals (n, p) with one that noise explains with probability 0.01 at the most."""
    scale = np.array([scale_of(r, n_parameters) for r in residual.T])
    # The largest of n normal values is beyond this limit with probability 0.01.
    limit = max((options or RobustOptions()).far, float(-ndtri(0.005 / max(residual.size, 1))))
    return np.flatnonzero(np.any(np.abs(residual) > limit * np.where(scale > 0.0, scale, np.inf), axis=1))


def name_rows(rows: np.ndarray) -> str:
    if not len(rows):
        return "No row is an outlier."
    listed = ", ".join(map(str, rows[:NAMED])) + (", …" if len(rows) > NAMED else "")
    return f"{len(rows)} row{' is' if len(rows) == 1 else 's are'} far off the fit, counted from 0: {listed}."
