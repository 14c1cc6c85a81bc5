"""From a fitted student with skips to a network without: the signs of its units, then a fit of all weights.

With act(z) − act(−z) = m z, a unit that looks the wrong way is made up for by the skips around it. One layer after the
other from the top, whatever reads h_l and c_{l−1} with rows (A, B) is free of B when B = −m Σ_j s_j A_j v_jᵀ, s_j = 1
for the units that are turned; the constant becomes a bias, and an affine term keeps x in the readout. Without noise the
equations decide. With noise the likeliest signs (`covariance`) are tried on the samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from neurecover.fit.descent import PATIENT, Fit, descend
from neurecover.fit.point import Point
from neurecover.fit.samples import Samples
from neurecover.models.signs import find_subsets, nearest_subsets
from neurecover.models.wide import WideStudent
from neurecover.search.covariance import Covariance, Turning
from neurecover.search.options import SearchOptions
from neurecover.search.race import Setting
from neurecover.solve import within

CLOSE = 1e-10  # Σr²/Σy² of a start that solves the equations of an exact fit
BEGUN = 10  # steps after which hopeless choices of signs are given up
HOPELESS, NEAR = 2.0, 1.1  # times the least Σr² among them; the same once one is as good as the student with skips
UNLIKELY = 3.0  # times the least W, or its mean for the right signs: W is right to second order alone
PER_LAYER = 4  # choices of signs of every layer where there are several
MOST_WEIGHTS = 1_500  # whose covariance is formed; beyond, the equations of the signs count alike
PROBES, REVERSED = 256, 0.5  # inputs on which networks are compared, and the distance of units that are not the same
DOUBT = 10.0  # degrees of freedom: odds of e⁵ between two choices of signs under Gaussian noise


@dataclass(frozen=True, eq=False)
class Settled:
    """The fit without skips, those of other signs that do as well as far as the samples tell, and how many choices of
    signs there are (0: not counted, or none leaves the skips superfluous).
    """

    fit: Fit
    rivals: tuple[Fit, ...]
    sign_choices: int


def settle(fit: Fit, setting: Setting) -> Settled:
    """Choose the signs of a student with skips and fit the network that they give to the end."""
    point, options, deadline, samples = fit.point, setting.options, setting.deadline, fit.point.samples
    exact = fit.relative < samples.level()
    if not fit.student.skips:
        done = descend(samples, fit.student, options.fit, deadline, slow=PATIENT)
        return Settled(done, (), 1)
    affine = setting.task.affine
    students = exact_signs(fit.student, affine, options) if exact else likely_signs(point, affine, options)
    starts = sorted((Point(samples, one, options.fit, deadline) for one in students), key=lambda one: one.loss)
    begun = [
        descend(samples, start.student, options.fit, deadline, steps=BEGUN)
        for start in within(deadline, starts[: options.fitted + 1])
    ]
    least = min(one.rss for one in begun)
    near = NEAR if least <= NEAR * fit.rss else HOPELESS
    fits = [
        one if one.converged else descend(samples, one.student, options.fit, deadline, slow=PATIENT)
        for one in begun
        if one.rss <= near * least
    ]
    if exact and setting.gates is not None and min(one.relative for one in fits) >= samples.level():
        fits += list(_beside_always_on(fit, setting))
    return best_of(fits, setting)


def _beside_always_on(fit: Fit, setting: Setting) -> Iterator[Fit]:
    """Yield exact fits in which a unit is off for very few samples, or on for all."""
    samples, options, deadline = fit.point.samples, setting.options.fit, setting.deadline
    assert setting.gates is not None
    for student in setting.gates.beside_always_on(fit):
        if deadline.passed:
            return
        if Point(samples, student, options, deadline).relative < CLOSE:
            done = descend(samples, student, options, deadline, slow=PATIENT)
            if done.relative < samples.level():
                yield done


def best_of(fits: Iterable[Fit], setting: Setting) -> Settled:
    """Return the least Σr² among fits, and those of other units that are as good as far as noise tells."""
    fits = list(fits)
    best = min(fits, key=lambda one: one.rss)
    samples = best.point.samples
    if best.relative < samples.level():
        return Settled(best, (), count_signs(best.student, setting.task.affine, setting.options))
    doubt = best.rss * (1.0 + DOUBT / samples.n_equations)
    rivals = tuple(one for one in fits if one.rss <= doubt and not same_units(one, best))
    return Settled(best, rivals, 1 + len(rivals))


def on_more(samples: Samples, settled: Settled, setting: Setting) -> Settled:
    """Return the same fitted to more samples."""
    fits = [
        descend(samples, one.student, setting.options.fit, setting.deadline, slow=PATIENT)
        for one in (settled.fit, *settled.rivals)
    ]
    again = best_of(fits, setting)
    return again if settled.sign_choices else replace(again, sign_choices=0)


def exact_signs(student: WideStudent, affine: bool, options: SearchOptions) -> list[WideStudent]:
    """Return the networks that an exact student can be: solutions of the equations, or the nearest to one."""
    partial = [_Partial((), student.theta.T, 0.0)]
    for layer in range(student.depth - 1, -1, -1):
        grown = []
        for part in partial:
            turning = Turning.of(student, layer, affine, part.rows)
            if not len(turning.target) or not turning.slope:
                flips, misfits = np.zeros((1, len(turning.V)), dtype=bool), np.zeros(1)
            else:
                found = find_subsets(turning.columns, turning.target, options.sign_misfit)
                flips, misfits = found.flips, found.misfit
            grown += [part.below(turning, flip, float(misfit)) for flip, misfit in zip(flips, misfits)]
        partial = sorted(grown, key=lambda part: part.misfit)[: options.likely]
    return [part.student(student, affine) for part in partial]


def likely_signs(point: Point, affine: bool, options: SearchOptions) -> list[WideStudent]:
    """Return the networks that a student fitted to noisy samples is likely to be, the likeliest first."""
    student, n_skips = point.student, 0
    count = options.likely if student.depth == 1 else PER_LAYER
    covariance = Covariance(point) if student.n_parameters <= MOST_WEIGHTS and student.activation.odd_slope else None
    partial = [_Partial((), student.theta.T, 0.0)]
    for layer in range(student.depth - 1, -1, -1):
        if covariance is not None:
            likely = covariance.likely(layer, affine, count)
            flips, misfits = likely.flips, likely.misfit
            n_skips += likely.n_skips
        grown = []
        for part in partial:
            turning = Turning.of(student, layer, affine, part.rows)
            if covariance is None:
                flips, misfits = _nearest(turning, count)
            grown += [part.below(turning, flip, float(misfit)) for flip, misfit in zip(flips, misfits)]
        partial = grown
    least = max(min(part.misfit for part in partial), float(n_skips))
    near = sorted((part for part in partial if part.misfit <= UNLIKELY * least), key=lambda part: part.misfit)
    return [part.student(student, affine) for part in near[:count]]


def _nearest(turning: Turning, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return signs by their misfit, all equations counting alike."""
    columns, target = turning.columns, turning.target
    if not len(target) or not turning.slope:
        return np.zeros((1, len(turning.V)), dtype=bool), np.zeros(1)
    flips = nearest_subsets(columns, target, count)
    return flips, np.sum((flips @ columns.T - target) ** 2, axis=1)


