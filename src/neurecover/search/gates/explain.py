"""Changes to the gates of a state, the cheapest that explains more rows first, until all are explained or none helps.

A row outside E needs a set S of units, those that are open in it, with

    y − c − Σ_known a_u h_u = Σ_{u ∈ S} a_u h_u,        h_u > 0.

`by_span` finds S where |S| < p: no other set of fewer than p columns of A in general position has the left side in its
span. `with_new_unit` takes what several rows leave for a unit that is not there yet, one direction times h > 0. What is
left is a mixed-integer program (`by_program`): a unit has z = x̃·(v + N θ), N spanning what is open, and for every row
that is left and every unit

    0 ≤ h ≤ M g,    0 ≤ h − z ≤ M (1 − g),    g in {0, 1},    A h = y − c,

with z ≤ 0 in the rows of E where the unit is off. A solution is as accurate as the solver's tolerance; with its gates g
the equations are linear in θ, and a step of least squares gives the last digits.

A change is `sure` where equations hold by more than was free to be chosen. One that rests on a single row, or is any
solution of a program, is believed if it explains other rows too, or all.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import comb

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from neurecover.search.gates.state import State
from neurecover.solve import Deadline


def explain(state: State, n_hidden: int, deadline: Deadline) -> State:
    """Return the state with as many rows explained, and up to `n_hidden` units, as the changes allow."""
    changes = (
        (True, by_span),
        (True, lambda state, sure: with_new_unit(state, n_hidden, sure)),
        (False, by_span),
        (False, lambda state, sure: with_new_unit(state, n_hidden, sure)),
        (False, lambda state, sure: by_program(state, deadline)),
    )
    state = state.balanced
    while not state.explained.all() and not deadline.passed:
        tried = ((sure, change(state, sure)) for sure, change in changes)
        new = next((new for sure, new in tried if new is not None and _is_believed(state, new, sure)), None)
        if new is None:
            break
        state = new
    return state


def _is_believed(state: State, new: State, sure: bool) -> bool:
    """Return whether a change explains enough rows; the row for which it was made does not count as evidence."""
    more = new.n_explained - state.n_explained
    return more > 0 and (sure or more > 1 or bool(new.explained.all()))


def explain_all(state: State, n_hidden: int, deadline: Deadline) -> State | None:
    """Return the state with all rows explained by at most `n_hidden` units, if most are so far; None if it fails."""
    if len(state.V) > n_hidden or np.mean(state.explained) < 1.0 - state.options.most_aside:
        return None
    state = explain(state, n_hidden, deadline)
    return state if state.explained.all() else None


def by_span(state: State, sure: bool = True) -> State | None:
    """Explain rows whose outputs tell which open units are on, those with the fewest open units first.

    Fewer open units than outputs need no choice. Of more, all sets are looked at, unless other rows tell of these
    first. As many say what they are and nothing more: that is not sure. Nor is a row by itself where all together do
    not help, as one of them is wrong.
    """
    rows, p = state.left, len(state.A)
    H = np.full((len(rows), len(state.V)), np.nan)
    kinds, kind = np.unique(state.open[rows], axis=0, return_inverse=True)
    for g in np.argsort(kinds.sum(axis=1), kind="stable"):
        units, own = np.flatnonzero(kinds[g]), np.flatnonzero(kind.ravel() == g)
        known = np.where(kinds[g], 0.0, np.maximum(state.Z[rows[own]], 0.0))
        rest = state.Y[rows[own]] - state.c - known @ state.A.T
        # NumPy 2.0 knows no rank of a matrix without columns.
        if len(units) <= p - sure and (not len(units) or np.linalg.matrix_rank(state.A[:, units]) == len(units)):
            H[own] = known + _values(state, units, rest)
        elif not np.isfinite(H).any():
            H[own] = known + _smallest_sets(state, units, rest)
    told = np.flatnonzero(np.isfinite(H).all(axis=1))
    if not len(told):
        return None
    groups = [told] if sure else [told, *told[: state.options.alone, None]]
    return max((state.with_values(rows[group], H[group]) for group in groups), key=lambda new: new.n_explained)


def _values(state: State, units: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """Return the h (n, k) ≥ 0 of independent units that reproduces `rest` (n, p); nan in rows where no h does."""
    A, floor = state.A[:, units], state.options.solved * state.floor
    h = np.linalg.lstsq(A, rest.T, rcond=None)[0].T
    wrong = (np.linalg.norm(h @ A.T - rest, axis=1) > state.floor) | (h.min(axis=1, initial=0.0) < -floor)
    H = np.zeros((len(rest), state.A.shape[1]))
    H[:, units] = np.where(h > floor, h, 0.0)
    return np.where(wrong[:, None], np.nan, H)


def _smallest_sets(state: State, units: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """Return the h (n, k) ≥ 0 on fewer than p of the units that reproduces `rest`; nan if not exactly one smallest set
    does.
    """
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


def with_new_unit(state: State, n_hidden: int, sure: bool = True) -> State | None:
    """Add a unit for the direction in which most rows, at least two, are unexplained, if another unit is allowed.

    What one row leaves is not sure: it may tell the gates of others.
    """
    left = state.left
    if len(state.V) >= n_hidden:
        return None
    if sure:
        own = _one_direction(state, state.residual[left])
        return _with_unit_on(state, left[own]) if len(own) > 1 else None
    added = [_with_unit_on(state, row) for row in left[: state.options.alone, None]]
    return max((by_span(one) or one for one in added), key=lambda new: new.n_explained)


def _with_unit_on(state: State, rows: np.ndarray) -> State:
    """Return the state with a further unit, active in these rows, whose residuals have one direction, and inactive in
    explained rows.
    """
    h, D = np.linalg.norm(state.residual[rows], axis=1), state.X.shape[1]
    a = (state.residual[rows] / h[:, None]).mean(axis=0)
    v = state.moved(np.zeros(D), np.eye(D), state.X[rows], h, state.X[state.explained])
    return replace(state, V=np.vstack([state.V, v]), A=np.hstack([state.A, (a / np.linalg.norm(a))[:, None]]))


def _one_direction(state: State, rest: np.ndarray) -> np.ndarray:
    """Return the numbers of the rows of `rest` (m, p) that share the most common direction."""
    options, size = state.options, np.linalg.norm(rest, axis=1)
    ways = rest / np.maximum(size, 1e-300)[:, None]
    compared = ways[size > state.floor][: options.directions]
    alike = (np.linalg.norm(ways - way, axis=1) <= options.alike for way in compared)
    return np.flatnonzero(max(alike, key=np.count_nonzero, default=np.zeros(0, dtype=bool)))


INFEASIBLE = 2  # the status that `scipy.optimize.milp` gives


def by_program(state: State, deadline: Deadline) -> State | None:
    """Explain all remaining rows, or those of one kind, the largest kind first, as many as an integer program can take.

    That of all rows comes first: fewer leave more choice.
    """
    rows, most = state.left, state.options.gates // max(len(state.V), 1)
    if not most or not len(state.V) or len(state.A) == 1:  # one equation for all gates of a row says nothing
        return None
    _, kind, count = np.unique(state.X[rows] != 0.0, axis=0, return_inverse=True, return_counts=True)
    groups = [rows[kind.ravel() == which][:most] for which in np.argsort(-count, kind="stable")]
    for group in [rows] * (len(rows) <= most) + groups[: state.options.programs]:
        new = None if deadline.passed else _with_gates(state, group, deadline)
        if new is not None and new.n_explained > state.n_explained:
            return new
    return None


def _with_gates(state: State, rows: np.ndarray, deadline: Deadline) -> State | None:
    # z = start + slope·θ in these rows, (rows, units) and (rows, units, θ of all units), and sides·θ ≤ edges in E.
    start, free = state.X[rows] @ state.V.T, np.vstack(state.free)
    own = np.repeat(np.eye(len(state.V)), [len(N) for N in state.free], axis=1)
    slope = (state.X[rows] @ free.T)[:, None] * own
    off, unit = np.nonzero(state.open & (state.Z <= 0.0) & state.explained[:, None])
    if not slope.any():
        return None
    sides, edges = (state.X[off] @ free.T) * own[unit], -(state.X @ state.V.T)[off, unit]
    theta = _solution(state, rows, slope, sides, edges, deadline)
    if theta is None:
        return None
    # A solver goes on to where a unit has z = 0: one that is there may be on as well, and has no step to make.
    z, values = start + slope @ theta, state.Y[rows] - state.c
    z = np.where(z > state.options.summed * state.options.tolerance * float(np.abs(z).max()), z, 0.0)
    by = np.einsum("ok,rkt->rot", state.A, slope * (z > 0.0)[:, :, None]).reshape(values.size, -1)
    theta = theta + np.linalg.lstsq(by, (values - z @ state.A.T).ravel(), rcond=state.options.rounding)[0]
    return state.with_values(rows, np.where(z > 0.0, np.maximum(start + slope @ theta, 0.0), 0.0))


def _solution(
    state: State, rows: np.ndarray, slope: np.ndarray, sides: np.ndarray, edges: np.ndarray, deadline: Deadline
) -> np.ndarray | None:
    """Return θ if the solver finds one within its limit of nodes and the deadline."""
    start = (state.X[rows] @ state.V.T).ravel()
    n, t = start.size, slope.shape[2]
    z = sparse.csr_matrix(slope.reshape(n, t))
    values, largest = (state.Y[rows] - state.c).ravel(), float(state.Z[state.explained].max(initial=1e-300))
    slack = state.options.tolerance * float(np.abs(values).max(initial=1e-300))
    one, above = sparse.identity(n), sparse.kron(sparse.identity(len(rows)), state.A)
    limits: dict[str, float] = {"node_limit": state.options.nodes}
    if deadline.moment is not None:
        limits["time_limit"] = deadline.seconds_left
    for M in (farther * largest for farther in state.options.farthest):
        blocks = [  # of θ, h and g
            [-z, one, None],
            [-z, one, M * one],
            [None, one, -M * one],
            [None, above, None],
            *[[sparse.csr_matrix(sides), None, None]] * (len(sides) > 0),
        ]
        low = np.concatenate([start, np.full(2 * n, -np.inf), values - slack, np.full(len(sides), -np.inf)])
        high = np.concatenate([np.full(n, np.inf), start + M, np.zeros(n), values + slack, edges])
        found = milp(
            np.zeros(t + 2 * n),
            constraints=LinearConstraint(sparse.bmat(blocks, format="csr"), low, high),
            integrality=np.repeat([0, 1], [t + n, n]),
            bounds=Bounds(np.repeat([-np.inf, 0.0], [t, 2 * n]), np.repeat([np.inf, M, 1.0], [t, n, n])),
            options=limits,
        )
        if found.x is not None or found.status != INFEASIBLE:
            break
    return None if found.x is None else found.x[:t]
