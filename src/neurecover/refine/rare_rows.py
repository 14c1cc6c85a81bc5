"""Rare columns from what every unit is worth in a row: y − c = A h with h = relu(z) ≥ 0.

With as many outputs as units h is A⁺(y − c). With fewer, the units that are on in a row are the smallest set S with
y − c in the span of A_S: no other set of less than p columns of A in general position has it there. All sets are looked
at, which takes few units. A row then gives one equation w·x = h − b to every unit that is on, which is linear in its
weights, and an inequality to those that are off. What the equations determine is known in other rows as well; with its
part taken from y, fewer units are left to look for there, until no row gives any more. Rows with p units on or more are
left to `rare_programme`. A unit that is on in rows with rare values alone shows by what lies outside the span of A.

A unit whose weights of the common columns are not determined where the rare ones have their usual values is open in all
its weights, with the equations of those rows besides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from math import comb

import numpy as np
from scipy.optimize import nnls

from neurecover.models import Network
from neurecover.refine.rare_programme import Given, fill_in
from neurecover.solve import Deadline

ON = 1e-9  # of the largest value of a unit: above it the unit is on
SAME = 1e-9  # relative size of what counts as zero among values computed in double precision
NEAR = 1e-12  # (distance from the span / length)² that is worth a closer look: it is a difference of squares
AT_A_TIME = 16  # rows
MOST_SETS = 100_000  # of units that may be on, of all sizes


def by_rows(
    W: np.ndarray, found: Network, moved: np.ndarray, Y: np.ndarray, differs: np.ndarray, deadline: Deadline
) -> Network:
    """Fill in the weights W (k, d) of the rare columns, as far as the rows with other values there tell them.

    Returned is `found` with the biases that its units have then.
    """
    rows, k = differs.any(axis=1), found.n_hidden
    values = Y[rows] - found.c
    units = [_Unit.of(W[u], found.b[u], moved, differs) for u in range(k)]
    H = np.full((len(values), k), np.nan)
    if np.linalg.matrix_rank(found.A) == k:
        H = np.linalg.lstsq(found.A, values.T, rcond=None)[0].T
        missed = np.linalg.norm(H @ found.A.T - values, axis=1) > SAME * np.abs(values).max(initial=0.0)
        H[ON * np.abs(H).max(initial=0.0) >= H] = 0.0
        if missed.any():
            H[missed] = np.nan
            told = np.stack([unit.told(h) for unit, h in zip(units, H.T)], axis=1)
            H[missed] = _beside_another(found.A, values[missed], told[missed])
    else:
        sets = _Sets.of(found.A)
        while np.isnan(H).any():
            left = np.flatnonzero(np.isnan(H[:, 0]))
            told = np.stack([unit.told(h) for unit, h in zip(units, H.T)], axis=1)
            H[left] = sets.units_of(values[left], told[left], deadline)
            if np.isnan(H[left]).all() and not _with_weights_of_their_own(H, found.A, values, differs[rows]):
                given = [unit.given(h) for unit, h in zip(units, H.T)]
                if not fill_in(H, given, found.A, values, deadline):
                    break
    b = found.b.copy()
    for u, unit in enumerate(units):
        w = unit.weights(H[:, u])
        W[u, unit.columns], b[u] = (w[:-1], w[-1]) if unit.whole else (w, b[u])
    return replace(found, b=b)


def _with_weights_of_their_own(H: np.ndarray, A: np.ndarray, values: np.ndarray, differs: np.ndarray) -> bool:
    """Values for rows of H that are nan and the only ones with some column, whose weights fit any; False without such.

    They say nothing of other rows, and no row says more of them.
    """
    own = np.any(differs & (differs.sum(axis=0) == 1), axis=1) & np.isnan(H[:, 0])
    for row in np.flatnonzero(own):
        h, left = nnls(A, values[row])
        H[row] = h if left <= SAME * np.linalg.norm(values[row]) else np.nan
    return bool(np.isfinite(H[own, 0]).any())


def _beside_another(A: np.ndarray, values: np.ndarray, told: np.ndarray) -> np.ndarray:
    """The values h (n, k) of these units in rows in which one is on that is not among them; nan where there are more.

    With a η for that one, values = A h + a η, and what lies outside the span of A is a⊥ η. Inside, h + α η is known,
    with α the part of a in the span: it follows from the units that are told.
    """
    inside = np.linalg.lstsq(A, values.T, rcond=None)[0].T
    _, sizes, right = np.linalg.svd(outside := values - inside @ A.T, full_matrices=False)
    eta = outside @ right[0]
    eta *= np.sign(eta.sum())
    if np.any(sizes[1:] > SAME * sizes[0]) or (eta <= 0.0).any():
        return np.full_like(told, np.nan)
    known = np.isfinite(told)
    apart = np.where(known, inside - np.nan_to_num(told), 0.0)
    weight = np.sum(known * eta[:, None] ** 2, axis=0)
    alpha = np.where(weight > 0.0, eta @ apart / np.maximum(weight, 1e-300), np.min(inside / eta[:, None], axis=0))
    h = inside - np.outer(eta, alpha)
    return np.where(ON * np.abs(h).max(initial=0.0) >= h, 0.0, h)


@dataclass(frozen=True, eq=False)
class _Unit:
    """z = known + T w in the rows with rare values: all weights and the bias of a `whole` unit, else its rare weights.

    `base` (m, c) and `base_z` (m,) are the other rows and the values there, where they count.
    """

    columns: np.ndarray
    whole: bool
    T: np.ndarray
    known: np.ndarray
    base: np.ndarray
    base_z: np.ndarray

    @classmethod
    def of(cls, w: np.ndarray, b: float, moved: np.ndarray, differs: np.ndarray) -> _Unit:
        rows, rare = differs.any(axis=1), differs.any(axis=0)
        z = moved[~rows] @ w + b
        # A step of least squares may lay a sample on the plane of a unit that has weights left for it: it is off there.
        z[np.abs(z) <= ON * np.abs(z).max(initial=0.0)] = 0.0
        extended = np.hstack([moved, np.ones((len(moved), 1))])
        usual = extended[~rows][:, np.append(~rare, True)]
        if len(_row_space(usual[z > 0.0])) < len(_row_space(usual)):
            return cls(np.arange(len(w)), True, extended[rows], np.zeros(np.count_nonzero(rows)), extended[~rows], z)
        T, columns = moved[rows][:, rare], np.flatnonzero(rare)
        return cls(columns, False, T, moved[rows] @ np.where(rare, 0.0, w) + b, np.empty((0, len(columns))), z[:0])

    def told(self, h: np.ndarray) -> np.ndarray:
        """The values (n,) of the unit in rows where its equations determine it; nan elsewhere."""
        T, _ = self._equations(h)
        told = np.full(len(h), np.nan)
        if len(T):
            span = _row_space(T)
            outside = np.linalg.norm(self.T - self.T @ span.T @ span, axis=1)
            inside = outside <= SAME * np.linalg.norm(self.T, axis=1)
            told[inside] = np.maximum(self.known[inside] + self.T[inside] @ self.given(h).w, 0.0)
        return told

    def given(self, h: np.ndarray) -> Given:
        """What the rows whose values are known, others being nan, say of the weights."""
        (T, values), (T_off, known) = self._equations(h), self._inequalities(h)
        sizes, right = _right_factor(T)
        rank = int(np.count_nonzero(sizes > SAME * sizes.max(initial=0.0)))
        w = np.linalg.lstsq(T, values, rcond=SAME)[0] if len(T) else np.zeros(self.T.shape[1])
        return Given(self.T, self.known, w, right[rank:], T_off, known)

    def weights(self, h: np.ndarray) -> np.ndarray:
        """That meet the equations of rows where the unit is on, h > 0, and leave it off where h = 0."""
        return switched_off(*self._equations(h), *self._inequalities(h))

    def _inequalities(self, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        off, base_off = h == 0.0, self.base_z <= 0.0
        T_off = np.vstack([self.T[off], self.base[base_off]])
        return T_off, np.concatenate([self.known[off], np.zeros(np.count_nonzero(base_off))])

    def _equations(self, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        on, base_on = np.nan_to_num(h) > 0.0, self.base_z > 0.0
        T = np.vstack([self.T[on], self.base[base_on]])
        return T, np.concatenate([(h - self.known)[on], self.base_z[base_on]])


def _row_space(T: np.ndarray) -> np.ndarray:
    sizes, right = _right_factor(T)
    return right[: np.count_nonzero(sizes > SAME * sizes.max(initial=0.0))]


def _right_factor(T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The singular values of T (m, c), and all c right vectors as rows, without a matrix of m × m."""
    _, sizes, right = np.linalg.svd(np.linalg.qr(T, mode="r") if len(T) > T.shape[1] else T)
    return sizes, right


