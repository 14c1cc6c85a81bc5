"""Units that switch at too few samples of any one group to be seen there, from all groups together.

With the units that a group shows taken from its outputs, most of its samples lie on an affine function v_g·x + γ_g, and
a sample i that does not is one at which another unit has switched,

    r_i = a (w·x_i + β_g),        so that        r_i − r_j = (a wᵀ)(x_i − x_j)

for two samples i, j of a group and the same a wᵀ in all groups. As many differences as there are common columns give
a wᵀ; those of one unit are drawn by chance, and it is right where more differences agree than it was computed from. A
unit that is on but for a few samples is in every slope v_g besides: with the others known, all v_g less one of their
3^k sums each are the same a wᵀ, which two differences then confirm. A unit that is known already tells its bias in a
group by two samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from neurecover.refine.rare_fits import fitting_most
from neurecover.refine.rare_kinks import Group, Unit

APART, NEAR = 1e-9, 1e-7  # of the largest output: a sample that is off the affine function, and differences that agree
MOST_APART = 0.4  # share of a group's samples
DRAWS, PER_DRAW = 20, 1_000
SPARE, CONFIRMED = 1, 2  # differences that agree with a unit that others gave, or the slopes
MOST_ROWS = 24  # of a group whose differences are drawn from
MOST_UNITS, REFERENCES, MOST_SLOPES = 8, 3, 0.7  # sums of 3^8 are compared; groups; share of the groups that agree


@dataclass(frozen=True)
class Rest:
    """What the units that it shows leave of a group: the slope (c, p), and samples off it, X (m, c) and R (m, p)."""

    slope: np.ndarray
    X: np.ndarray
    R: np.ndarray


def pooled_units(units: list[Unit], groups: list[Group], n_more: int, rng: np.random.Generator) -> list[Unit]:
    """Up to `n_more` units beside those that are known, which get their biases in more groups."""
    size = max((float(np.abs(group.Y).max()) for group in groups), default=0.0)
    known = list(units)
    while True:
        rests = {group.number: rest for group in groups if (rest := _rest(group, known, size)) is not None}
        if len(known) == len(units) + n_more or not rests:
            break
        unit = _first_unit(rests, _from_differences(rests, size, rng), size, groups[0].X.shape[1] + SPARE)
        unit = unit or _first_unit(rests, _from_slopes(rests, known, size), size, CONFIRMED)
        if unit is None:
            break
        known.append(unit)
    return known[len(units) :]


def _rest(group: Group, units: list[Unit], size: float) -> Rest | None:
    """None where too many samples are off; units that two samples show in the group get their bias there."""
    Y = group.Y - sum(unit.values(group) for unit in units if group.number in unit.bias)
    affine = np.hstack([group.X, np.ones((len(Y), 1))])
    solution = fitting_most(affine, Y)
    on = np.linalg.norm(Y - affine @ solution, axis=1) <= NEAR * size
    if np.mean(~on) > MOST_APART:
        return None
    solution = np.linalg.lstsq(affine[on], Y[on], rcond=None)[0]
    R = Y - affine @ solution
    off = np.linalg.norm(R, axis=1) > APART * size
    rest = Rest(solution[:-1], group.X[off], R[off])
    for unit in units:
        for side in (1.0, -1.0):
            if group.number not in unit.bias:
                rows = _agreeing(rest, side * np.outer(unit.w, unit.height), size)
                if rows.any() and np.sum(rest.R[rows] @ unit.height) > 0.0:
                    unit.bias[group.number] = side * _bias(rest, rows, side * unit.w, unit.height)
                    return _rest(group, units, size)
    return rest


def _bias(rest: Rest, rows: np.ndarray, w: np.ndarray, height: np.ndarray) -> float:
    return float(np.mean(rest.R[rows] @ height / (height @ height) - rest.X[rows] @ w))


def _from_differences(rests: dict[int, Rest], size: float, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Candidates for w aᵀ (c, p), each of the draws' best."""
    dX, dR, weight = _differences(rests, rng)
    c = dX.shape[1]
    if len(dX) <= c:
        return
    for _ in range(DRAWS):
        drawn = rng.integers(len(dX), size=(PER_DRAW, c))
        left, right = dX[drawn], dR[drawn]
        regular = np.abs(np.linalg.det(left)) > 1e-9 * np.prod(np.linalg.norm(left, axis=2), axis=1)
        if not regular.any():
            continue
        B = np.linalg.solve(left[regular], right[regular])
        agrees = np.linalg.norm(dX @ B - dR, axis=2) <= NEAR * size
        yield B[np.argmax(agrees @ weight)]


