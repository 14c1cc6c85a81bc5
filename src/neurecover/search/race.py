"""The race: fits of students that are wider than the teacher, each better informed than the last.

A fit that is stuck has most of its units right. The next one keeps the most useful of them, a random half to all of the
teacher's number in every layer, and has fresh ones for the rest; after `patience` such hops without progress it starts
anew. Against fresh starts alone this solves the same problems in a fraction of the time (docs/finisher.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from neurecover.fit.descent import Fit, descend
from neurecover.fit.samples import Samples
from neurecover.fit.warm_up import warm_up
from neurecover.models.student import Student
from neurecover.search import SearchOptions, Task
from neurecover.search.units import Draw, narrow, random_units, with_fresh
from neurecover.solve import Deadline


@dataclass(frozen=True, eq=False)
class Setting:
    """What all parts of a search share: task, options, random numbers, deadline, and progress reports.

    `draw` gives fresh units, `starts` the hidden weights (m, D₀) of a first layer for the first rounds, and `tell`
    receives stages and Σr²/Σy². If the search uses only some of the samples, `whole` are all of them, whose other rows
    may show units that few rows show. `skips` forces skip connections, as for the layers above given ones. `told` says
    that the signs of one layer are determined without skips, by as many outputs as units: for d = k = p = 10, n = 60
    this takes a third of the mean time.
    """

    task: Task
    options: SearchOptions
    rng: np.random.Generator
    deadline: Deadline
    draw: Draw
    starts: Iterator[np.ndarray]
    tell: Callable[[str, float], object]
    whole: Samples | None = None
    skips: bool = False
    told: bool = False

    @classmethod
    def plain(
        cls, task: Task, rng: np.random.Generator, deadline: Deadline, options: SearchOptions | None = None
    ) -> Setting:
        """Return the setting without any starts."""
        draw = random_units(rng, int(task.bias))
        return cls(task, options or SearchOptions(), rng, deadline, draw, iter(()), lambda stage, relative_rss: None)

    def above(self, given: Samples) -> Setting:
        """Return the setting of the layers above given ones, on samples of these: fresh units are drawn for whitened
        inputs, and no starts are known.
        """
        plain, R = random_units(self.rng, int(self.task.bias)), given.inverse_root

        def draw(layer: int, count: int, columns: int) -> np.ndarray:
            V = plain(layer, count, columns)
            return np.hstack([V[:, : len(R)] @ R.T, V[:, len(R) :]])

        return replace(self, draw=draw, starts=iter(()), whole=None, skips=True)


def n_weights(columns: int, widths: tuple[int, ...], n_outputs: int, skips: bool = True) -> tuple[int, int]:
    """Return the hidden weights of a student on so many base columns, and its weights in all but for a constant."""
    size, read = 0, columns if skips else 0
    for m in widths:
        size, columns, read = size + m * columns, columns + m, read + m
    return size, size + read * n_outputs


def has_skips(setting: Setting, depth: int) -> bool:
    """Return whether students have skip connections. In one layer they hide signs: act(z) − act(−z) = m z ≠ 0."""
    task = setting.task
    return depth > 1 or setting.skips or task.affine or (bool(task.activation.odd_slope) and not setting.told)


def wider(samples: Samples, widths: tuple[int, ...], options: SearchOptions, skips: bool = True) -> tuple[int, ...]:
    """Return the student's widths: `wider` times the teacher's and one more, or as many as `load` leaves room for."""
    p = samples.Y.shape[1]
    most = options.wider_outputs if len(widths) == 1 and p >= widths[-1] else options.wider
    for factor in np.linspace(most, 1.0, options.widenings):
        wide = tuple(int(np.ceil(factor * k)) + (factor > 1.0) for k in widths)
        if n_weights(samples.F.shape[1], wide, p, skips)[1] <= options.load * samples.n_equations:
            break
    return wide


def part_of(samples: Samples, widths: tuple[int, ...], setting: Setting) -> Samples:
    """Return the samples that the search looks at: `equations` for every parameter of the wide student."""
    p, options, skips = samples.Y.shape[1], setting.options, has_skips(setting, len(widths))
    size = n_weights(samples.F.shape[1], wider(samples, widths, options, skips), p, skips)[1]
    equations = options.equations if len(widths) == 1 else options.equations_deep
    return samples.some(max(int(equations * size / p), 1), setting.rng)


def empty(samples: Samples, setting: Setting, depth: int) -> Student:
    """Return a student without units."""
    task, D, skips = setting.task, samples.F.shape[1], has_skips(setting, depth)
    theta = np.zeros((D if skips else samples.bias, samples.Y.shape[1]))
    V = tuple(np.zeros((0, D)) for _ in range(depth))
    return Student(task.activation, V, theta, D, samples.bias, skips)


def wide_fit(samples: Samples, student: Student, setting: Setting, enough: float) -> Fit:
    """Fit a wide student as far as the search needs it; from many random units after a first-order start."""
    options = setting.options
    if student.size > options.warm and not student.theta.any():
        student = warm_up(samples, student, setting.rng, setting.deadline)
    if student.depth > 1:
        steps, target = options.wide_steps, options.fit.fitted
    else:
        steps, target = None, enough
    fit = descend(samples, student, options.fit, setting.deadline, steps=steps, target=target)
    setting.tell("search", fit.relative)
    return fit


def race(
    samples: Samples,
    setting: Setting,
    widths: tuple[int, ...],
    wide: tuple[int, ...],
    enough: float,
    over: Callable[[int], bool] = lambda start: False,
) -> Iterator[tuple[int, Fit]]:
    """Yield wide fits without end, at least one, each with the number of the fresh start it belongs to.

    `over` returns whether a start is to be given up; one whose units overflow is not followed.
    """
    options, rng, depth = setting.options, setting.rng, len(widths)
    for start in count():
        student = empty(samples, setting, depth)
        given = next(setting.starts, None) if depth == 1 else None
        if given is not None and len(given):
            zeros = np.zeros((len(given), student.n_outputs))
            student = replace(student, V=(given,), theta=np.vstack([student.theta, zeros]))
        best = wide_fit(samples, with_fresh(student, wide, setting.draw), setting, enough)
        yield start, best
        failures = 0
        while best.rss < np.inf and failures < options.patience and not over(start) and not setting.deadline.passed:
            most = (min(k, max(w - 1, 1)) for k, w in zip(widths, best.student.widths))
            keep = tuple(int(rng.integers(k // 2, m + 1)) for k, m in zip(widths, most))
            kept = _at_fresh_scale(narrow(best.point, keep)[0].student)
            fit = wide_fit(samples, with_fresh(kept, wide, setting.draw), setting, enough)
            yield start, fit
            failures = 0 if fit.rss < options.progress * best.rss else failures + 1
            best = min(best, fit, key=lambda one: one.rss)
        if setting.deadline.passed:
            return


def _at_fresh_scale(student: Student) -> Student:
    """Return a student of one layer with rows w of norm one, if that changes more than the scale.

    Smooth units that a stuck fit made flat or steep stay so: selu needed 1.3 times the fits, gelu 1.1, tanh no more.
    """
    if student.depth > 1 or student.activation.homogeneity is not None:
        return student
    norm = np.linalg.norm(student.V[0][:, student.bias :], axis=1, keepdims=True)
    return replace(student, V=(student.V[0] / np.where(norm > 0.0, norm, 1.0),))
