"""Units that are on, or off, in fewer samples than they have weights.

A wide student fits such a unit's samples S with several units of its own, no two of which are one. Away from S the
others are a fit by themselves. Once it is exact it explains these rows, and the unit is what the rows of S leave: one
direction times h > 0 (`explain`), arbitrary in the directions that S does not show.

Away from S the signs of the others may not be told, as when a unit is off in S alone. Then they keep the affine part
beside them, of which S shows a unit reversed, and signs are chosen afterwards as for any other fit.

A wide student that has not come to an end for such units has its residual where they are: with the samples that it fits
worst among S the others are soon exact.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from neurecover.fit.descent import Fit, descend
from neurecover.fit.options import EXACT
from neurecover.fit.samples import Samples
from neurecover.search.gates.explain import explain
from neurecover.search.gates.state import DEFAULT, GateOptions, State
from neurecover.search.race import Setting
from neurecover.search.settle import settle
from neurecover.search.units import narrowest
from neurecover.solve import Deadline

STEPS = 15  # that a fit of the other units takes when the right samples are set aside


def with_units_of_few_rows(fit: Fit, setting: Setting, options: GateOptions = DEFAULT) -> Fit | None:
    """Return an exact fit of so many units to all samples, where a wide fit to some lacks nothing but such units."""
    samples, whole, deadline, student = fit.point.samples, setting.whole, setting.deadline, fit.student
    if whole is None or setting.task.n_hidden is None or not setting.task.rectified:
        return None
    if fit.relative > options.nearly or whole.root is not None or whole.F.size > options.largest:
        return None
    on = samples.F @ student.V[0].T > 0.0
    if student.skips:  # beside an affine part a unit may be turned: it is on on the side with fewer samples
        on = np.where(2 * on.sum(axis=0) < len(on), on, ~on)
    few = on.sum(axis=0) < samples.F.shape[1]
    if not few.any():
        return None
    base = student.reads(1)[0]
    others = replace(student, V=(student.V[0][~few],), theta=np.delete(student.theta, base + np.flatnonzero(few), 0))
    aside, missed = on[:, few].any(axis=1), samples.Y - student(samples.F)
    if fit.relative >= EXACT:
        aside |= _worst(missed, ~aside, options.worst)
    for _ in range(options.rounds):
        if np.mean(aside) > options.most_aside or deadline.passed:
            break
        rest = Samples(samples.F[~aside], samples.Y[~aside], samples.bias)
        away = descend(rest, others, fit.point.options, deadline, steps=STEPS)
        others = away.student
        if away.relative < EXACT:
            few_units = narrowest(away)
            settled = settle(few_units, setting).fit
            found = (_explained(one, whole, setting.task.n_hidden, options) for one in (settled, few_units))
            return next(filter(None, found), None)
        aside |= _worst(samples.Y - others(samples.F), ~aside, options.worst)
    return None


def _worst(missed: np.ndarray, among: np.ndarray, share: float) -> np.ndarray:
    """Return which samples have the largest residuals, a share of those they were fitted to."""
    size = np.linalg.norm(missed, axis=1)
    return size > np.quantile(size[among], 1.0 - share)


def _explained(away: Fit, whole: Samples, n_hidden: int, options: GateOptions) -> Fit | None:
    """Return the fit to all samples with the units that those set aside show, if both are exact."""
    student, deadline = away.student, away.point.deadline
    if away.relative >= away.point.samples.level():
        return None
    base, affine = student.reads(1)[0], np.zeros((student.n_base - 1, student.n_outputs))
    affine[: base - 1] = student.theta[1:base]
    Y = whole.Y - whole.F[:, 1:] @ affine
    state = State(whole.F, Y, student.V[0], student.theta[base:].T, student.theta[0], options)
    found = explain_all(state, n_hidden, deadline)
    if found is None:
        return None
    student = replace(student, V=(found.V,), theta=np.vstack([found.c, affine, found.A.T]), skips=True)
    fit = descend(whole, student, away.point.options, deadline)
    return fit if fit.relative < whole.level() else None


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
