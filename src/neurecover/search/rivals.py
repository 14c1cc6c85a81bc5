"""Other optima of a fit to noisy samples that are as good.

Standard errors take Σr² for a parabola around its least value, and where samples are few it is none: it has local
minima, some of them as deep, within the errors and beyond. Two kinds of starts look for them. From θ + 3 L ξ, with L Lᵀ
= σ²H⁺ the covariance of the parabola and ξ standard normal, the fit is made anew. And a unit of the top layer that adds
little to the outputs is sought anew while all others give way to first order: with that unit taken away, J the
derivatives of the outputs by all weights that remain, and P = I − J J⁺,

    |P (y − f(x) − a act(w·h + b))|²        is the least Σr² that a unit (w, b, a) on the values h below it leaves,

which costs little, so that many units are tried; the best take the place of the faint one, and all weights are fitted
together. A lower optimum is kept. One about as deep that is elsewhere is a rival, between which and this one the
samples do not decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment

from neurecover.fit.descent import PATIENT, Fit, descend
from neurecover.fit.samples import Samples
from neurecover.models import as_network, as_student
from neurecover.models.wide import WideStudent
from neurecover.search.covariance import Covariance
from neurecover.search.find import Runs, one_optimum
from neurecover.search.race import Setting
from neurecover.search.settle import same_units
from neurecover.solve import DenseSystem, Loop, Tolerances, damping_diagonal


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
    elsewhere: float = 2.0  # standard errors, in some direction, between two optima
    faint: float = (
        40.0  # standard errors of a unit's output weight, the layers below given, up to which it is sought anew
    )
    pool: int = 1_000  # random units in place of a faint one
    fitted: int = 12  # of them, those that are moved to where they explain most
    joint: int = 3  # of these, those that are fitted with all others
    hopeless: float = 50.0  # times σ² that such a fit is above the best after ten steps when it is given up
    rows: int = 20_000  # on which the others give way


def seek_rivals(runs: Runs, setting: Setting, how: RivalOptions | None = None) -> Runs:
    """Return the runs with the lowest optimum that other starts lead to, `unrivalled` if no other is about as deep."""
    how, samples = how or RivalOptions(), runs.fit.point.samples
    student = runs.fit.student
    work = float(samples.n_equations) * student.n_parameters**2
    if runs.exact or not student.size or student.skips or work > how.work:
        return runs
    best = _normal(runs.fit, setting)
    agreed = bool(runs.agreements)
    for _ in range(how.rounds):
        around = Around.of(best)
        tried = _tried(best, around, setting, how)
        if setting.deadline.passed:
            return replace(runs, best=replace(runs.best, fit=best), agreements=int(agreed), unrivalled=False)
        lowest = min([best, *tried], key=lambda fit: fit.rss)
        if lowest.rss < best.rss - how.lower * around.variance:
            agreed = any(one_optimum(fit, lowest) for fit in tried if fit is not lowest)  # it has to be found again
            best = lowest
            continue
        near = [fit for fit in tried if fit.rss <= best.rss + how.as_deep * around.variance]
        rivals = [fit for fit in near if around.distance(fit) > how.elsewhere]
        return replace(runs, best=replace(runs.best, fit=best), agreements=int(agreed), unrivalled=not rivals)
    return replace(runs, best=replace(runs.best, fit=best), agreements=int(agreed), unrivalled=False)


def _normal(fit: Fit, setting: Setting) -> Fit:
    """Return the fit with its student in normal form."""
    student = as_student(as_network(fit.student).normal_form(), bool(fit.student.bias))
    return descend(fit.point.samples, student, setting.options.fit, setting.deadline, steps=0)


def _tried(best: Fit, around: Around, setting: Setting, how: RivalOptions) -> list[Fit]:
    """Return fits of all weights from starts away from the optimum and with other units in place of faint ones."""
    samples, options, deadline = best.point.samples, setting.options.fit, setting.deadline
    tried = list[Fit]()
    if around.widest > how.narrow:
        for _ in range(how.starts):
            if deadline.passed:
                return tried
            tried.append(descend(samples, around.start(setting.rng, how.away), options, deadline, slow=PATIENT))
    for start in _with_other_faint_units(best, setting, how):
        if deadline.passed:
            return tried
        begun = descend(samples, start, options, deadline, steps=10)
        if begun.rss <= best.rss + how.hopeless * around.variance:
            ended = begun if begun.converged else descend(samples, begun.student, options, deadline, slow=PATIENT)
            if ended.rss < best.rss or not same_units(ended, best):
                tried.append(ended)
    return tried


@dataclass(frozen=True, eq=False)
class Around:
    """Σr² as it looks from an optimum: σ², H = half·halfᵀ and H⁺ = root·rootᵀ over all weights φ of the student."""

    student: WideStudent
    variance: float
    half: np.ndarray
    root: np.ndarray

    @classmethod
    def of(cls, fit: Fit) -> Around:
        """Return the parabola at a fit in normal form."""
        H = Covariance.information(fit.point)
        values, vectors = np.linalg.eigh(H)
        seen = values > 1e-12 * values[-1]
        roots = np.sqrt(values[seen])
        freedom = max(fit.point.samples.n_equations - int(np.count_nonzero(seen)), 1)
        return cls(fit.student, fit.rss / freedom, vectors[:, seen] * roots, vectors[:, seen] / roots)

    @property
    def widest(self) -> float:
        """The largest standard error of a hidden weight but the biases, of unit rows where the scale is free."""
        errors = np.sqrt(self.variance * np.einsum("ij,ij->i", self.root, self.root))
        rows = self.student.split(errors[: self.student.size])
        return max(float(row[:, self.student.bias :].max(initial=0.0)) for row in rows)

    def start(self, rng: np.random.Generator, away: float) -> WideStudent:
        """Return a student a few standard errors away."""
        step = away * np.sqrt(self.variance) * (self.root @ rng.standard_normal(self.root.shape[1]))
        return self.student.with_weights(self.student.weights + step)

    def distance(self, fit: Fit) -> float:
        """Return √(δᵀHδ)/σ, in standard errors along the direction in which another fit lies."""
        other = as_student(as_network(fit.student).normal_form(), bool(fit.student.bias))
        if other.widths != self.student.widths:
            return np.inf
        apart = _matched(other, self.student).weights - self.student.weights
        return float(np.linalg.norm(self.half.T @ apart)) / float(np.sqrt(max(self.variance, 1e-300)))


def _matched(other: WideStudent, student: WideStudent) -> WideStudent:
    """Return a network with its units in the order in which they are nearest to those of another, layer by layer."""
    V, theta = list(other.V), other.theta.T
    for layer, rows in enumerate(student.V):
        _, order = linear_sum_assignment(np.linalg.norm(rows[:, None] - V[layer], axis=2))
        V[layer] = V[layer][order]
        if layer + 1 < student.depth:
            at = V[layer + 1].shape[1] - len(order)
            V[layer + 1] = np.hstack([V[layer + 1][:, :at], V[layer + 1][:, at:][:, order]])
        else:
            at = theta.shape[1] - len(order)
            theta = np.hstack([theta[:, :at], theta[:, at:][:, order]])
    return replace(other, V=tuple(V), theta=theta.T)


def _with_other_faint_units(best: Fit, setting: Setting, how: RivalOptions) -> Iterator[WideStudent]:
    """Yield students with other units in place of each faint one of the top layer; without biases h is not centred.

    One layer is left alone: there two candidates that agree were never wrong for a faint unit (`bench noise`).
    """
    point, student = best.point, best.student
    if not student.bias or student.depth == 1:
        return
    rows = np.arange(len(point.samples.F))
    if len(rows) > how.rows:
        rows = np.sort(setting.rng.choice(rows, how.rows, replace=False))
    base = student.reads(student.depth)[0]
    variance = best.rss / point.samples.n_equations
    spread = point.readout.inverse.diagonal() / point.readout.scale**2
    strength = np.sqrt(np.sum(student.top**2, axis=1) / np.maximum(spread[base:] * variance, 1e-300))
    for unit in np.argsort(strength)[: np.count_nonzero(strength < how.faint)]:
        if setting.deadline.passed:
            return
        for start in _Alone.of(best, int(unit), rows).starts(setting.rng, how):
            V, theta = student.V[-1].copy(), student.theta.copy()
            V[unit], theta[base + unit] = start
            yield replace(student, V=(*student.V[:-1], V), theta=theta)


@dataclass(frozen=True, eq=False)
class _Alone:
    """What is left without one unit, and how all others give way: Q (n, p, r) with P = I − QQᵀ, `rest` = P r (n, p),
    and the columns (n, D) that the unit reads, with T that whitens them."""

    student: WideStudent
    columns: np.ndarray
    T: np.ndarray
    Q: np.ndarray
    rest: np.ndarray

    @classmethod
    def of(cls, fit: Fit, unit: int, rows: np.ndarray) -> _Alone:
        """Take one unit of the top layer away."""
        student, samples = fit.student, fit.point.samples
        base, hidden = student.reads(student.depth)
        V, theta = (
            (*student.V[:-1], np.delete(student.V[-1], unit, axis=0)),
            np.delete(student.theta, base + unit, axis=0),
        )
        others = replace(student, V=V, theta=theta)
        part = Samples(
            samples.F[rows], samples.Y[rows], samples.bias, None if samples.root is None else samples.root[rows]
        )
        values = others.forward(part.F)
        base, hidden = others.reads(others.depth)
        features = part.weigh(np.hstack([part.F[:, :base], values.H[:, hidden]]))
        n, p = part.Y.shape
        J = np.zeros((n, p, others.n_parameters))
        seed = part.weigh(np.ones((n, 1)))
        for output in range(p):
            one = replace(others, theta=others.theta[:, output : output + 1])
            one.jacobian(values, seed, J[:, output, : others.size])
            start = others.size + output * features.shape[1]
            J[:, output, start : start + features.shape[1]] = features
        Q = np.linalg.qr(J.reshape(n * p, -1))[0].reshape(J.shape)
        rest = _without(Q, part.weigh(part.Y - others.outputs(values))[:, :, None])[..., 0]
        base, below = student.reads(student.depth - 1)
        columns = np.hstack([part.F[:, :base], values.H[:, below]]) if student.depth > 1 else part.F
        gram = columns.T @ columns / n
        T = np.linalg.inv(np.linalg.cholesky(gram + 1e-9 * np.trace(gram) * np.eye(len(gram)))).T
        return cls(student, part.weigh(columns @ T), T, Q, rest)

    def starts(self, rng: np.random.Generator, how: RivalOptions) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return (w, b) and a of other units that explain much of what is left, the best first."""
        m, act = self.columns.shape[1], self.student.activation
        V = rng.standard_normal((how.pool, m))
        V /= np.linalg.norm(V[:, 1:], axis=1, keepdims=True)
        gains, _ = self._gains(act(self.columns @ V.T))
        best = np.argsort(-gains)[: how.fitted]
        found = [self._moved(V[j]) for j in best]
        found.sort(key=lambda one: -one[0])
        return [(self.T @ v, a) for _, v, a in found[: how.joint]]

    def _gains(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what each of some units (n, s) takes off Σr² with its best output weights, and these (s, p)."""
        inner = values.T @ self.rest
        along = np.stack([np.sum((Q.T @ values) ** 2, axis=0) for Q in self.Q.transpose(1, 0, 2)], axis=1)
        squares = np.sum(values**2, axis=0)[:, None]
        sizes = np.maximum(squares - along, 1e-12 * squares + 1e-300)
        return np.sum(inner**2 / sizes, axis=1), inner / sizes

    def _moved(self, v: np.ndarray, steps: int = 20) -> tuple[float, np.ndarray, np.ndarray]:
        """Return the gain, v and a after some damped Gauss–Newton steps of one unit."""
        loop = Loop(_UnitPoint(self, v), Tolerances(promise=1e-6, gain=1e-6)).advance(steps)
        gain, a = self._gains(self.student.activation(self.columns @ loop.point.v)[:, None])
        return float(gain[0]), loop.point.v, a[0]


class _UnitPoint:
    """One unit v with its best output weights a, beside all others that give way: `loss` is |P (rest − a h)|²."""

    def __init__(self, alone: _Alone, v: np.ndarray) -> None:
        self.alone, self.v = alone, v
        act = alone.student.activation
        z = alone.columns @ v
        self._slope = act.derivative(z)
        h = act(z)
        _, a = alone._gains(h[:, None])
        self._a = a[0]
        self._left = alone.rest - _without(alone.Q, np.multiply.outer(h, self._a)[:, :, None])[..., 0]
        self.loss = float(np.vdot(self._left, self._left))
        self.scale = float(np.vdot(alone.rest, alone.rest))

    def system(self) -> DenseSystem:
        """Return the equations of the next step of v."""
        by_unit = self._slope[:, None] * self.alone.columns
        J = _without(self.alone.Q, self._a[None, :, None] * by_unit[:, None, :]).reshape(-1, len(self.v))
        S = J.T @ J
        return DenseSystem(S, J.T @ self._left.ravel(), damping_diagonal(S.diagonal()))

    def moved(self, step: np.ndarray) -> _UnitPoint | None:
        """Return the unit one step on."""
        trial = _UnitPoint(self.alone, self.v + step)
        return trial if np.isfinite(trial.loss) else None


def _without(Q: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return P applied to columns (n, p, c)."""
    flat, rows = columns.reshape(-1, columns.shape[2]), Q.reshape(-1, Q.shape[2])
    return (flat - rows @ (rows.T @ flat)).reshape(columns.shape)
