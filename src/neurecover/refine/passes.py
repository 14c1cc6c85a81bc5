"""Gauss–Newton on all samples, where a pass over them is what costs: one pass per step and none to try it.

A search on a sample of m rows ends about √(P/m) standard errors of one row from the optimum on all n. There the sums of
one pass give the step on all rows, and on those that are not held out, at once:

    θ' = θ + F⁻¹ g,        θ'_t = θ + F_t⁻¹ g_t.

The next pass sees whether Σ r² fell, what θ'_t, which no held-out row had a part in, leaves on these, and the next
step. A step's promise e = gᵀF⁻¹g / (σ² P) is 1 where it moves the weights by their standard errors. Promises fall as
e₁, e₂, e₃ ≈ e₂·(e₂/e₁): once the next is to be small, a step is taken without a further look. From 100 P rows the
second step is the last (measured at n = 3,000,000, P = 133: 194, 0.06, 0.0003).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.data import Prepared, Whitened, reduce
from neurecover.models import Network, Student
from neurecover.refine.descent import EXACT
from neurecover.refine.settling import Finished, as_network, as_student, away_from_samples
from neurecover.refine.steps import HiddenSystem, dense_system
from neurecover.statistics import Divided, GaussNewtonSums, PreactivationRange, Residuals

MOST_PASSES = 8  # two are usual
SMALL = 0.01  # the promise of a step that need not be taken: it moves weights by a tenth of their standard errors
FREE = 1e-12  # damping that changes nothing but keeps a singular curvature from being factorised
LARGEST = 6_000  # parameters whose curvature is formed


@dataclass(frozen=True)
class Streamed:
    """The network fitted to all samples, how it came about, and the residuals on rows that had no part in the fit."""

    finished: Finished
    holdout: Residuals
    passes: int


@dataclass(frozen=True, eq=False)
class _Point:
    """A student and its sums over the rows that are not held out and those that are."""

    student: Student
    train: GaussNewtonSums
    whole: GaussNewtonSums
    holdout: Residuals
    extremes: PreactivationRange

    @property
    def rss(self) -> float:
        return float(self.whole.sums["rr"])


def fit_in_passes(given: Prepared, found: Finished, bias: bool) -> Streamed:
    """The units that were found, fitted to all samples of a stream."""
    start = as_student(found.network, bias)
    point, passes, damping, before = _look(given, start, found.network), 1, FREE, 0.0
    total = _squares(given)
    n_free = start.V.size + start.readout.size
    while True:
        if point.rss <= EXACT * total:
            return _ended(point, point.student, found, total, True, passes)
        system = dense_system(point.whole)
        step = system.solve(damping)
        if step is not None:
            trial = _stepped(point.student, system, step)
            variance = point.rss / max(point.whole.n * start.n_outputs - n_free, 1)
            promise = system.predicted_decrease(step, damping) / (variance * n_free)
            rate = min(promise / before, 1.0) if before > 0.0 else 1.0
            if damping == FREE and promise * rate <= SMALL:
                return _ended(point, trial, found, total, True, passes)
        if passes == MOST_PASSES:
            return _ended(point, point.student, found, total, False, passes)
        if step is not None:
            seen, passes = _look(given, trial, as_network(_without_held_out(point, damping))), passes + 1
            if seen.rss < point.rss:
                point, damping, before = seen, max(FREE, 0.01 * damping), promise
                continue
        damping = max(10.0 * damping, 1e-3)


def _squares(given: Prepared) -> float:
    """Σ y²."""
    moments, d = given.fitted_moments, given.source.n_inputs
    return moments.n * float(np.diag(moments.covariance)[d:].sum() + np.square(given.output_mean).sum())


def _without_held_out(point: _Point, damping: float) -> Student:
    """The student after a step on the rows that are not held out."""
    system = dense_system(point.train)
    step = system.solve(damping)
    return point.student if step is None else _stepped(point.student, system, step)


def _look(given: Prepared, student: Student, apart: Network) -> _Point:
    """One pass: the sums at the student, and the residuals of `apart` on the rows that are held out."""
    assert given.stream is not None
    division, whitening = given.stream.division, given.whitening
    left = Residuals(apart, apart.n_outputs, apart.n_hidden, given.output_mean)
    sums, ends = GaussNewtonSums(student), PreactivationRange(student)
    train = Whitened(whitening, sums=sums, ends=ends)
    held = Whitened(whitening, sums=sums.blank(), ends=ends.blank(), left=left)
    both = reduce(given.source, Divided(division, train=train, held=held))
    train, held = both.part("train", Whitened), both.part("held", Whitened)
    sums, ends, left = (
        train.part("sums", GaussNewtonSums),
        train.part("ends", PreactivationRange),
        held.part("left", Residuals),
    )
    whole = sums.from_arrays(sums.to_arrays())
    whole.merge(held.part("sums", GaussNewtonSums))
    ends.merge(held.part("ends", PreactivationRange))
    return _Point(student, sums, whole, left, ends)


def _stepped(student: Student, system: HiddenSystem, step: np.ndarray) -> Student:
    change = step.reshape(student.V.shape)
    return replace(student, V=student.V + change, readout=student.readout + system.follow(change))


def _ended(point: _Point, student: Student, found: Finished, total: float, converged: bool, passes: int) -> Streamed:
    network = as_network(away_from_samples(student, point.extremes))
    relative = point.rss / total if total > 0.0 else 0.0
    finished = replace(found, network=network, rss=point.rss, relative_rss=relative, converged=converged)
    return Streamed(finished, point.holdout, passes)
