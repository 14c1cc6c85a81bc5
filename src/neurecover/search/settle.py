"""From a fitted student with skips to a network without: the signs of its units, then a fit of all weights.

With act(z) − act(−z) = m z, a unit that looks the wrong way is made up for by the skips around it. One layer after the
other from the top, whatever reads h_l and c_{l−1} with rows (A, B) is free of B when B = −m Σ_j s_j A_j v_jᵀ, s_j = 1
for the units that are turned; the constant becomes a bias, and an affine term keeps x in the readout. Without noise the
equations decide.

With noise the likeliest signs are tried on the samples. With B_s the skips that are left when the units s are turned, H
= Σ JᵀJ over all weights φ of the student and Σ = σ²H⁻¹ their covariance, B_s = 0 is as far away as

    W(s) = b_sᵀ (D_s Σ D_sᵀ)⁻¹ b_s,        b_s = B_s row by row,    D_s = ∂b_s/∂φ,        [Wald 1943]

which is also what Σr²/σ² is going to grow by, to second order, when the skips are taken away. The student that is
nearest among those without skips is φ − Σ D_sᵀ (D_s Σ D_sᵀ)⁻¹ b_s. Directions in which H says nothing, as where a unit
above never bends within the samples that a unit below is on for, have a variance without bound: skips along them count
for nothing and go at no cost. The scales that a unit can hand to those above are held where they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import linear_sum_assignment

from neurecover.fit.descent import PATIENT, Fit, descend
from neurecover.fit.point import Point, curvature_sums
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
    if student.n_outputs == 1 or samples.root is not None or not student.bias:
        return None
    if len(_choices(Turning.of(student, 0, affine=False), how)[0]):
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
    skips or because the samples leave some of them open, signs are chosen by their likelihood.
    """
    student, count, floor = point.student, how.likely, 0.0
    turnings = [Turning.of(student, layer, affine) for layer in range(student.depth)]
    covariance, choices = None, list[Choices]()
    if point.relative < point.samples.level():
        choices = [_choices(turning, how) for turning in turnings]
    if not choices or not all(len(flips) for flips, _ in choices):
        count = how.likely if student.depth == 1 else how.likely_deep
        if student.n_parameters <= how.weights and any(turning.open for turning in turnings):
            covariance = Covariance(point, how)
            floor = float(sum(turning.target.size for turning in turnings))
        choices = [_choices(turning, how, count, covariance) for turning in turnings]
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


def _choices(turning: Turning, how: SignOptions, count: int = 0, covariance: Covariance | None = None) -> Choices:
    """Return the choices of signs that solve a layer's equations, or the `count` likeliest, and their misfits.

    Without a covariance all equations count alike; where there are none units stay as they are.
    """
    if not turning.open:
        return np.zeros((1, len(turning.V)), dtype=bool), np.zeros(1)
    if covariance is not None:
        return covariance.likely(turning, count)
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


