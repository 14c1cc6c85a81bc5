"""Find units that are on, or off, in fewer samples than they have weights.

A wide student fits the samples S of such a unit with several units of its own, no two of which can be merged. Away from
S the other units are fitted without it. Once that fit is exact it explains these rows, and the unit follows from the
residuals in S, one direction times h > 0 (`explain`); its weights are arbitrary in the directions that S does not show.

Away from S the signs of the other units may not be determined, for instance if a unit is off only in S. They then keep
an affine part, from which S shows that a unit has to be reversed, and signs are chosen at the end as for any other fit.

If such units keep a wide student from becoming exact, its residuals lie in their samples: without the worst-fitted
samples, S among them, the other units are soon exact.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from neurecover.fit import EXACT
from neurecover.fit.descent import Fit, descend
from neurecover.fit.samples import Samples
from neurecover.search.gates.explain import explain_all
from neurecover.search.gates.state import DEFAULT, GateOptions, State
from neurecover.search.race import Setting
from neurecover.search.units import narrowest
from neurecover.solve import Deadline


def with_units_of_few_rows(fit: Fit, setting: Setting, options: GateOptions = DEFAULT) -> Fit | None:
    """Return an exact fit of the wanted width to all samples, if a wide fit to some of them lacks only units that are
    active in few rows.
    """
    samples, whole, student = fit.point.samples, setting.whole, fit.student
    if whole is None or setting.task.n_hidden is None or not setting.task.rectified or fit.relative > options.nearly:
        return None
    on = samples.F @ student.V[0].T > 0.0
    if student.skips:  # beside an affine part a unit may be turned: it is on on the side with fewer samples
        on = np.where(2 * on.sum(axis=0) < len(on), on, ~on)
    few = on.sum(axis=0) < samples.F.shape[1]
    if not few.any():
        return None
    base = student.reads(1)[0]
    others = replace(student, V=(student.V[0][~few],), theta=np.delete(student.theta, base + np.flatnonzero(few), 0))
    aside = on[:, few].any(axis=1)
    if fit.relative >= EXACT:
        missed = np.linalg.norm(samples.Y - student(samples.F), axis=1)
        aside |= missed > np.quantile(missed[~aside], 1.0 - options.worst)
    if np.mean(aside) > options.most_aside:
        return None
    rest = Samples(samples.F[~aside], samples.Y[~aside], samples.bias)
    away = descend(rest, others, fit.point.options, setting.deadline, steps=options.away_steps)
    return None if away.relative >= EXACT else explain_aside(narrowest(away), whole, setting.task.n_hidden, options)


def explain_aside(away: Fit, whole: Samples, n_hidden: int, options: GateOptions = DEFAULT) -> Fit | None:
    """Return the fit to all samples with the units that the rows set aside show, if both fits are exact."""
    student, deadline = away.student, away.point.deadline or Deadline()
    if away.relative >= away.point.samples.level() or whole.root is not None or whole.F.size > options.largest:
        return None
    base, affine = student.reads(1)[0], np.zeros((student.n_base - 1, student.n_outputs))
    affine[: base - 1] = student.theta[1:base]
    V, A, c = student.V[0].copy(), student.theta[base:].T, student.theta[0]
    if student.skips:
        # relu(z) = z + relu(−z): beside an affine part the samples on a unit's lesser side alone say what it is.
        more = np.mean(away.point.samples.F @ V.T > 0.0, axis=0) > 0.5
        affine, c = affine + V[more, 1:].T @ A[:, more].T, c + A[:, more] @ V[more, 0]
        V[more] = -V[more]
    state = State(whole.F, whole.Y - whole.F[:, 1:] @ affine, V, A, c, options)
    found = explain_all(state, n_hidden, deadline)
    if found is None:
        return None
    student = replace(student, V=(found.V,), theta=np.vstack([found.c, affine, found.A.T]), skips=True)
    fit = descend(whole, student, away.point.options, deadline)
    return fit if fit.relative < whole.level() else None