@dataclass(frozen=True)
class _Sets:
    """Sets of units by their size s: `members` (N, s), and an orthonormal basis of the span of each, (N·s, p)."""

    A: np.ndarray
    members: list[np.ndarray]
    bases: list[np.ndarray]

    @classmethod
    def of(cls, A: np.ndarray) -> _Sets:
        p, k = A.shape
        members: list[np.ndarray] = []
        for size in range(min(p, k + 1)):
            if sum(map(len, members)) + comb(k, size) > MOST_SETS:
                break
            members.append(np.array(list(combinations(range(k), size)), dtype=int).reshape(comb(k, size), size))
        bases = [np.linalg.qr(A[:, sets].transpose(1, 0, 2))[0].transpose(0, 2, 1).reshape(-1, p) for sets in members]
        return cls(A, members, bases)

    def units_of(self, values: np.ndarray, told: np.ndarray, deadline: Deadline) -> np.ndarray:
        """h (n, k) ≥ 0 with A h = values (n, p), those that are told given; nan where no set has it, or two have."""
        found = np.full_like(told, np.nan)
        for first in range(0, len(values), AT_A_TIME):
            if deadline.passed:
                break
            part = slice(first, first + AT_A_TIME)
            found[part] = self._units_of(values[part], told[part])
        return found

    def _units_of(self, values: np.ndarray, told: np.ndarray) -> np.ndarray:
        h = np.nan_to_num(told)
        rest, sizes = values - h @ self.A.T, np.linalg.norm(values, axis=1)
        found, left = np.full_like(h, np.nan), np.arange(len(values))
        for members, bases in zip(self.members, self.bases):
            along = (bases @ rest[left].T).reshape(*members.shape, len(left))
            apart = np.sum(rest[left] ** 2, axis=1) - np.einsum("nsr,nsr->nr", along, along)
            # Units that are told are in no set.
            near = (apart <= NEAR * sizes[left] ** 2) & ~np.isfinite(told[left]).T[members].any(axis=1)
            for row, sets in zip(left[near.any(axis=0)], near.T[near.any(axis=0)]):
                on = [self._on(own, rest[row], sizes[row]) for own in members[sets]]
                fit = [values for values in on if values is not None]
                if fit:
                    found[row], left = (h[row] + fit[0] if len(fit) == 1 else np.nan), left[left != row]
        return found

    def _on(self, members: np.ndarray, rest: np.ndarray, size: float) -> np.ndarray | None:
        """The values of these units, all positive, that give what is left."""
        values = np.linalg.lstsq(self.A[:, members], rest, rcond=None)[0]
        if np.linalg.norm(self.A[:, members] @ values - rest) > SAME * size or (values <= 0.0).any():
            return None
        h = np.zeros(self.A.shape[1])
        h[members] = values
        return h