class Covariance:
    """Σ = σ²H⁻¹ of a fitted student; φ as `Student.weights`."""

    def __init__(self, point: Point, how: SignOptions) -> None:
        student, self.how = point.student, how
        self.student = student
        H = self.information(point)
        diagonal = H.diagonal()
        scale = np.sqrt(np.maximum(diagonal, how.ridge * diagonal.max(initial=1e-300)))
        N = _scales(student) * scale[:, None]
        N /= np.maximum(np.linalg.norm(N, axis=0), 1e-300)
        factor = cho_factor(H / scale / scale[:, None] + N @ N.T + how.ridge * np.eye(len(H)), lower=True)
        variance = max(point.loss, point.options.rounding * point.scale) / max(point.R.size, 1)
        self.matrix = variance * cho_solve(factor, np.eye(len(H))) / scale / scale[:, None]

    @staticmethod
    def information(point: Point) -> np.ndarray:
        """Return H at a student with or without skips."""
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

    def likely(self, turning: Turning, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the likeliest choices of the units of a layer to be reversed, (s, k), and the statistic W of each, the
        least first.

        The covariance depends on the signs, and the signs that are nearest by it are found among all: in turns. For the
        right choice W has a χ² distribution of as many degrees of freedom as there are skips.
        """
        columns, target = turning.columns, turning.target
        known: dict[bytes, tuple[np.ndarray, float]] = {}
        flip = nearest_subsets(columns, target, 1)[0]
        for _ in range(self.how.rounds):
            root = self._root(self._by(turning, flip))
            near = nearest_subsets(_whitened(root, columns), _whitened(root, target), count)
            fresh = [other for other in (flip, *near) if other.tobytes() not in known]
            for other in fresh:
                left = _whitened(self._root(self._by(turning, other)), columns @ other - target)
                known[other.tobytes()] = other, float(left @ left)
            best = min(known.values(), key=lambda pair: pair[1])[0]
            if np.array_equal(best, flip) or not fresh:
                break
            flip = best
        flips, misfits = zip(*sorted(known.values(), key=lambda pair: pair[1])[:count])
        return np.array(flips), np.array(misfits)

    def nearest_without(self, flips: list[np.ndarray], affine: bool) -> Student:
        """Return the likeliest student in which, once these units are reversed, the skips vanish to rounding."""
        student = self.student
        for _ in range(self.how.rounds):
            turnings = [Turning.of(student, layer, affine) for layer in range(student.depth)]
            D = np.vstack([self._by(turning, flip) for turning, flip in zip(turnings, flips)])
            b = np.concatenate([turning.columns @ flip - turning.target for turning, flip in zip(turnings, flips)])
            root = self._root(D)
            step = _whitened(root, D @ self.matrix).T @ _whitened(root, b)
            student = student.with_weights(student.weights - step)
        return student

    def _by(self, turning: Turning, flip: np.ndarray) -> np.ndarray:
        """Return D_s (equations, P)."""
        starts = np.cumsum([0, *(V.size for V in self.student.V)])
        (k, D), (r, width) = turning.V.shape, turning.rows.shape
        kept, start, layer = turning.kept, turning.start, turning.layer
        turned = turning.slope * flip
        row, unit, column = np.ogrid[:r, :k, : start - kept]
        by = np.zeros((r, start - kept, len(self.matrix)))
        above = starts[layer + 1] + row * width  # where the rows that read the layer begin in φ
        by[row[:, 0], column[0], above[:, 0] + kept + column[0]] = 1.0
        by[row, column, above + start + unit] = turned[unit] * turning.V[unit, kept + column]
        by[row, column, starts[layer] + unit * D + kept + column] = turned[unit] * turning.A[row, unit]
        return by.reshape(-1, len(self.matrix))

    def _root(self, by: np.ndarray) -> np.ndarray:
        """Return the Cholesky factor of D Σ Dᵀ."""
        covariance = by @ self.matrix @ by.T
        covariance.flat[:: len(covariance) + 1] *= 1.0 + self.how.ridge
        return np.linalg.cholesky(covariance)


def _whitened(root: np.ndarray, right: np.ndarray) -> np.ndarray:
    return solve_triangular(root, right, lower=True)


def _scales(student: Student) -> np.ndarray:
    """Return one direction of φ per unit, along which its row grows while the columns that read it shrink."""
    units, row, column = np.arange(sum(student.widths)), list[np.ndarray](), list[np.ndarray]()
    if student.activation.homogeneity is None:  # as softplus, whose slope is a weight like any other
        units = units[:0]
    for layer, rows in enumerate((*student.V, student.theta.T)):
        base, below = student.reads(layer)
        own = np.arange(len(rows)) + (student.own(layer).start if layer < student.depth else len(units))
        row.append(np.repeat(own, rows.shape[1]))
        column.append(np.tile(np.r_[np.full(base, -1), below], len(rows)))
    signs = (np.concatenate(row)[:, None] == units).astype(float) - (np.concatenate(column)[:, None] == units)
    return student.weights[:, None] * signs
