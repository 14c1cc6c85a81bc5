"""One change after the other, the cheapest that explains more rows first, until all are explained or none helps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from neurecover.search.gates.mixed_integer import by_program
from neurecover.search.gates.rows import by_span, with_new_unit
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
