"""From a fitted student with skips to a network without: the signs of its units, then a fit of all weights.

With act(z) − act(−z) = m z, a unit that looks the wrong way is made up for by the skips around it. One layer after the
other from the top, whatever reads h_l and c_{l−1} with rows (A, B) is free of B when B = −m Σ_j s_j A_j v_jᵀ, s_j = 1
for the units that are turned; the constant becomes a bias, and an affine term keeps x in the readout. Without noise the
equations decide.

With noise, or where the samples leave some skips open, the signs that leave the least of B are tried on the samples: a
few steps of descent without skips tell the right ones.
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
from neurecover.models.signs import find_subsets, flips_beside_others, nearest_subsets
from neurecover.models.student import Student
from neurecover.search import SignOptions
from neurecover.search.race import Setting
from neurecover.search.turning import Turning, without_skips
from neurecover.search.units import narrowest
from neurecover.solve import within

Choices = tuple[np.ndarray, np.ndarray]  # of units to be turned (s, k), and their misfits (s,), the least first


@dataclass(frozen=True, eq=False)
class Settled:
    """The fit without skips, the fits with other signs that do equally well on these samples, and the number of sign
    choices (0 if not counted, or if no choice makes the skips superfluous).
    """

    fit: Fit
    rivals: tuple[Fit, ...]
    sign_choices: int


def settle(fit: Fit, setting: Setting) -> Settled:
    """Choose the signs of a student with skips, and fit the network that they give until convergence."""
    options, how, deadline, samples = setting.options, setting.options.signs, setting.deadline, fit.point.samples
    if not fit.student.skips:
        return best_of([descend(samples, fit.student, options.fit, deadline, slow=PATIENT)], setting)
    if fit.relative < samples.level() and setting.task.rectified:
        beside = _beside_always_on(fit, setting)
        if beside is not None and beside.relative < samples.level():
            return best_of([beside], setting)
    students = networks_behind(fit.point, setting.task.affine, how)
    starts = sorted((Point(samples, one, options.fit, deadline) for one in students), key=lambda one: one.loss)
    first = [
        descend(samples, start.student, options.fit, deadline, steps=how.steps)
        for start in within(deadline, starts[: how.fitted + 1])
    ]
    least, slow = min(one.rss for one in first), 1.0 - how.settled / samples.n_equations
    near = how.near if least <= how.near * fit.rss else how.hopeless
    fits = [
        one if one.converged else descend(samples, one.student, options.fit, deadline, slow=slow)
        for one in first
        if one.rss <= near * least
    ]
    return best_of(fits, setting)


def _beside_always_on(fit: Fit, setting: Setting) -> Fit | None:
    """Return the network of an exact fit with units that are active in all rows. None if signs alone explain the affine
    part, or with one output, where any affine part has rank one.

    What the signs of the others leave of the affine part is M = Σ_u A_u v_uᵀ over such units (`flips_beside_others`).
    """
    how, student, samples = setting.options.signs, fit.student, fit.point.samples
    unable = student.n_outputs == 1 or samples.root is not None or not student.bias
    if unable or len(_choices(Turning.of(student, 0, affine=False), how)[0]):
        return None
    student = narrowest(fit).student
    turning = Turning.of(student, 0, affine=False)
    linear = turning.target.reshape(len(turning.rows), -1)
    rank = int(min((setting.task.n_hidden or np.inf) - len(turning.V), student.n_outputs))
    if rank < 1:
        return None
    found = flips_beside_others(turning.A, turning.V[:, turning.kept :], linear, turning.slope, how.misfit, rank)
    if found is None:
        return None
    left, sizes, right = np.linalg.svd(found[1], full_matrices=False)
    more = sizes > how.misfit * np.linalg.norm(linear)
    always = np.hstack([1.0 + (samples.F[:, 1:] @ right[more].T).max(axis=0)[:, None], -right[more]])
    rows, V = turning.turned(found[0])
    theta = np.vstack([rows.T, (left[:, more] * sizes[more]).T])
    student = replace(student, V=(np.vstack([V, always]),), theta=theta, skips=False)
    return descend(samples, student, setting.options.fit, setting.deadline, slow=PATIENT)


def best_of(fits: Iterable[Fit], setting: Setting) -> Settled:
    """Return the fit with the least Σr², and those with other units that are as good within the noise."""
    fits = list(fits)
    best = min(fits, key=lambda one: one.rss)
    samples = best.point.samples
    if best.relative < samples.level():
        return Settled(best, (), count_signs(best.student, setting.task.affine, setting.options.signs))
    doubt = best.rss * (1.0 + setting.options.signs.doubt / samples.n_equations)
    rivals = tuple(one for one in fits if one.rss <= doubt and not same_units(one, best, setting.options.signs))
    return Settled(best, rivals, 1 + len(rivals))


def on_more(samples: Samples, settled: Settled, setting: Setting) -> Settled:
    """Return the same network fitted to further samples."""
    fits = [
        descend(samples, one.student, setting.options.fit, setting.deadline, slow=PATIENT)
        for one in (settled.fit, *settled.rivals)
    ]
    again = best_of(fits, setting)
    return again if settled.sign_choices else replace(again, sign_choices=0)


def networks_behind(point: Point, affine: bool, how: SignOptions) -> list[Student]:
    """Return the networks that a student with skips may be, the likeliest first.

    An exact student gives the solutions of the equations of its signs. Where they have none, because noise moved the
    skips or because the samples leave some of them open, those that solve them best are chosen.
    """
    student, count, choices = point.student, how.likely, list[Choices]()
    turnings = [Turning.of(student, layer, affine) for layer in range(student.depth)]
    if point.relative < point.samples.level():
        choices = [_choices(turning, how) for turning in turnings]
    if not choices or not all(len(flips) for flips, _ in choices):
        count = how.likely if student.depth == 1 else how.likely_deep
        choices = [_choices(turning, how, count) for turning in turnings]
    ranked = sorted(
        (sum(float(misfit[i]) for i, (_, misfit) in zip(chosen, choices)), chosen)
        for chosen in product(*(range(len(flips)) for flips, _ in choices))
    )
    most = how.unlikely * max(ranked[0][0], how.misfit)
    return [
        without_skips(student, [flips[i] for i, (flips, _) in zip(chosen, choices)], affine)
        for misfit, chosen in ranked[:count]
        if misfit <= most
    ]


def _choices(turning: Turning, how: SignOptions, count: int = 0) -> Choices:
    """Return the choices of signs that solve a layer's equations, or the `count` nearest to that, and their misfits.

    Where there are no equations units stay as they are.
    """
    if not turning.open:
        return np.zeros((1, len(turning.V)), dtype=bool), np.zeros(1)
    if count:
        flips = nearest_subsets(turning.columns, turning.target, count)
        return flips, np.sum((flips @ turning.columns.T - turning.target) ** 2, axis=1)
    found = find_subsets(turning.columns, turning.target, how.misfit)
    solved = found.misfit <= how.misfit
    return found.flips[solved], found.misfit[solved]


def count_signs(student: Student, affine: bool, how: SignOptions) -> int:
    """Return how many choices of signs give a network's function: 1 where they are determined, 0 for too many to
    search.

    Units of a layer may be reversed together when Σ_j s_j A_j w_jᵀ = 0 for what reads them, biases taking up the
    constant. Not turning any is always one solution. With an affine term the signs of one layer are a convention.
    """
    count, beside = 1, as_student(as_network(student), bool(student.bias), skips=True)
    for turning in (Turning.of(beside, layer, affine) for layer in range(student.depth)):
        if turning.open:
            search = find_subsets(turning.columns, turning.target, how.misfit)
            count *= int(np.count_nonzero(search.misfit <= how.misfit)) if search.complete else 0
    return count


def same_units(a: Fit, b: Fit, how: SignOptions) -> bool:
    """Return whether two networks have the same units in some order; a reversed unit counts as another one."""
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
