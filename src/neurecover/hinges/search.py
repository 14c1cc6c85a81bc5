"""Least squares over K breaks.

All sets of a grid are tried at the price of a K × K solve each; the best distinct ones are refined. With every break
inside its gap between neighbouring inputs the fit is linear in (δⱼ, −δⱼ pⱼ), so the breaks of a local optimum follow
from one linear solve with the columns (z − p)₊ and 1(z > p) [Hudson, 1966; Muggeo, 2003]. Then each break in turn moves
to its best place over *all* gaps, exactly, until none moves. For one break that is an enumeration: the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from neurecover.hinges.options import DEFAULTS, HingeOptions
from neurecover.hinges.points import Points
from neurecover.hinges.projection import HingeSums, Projection, hinge_columns, solve_sets, tangent_columns

_GAIN = 1e-12  # relative decrease of the sum of squares that counts as one


@dataclass(frozen=True, eq=False)
class BrokenLine:
    """The fit with breaks `breaks` (K,), ascending, its coefficients (α, β, δ₁, …) in z, and its sum of squares."""

    points: Points
    breaks: np.ndarray
    coefficients: np.ndarray
    rss: float

    @classmethod
    def at(cls, points: Points, breaks: np.ndarray) -> BrokenLine:
        """Fit the coefficients for given breaks."""
        breaks = np.sort(breaks)
        root = np.sqrt(points.w)
        X = hinge_columns(points.z, breaks)
        coefficients = np.linalg.lstsq(root[:, None] * X, root * points.y, rcond=None)[0]
        misfit = points.y - X @ coefficients
        return cls(points, breaks, coefficients, float(points.w @ misfit**2) + points.within)

    def __call__(self, z: np.ndarray) -> np.ndarray:
        """Return the fitted values minus the mean of the outputs."""
        return hinge_columns(z, self.breaks) @ self.coefficients

    @property
    def n_parameters(self) -> int:
        return 2 + 2 * len(self.breaks)

    def bic(self, floor: float) -> float:
        """Return n log(RSS/n) + log(n) (2 + 2K); below `floor` a sum of squares is rounding."""
        n, total = self.points.n, self.points.total
        return total * float(np.log(max(self.rss, floor) / total)) + float(np.log(n)) * self.n_parameters


def best_breaks(points: Points, K: int, options: HingeOptions = DEFAULTS) -> BrokenLine:
    """Return the least-squares fit with K breaks that keep their distance.

    If all hinges are beyond doubt and fit better nearer to an end or to each other, the fit's points are `loose`.
    """
    if K == 0:
        return BrokenLine.at(points, np.zeros(0))
    if points.room_for(options) < K:
        raise ValueError(
            f"{len(points)} distinct inputs have room for {points.room_for(options)} hinges. Got {K} instead: "
            "give fewer hinges, or data with more distinct inputs."
        )
    fits = [refine(points, start, options) for start in _starts(points, K, options)]
    fit = min(fits, key=lambda fit: fit.rss)
    free = refine(replace(points, loose=True), fit.breaks, options)
    return free if free.rss < fit.rss * (1.0 - _GAIN) and beyond_doubt(free, options) else fit


def beyond_doubt(fit: BrokenLine, options: HingeOptions) -> bool:
    """Tell whether every hinge is worth so much that chance does not put it where it is."""
    without = [BrokenLine.at(fit.points, np.delete(fit.breaks, j)).rss for j in range(len(fit.breaks))]
    return min(without, default=0.0) > fit.rss * np.exp(options.sure / fit.points.total)


def coarse_grid(points: Points, size: int, options: HingeOptions) -> np.ndarray:
    """Return places evenly spread over the ranks of the inputs that a break may have."""
    gap = points.gap(options)
    low, high = gap - 1.0, float(len(points) - gap)
    return points.place(np.linspace(low, high, min(size, max(2, round(2 * (high - low)) + 1))))


def all_sets(points: Points, sums: HingeSums, K: int, options: HingeOptions) -> np.ndarray:
    """Return the K-subsets (T, K) of the places that keep their distance."""
    axes = np.indices((len(sums.places),) * K).reshape(K, -1)
    sets = axes[:, (np.diff(axes, axis=0) > 0).all(axis=0)].T
    return sets[points.apart(sums.places[sets], options)]


def refine(points: Points, breaks: np.ndarray, options: HingeOptions) -> BrokenLine:
    """Improve the breaks until no move of one break, and no Gauss–Newton step of all, lowers the sum of squares."""
    fit = BrokenLine.at(points, breaks)
    for _ in range(50):  # each round is better than the last by a share of the sum of squares: two or three do
        before = fit.rss
        fit = _by_steps(points, fit, options)
        fit = _by_break(points, fit, options)
        if before - fit.rss <= _GAIN * before:
            break
    return fit


def _by_steps(points: Points, fit: BrokenLine, options: HingeOptions) -> BrokenLine:
    """Solve for all breaks at once, p ← p − γ/δ with γ the coefficient of the step, halved until it helps."""
    root, K = np.sqrt(points.w), len(fit.breaks)
    for _ in range(30):
        J = root[:, None] * tangent_columns(points.z, fit.breaks)
        solution = np.linalg.lstsq(J, root * points.y, rcond=None)[0]
        with np.errstate(divide="ignore", invalid="ignore"):
            step = -solution[2 + K :] / solution[2 : 2 + K]
        if not np.isfinite(step).all():
            return fit
        for shrink in 0.5 ** np.arange(8):
            moved = fit.breaks + shrink * step
            if points.apart(moved, options):
                trial = BrokenLine.at(points, moved)
                if trial.rss < fit.rss:
                    break
        else:
            return fit
        small = fit.rss - trial.rss <= _GAIN * fit.rss
        fit = trial
        if small:
            return fit
    return fit


def _by_break(points: Points, fit: BrokenLine, options: HingeOptions) -> BrokenLine:
    """Move each break in turn to its exact best place among the others."""
    for j in range(len(fit.breaks)):
        others = np.delete(fit.breaks, j)
        place = best_place(points, others, options)
        if place is not None:
            trial = BrokenLine.at(points, np.append(others, place))
            if trial.rss < fit.rss * (1.0 - _GAIN):
                fit = trial
    return fit


def best_place(points: Points, others: np.ndarray, options: HingeOptions) -> float | None:
    """Return the best place of one further break: in every gap by a closed form, and at the inputs themselves.

    Within gap i the hinge is δ v₁ + γ v₀ with v₁ = z and v₀ = 1 beyond the gap, both free, and p = −γ/δ.
    """
    projection = Projection.of(points, hinge_columns(points.z, others))
    q, z, sums = projection.basis.shape[1], points.z, projection.suffixes[1:]
    P0, P1 = sums[:, 5 : 5 + q], sums[:, 5 + q :]
    a00 = sums[:, 0] - np.einsum("ij,ij->i", P0, P0)
    a01 = sums[:, 1] - np.einsum("ij,ij->i", P0, P1)
    a11 = sums[:, 2] - np.einsum("ij,ij->i", P1, P1)
    b0, b1 = sums[:, 3], sums[:, 4]
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = (a01 * b1 - a11 * b0) / (a00 * b1 - a01 * b0)  # p = −γ/δ
    inside = np.where((inside >= z) & (inside <= np.append(z[1:], np.inf)), inside, np.nan)
    places = np.column_stack([z, inside])
    with np.errstate(divide="ignore", invalid="ignore"):
        square = a11[:, None] - 2.0 * places * a01[:, None] + places**2 * a00[:, None]
        gains = (b1[:, None] - places * b0[:, None]) ** 2 / square
    full = sums[:, 2, None] - 2.0 * places * sums[:, 1, None] + places**2 * sums[:, 0, None]
    allowed = np.isfinite(gains) & (square > 1e-9 * full) & _allowed(points, places, others, options)
    if not allowed.any():
        return None
    return float(places.ravel()[np.argmax(np.where(allowed, gains, -np.inf))])


def _allowed(points: Points, places: np.ndarray, others: np.ndarray, options: HingeOptions) -> np.ndarray:
    gap, ranks = points.gap(options), points.rank(places)
    allowed = (ranks >= gap - 1.0) & (ranks <= len(points) - gap)
    for other in points.rank(others):
        allowed &= np.abs(ranks - other) >= gap
    return allowed


def _starts(points: Points, K: int, options: HingeOptions) -> list[np.ndarray]:
    """Return sets of breaks to start from: the best of the grid that differ enough from each other.

    For more breaks than the grid is made for, they come from adding breaks one by one and from exchanging pairs.
    """
    if len(options.grid) < K:
        gap = points.gap(options)
        even = points.place(np.linspace(gap - 1.0, float(len(points) - gap), K))
        return [_by_pairs(points, start, options) for start in (_added(points, K, options), even)]
    base = Projection.of(points, hinge_columns(points.z, np.zeros(0)))
    sums = base.hinges(coarse_grid(points, options.grid[K - 1], options))
    sets = all_sets(points, sums, K, options)
    if len(sets) == 0:
        return [points.place(np.linspace(points.gap(options) - 1.0, float(len(points) - points.gap(options)), K))]
    gains = np.square(solve_sets(sums.A, sums.b, sets)[1]).sum(axis=0)
    chosen: list[np.ndarray] = []
    for i in np.argsort(-gains, kind="stable"):
        if all(np.abs(sets[i] - other).max() > 2 for other in chosen):
            chosen.append(sets[i])
        if len(chosen) == (1 if K == 1 else options.starts):
            break
    return [sums.places[own] for own in chosen]


def _added(points: Points, K: int, options: HingeOptions) -> np.ndarray:
    """Add breaks to the best fit of the whole grid, each at its best place."""
    breaks = best_breaks(points, len(options.grid), options).breaks
    while len(breaks) < K:
        place = best_place(points, breaks, options)
        if place is None:  # what is left has no room for another: spread them evenly
            gap = points.gap(options)
            return points.place(np.linspace(gap - 1.0, float(len(points) - gap), K))
        breaks = refine(points, np.append(breaks, place), options).breaks
    return breaks


def _by_pairs(points: Points, breaks: np.ndarray, options: HingeOptions) -> np.ndarray:
    """Exchange pairs of breaks for the best pair of a grid, until no exchange helps."""
    grid = coarse_grid(points, options.grid[1], options)
    fit = refine(points, breaks, options)
    improved = True
    while improved:
        improved = False
        for pair in combinations(range(len(breaks)), 2):
            others = np.delete(fit.breaks, pair)
            places = grid[_allowed(points, grid, others, options)]
            projection = Projection.of(points, hinge_columns(points.z, others))
            sums = projection.hinges(places)
            sets = all_sets(points, sums, 2, options)
            if len(sets) == 0:
                continue
            gains = np.square(solve_sets(sums.A, sums.b, sets)[1]).sum(axis=0)
            trial = refine(points, np.concatenate([others, places[sets[np.argmax(gains)]]]), options)
            if trial.rss < fit.rss * (1.0 - _GAIN):
                fit, improved = trial, True
    return fit.breaks
