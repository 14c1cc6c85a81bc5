"""The last stage of every method, and a method by itself: over-parameterise, fit, shrink, fix the signs, fit again.

Without noise the first student whose residual is at the level of rounding ends the search. With noise nothing marks the
optimum, so the search ends when two descents, shrunk independently, arrive at the same one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np

from neurecover.data import Source
from neurecover.models import Student
from neurecover.refine.descent import EXACT, Descent, is_large
from neurecover.refine.held import hold, readout_sums
from neurecover.refine.search import Draw, descend, good_enough, hops
from neurecover.refine.settling import Finished, settle
from neurecover.refine.shrink import elimination_order, keep_units, merged, one_less
from neurecover.refine.starts import random_units
from neurecover.refine.steps import ReadoutFactor
from neurecover.refine.task import Task
from neurecover.solve import Deadline

FALLS = 12  # steps within which a large student of the right units is as good as the wider one
REDUNDANT = 1e-10  # Σ r² / Σ y² that dropping a duplicate may cost in a path computed with a ridge
MAX_DESCENTS = 400
UNSETTLED = 4  # exact fits whose signs stay open before one is returned as it is
SAME = 0.1  # of one degree of freedom's share of Σ r²: two optima closer than this are one
NARROWING = (3, 6, 12, 25, 50, 100, 200)  # after so many descents that were not exact, the best is shrunk

Progress = Callable[[str, float], object]


def finish(
    source: Source,
    task: Task,
    rng: np.random.Generator,
    deadline: Deadline,
    starts: Iterable[np.ndarray] = (),
    progress: Progress = lambda stage, rss: None,
    draw: Draw = random_units,
    max_descents: int = MAX_DESCENTS,
) -> Finished:
    """The best network found on the source before the deadline; at least one descent is always made.

    `draw` gives the units that are not among `starts`.
    """
    if is_large((task.n_hidden or 0) * (task.n_inputs + task.bias)):
        source = hold(source, task.bias)
    best: Finished | None = None
    wide: Descent | None = None
    agreements = unsettled = 0
    for count, descent in enumerate(_descents(source, task, rng, deadline, iter(starts), progress, draw), start=1):
        progress("search", descent.relative_rss)
        exact = descent.relative_rss < good_enough(task, descent.student.n_hidden)
        if wide is None or descent.rss < wide.rss:
            wide = descent
        last = count >= max_descents or deadline.passed
        if not (exact or count in NARROWING or last):
            continue
        narrowed, last_drop = narrow(source, wide, task, deadline)
        candidate = replace(settle(source, task, narrowed, deadline), last_drop=last_drop)
        progress("shrink", candidate.relative_rss)
        if exact:
            unsettled += not (_found(candidate, task) and candidate.sign_choices)
        else:
            agreements = agreements + 1 if best is not None and _same(candidate, best, task) else 0
        if best is None or _better(candidate, best, task):
            best = candidate
        best = replace(best, descents=count, agreements=agreements)
        wide = None
        if last or agreements or (_found(best, task) and best.sign_choices) or unsettled > UNSETTLED:
            break
    assert best is not None
    return best


def _descents(
    source: Source,
    task: Task,
    rng: np.random.Generator,
    deadline: Deadline,
    starts: Iterator[np.ndarray],
    progress: Progress,
    draw: Draw,
) -> Iterator[Descent]:
    """Descents without end, at the width for a known k or at the one that `_grow` settles on."""
    if task.n_hidden is not None:
        width = task.width(task.prefers_affine())
    else:
        first = _grow(source, task, rng, deadline, starts, progress, draw)
        yield first
        width = first.student.n_hidden
    yield from hops(source, task, width, rng, deadline, starts, draw)


def _grow(
    source: Source,
    task: Task,
    rng: np.random.Generator,
    deadline: Deadline,
    starts: Iterator[np.ndarray],
    progress: Progress,
    draw: Draw,
) -> Descent:
    """The best of three descents at 6 units, at 12, and so on, until one is exact or twice the units are not worth it.

    A start that is given counts for the first width; the others begin at random.

    Worth is the Bayesian information criterion, N·log Σr² + (parameters)·log N.
    """
    widest = max(task.widest(task.prefers_affine()), 1)
    width, best = min(6, widest), None
    while True:
        champion: Descent | None = None
        for descent in itertools.islice(hops(source, task, width, rng, deadline, starts, draw), 3):
            progress(f"search with {width} units", descent.relative_rss)
            if descent.relative_rss < good_enough(task, width):
                return descent
            if champion is None or descent.rss < champion.rss:
                champion = descent
        assert champion is not None
        if best is not None and _criterion(champion, task) >= _criterion(best, task):
            return best
        if width == widest or deadline.passed:
            return champion
        best, width, starts = champion, min(2 * width, widest), iter(())


def _criterion(descent: Descent, task: Task) -> float:
    return _bayes(descent.relative_rss, descent.student.V.size + descent.student.readout.size, task)


def _bayes(relative_rss: float, n_parameters: int, task: Task) -> float:
    """N·log Σr² + (parameters)·log N, up to a constant; less is better."""
    N = task.n_samples * task.n_outputs
    return float(N * np.log(max(relative_rss, EXACT)) + n_parameters * np.log(N))


def narrow(source: Source, descent: Descent, task: Task, deadline: Deadline) -> tuple[Descent, float]:
    """Take units away: all at once where the fit is exact, then one by one with a refit after each.

    With the width unknown a unit may go if Σ r² stays exact, or grows by less than a parameter's worth of noise would
    explain under the Bayesian information criterion, (D + p)·log(N)/N with N = n·p. The second value is what the last
    unit that went was worth in these terms, N·log(Σr² after / Σr² before) / (D + p).
    """
    floor = EXACT * descent.total
    if descent.relative_rss < good_enough(task, descent.student.n_hidden):
        descent = _leaner(source, descent, task, deadline)
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


def _leaner(source: Source, descent: Descent, task: Task, deadline: Deadline) -> Descent:
    """The first fit with all superfluous units gone that is as good; a rough one is refined before it is given up."""
    N = task.n_samples * task.n_outputs
    for fewer in _all_at_once(source, descent, task, deadline):
        gone = descent.student.n_hidden - fewer.student.n_hidden
        slack = 1.0 + max(gone, 0) * task.n_parameters_per_unit * np.log(N) / N
        if fewer.rss < max(EXACT * descent.total, slack * descent.rss * (descent.relative_rss > EXACT)):
            return fewer
    if descent.relative_rss < EXACT or deadline.passed:
        return descent
    refined = descend(source, descent.student, deadline)
    return _leaner(source, refined, task, deadline) if refined.relative_rss < EXACT else refined


def _all_at_once(source: Source, descent: Descent, task: Task, deadline: Deadline) -> Iterator[Descent]:
    """Fits with all superfluous units merged or dropped, by several ideas of what is superfluous.

    An exact student without an affine part may have made one of pairs of units that look opposite ways, so it is tried
    with an affine part too.
    """
    forms = [descent.student]
    if task.can_be_affine and not descent.student.affine:
        forms.append(_with_affine(descent.student))
    merges = (merged(form, angle) for form, angle in itertools.product(forms, (0.1, 0.01, 0.001)))
    students: Iterator[Student] = (
        _useful(source, student, descent.total, task) for student in merges if _is_finite(source, student)
    )
    if descent.large:
        # A fit takes long and a readout does not: the idea that costs least is tried first.
        students = iter(sorted(students, key=lambda s: ReadoutFactor(readout_sums(source, s)).best_rss))
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


def _found(fit: Finished, task: Task) -> bool:
    return fit.relative_rss < task.level


def _same(a: Finished, b: Finished, task: Task) -> bool:
    # Σ r² is smooth only between the kinks, so one optimum has many shallow pits.
    share = b.rss / (task.n_samples * task.n_outputs)
    return a.network.n_hidden == b.network.n_hidden and abs(a.rss - b.rss) <= SAME * share


def _better(a: Finished, b: Finished, task: Task) -> bool:
    # Between fits that are both exact the narrower network is the better one: an affine part costs units.
    if _found(a, task) and _found(b, task):
        return a.network.n_hidden < b.network.n_hidden
    return _bayes(a.relative_rss, a.network.n_parameters, task) < _bayes(b.relative_rss, b.network.n_parameters, task)
