"""Units taken away from a student that is wider than its teacher, as long as the fit does not suffer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from neurecover.data import Source
from neurecover.models import Student
from neurecover.refine.descent import EXACT, Descent
from neurecover.refine.held import readout_sums
from neurecover.refine.search import descend, good_enough
from neurecover.refine.shrink import elimination_order, keep_units, merged, one_less
from neurecover.refine.steps import ReadoutFactor
from neurecover.refine.task import Task
from neurecover.solve import Deadline

FALLS = 12  # steps within which a large student of the right units is as good as the wider one
REDUNDANT = 1e-10  # Σ r² / Σ y² that dropping a duplicate may cost in a path computed with a ridge


def narrow(source: Source, descent: Descent, task: Task, deadline: Deadline) -> tuple[Descent, float]:
    """Take units away one by one, with a refit after each.

    With the width unknown a unit may go if Σ r² stays exact, or grows by less than a parameter's worth of noise would
    explain under the Bayesian information criterion, (D + p)·log(N)/N with N = n·p. The second value is what the last
    unit that went was worth in these terms, N·log(Σr² after / Σr² before) / (D + p).
    """
    floor = max(EXACT * descent.total, 1e-300)
    N = task.n_samples * task.n_outputs
    slack, worth = 1.0 + task.n_parameters_per_unit * np.log(N) / N, 0.0
    while descent.student.n_hidden > (task.n_hidden or 0):
        if deadline.passed:
            order, _ = elimination_order(source, descent.student)
            keep = descent.student.n_hidden if task.n_hidden is None else task.n_hidden
            return Descent(source, keep_units(descent.student, np.sort(order[len(order) - keep :]))), np.inf
        fewer = descend(source, one_less(source, descent.student), deadline)
        if task.n_hidden is None and fewer.rss > max(floor, slack * descent.rss):
            break
        worth = float(N * np.log(max(fewer.rss, floor) / max(descent.rss, floor)) / task.n_parameters_per_unit)
        descent = fewer
    return descent, worth


def lean(source: Source, descent: Descent, task: Task, deadline: Deadline) -> Descent:
    """Where a fit is exact, or nearly, the first one with all superfluous units gone that is as good; else itself."""
    if descent.relative_rss >= good_enough(task, descent.student.n_hidden):
        return descent
    N = task.n_samples * task.n_outputs
    for fewer in _all_at_once(source, descent, task, deadline):
        gone = descent.student.n_hidden - fewer.student.n_hidden
        slack = 1.0 + max(gone, 0) * task.n_parameters_per_unit * np.log(N) / N
        if fewer.rss < max(EXACT * descent.total, slack * descent.rss * (descent.relative_rss > EXACT)):
            return fewer
    return descent


def ended(source: Source, descent: Descent, task: Task, deadline: Deadline) -> Descent:
    """A fit that is nearly exact brought to its end, and lean there; any other itself."""
    if not EXACT <= descent.relative_rss < good_enough(task, descent.student.n_hidden):
        return descent
    end = descend(source, descent.student, deadline)
    return lean(source, end, task, deadline) if end.relative_rss < EXACT else end


def _all_at_once(source: Source, descent: Descent, task: Task, deadline: Deadline) -> Iterator[Descent]:
    """Fits with all superfluous units merged or dropped, by several ideas of what is superfluous.

    An exact student without an affine part may have made one of pairs of units that look opposite ways, so it is tried
    with an affine part too.
    """
    forms = [descent.student]
    if task.can_be_affine and not descent.student.affine:
        forms.append(_with_affine(descent.student))
    merges = (merged(form, angle) for form, angle in itertools.product(forms, (0.3, 0.1, 0.01, 0.001)))
    students: Iterator[Student] = (
        _useful(source, student, descent.total, task) for student in merges if _is_finite(source, student)
    )
    if descent.large:
        # A fit takes long and a readout does not: the idea that costs least is tried first, and each once.
        alike = {(s.affine, s.n_hidden, float(np.sum(np.abs(s.V)))): s for s in students}
        students = iter(sorted(alike.values(), key=lambda s: ReadoutFactor(readout_sums(source, s)).best_rss))
    for student in students:
        if descent.large:
            # From the right units the residual falls at once; from others it would take long to see that it does not.
            tried = Descent(source, student, deadline=deadline).advance(FALLS)
            if tried.rss > max(descent.rss, EXACT * descent.total):
                continue
            student = tried.student
        yield descend(source, student, deadline)


def _is_finite(source: Source, student: Student) -> bool:
    """Whether it has values at all: e to the sum of what two units had may be beyond all numbers."""
    if student.activation.homogeneity is not None:
        return True
    return bool(np.isfinite(readout_sums(source, student)["hh"]).all())


def _useful(source: Source, student: Student, total: float, task: Task) -> Student:
    """The student without the units whose loss costs nothing, and with no more than there may be."""
    order, path = elimination_order(source, student)
    n_keep = int(np.count_nonzero(path > REDUNDANT * total))
    n_keep = n_keep if task.n_hidden is None else min(n_keep, task.n_hidden)
    return keep_units(student, np.sort(order[len(order) - n_keep :]))


def _with_affine(student: Student) -> Student:
    k = student.n_hidden
    zeros = np.zeros((student.n_inputs, student.n_outputs))
    return replace(student, readout=np.vstack([student.readout[:k], zeros, student.readout[k:]]), affine=True)
