"""Units that are on, or off, in fewer samples than they have weights.

A wide student fits such a unit's samples S with several units of its own, no two of which are one. Away from S the
others are a network by themselves. Once it is found it explains these rows, and the unit is what the rows of S leave:
one direction times h > 0 (`explain`), arbitrary in the directions that S does not show.

A wide student that has not come to an end for such units has its residual where they are: with the samples that it fits
worst among S the others are soon exact.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from neurecover.data import ArraySource, Source
from neurecover.models import Network, Student
from neurecover.search.gates.engine import (
    EXACT,
    Found,
    Task,
    fit_steps,
    keep_units,
    network_behind,
    polish,
    rectified,
)
from neurecover.search.gates.explain import explain
from neurecover.search.gates.state import DEFAULT, GateOptions, State
from neurecover.solve import Deadline


def complete(
    source: Source,
    task: Task,
    student: Student,
    relative_rss: float,
    deadline: Deadline,
    options: GateOptions = DEFAULT,
) -> Found | None:
    """Return the network behind a wide student that fits nearly, if it has such units and they are found."""
    if task.n_hidden is None or relative_rss > options.nearly or not suits(task, options):
        return None
    X, Y = source.collect()
    on = student.V @ student.extended(X).T > 0.0
    if student.affine:  # beside an affine part a unit may be turned: it is on on the side with fewer samples
        on = np.where((2 * on.sum(axis=1) < len(X))[:, None], on, ~on)
    few = on.sum(axis=1) < student.V.shape[1]
    aside, others = on[few].any(axis=0), keep_units(student, np.flatnonzero(~few))
    if relative_rss >= EXACT:
        aside = aside | _worst(student, X, Y, ~aside, options.worst)
    for _ in range(options.rounds if few.any() else 0):
        if np.mean(aside) > options.most_aside or deadline.passed:
            break
        away = ArraySource(X[~aside], Y[~aside])
        others, left = fit_steps(away, others, 15, deadline)
        if left < EXACT:
            found = network_behind(away, task, others, deadline)
            if found is None:
                return None
            assert isinstance(found.network, Network)
            whole = explain_all(State.of(found.network, X, Y, options), task.n_hidden, deadline)
            return None if whole is None else polish(source, found, whole.network, deadline)
        aside = aside | _worst(others, X, Y, ~aside, options.worst)
    return None


def suits(task: Task, options: GateOptions) -> bool:
    return rectified(task) and task.n_samples * (task.n_inputs + 1) <= options.largest


def explain_all(whole: State, k: int, deadline: Deadline) -> State | None:
    """Explain all rows with at most k units; pieces of units of few rows may have to go first, and come back as one."""
    on = np.count_nonzero(whole.Z > 0.0, axis=0)
    for few in (on < 0, on < whole.X.shape[1], on < 2 * whole.X.shape[1]):
        state = replace(whole, V=whole.V[~few], A=whole.A[:, ~few])
        if len(state.V) <= k and np.mean(state.explained) >= 1.0 - whole.options.most_aside:
            state = explain(state, k, deadline)
            if state.explained.all():
                return state
    return None


def _worst(student: Student, X: np.ndarray, Y: np.ndarray, among: np.ndarray, share: float) -> np.ndarray:
    """Return which samples a student fits worst, a share of those it is fitted to."""
    missed = np.linalg.norm(Y - student(X), axis=1)
    return missed > np.quantile(missed[among], 1.0 - share)
