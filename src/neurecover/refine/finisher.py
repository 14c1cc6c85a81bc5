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
from neurecover.refine.descent import EXACT, Descent, is_large
from neurecover.refine.few_rows import with_units_of_few_rows
from neurecover.refine.held import hold
from neurecover.refine.narrowing import ended, lean, narrow
from neurecover.refine.optima import one_optimum
from neurecover.refine.search import Draw, good_enough, hops
from neurecover.refine.settling import Finished, settle
from neurecover.refine.starts import random_units
from neurecover.refine.task import Task
from neurecover.solve import Deadline

MAX_DESCENTS = 400
UNSETTLED = 4  # exact fits whose signs stay open before one is returned as it is
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
        whole = None if exact or last else with_units_of_few_rows(source, task, descent, deadline)
        if not (exact or whole or count in NARROWING or last):
            continue
        candidate = whole or _shrunk(source, task, wide, exact, deadline)
        progress("shrink", candidate.relative_rss)
        if exact or whole:
            unsettled += not (_found(candidate, task) and candidate.sign_choices)
        if not (whole or descent.relative_rss < task.level or _found(candidate, task)):
            agreements = agreements + 1 if best is not None and _same(source, candidate, best) else 0
        if best is None or _better(candidate, best, task):
            best = candidate
        best = replace(best, descents=count, agreements=agreements)
        wide = None
        if last or agreements or (_found(best, task) and best.sign_choices) or unsettled > UNSETTLED:
            break
    assert best is not None
    return best


def _shrunk(source: Source, task: Task, wide: Descent, exact: bool, deadline: Deadline) -> Finished:
    """The network behind a wide student; one that fits and cannot be made lean may have units of few samples."""
    slim = lean(source, wide, task, deadline)
    stuck = exact and task.n_hidden is not None and slim.student.n_hidden > task.n_hidden
    whole = with_units_of_few_rows(source, task, slim, deadline) if stuck else None
    if whole is not None:
        return whole
    if stuck:
        slim = ended(source, slim, task, deadline)
    narrowed, last_drop = narrow(source, slim, task, deadline)
    candidate = replace(settle(source, task, narrowed, deadline), last_drop=last_drop)
    if exact and not stuck and not _found(candidate, task):
        return with_units_of_few_rows(source, task, wide, deadline) or candidate
    return candidate


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


def _found(fit: Finished, task: Task) -> bool:
    return fit.relative_rss < task.level


def _same(source: Source, a: Finished, b: Finished) -> bool:
    n_equations = source.count() * source.n_outputs
    return a.network.n_hidden == b.network.n_hidden and one_optimum(
        source, a.network, b.network, a.rss, b.rss, n_equations
    )


def _better(a: Finished, b: Finished, task: Task) -> bool:
    # Between fits that are both exact the narrower network is the better one: an affine part costs units.
    if _found(a, task) and _found(b, task):
        return a.network.n_hidden < b.network.n_hidden
    return _bayes(a.relative_rss, a.network.n_parameters, task) < _bayes(b.relative_rss, b.network.n_parameters, task)
