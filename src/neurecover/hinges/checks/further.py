"""Test whether the data have more hinges than the fit: one, two or three more, for noise of any variance per row.

With the fit's tangent columns projected out, k further hinges at the places S lower the sum of squares by gain_S. The
statistics are mean likelihoods over a grid of places, which have more power than the likelihood at the best places
[Andrews and Ploberger, 1994],

    F_k = log mean_S (1 − gain_S/RSS)^(−ν/2),   k = 1, 2, 3,

with ν degrees of freedom of the residual. Their p-values come from draws in which every residual, corrected for its
leverage, gets a random sign [wild bootstrap; Wu, 1986]. This keeps each row's own variance, so the test has its size
even if the variance differs between rows. The smallest of the three p-values is compared with its own distribution over
the same draws, so that the test has power against one, two and three further hinges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.hinges.options import DEFAULTS, HingeOptions
from neurecover.hinges.points import Points
from neurecover.hinges.projection import Projection, solve_sets, tangent_columns
from neurecover.hinges.search import coarse_grid

_TINY = 1e-9  # of a column's square that is left when others are projected out
_AT_ONCE = 2**22  # values of noise that are held at the same time, 32 MB


@dataclass(frozen=True)
class FurtherHinges:
    """The test of a number of hinges against one, two and three more, and the combined p-value."""

    n_hinges: int
    p_value: float


@dataclass(frozen=True, eq=False)
class Rows:
    """The single rows, to which random signs are given: the index of each row's distinct input, and its weight."""

    group: np.ndarray
    y: np.ndarray
    weight: np.ndarray

    @classmethod
    def of(cls, points: Points, x: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> Rows:
        """Return the rows of positive weight, scaled like the points."""
        weight = np.ones(len(x)) if weight is None else weight
        kept = weight > 0.0
        group = np.searchsorted(np.unique(x[kept]), x[kept])
        return cls(group, y[kept] - points.level, weight[kept])


def further_hinges(
    points: Points, rows: Rows, breaks: np.ndarray, rng: np.random.Generator, options: HingeOptions = DEFAULTS
) -> FurtherHinges:
    """Test the fit with these breaks against one, two and three further hinges."""
    null = Projection.of(points, tangent_columns(points.z, breaks))
    grids = [_unit_hinges(null, coarse_grid(points, size, options)) for size in options.test_grid]
    root = np.sqrt(points.w)
    scale = points.w @ points.y**2 + points.within
    if grids[0].shape[1] == 0 or null.rss <= 1e-24 * scale:
        return FurtherHinges(len(breaks), 1.0)
    # Residuals of the rows, over √(1 − leverage) so that their squares have the noise's mean.
    fitted = points.y - null.residual / root
    leverage = np.square(null.basis).sum(axis=1) / points.w
    residual = (rows.y - fitted[rows.group]) / np.sqrt(np.maximum(1.0 - leverage[rows.group], 0.1))
    dof = max(points.total - null.basis.shape[1], 1.0)
    tried = [(k, H) for k, H in enumerate(grids, start=1) if H.shape[1] >= k]
    # The first column is the data itself.
    parts = [[_mean_likelihood(H, null.residual[:, None], np.array([null.rss]), k, dof) for k, H in tried]]
    at_once = max(1, _AT_ONCE // len(residual))
    for start in range(0, options.draws, at_once):
        draws = _gathered_draws(points, rows, residual, min(at_once, options.draws - start), rng)
        outputs = draws.outputs - null.basis @ (null.basis.T @ draws.outputs)
        rss = np.square(outputs).sum(axis=0) + draws.within
        parts.append([_mean_likelihood(H, outputs, rss, k, dof) for k, H in tried])
    F = [np.concatenate(values) for values in zip(*parts)]
    # The p-value of every column among the draws, for each statistic, then of the smallest one.
    least = np.min([_upper_share(row) for row in F], axis=0)
    p = (1.0 + np.sum(least[1:] <= least[0])) / len(least)
    return FurtherHinges(len(breaks), float(p))


def _unit_hinges(null: Projection, grid: np.ndarray) -> np.ndarray:
    """Return hinges at the places of a grid, with the null model's columns projected out and scaled to unit length."""
    H = np.sqrt(null.points.w)[:, None] * np.maximum(null.points.z[:, None] - grid, 0.0)
    full = np.square(H).sum(axis=0)
    H = H - null.basis @ (null.basis.T @ H)
    H = H[:, np.square(H).sum(axis=0) > _TINY * np.maximum(full, np.finfo(float).tiny)]
    return H / np.linalg.norm(H, axis=0)


@dataclass(frozen=True, eq=False)
class _Draws:
    outputs: np.ndarray
    within: np.ndarray


def _gathered_draws(points: Points, rows: Rows, residual: np.ndarray, count: int, rng: np.random.Generator) -> _Draws:
    """Draw noise for every row `count` times; return its means at the distinct inputs and its squares within them.

    A row of weight w stands for w rows with independent random signs, whose mean has the standard deviation √(1/w) of
    one row, so whole weights and repeated rows have the same distribution. If the noise is known to have variance one,
    it is drawn as normal.
    """
    if points.prior > 0.0:
        return _Draws(rng.standard_normal((len(points), count)), np.full(count, points.within))
    signs = 2.0 * rng.integers(0, 2, (len(residual), count)) - 1.0
    noise = np.sqrt(rows.weight)[:, None] * residual[:, None] * signs
    root = np.sqrt(rows.weight)
    if len(rows.group) == len(points):
        outputs = np.empty_like(noise)
        outputs[rows.group] = noise
        return _Draws(outputs, np.full(count, points.within))
    outputs = np.zeros((len(points), count))
    np.add.at(outputs, rows.group, root[:, None] * noise)
    outputs /= np.sqrt(points.w)[:, None]
    within = np.square(noise).sum(axis=0) - np.square(outputs).sum(axis=0)
    return _Draws(outputs, np.maximum(within, 0.0))


def _mean_likelihood(H: np.ndarray, outputs: np.ndarray, rss: np.ndarray, k: int, dof: float) -> np.ndarray:
    """Return F_k of every column of outputs over all sets of k of the unit columns H."""
    b, A = H.T @ outputs, H.T @ H
    axes = np.indices((len(A),) * k).reshape(k, -1)
    sets = axes[:, (np.diff(axes, axis=0) > 0).all(axis=0)].T
    largest, total = np.zeros(outputs.shape[1]), np.zeros(outputs.shape[1])
    for start in range(0, len(sets), 64):  # pieces that stay in the cache
        own = sets[start : start + 64]
        L = solve_sets(A, b[:, 0], own)[0]
        u: list[np.ndarray] = []
        for i in range(k):
            taken = sum((L[i, j][:, None] * u[j] for j in range(i)), np.zeros(1))
            u.append((b[own[:, i]] - taken) / L[i, i][:, None])
        gain = np.square(u).sum(axis=0) / rss
        logs = -0.5 * dof * np.log1p(-np.minimum(gain, 1.0 - 1e-15))
        above = np.maximum(largest, logs.max(axis=0))
        total = total * np.exp(largest - above) + np.exp(logs - above).sum(axis=0)
        largest = above
    return np.asarray(largest + np.log(total / max(len(sets), 1)))


def _upper_share(values: np.ndarray) -> np.ndarray:
    """Return for each value the share of all values that are at least as large."""
    ordered = np.sort(values)
    return 1.0 - np.searchsorted(ordered, values, side="left") / len(values)
