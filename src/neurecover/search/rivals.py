"""Other optima of a fit to noisy samples that are as good.

Standard errors take Σr² for a parabola around its least value, and where samples are few it is none: it has local
minima, some of them as deep, within the errors and beyond. Two kinds of starts look for them. From θ + 3 L ξ, with L Lᵀ
= σ²H⁺ the covariance of the parabola and ξ standard normal, the fit is made anew. And a unit of the top layer that adds
little to the outputs gives way to others: of many random units h the best are those that explain most of what is left
without it,

    Σ_o (hᵀr_o)² / |(I − P) h|²,        P the projector on what the readout still reads, r = (I − P) y.

From either all weights are fitted together. A lower optimum is kept. One about as deep that is elsewhere is a rival,
between which and this one the samples do not decide, unless errors drawn from Σr² itself hold both
(`certificate/information/plane_posterior`); for these the units of optima within χ² of one degree of freedom are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import chdtri

from neurecover.fit.descent import PATIENT, Fit, descend
from neurecover.fit.point import Point, curvature_sums
from neurecover.models import as_network
from neurecover.models.student import Student
from neurecover.search.find import Runs, one_optimum
from neurecover.search.race import Setting
from neurecover.search.settle import in_order_of, normal_form, same_units
from neurecover.search.units import without, worth
from neurecover.solve import within


@dataclass(frozen=True)
class RivalOptions:
    """How far and how often other optima are sought."""

    starts: int = 8  # of a round, away from the optimum
    away: float = 3.0  # standard errors that they are away
    rounds: int = 4  # lower optima that are followed
    # The largest standard error of a unit row up to which nothing is tried: of 13 claims on Poisson counts the wrong
    # ones had 0.07 and 0.08, and where there is a load of samples (`bench noise`) it is 0.004.
    narrow: float = 0.02
    work: float = 2e9  # multiplications that H may take; beyond, nothing is tried
    lower: float = 0.1  # of Σr²/σ² by which an optimum is lower
    as_deep: float = 10.0  # of Σr²/σ² between two optima: odds of e⁵ under Gaussian noise
    within: float = 0.05  # 1 − level of the likelihood interval, Δ Σr²/σ² < χ², that has to hold other optima
    elsewhere: float = 2.0  # standard errors, in some direction, between two optima: a 95 % interval leaves one out
    faint: float = 40.0  # standard errors of a unit's output weights up to which others are tried in its place
    pool: int = 1_000  # random units in place of a faint one
    fitted: int = 3  # of them, those that are fitted with all others
    first_steps: int = 10  # of such a fit, after which
    hopeless: float = 50.0  # times σ² above the best is too much to go on
    rows: int = 20_000  # on which random units are compared
    seen: float = 1e-12  # of the largest curvature, or of a unit's own size: less is rounding


def seek_rivals(runs: Runs, setting: Setting, how: RivalOptions | None = None) -> Runs:
    """Return the runs with the lowest optimum that other starts lead to; it is `unrivalled` if no other one is about as
    deep.
    """
    how, student = how or RivalOptions(), runs.fit.student
    work = float(runs.fit.point.samples.n_equations) * student.n_parameters**2
    if runs.exact or not student.size or student.skips or work > how.work:
        return runs
    normal = normal_form(student)
    best = descend(runs.fit.point.samples, normal, setting.options.fit, setting.deadline, steps=0)
    agreed, unrivalled = bool(runs.agreements), False
    nearby: tuple[np.ndarray, ...] = ()
    for _ in range(how.rounds):
        around = Around.of(best, how)
        tried = [*_from_afar(best, around, setting, how), *_with_other_faint_units(best, around, setting, how)]
        if setting.deadline.passed:
            break
        lowest = min([best, *tried], key=lambda fit: fit.rss)
        if lowest.rss >= best.rss - how.lower * around.variance:
            near = [fit for fit in tried if fit.rss <= best.rss + how.as_deep * around.variance]
            unrivalled = all(around.distance(fit.student) <= how.elsewhere for fit in near)
            highest = best.rss + float(chdtri(1, how.within)) * around.variance
            within_errors = (as_network(fit.student) for fit in (best, *near) if fit.rss <= highest)
            nearby = tuple(np.column_stack(network.layers[0]) for network in within_errors)
            break
        # It has to be found again.
        agreed = any(one_optimum(fit, lowest, setting.options) for fit in tried if fit is not lowest)
        best = lowest
    return replace(
        runs, best=replace(runs.best, fit=best), agreements=int(agreed), unrivalled=unrivalled, nearby=nearby
    )


@dataclass(frozen=True, eq=False)
class Around:
    """Σr² as a parabola around an optimum: σ², H = half·halfᵀ and H⁺ = root·rootᵀ over all weights φ of the student."""

    student: Student
    variance: float
    half: np.ndarray
    root: np.ndarray

    @classmethod
    def of(cls, fit: Fit, how: RivalOptions) -> Around:
        """Return the parabola at a fit in normal form."""
        values, vectors = np.linalg.eigh(information(fit.point))
        seen = values > how.seen * values[-1]
        roots = np.sqrt(values[seen])
        freedom = max(fit.point.samples.n_equations - int(np.count_nonzero(seen)), 1)
        return cls(fit.student, fit.rss / freedom, vectors[:, seen] * roots, vectors[:, seen] / roots)

    @property
    def widest(self) -> float:
        """The largest standard error of a hidden weight, biases excluded, for rows of norm one if the scale is free."""
        errors = np.sqrt(self.variance * np.einsum("ij,ij->i", self.root, self.root))
        rows = self.student.split(errors[: self.student.size])
        return max(float(row[:, self.student.bias :].max(initial=0.0)) for row in rows)

    def start(self, rng: np.random.Generator, away: float) -> Student:
        """Draw a student a few standard errors from the optimum."""
        step = away * np.sqrt(self.variance) * (self.root @ rng.standard_normal(self.root.shape[1]))
        return self.student.with_weights(self.student.weights + step)

    def distance(self, other: Student) -> float:
        """Return √(δᵀHδ)/σ, in standard errors along the direction in which another optimum lies.

        Two optima may differ by many of these and hardly in their outputs: then Σr² is no parabola.
        """
        apart = in_order_of(self.student, normal_form(other)).weights - self.student.weights
        return float(np.linalg.norm(self.half.T @ apart)) / float(np.sqrt(max(self.variance, 1e-300)))


def information(point: Point) -> np.ndarray:
    """Return H = Σ JᵀJ over all weights φ of a student."""
    student = point.student
    (q, p), P = student.theta.shape, student.size
    H = np.zeros((P + q * p, P + q * p))
    for output in range(p):
        part = replace(student, theta=student.theta[:, output : output + 1])
        JJ, BJ = curvature_sums(point, part, point.values)
        own = slice(P + output * q, P + (output + 1) * q)
        H[:P, :P] += JJ
        H[own, own] = point.gram
        H[own, :P] = BJ
        H[:P, own] = BJ.T
    return H


def _from_afar(best: Fit, around: Around, setting: Setting, how: RivalOptions) -> Iterator[Fit]:
    """Yield fits that start a few standard errors from the best one, unless these errors are small."""
    starts = how.starts if around.widest > how.narrow else 0
    for _ in within(setting.deadline, range(starts)):
        start = around.start(setting.rng, how.away)
        yield descend(best.point.samples, start, setting.options.fit, setting.deadline, slow=PATIENT)


def _with_other_faint_units(best: Fit, around: Around, setting: Setting, how: RivalOptions) -> Iterator[Fit]:
    """Yield fits in which other units replace each faint unit of the top layer; fits that end with the same units are
    left out.

    One layer is left alone: there two candidates that agree were never wrong for a faint unit (`bench noise`).
    """
    samples, options, deadline, top = best.point.samples, setting.options.fit, setting.deadline, best.student.depth - 1
    cost = worth(best.point, top).cost / max(around.variance, 1e-300)
    n_faint = np.count_nonzero(cost < how.faint**2) if top and best.student.bias else 0
    for unit in within(deadline, np.argsort(cost)[:n_faint]):
        for row in within(deadline, _other_units(best, int(unit), setting.rng, how)):
            V = np.vstack([best.student.V[top][:unit], row, best.student.V[top][unit + 1 :]])
            start = replace(best.student, V=(*best.student.V[:top], V))
            fit = descend(samples, start, options, deadline, steps=how.first_steps)
            if fit.rss > best.rss + how.hopeless * around.variance:
                continue
            fit = fit if fit.converged else descend(samples, fit.student, options, deadline, slow=PATIENT)
            if fit.rss < best.rss or not same_units(fit, best, setting.options.signs):
                yield fit


def _other_units(best: Fit, unit: int, rng: np.random.Generator, how: RivalOptions) -> np.ndarray:
    """Return candidates for a unit of the top layer: of random rows of V those that explain most of what its loss
    leaves, best first.
    """
    student, top = best.student, best.student.depth - 1
    part = best.point.samples.some(how.rows, rng)
    less = Point(part, without(student, top, unit, np.zeros(len(student.theta))), best.point.options)
    base, below = student.reads(top)
    inner = replace(part, F=np.hstack([part.F[:, :base], less.values.H[:, below]]))
    V = rng.standard_normal((how.pool, inner.F.shape[1]))  # of what is below, whitened
    V = V / np.linalg.norm(V[:, student.bias :], axis=1, keepdims=True) @ inner.inverse_root.T
    H, B = part.weigh(student.activation(inner.F @ V.T)), part.weigh(less.student.columns(less.values))
    squares = np.sum(H**2, axis=0)
    beside = squares - np.sum(less.readout.whiten(B.T @ H) ** 2, axis=0)
    gain = np.sum((H.T @ less.R) ** 2, axis=1) / np.maximum(beside, how.seen * squares + 1e-300)
    return V[np.argsort(-gain)[: how.fitted]]
