"""Changes to the gates of a state, the cheapest that explains more rows first, until all are explained or none helps.

A row outside E needs a set S of units, those that are open in it, with

    y − c − Σ_known a_u h_u = Σ_{u ∈ S} a_u h_u,        h_u > 0.

`by_span` finds S where |S| < p: no other set of fewer than p columns of A in general position has the left side in its
span. `by_kink` gives a unit its side from rows in which it is off. `with_new_unit` takes what several rows leave for a
unit that is not there yet, one direction times h > 0. What is left is a program (`mixed_integer`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from math import comb

import numpy as np

from neurecover.search.gates.mixed_integer import by_program
from neurecover.search.gates.state import State, equal_runs
from neurecover.solve import Deadline

Change = Callable[[State], State | None]


def explain(state: State, n_hidden: int, deadline: Deadline) -> State:
    """Return the state with as many rows explained, and up to `n_hidden` units, as the changes allow."""
    program: Change = lambda state: by_program(state, deadline)  # noqa: E731
    changes: tuple[Change, ...] = (
        by_span,
        lambda state: by_kink(state, lambda others: _changed(others, (by_span, program), deadline)),
        lambda state: with_new_unit(state, n_hidden),
        program,
        lambda state: by_program(state, deadline, sure=False),
    )
    return _changed(state, changes, deadline)


def _changed(state: State, changes: tuple[Change, ...], deadline: Deadline) -> State:
    while not state.explained.all() and not deadline.passed:
        better = (new for change in changes if (new := change(state)) and new.n_explained > state.n_explained)
        new = next(better, None)
        if new is None:
            break
        state = new
    return state


def explain_all(whole: State, n_hidden: int, deadline: Deadline) -> State | None:
    """Explain all rows with at most `n_hidden` units; pieces of units of few rows may have to go first, and come back
    as one.
    """
    on = np.count_nonzero(whole.Z > 0.0, axis=0)
    for few in (on < 0, on < whole.X.shape[1], on < 2 * whole.X.shape[1]):
        state = replace(whole, V=whole.V[~few], A=whole.A[:, ~few])
        if len(state.V) <= n_hidden and np.mean(state.explained) >= 1.0 - whole.options.most_aside:
            state = explain(state, n_hidden, deadline)
            if state.explained.all():
                return state
    return None


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
    own, a, h = _one_direction(state, state.residual[state.left])
    if len(state.V) >= n_hidden or len(own) < 2:
        return None
    D = state.X.shape[1]
    v = state.moved(np.zeros(D), np.eye(D), state.X[state.left[own]], h, state.X[state.explained])
    return replace(state, V=np.vstack([state.V, v]), A=np.hstack([state.A, a[:, None]]))


def _one_direction(state: State, rest: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the most rows of `rest` (m, p) that have one direction a, by number, a itself, and h with rest = h a."""
    size = np.linalg.norm(rest, axis=1)
    ways = rest / np.maximum(size, 1e-300)[:, None]
    alike = (np.linalg.norm(ways - way, axis=1) <= state.options.alike for way in ways[size > state.floor][:200])
    own = np.flatnonzero(max(alike, key=np.count_nonzero, default=np.zeros(0, dtype=bool)))
    a = ways[own].mean(axis=0) if len(own) else np.ones(rest.shape[1])
    return own, a / np.linalg.norm(a), size[own]


def by_kink(state: State, explain: Callable[[State], State]) -> State | None:
    """Find which way round a unit is that is on in all of E, from rows in which it is off.

    What rows say of the other units they say in the outputs orthogonal to a_u as well. With these known, a_u η is left:

        η = z in rows where the unit is on,        η = κ, one number, where it is off,

    and the unit is s·relu(s (z − κ)) + κ, with s = 1 if κ lies below the values of z and −1 if above.
    """
    units = (
        np.flatnonzero((state.Z[state.explained] > 0.0).all(axis=0)) if state.n_explained else np.empty(0, dtype=int)
    )
    best = state
    for group in [units[[i]] for i in range(len(units))] + [units] * (len(units) > 1):
        A, others = state.A[:, group], np.setdiff1d(np.arange(len(state.V)), group)
        if np.linalg.matrix_rank(A) < len(group):
            continue
        beside = np.linalg.qr(A, mode="complete")[0][:, len(group) :]
        rest = replace(
            state, Y=state.Y @ beside, V=state.V[others], A=beside.T @ state.A[:, others], c=state.c @ beside
        )
        rest = explain(rest) if beside.shape[1] else rest
        rows = state.left[rest.explained[state.left]]
        values = state.Y[rows] - state.c - np.maximum(rest.Z[rows], 0.0) @ state.A[:, others].T
        new = replace(state, V=state.V.copy())
        new.V[others] = rest.V
        for u, eta in zip(group, np.linalg.lstsq(A, values.T, rcond=None)[0]):
            new = _turned(new, u, rows, eta, state.free[u]) if len(rows) else new
        best = new if new.n_explained > best.n_explained else best
    return best


def _turned(state: State, u: int, rows: np.ndarray, eta: np.ndarray, free: np.ndarray) -> State:
    """Give unit u its open weights, its side and its kink from its values η in some rows."""
    floor = 10.0 * state.floor / float(np.linalg.norm(state.A[:, u]))
    V, A, T = state.V.copy(), state.A.copy(), state.X[rows]
    runs = equal_runs(eta[None], floor)
    off = np.isin(np.arange(len(rows)), runs[0][1]) if runs else np.zeros(len(rows), dtype=bool)
    if len(free) and not off.all():
        V[u] = V[u] + _fit_most(T[~off] @ free.T, (eta - T @ V[u])[~off]) @ free
    if not off.any():  # one row may be off by itself
        off = np.abs(eta - T @ V[u]) > floor
    if not off.any() or np.ptp(eta[off]) > floor:
        return replace(state, V=V)
    kappa = float(np.median(eta[off]))
    side = 1.0 if np.median(state.Z[state.explained, u]) > kappa else -1.0
    V[u, 0] -= kappa
    V[u], A[:, u] = side * V[u], side * A[:, u]
    return replace(state, V=V, A=A, c=state.c + state.A[:, u] * kappa)


def _fit_most(T: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return w (c,) with T w = values in most rows: Σ|r| made least, by least squares weighted anew."""
    weight, smallest = np.ones(len(T)), 1e-12 * np.abs(values).max(initial=1e-300)
    for _ in range(30):
        w = np.linalg.lstsq(weight[:, None] * T, weight * values, rcond=None)[0]
        weight = 1.0 / np.sqrt(np.maximum(np.abs(values - T @ w), smallest))
    return w
