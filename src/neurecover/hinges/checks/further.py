"""Does the fit want more hinges? The largest gain of one or two more, against noise with the residuals' own sizes.

With the fit's tangent columns projected out, one further hinge at p takes b_p²/A_pp off the sum of squares and a pair
its own gain. The two statistics

    F_k = n log(RSS / (RSS − largest gain of k hinges)),   k = 1, 2,

are turned into p-values by draws in which every residual, enlarged by its leverage, has a random sign [wild bootstrap;
Wu, 1986]: that leaves each row its own variance, so the size of the test holds where the noise is not alike everywhere.
The smaller of the two p-values is judged by its own distribution over the same draws: a test without a blind spot.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from neurecover.hinges.options import DEFAULTS, HingeOptions
from neurecover.hinges.points import Points
from neurecover.hinges.projection import Projection, tangent_columns
from neurecover.hinges.search import coarse_grid

_TINY = 1e-9  # of a column's square that is left when others are projected out


@dataclass(frozen=True)
class FurtherHinges:
    """The test of k hinges against more: the statistics for one and for two more, and the p-value of both together."""

    n_hinges: int
    one: float
    two: float
    p_value: float


@dataclass(frozen=True, eq=False)
class Rows:
    """Every row by itself, which the random signs need: the place of its input among the distinct ones, its weight."""

    group: np.ndarray
    y: np.ndarray
    weight: np.ndarray

    @classmethod
    def of(cls, points: Points, x: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> Rows:
        """Return the rows of positive weight in the units of the points."""
        weight = np.ones(len(x)) if weight is None else weight
        kept = weight > 0.0
        group = np.searchsorted(np.unique(x[kept]), x[kept])
        return cls(group, y[kept] - points.level, weight[kept])


def further_hinges(
    points: Points, rows: Rows, breaks: np.ndarray, rng: np.random.Generator, options: HingeOptions = DEFAULTS
) -> FurtherHinges:
    """Test the fit with these breaks against one or two more."""
    null = Projection.of(points, tangent_columns(points.z, breaks))
    grid = coarse_grid(points, options.test_grid, options)
    root = np.sqrt(points.w)
    H = root[:, None] * np.maximum(points.z[:, None] - grid, 0.0)
    full = np.square(H).sum(axis=0)
    H = H - null.basis @ (null.basis.T @ H)
    H = H[:, np.square(H).sum(axis=0) > _TINY * np.maximum(full, np.finfo(float).tiny)]
    scale = points.w @ points.y**2 + points.within
    if H.shape[1] == 0 or null.rss <= 1e-24 * scale:
        return FurtherHinges(len(breaks), 0.0, 0.0, 1.0)
    H = H / np.linalg.norm(H, axis=0)
    # Residuals of the rows, over √(1 − leverage) so that their squares have the noise's mean.
    fitted = points.y - null.residual / root
    leverage = np.square(null.basis).sum(axis=1) / points.w
    residual = (rows.y - fitted[rows.group]) / np.sqrt(np.maximum(1.0 - leverage[rows.group], 0.1))
    draws = _gathered_draws(points, rows, residual, rng, options)
    # The first column is the data itself.
    outputs = np.column_stack([null.residual, draws.outputs - null.basis @ (null.basis.T @ draws.outputs)])
    rss = np.append(null.rss, np.square(outputs[:, 1:]).sum(axis=0) + draws.within)
    one, two = _largest_gains(H, outputs)
    n = points.n
    F = np.stack([-n * np.log1p(-np.minimum(gain / rss, 1.0 - 1e-15)) for gain in (one, two)])
    # The p-value of every column among the draws, for both statistics, then of the smaller one.
    ranked = np.stack([_upper_share(row) for row in F])
    least = ranked.min(axis=0)
    p = (1.0 + np.sum(least[1:] <= least[0])) / len(least)
    return FurtherHinges(len(breaks), float(F[0, 0]), float(F[1, 0]), float(p))


@dataclass(frozen=True, eq=False)
class _Draws:
    outputs: np.ndarray
    within: np.ndarray


def _gathered_draws(
    points: Points, rows: Rows, residual: np.ndarray, rng: np.random.Generator, options: HingeOptions
) -> _Draws:
    """Return draws of the noise gathered at the distinct inputs, in units of √w, and their sums within the groups.

    A row of weight w stands for w rows of random signs each, whose mean is √(1/w) of one: whole weights and repeated
    rows agree in distribution.
    """
    signs = 2.0 * rng.integers(0, 2, (len(residual), options.draws)) - 1.0
    noise = np.sqrt(rows.weight)[:, None] * residual[:, None] * signs
    root = np.sqrt(rows.weight)
    if len(rows.group) == len(points):
        outputs = np.empty_like(noise)
        outputs[rows.group] = noise
        return _Draws(outputs, np.full(options.draws, points.within))
    outputs = np.zeros((len(points), options.draws))
    np.add.at(outputs, rows.group, root[:, None] * noise)
    outputs /= np.sqrt(points.w)[:, None]
    within = np.square(noise).sum(axis=0) - np.square(outputs).sum(axis=0)
    return _Draws(outputs, np.maximum(within, 0.0))


def _largest_gains(H: np.ndarray, outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest gains of one and of two of the unit columns H for every column of outputs."""
    b, A = H.T @ outputs, H.T @ H
    one = np.square(b).max(axis=0)
    i, j = np.array(list(combinations(range(H.shape[1]), 2)), dtype=int).reshape(-1, 2).T
    a = A[i, j]
    apart = 1.0 - a**2 > 1e-6
    i, j, a = i[apart], j[apart], a[apart]
    two = one.copy()
    for first in range(H.shape[1]):  # in pieces that stay in the cache
        own = i == first
        if own.any():
            bi, bj, c = b[first], b[j[own]], a[own][:, None]
            gain = (bi**2 + bj**2 - 2.0 * c * bi * bj) / (1.0 - c**2)
            two = np.maximum(two, gain.max(axis=0))
    return one, two


def _upper_share(values: np.ndarray) -> np.ndarray:
    """Return for each value the share of all that are at least as large."""
    ordered = np.sort(values)
    return 1.0 - np.searchsorted(ordered, values, side="left") / len(values)
