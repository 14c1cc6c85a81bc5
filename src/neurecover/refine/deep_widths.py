"""The widths of the hidden layers, where nobody gives them.

A wide student of m units in every layer is fitted for m = 6, 12, 24, … until the jumps of its first layer fall into two
groups: the k₁ planes of the teacher and the spare ones. All layers are then narrowed one unit at a time. Every
student on that path has its Bayesian information criterion,

    N·log Σr² + (parameters)·log N,        Σr² no less than what counts as exact,

and the least one bounds the widths from above: an over-wide fit may be exact and keep a unit that cannot be taken away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from neurecover.refine.deep_descent import DeepDescent, Effort, descend_deep
from neurecover.refine.deep_planes import first_planes
from neurecover.refine.deep_search import JOINT, REFIT, Samples, narrow, wide_fits
from neurecover.solve import Deadline

FIRST = 6  # units per layer to begin with
HOPS = 10  # wide fits of one size before the next
SPLIT = 4.0  # ratio of two neighbouring jumps that divides the planes from the spare ones
FLOOR = 1e-20  # relative Σ r² that counts as exact
NARROWED = Effort(iterations=30, patience=10, slow=0.8, damping=1e-4)


@dataclass(frozen=True)
class Guess:
    """Widths that suffice, the student that shows it, and whether its jumps fell into two groups."""

    widths: tuple[int, ...]
    fit: DeepDescent
    clear: bool


def guess_widths(samples: Samples, depth: int, rng: np.random.Generator, deadline: Deadline) -> Guess:
    """Widths from above, by the criterion."""
    best: Guess | None = None
    for m in _sizes(samples, depth):
        for fit in islice(wide_fits(samples, (m,) * depth, rng, deadline), HOPS):
            split = _split(samples, fit)
            if split is not None:
                return _narrowed(samples, fit, split, deadline)
            if best is None or fit.rss < best.fit.rss:
                best = Guess((m,) * depth, fit, False)
        if deadline.passed:
            break
    assert best is not None
    return best


def _sizes(samples: Samples, depth: int) -> Iterator[int]:
    m = FIRST
    yield m
    while samples.wider((2 * m,) * depth)[0] > 2 * m:  # room for a student that is wider still
        m *= 2
        yield m


def _split(samples: Samples, fit: DeepDescent) -> int | None:
    """How many planes stand above the widest gap between jumps, if it is wide and units are left below it."""
    jumps = first_planes(fit.student, samples.X).jumps
    spare = fit.student.widths[0] - len(jumps)
    jumps = np.append(jumps, [1e-12 * jumps[0]] * bool(spare)) if len(jumps) else jumps
    if len(jumps) < 2:
        return None
    ratios = jumps[:-1] / np.maximum(jumps[1:], 1e-9 * jumps[0])
    widest = int(np.argmax(ratios))
    return widest + 1 if ratios[widest] >= SPLIT else None


def _narrowed(samples: Samples, fit: DeepDescent, n_planes: int, deadline: Deadline) -> Guess:
    """The first layer cut at the gap, then all of them narrowed down to the least criterion."""
    upper = fit.student.widths[1:]
    fit = narrow(samples, fit, (n_planes, *upper), deadline)
    fit = descend_deep(samples.source, fit.student, samples.total, JOINT, deadline)
    best, best_value = fit, _value(samples, fit)
    while sum(fit.student.widths) > fit.student.depth and not deadline.passed:
        fit = _one_less(samples, fit, deadline)
        value = _value(samples, fit)
        if value <= best_value:
            best, best_value = fit, value
        elif fit.rss > 4.0 * best.rss + samples.total * 1e-2:
            break
    return Guess(best.student.widths, best, True)


def _one_less(samples: Samples, fit: DeepDescent, deadline: Deadline) -> DeepDescent:
    """Without the least useful unit of all layers."""
    widths = fit.student.widths
    shorter = [
        tuple(m - (layer == chosen) for layer, m in enumerate(widths))
        for chosen in range(len(widths))
        if widths[chosen] > 1
    ]
    trials = [narrow(samples, fit, target, deadline, replace(REFIT, iterations=0)) for target in shorter]
    least = min(trials, key=lambda trial: trial.rss)
    return descend_deep(samples.source, least.student, samples.total, NARROWED, deadline)


def _value(samples: Samples, fit: DeepDescent) -> float:
    """The criterion of a student with skips."""
    N, n_parameters = samples.Y.size, fit.student.n_hidden_weights + fit.student.readout.size
    return float(N * np.log(max(fit.relative_rss, FLOOR)) + n_parameters * np.log(N))
