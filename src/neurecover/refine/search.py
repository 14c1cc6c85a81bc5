"""The race: descents from many starts, each better informed than the last.

A descent that ends above the noise has most of its units right and a few stuck. The next one keeps the most useful of
them, a random half to all of the true width, and replaces the rest by fresh random units; after PATIENCE such hops
without progress it starts anew. Against fresh starts alone this solves the same problems in a fraction of the time
(see docs/finisher.md). The student is wider than the teacher, and as wide as the number of samples allows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from neurecover.data import Source
from neurecover.models import Student
from neurecover.refine.descent import Descent, is_large
from neurecover.refine.held import Held, hold
from neurecover.refine.shrink import most_useful
from neurecover.refine.starts import POOL, greedy_units, random_units, scaled_units, units_through_samples
from neurecover.refine.task import Task
from neurecover.refine.warm_up import steps_for, warm_up
from neurecover.solve import Deadline

PATIENCE = 8
CHUNK, SLOW, MAX_ITERATIONS = 10, 0.8, 300
LARGE_CHUNK, LARGE_SLOW = 10, 0.9  # of loosely solved steps, which gain less each
WARM = 8_000  # hidden weights beyond which second-order descents from random units are stuck (measured)
CLOSE, DENSE_END = 1e-9, 2_000  # Σ r² / Σ y² and hidden weights at which dense steps end what goes slowly
NEARLY = 1e-7  # Σ r² / Σ y² at which a large student has all units of a noiseless teacher (measured)

Draw = Callable[[np.random.Generator, int, int, bool], np.ndarray]  # fresh units, as `random_units` gives them


def descend(
    source: Source, student: Student, deadline: Deadline, patient: bool = False, enough: float = 0.0
) -> Descent:
    """Iterate until nothing is gained; unless patient, also until it is gained too slowly to lead to a solution.

    Σ r² / Σ y² below `enough` ends it as well. What conjugate gradients bring to an end slowly, where some weights are
    seen in few samples, dense steps bring there at once.
    """
    descent = Descent(source, student, deadline=deadline)
    chunk, slow = (LARGE_CHUNK, LARGE_SLOW) if descent.large else (CHUNK, SLOW)
    before = descent.rss
    while descent.running and descent.iterations < MAX_ITERATIONS and not deadline.passed:
        for _ in range(chunk):
            if descent.advance(1).relative_rss < enough:
                return descent
        slowly = descent.iterations > 2 * chunk
        if not patient and slowly and descent.rss > slow * before:
            break
        if patient and slowly and descent.large and descent.relative_rss < CLOSE and student.V.size <= DENSE_END:
            descent = Descent(source, descent.student, deadline=deadline, dense=True)
        before = descent.rss
    return descent


def good_enough(task: Task, width: int) -> float:
    """Σ r² / Σ y² at which units are taken away: where steps are cheap at rounding, else as soon as all are there."""
    return max(task.level, NEARLY if is_large(width * (task.n_inputs + task.bias)) else 0.0)


def hops(
    source: Source,
    task: Task,
    width: int,
    rng: np.random.Generator,
    deadline: Deadline,
    starts: Iterator[np.ndarray],
    draw: Draw = random_units,
) -> Iterator[Descent]:
    """Endless descents at the given width: from `starts` while there are any, then from what `draw` gives.

    In between there are hops.
    """
    affine = task.prefers_affine()
    # A small student is done with the last digits in two or three steps, and a large one only after it is narrowed.
    enough = 0.0
    if is_large(width * (task.n_inputs + task.bias)):
        source, enough = hold(source, task.bias), good_enough(task, width)
    for round_ in itertools.count():
        given = next(starts, np.empty((0, task.n_inputs + task.bias)))
        fresh = _fresh(source, task, rng, max(width - len(given), 0), round_, affine, draw)
        start = task.student(np.vstack([given, fresh]), affine)
        if isinstance(source, Held) and start.V.size > WARM and not len(given):
            start = warm_up(source, start, steps_for(task.n_hidden or width, task.n_outputs), rng, deadline)
        best = descend(source, start, deadline, enough=enough)
        yield best
        failures = 0
        while failures < PATIENCE:
            hopped = descend(
                source, _hop(source, best.student, task.n_hidden or width, rng, draw), deadline, enough=enough
            )
            yield hopped
            if hopped.rss < 0.999 * best.rss:
                best, failures = hopped, 0
            else:
                failures += 1
        # The other form of student has other local minima: take turns after the first two rounds.
        if task.can_be_affine and round_ >= 1:
            affine = not affine


def _fresh(
    source: Source, task: Task, rng: np.random.Generator, n_hidden: int, round_: int, affine: bool, draw: Draw
) -> np.ndarray:
    """Units to begin a round with; the kinds of `starts` take turns."""
    if round_ % 3 == 1:
        pool = draw(rng, POOL * n_hidden, task.n_inputs, task.bias)
        return greedy_units(source, task.student(pool, affine), n_hidden)
    if round_ % 3 == 2 and task.bias and draw is random_units:
        drawn = units_through_samples(source, rng, n_hidden)
        return np.vstack([drawn, draw(rng, n_hidden - len(drawn), task.n_inputs, task.bias)])
    return draw(rng, n_hidden, task.n_inputs, task.bias)


def _hop(source: Source, student: Student, n_hidden: int, rng: np.random.Generator, draw: Draw) -> Student:
    width = student.n_hidden
    n_keep = int(rng.integers(n_hidden // 2, min(n_hidden, max(width - 1, 1)) + 1))
    old = scaled_units(student.V[most_useful(source, student, n_keep)], student.n_inputs)
    V = np.vstack([old, draw(rng, width - n_keep, student.n_inputs, student.bias)])
    return replace(student, V=V, readout=np.zeros_like(student.readout))
