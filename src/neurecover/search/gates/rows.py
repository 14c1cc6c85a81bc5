"""Rows that say by themselves which units are on in them: each gives a change to the state, or None.

A row outside E needs a set S of units, those that are open in it, with

    y − c − Σ_known a_u h_u = Σ_{u ∈ S} a_u h_u,        h_u > 0.

`by_span` finds S where |S| < p: no other set of fewer than p columns of A in general position has the left side in its
span. `with_new_unit` takes what several rows leave for a unit that is not there yet, one direction times h > 0.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import comb

import numpy as np

from neurecover.search.gates.state import State


def by_span(state: State) -> State | None:
    """Explain rows whose outputs tell which open units are on, those with the fewest open units first.

    Fewer open units than outputs need no choice. Of more, all sets are looked at, unless other rows tell of these
    first.
    """
    rows, p = state.left, len(state.A)
    H = np.full((len(rows), len(state.V)), np.nan)
    kinds, kind = np.unique(state.open[rows], axis=0, return_inverse=True)
    for g in np.argsort(kinds.sum(axis=1), kind="stable"):
        units, own = np.flatnonzero(kinds[g]), np.flatnonzero(kind.ravel() == g)
        known = np.where(kinds[g], 0.0, np.maximum(state.Z[rows[own]], 0.0))
        rest = state.Y[rows[own]] - state.c - known @ state.A.T
        if len(units) < p and np.linalg.matrix_rank(state.A[:, units]) == len(units):
            H[own] = known + _values(state, units, rest)
        elif not np.isfinite(H).any():
            H[own] = known + _smallest_sets(state, units, rest)
    told = np.isfinite(H).all(axis=1)
    rows, H = rows[told], H[told]
    if not len(rows):
        return None
    new = state.with_values(rows, H)
    if len(rows) > 1 and new.n_explained <= state.n_explained:  # one of them is wrong
        ones = [state.with_values(rows[[i]], H[[i]]) for i in range(min(len(rows), 6))]
        new = max(ones, key=lambda one: one.n_explained)
    return new


def _values(state: State, units: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """Return h (n, k) ≥ 0 of independent units that gives `rest` (n, p); nan in rows where there is none."""
    A, floor = state.A[:, units], 1e3 * state.floor
    h = np.linalg.lstsq(A, rest.T, rcond=None)[0].T
    wrong = (np.linalg.norm(h @ A.T - rest, axis=1) > state.floor) | (h.min(axis=1, initial=0.0) < -floor)
    H = np.zeros((len(rest), state.A.shape[1]))
    H[:, units] = np.where(h > floor, h, 0.0)
    return np.where(wrong[:, None], np.nan, H)


def _smallest_sets(state: State, units: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """Return h (n, k) ≥ 0 on fewer than p of the units that gives `rest`; nan unless one set of the least size does."""
    A, found, left, total = state.A, np.full((len(rest), state.A.shape[1]), np.nan), np.arange(len(rest)), 0
    for s in range(min(len(A), len(units) + 1)):
        total += comb(len(units), s)
        if total > state.options.most_sets:
            break
        sets = units[np.array(list(combinations(range(len(units)), s)), dtype=int).reshape(comb(len(units), s), s)]
        basis = np.linalg.qr(A[:, sets].transpose(1, 0, 2))[0].transpose(0, 2, 1).reshape(-1, len(A))
        for part in np.array_split(left, len(left) // 16 + 1):
            size, along = np.sum(rest[part] ** 2, axis=1), (basis @ rest[part].T).reshape(*sets.shape, len(part))
            # A difference of squares has half the digits: what is near is looked at more closely.
            near = size - np.einsum("nsr,nsr->nr", along, along) <= 1e-12 * size + state.floor**2
            for i in np.flatnonzero(near.any(axis=0)):
                H = np.vstack([_values(state, S, rest[part[[i]]]) for S in sets[near[:, i]]])
                H = H[np.count_nonzero(H > 0.0, axis=1) == s]
                left = left[left != part[i]] if len(H) else left
                found[part[i]] = H[0] if len(H) == 1 else np.nan
    return found


def with_new_unit(state: State, n_hidden: int) -> State | None:
    """Add a unit for the direction that most rows leave, two or more, if there may be another."""
    if len(state.V) >= n_hidden:
        return None
    return _with_unit(state, state.left, state.residual[state.left]) or _beside_open_units(state)


def _with_unit(state: State, rows: np.ndarray, rest: np.ndarray) -> State | None:
    own, a, h = _one_direction(state, rest)
    if len(own) < 2:
        return None
    D = state.X.shape[1]
    v = state.moved(np.zeros(D), np.eye(D), state.X[rows[own]], h, state.X[state.explained])
    return replace(state, V=np.vstack([state.V, v]), A=np.hstack([state.A, a[:, None]]))


def _one_direction(state: State, rest: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the most rows of `rest` (m, p) that have one direction a, by number, a itself, and h with rest = h a."""
    size = np.linalg.norm(rest, axis=1)
    ways = rest / np.maximum(size, 1e-300)[:, None]
    alike = (np.linalg.norm(ways - way, axis=1) <= state.options.alike for way in ways[size > state.floor][:200])
    own = np.flatnonzero(max(alike, key=np.count_nonzero, default=np.zeros(0, dtype=bool)))
    a = ways[own].mean(axis=0) if len(own) else np.ones(rest.shape[1])
    return own, a / np.linalg.norm(a), size[own]


def _beside_open_units(state: State) -> State | None:
    """Add a unit that shows outside the span of A, in rows where the others are open.

    There y − c = A h + a η, and what lies outside the span is a⊥ η. Inside, h + α η is seen with α the part of a in the
    span: it follows from units that are known, and else makes h ≥ 0 with one row in which the unit is off.
    """
    A, values = state.A, state.Y[state.left] - state.c
    if np.linalg.matrix_rank(A) < A.shape[1] or A.shape[1] >= len(A):
        return None
    inside = np.linalg.lstsq(A, values.T, rcond=None)[0].T
    own, a, eta = _one_direction(state, values - inside @ A.T)
    if len(own) < 2:
        return None
    rows, inside = state.left[own], inside[own]
    known = ~state.open[rows]
    apart = np.where(known, inside - np.maximum(state.Z[rows], 0.0), 0.0)
    weight = eta**2 @ known
    alpha = np.where(weight > 0.0, eta @ apart / np.maximum(weight, 1e-300), np.min(inside / eta[:, None], axis=0))
    H = inside - np.outer(eta, alpha)
    moved = state.with_values(rows, np.where(1e3 * state.floor < H, H, 0.0))
    return _with_unit(moved, rows, np.outer(eta, a + A @ alpha))
