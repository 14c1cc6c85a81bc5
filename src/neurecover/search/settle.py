"""From a fitted student with skips to a network without: the signs of its units, then a fit of all weights.

With act(z) − act(−z) = m z, a unit that looks the wrong way is made up for by the skips around it. One layer after the
other from the top, whatever reads h_l and c_{l−1} with rows (A, B) is free of B when B = −m Σ_j s_j A_j v_jᵀ, s_j = 1
for the units that are turned; the constant becomes a bias, and an affine term keeps x in the readout. Without noise the
equations decide. With noise the likeliest signs (`covariance`) are tried on the samples.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from scipy.optimize import linear_sum_assignment

from neurecover.fit.descent import PATIENT, Fit, descend
from neurecover.fit.point import Point
from neurecover.fit.samples import Samples
from neurecover.models import as_network, as_student
from neurecover.models.signs import find_subsets, flips_beside_steady, nearest_subsets
from neurecover.models.student import Student
from neurecover.models.turning import Turning, without_skips
from neurecover.search import SignOptions
from neurecover.search.race import Setting
from neurecover.search.signs import Covariance
from neurecover.search.units import narrowest
from neurecover.solve import within

Choices = tuple[np.ndarray, np.ndarray]  # of units to be turned (s, k), and their misfits (s,), the least first


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
    options, how, deadline, samples = setting.options, setting.options.signs, setting.deadline, fit.point.samples
    if not fit.student.skips:
        done = descend(samples, fit.student, options.fit, deadline, slow=PATIENT)
        return Settled(done, (), 1)
    students = networks_behind(fit.point, setting.task.affine, how)
    starts = sorted((Point(samples, one, options.fit, deadline) for one in students), key=lambda one: one.loss)
    begun = [
        descend(samples, start.student, options.fit, deadline, steps=how.steps)
        for start in within(deadline, starts[: how.fitted + 1])
    ]
    least, slow = min(one.rss for one in begun), 1.0 - how.settled / samples.n_equations
    near = how.near if least <= how.near * fit.rss else how.hopeless
    fits = [
        one if one.converged else descend(samples, one.student, options.fit, deadline, slow=slow)
        for one in begun
        if one.rss <= near * least
    ]
    if fit.relative < samples.level() <= min(one.relative for one in fits) and setting.task.rectified:
        fits += _beside_always_on(fit, setting)
    return best_of(fits, setting)


def _beside_always_on(fit: Fit, setting: Setting) -> list[Fit]:
    """Return the network of an exact fit with one more unit, on in all rows, if there is one.

    Such a unit is in the affine part as a whole, and what the signs of the others leave of that is of rank one.
    """
    few = narrowest(fit)
    student, samples, most = few.student, few.point.samples, setting.task.n_hidden
    turning = Turning.of(student, 0, affine=False)
    linear = turning.target.reshape(len(turning.rows), -1)
    W = turning.V[:, turning.kept :]
    found = flips_beside_steady(turning.A, W, linear, turning.slope, setting.options.signs.misfit)
    if found is None or samples.root is not None or student.widths[0] >= (most or np.inf):
        return []
    flips, a, w = found
    rows, V = turning.turned(flips)
    unit = np.append(1.0 + float((samples.F[:, 1:] @ w).max()), -w)
    student = replace(student, V=(np.vstack([V, unit]),), theta=np.vstack([rows.T, a]), skips=False)
    return [descend(samples, student, setting.options.fit, setting.deadline, slow=PATIENT)]


def best_of(fits: Iterable[Fit], setting: Setting) -> Settled:
    """Return the least Σr² among fits, and those of other units that are as good as far as noise tells."""
    fits = list(fits)
    best = min(fits, key=lambda one: one.rss)
    samples = best.point.samples
    if best.relative < samples.level():
        return Settled(best, (), count_signs(best.student, setting.task.affine, setting.options.signs))
    doubt = best.rss * (1.0 + setting.options.signs.doubt / samples.n_equations)
    rivals = tuple(one for one in fits if one.rss <= doubt and not same_units(one, best, setting.options.signs))
    return Settled(best, rivals, 1 + len(rivals))


def on_more(samples: Samples, settled: Settled, setting: Setting) -> Settled:
    """Return the same fitted to more samples."""
    fits = [
        descend(samples, one.student, setting.options.fit, setting.deadline, slow=PATIENT)
        for one in (settled.fit, *settled.rivals)
    ]
    again = best_of(fits, setting)
    return again if settled.sign_choices else replace(again, sign_choices=0)


def networks_behind(point: Point, affine: bool, how: SignOptions) -> list[Student]:
    """Return the networks that a student with skips may be, the likeliest first.

    An exact student gives the solutions of the equations of its signs. Where they have none, because noise moved the
    skips or because the samples leave some of them open, signs are chosen by their likelihood.
    """
    student, count, floor = point.student, how.likely, 0.0
    turnings = [Turning.of(student, layer, affine) for layer in range(student.depth)]
    covariance, choices = None, list[Choices]()
    if point.relative < point.samples.level():
        choices = [_solutions(turning, how) for turning in turnings]
    if not choices or not all(len(flips) for flips, _ in choices):
        count = how.likely if student.depth == 1 else how.likely_deep
        if student.n_parameters <= how.weights and any(turning.open for turning in turnings):
            covariance = Covariance(point, how)
            floor = float(sum(turning.target.size for turning in turnings))
        choices = [_likely(turning, covariance, count) for turning in turnings]
    ranked = sorted(
        (sum(float(misfit[i]) for i, (_, misfit) in zip(chosen, choices)), chosen)
        for chosen in product(*(range(len(flips)) for flips, _ in choices))
    )
    most = how.unlikely * max(ranked[0][0], floor, how.misfit)
    signs = [
        [flips[i] for i, (flips, _) in zip(chosen, choices)] for misfit, chosen in ranked[:count] if misfit <= most
    ]
    if covariance is None:
        return [without_skips(student, flips, affine) for flips in signs]
    return [without_skips(covariance.nearest_without(flips, affine), flips, affine) for flips in signs]


def _solutions(turning: Turning, how: SignOptions) -> Choices:
    """Return the choices of signs that solve a layer's equations, and their misfits; none where there are none."""
    if not turning.open:
        return _as_they_are(turning)
    found = find_subsets(turning.columns, turning.target, how.misfit)
    solved = found.misfit <= how.misfit
    return found.flips[solved], found.misfit[solved]