def count_signs(student: WideStudent, affine: bool, options: SearchOptions) -> int:
    """Return how many choices of signs give a network's function: 1 where they are determined, 0 for too many to
    search.

    Units of a layer may be reversed together when Σ_j s_j A_j w_jᵀ = 0 for what reads them, biases taking up the
    constant. Not turning any is always one solution. With an affine term the signs of one layer are a convention.
    """
    count, slope = 1, student.activation.odd_slope or 0.0
    if not slope:
        return 1
    for layer, V in enumerate(student.V):
        if affine and student.depth == 1:
            break
        rows = student.theta.T if layer == student.depth - 1 else student.V[layer + 1]
        A, W = rows[:, rows.shape[1] - len(V) :], V[:, student.bias :]
        columns = slope * np.einsum("rj,ji->rij", A, W).reshape(A.shape[0] * W.shape[1], len(V))
        search = find_subsets(columns, np.zeros(len(columns)), options.sign_misfit)
        count *= int(np.count_nonzero(search.misfit <= options.sign_misfit)) if search.complete else 0
    return count


def same_units(a: Fit, b: Fit) -> bool:
    """Tell whether two fits are one network but for the order of units: what each of them adds up, on whitened inputs.

    A unit reversed is at a distance of 2 from itself when preactivations have unit norm.
    """
    first, second = (_preactivations(fit.student) for fit in (a, b))
    for one, other in zip(first, second):
        if one.shape != other.shape:
            return False
        if not one.size:
            continue
        apart = np.linalg.norm(one[:, :, None] - other[:, None, :], axis=0)
        if apart.min(axis=1).max(initial=0.0) > REVERSED or len(set(apart.argmin(axis=1))) < len(apart):
            return False
    return True


def _preactivations(student: WideStudent) -> list[np.ndarray]:
    """Return what every unit adds up on random inputs, scaled to unit norm, layer by layer."""
    F = np.random.default_rng(0).standard_normal((PROBES, student.n_base))
    F[:, : student.bias] = 1.0
    values, scaled = student.forward(F), []
    for layer, V in enumerate(student.V):
        base, below = student.reads(layer)
        Z = F[:, :base] @ V[:, :base].T + values.H[:, below] @ V[:, base:].T
        scaled.append(Z / np.maximum(np.linalg.norm(Z, axis=0), 1e-300))
    return scaled


@dataclass(frozen=True, eq=False)
class _Partial:
    """The layers above, without skips; `rows` are the weights of the lowest of them on c_l."""

    above: tuple[np.ndarray, ...]
    rows: np.ndarray
    misfit: float

    def below(self, turning: Turning, flip: np.ndarray, misfit: float) -> _Partial:
        """Return this and one layer below it, with the given units turned and the skips dropped."""
        rows, V = turning.turned(flip)
        return _Partial((rows, *self.above), V, self.misfit + misfit)

    def student(self, like: WideStudent, affine: bool) -> WideStudent:
        """Return the network as a student without skips."""
        V = (self.rows, *self.above[:-1])
        return replace(like, V=V, theta=self.above[-1].T, skips=False, affine=affine)