def switched_off(T: np.ndarray, values: np.ndarray, T_off: np.ndarray, known: np.ndarray) -> np.ndarray:
    """w with T w = values, and known + T_off w < 0 by as much as the directions that T leaves open allow.

    Where rows that T determines allow little, no more than that is asked of the others: directions in which they go on
    for ever would take w anywhere. So half of what is allowed is met with the least Σ|θ|, w + θ·free.
    """
    from scipy.optimize import linprog

    sizes, right = _right_factor(T)
    rank = int(np.count_nonzero(sizes > SAME * sizes.max(initial=0.0)))
    w = np.linalg.lstsq(T, values, rcond=SAME)[0] if len(T) else np.zeros(T.shape[1])
    free, sums = right[rank:], known + T_off @ w
    if not len(free) or np.max(sums, initial=-1.0) < 0.0:
        return w
    # max s over θ = θ₊ − θ₋:  sums + T_off freeᵀ θ + s·margin ≤ 0,  s ≤ 1
    both = np.vstack([free, -free])
    planes = np.hstack([T_off @ both.T, np.full((len(sums), 1), np.abs(sums).max())])
    positive, last = [(0.0, None)] * len(both), np.append(np.zeros(len(both)), 1.0)
    most = linprog(-last, planes, -sums, bounds=[*positive, (None, 1.0)])
    if most.x is None:
        return w
    s = min(most.x[-1], 0.5 * most.x[-1])  # all of it where not every row can be off
    least = linprog(1.0 - last, planes, -sums, bounds=[*positive, (s, s)])
    return w + (most if least.x is None else least).x[:-1] @ both