def _likely(turning: Turning, covariance: Covariance | None, count: int) -> Choices:
    """Return the likeliest choices of signs and their misfits; without a covariance all equations count alike."""
    if not turning.open:
        return _as_they_are(turning)
    if covariance is not None:
        return covariance.likely(turning, count)
    flips = nearest_subsets(turning.columns, turning.target, count)
    return flips, np.sum((flips @ turning.columns.T - turning.target) ** 2, axis=1)


def _as_they_are(turning: Turning) -> Choices:
    return np.zeros((1, len(turning.V)), dtype=bool), np.zeros(1)


def count_signs(student: Student, affine: bool, how: SignOptions) -> int:
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
        search = find_subsets(columns, np.zeros(len(columns)), how.misfit)
        count *= int(np.count_nonzero(search.misfit <= how.misfit)) if search.complete else 0
    return count


def same_units(a: Fit, b: Fit, how: SignOptions) -> bool:
    """Tell whether two networks have the same units, but for their order: a reversed one is twice its size away."""
    first = normal_form(a.student)
    second = in_order_of(first, normal_form(b.student))
    apart = [np.linalg.norm(V - W, axis=1) / np.linalg.norm(V, axis=1) for V, W in zip(first.V, second.V)]
    return max(np.concatenate(apart), default=0.0) <= how.turned


def normal_form(student: Student) -> Student:
    """Return a student without skips in the normal form of its network."""
    return as_student(as_network(student).normal_form(), bool(student.bias))


def in_order_of(student: Student, other: Student) -> Student:
    """Return the other network with its units in the order in which they are nearest to this one's, layer by layer."""
    parts = [*other.V, other.theta.T]
    for layer, rows in enumerate(student.V):
        _, order = linear_sum_assignment(np.linalg.norm(rows[:, None] - parts[layer], axis=2))
        at = parts[layer + 1].shape[1] - len(order)
        parts[layer] = parts[layer][order]
        parts[layer + 1] = parts[layer + 1][:, np.r_[:at, at + order]]
    return replace(other, V=tuple(parts[:-1]), theta=parts[-1].T)