def _differences(rests: dict[int, Rest], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x_i − x_j and r_i − r_j of pairs in one group on one side, and weights that add up to m − 1 for m samples."""
    dX, dR, weight = [], [], []
    for rest in rests.values():
        some = rng.permutation(len(rest.X))[:MOST_ROWS]
        i, j = np.triu_indices(len(some), 1)
        i, j = some[i], some[j]
        one_side = np.einsum("mo,mo->m", rest.R[i], rest.R[j]) > 0.0
        i, j = i[one_side], j[one_side]
        dX.append(rest.X[i] - rest.X[j])
        dR.append(rest.R[i] - rest.R[j])
        weight.append(np.full(len(i), 2.0 / max(len(some), 1)))
    return np.concatenate(dX), np.concatenate(dR), np.concatenate(weight)


def _first_unit(rests: dict[int, Rest], candidates: Iterator[np.ndarray], size: float, wanted: int) -> Unit | None:
    """The unit of the first candidate for w aᵀ (c, p) that so many differences agree with."""
    units = (_unit(rests, candidate, size, wanted) for candidate in candidates)
    return next((unit for unit in units if unit is not None), None)


def _unit(rests: dict[int, Rest], B: np.ndarray, size: float, wanted: int) -> Unit | None:
    for _ in range(2):  # once more from all samples that agree
        own = {g: rows for g, rest in rests.items() if (rows := _agreeing(rest, B, size)).any()}
        count = sum(int(rows.sum()) - 1 for rows in own.values())
        if count < wanted:
            return None
        X = np.concatenate([rests[g].X[rows] - rests[g].X[rows].mean(axis=0) for g, rows in own.items()])
        R = np.concatenate([rests[g].R[rows] - rests[g].R[rows].mean(axis=0) for g, rows in own.items()])
        if np.linalg.matrix_rank(X, tol=1e-9 * np.abs(X).max()) == X.shape[1]:
            B = np.linalg.lstsq(X, R, rcond=None)[0]
    left, values, right = np.linalg.svd(B, full_matrices=False)
    if np.linalg.norm(values[1:]) > NEAR * size:
        return None
    w, height = left[:, 0], values[0] * right[0]
    if sum(float(np.sum(rests[g].R[rows] @ height)) for g, rows in own.items()) < 0.0:
        w, height = -w, -height
    return Unit(w, height, {g: _bias(rests[g], rows, w, height) for g, rows in own.items()}, count)


def _agreeing(rest: Rest, B: np.ndarray, size: float) -> np.ndarray:
    """The samples (m,) of the most that have one r − x·B, none where all have their own."""
    if len(rest.X) < 2:
        return np.zeros(len(rest.X), dtype=bool)
    constant = rest.R - rest.X @ B
    alike = np.linalg.norm(constant[:, None] - constant, axis=2) <= NEAR * size
    alike &= rest.R @ rest.R.T > 0.0
    most = alike[np.argmax(alike.sum(axis=1))]
    return most if most.sum() > 1 else np.zeros_like(most)


def _from_slopes(rests: dict[int, Rest], units: list[Unit], size: float) -> Iterator[np.ndarray]:
    """Candidates for w aᵀ (c, p): all slopes have it besides a sum of the known ones, but for the sign.

    The unit itself is seen where it is off, and there it looks the other way.
    """
    from scipy.spatial import KDTree

    if len(units) > MOST_UNITS:
        return
    choices = np.array(list(product((0, 1, -1), repeat=len(units)))).reshape(3 ** len(units), len(units))
    slopes = np.array([rest.slope.ravel() for rest in rests.values()])
    known = np.array([np.outer(unit.w, unit.height).ravel() for unit in units]).reshape(len(units), slopes.shape[1])
    tree = KDTree(choices @ known)
    seen: list[np.ndarray] = []
    for slope in slopes[:REFERENCES]:
        for candidate in slope - tree.data:
            near = tree.query(slopes - candidate, distance_upper_bound=NEAR * size)[0] < np.inf
            new = all(np.linalg.norm(candidate - other) > NEAR * size for other in seen)
            if np.mean(near) >= MOST_SLOPES and new and np.linalg.norm(candidate) > NEAR * size:
                seen.append(candidate)
                yield -candidate.reshape(next(iter(rests.values())).slope.shape)
