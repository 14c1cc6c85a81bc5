"""Levenberg–Marquardt with variable projection for a student of several layers with skips, y ≈ Θᵀ c_L(x; V).

For given hidden weights V the readout Θ is a linear least-squares solution. With F Fᵀ = Σ c cᵀ and E_o = F⁻¹ Σ c J_o
the step of the hidden weights is

    (S + λD) δ = g,    S = Σ_o (Σ J_oᵀ J_o − E_oᵀ E_o),    g = Σ_o (Σ J_oᵀ r_o − E_oᵀ F⁻¹ Σ c r_o),    D = diag Σ JᵀJ,

and the readout follows by F⁻ᵀ(F⁻¹ Σ c r_o − E_o δ) before it is solved again [Golub & Pereyra 1973; Kaufman 1975].
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtrs

from neurecover.data import Source, reduce
from neurecover.models.deep_student import DeepStudent
from neurecover.solve import Damping, Deadline, Loop, Outcome, Tolerances
from neurecover.statistics.deep_gauss_newton import DeepGaussNewtonSums, DeepReadoutSums

ROUNDING = 1e-30  # Σ r² / Σ y² at which double precision has nothing left to give
RANK = 1e-13  # ridge per feature on Σ c cᵀ scaled to unit diagonal


@dataclass(frozen=True)
class Effort:
    """How long a descent goes on, and in which precision.

    It ends after `iterations` steps, at a relative Σ r² of `target`, or when the last `patience` steps together lowered
    √Σr² by less than a factor `slow`.
    """

    iterations: int
    target: float = ROUNDING
    patience: int = 25
    slow: float = 0.8
    single: bool = False
    damping: float = 1e-2


@dataclass(frozen=True)
class DeepDescent:
    """Where a descent ended: `rss` is Σ r², `total` is Σ (y − ȳ)², or Σ y² without biases."""

    student: DeepStudent
    rss: float
    total: float
    iterations: int

    @property
    def relative_rss(self) -> float:
        return self.rss / self.total if self.total > 0 else 0.0


def descend_deep(source: Source, student: DeepStudent, total: float, effort: Effort, deadline: Deadline) -> DeepDescent:
    """From the student's hidden weights downhill; at least its readout is solved."""
    student, rss = solve_readout(source, student)
    tolerances = Tolerances(rounding=effort.target, promise=1e-13, gain=1e-12)
    loop = Loop(_Point(source, student, rss, total, effort.single), tolerances, Damping(effort.damping))
    history: list[float] = []
    while len(history) < effort.iterations and student.n_hidden_weights and not deadline.passed:
        history.append(loop.point.loss)
        slow = len(history) > 2 * effort.patience and history[-1] > effort.slow**2 * history[-1 - effort.patience]
        if slow or loop.outcome is not Outcome.RUNNING:
            break
        loop.advance(1, deadline)
    return DeepDescent(loop.point.student, loop.point.loss, total, loop.iterations)


@dataclass(frozen=True, eq=False)
class _Point:
    """A student with the readout that is best for its hidden layers; `loss` is Σ r² and `scale` the total."""

    source: Source
    student: DeepStudent
    loss: float
    scale: float
    single: bool

    @cached_property
    def _step(self) -> _Step:
        return _Step(self.source, self.student, self.loss, self.single)

    def system(self) -> _Step:
        return self._step

    def moved(self, step: np.ndarray) -> _Point | None:
        student, rss = solve_readout(self.source, self._step.moved(step))
        return replace(self, student=student, loss=rss) if np.isfinite(rss) else None


def solve_readout(source: Source, student: DeepStudent) -> tuple[DeepStudent, float]:
    """The student with the readout that is best for its hidden layers, and its Σ r²."""
    sums = reduce(source, DeepReadoutSums(student)).sums
    if not np.isfinite(sums["hh"]).all() or not np.isfinite(sums["rr"]):
        return student, np.inf
    factor = Readout(sums)
    rss = max(float(sums["rr"]) - float(np.vdot(factor.whitened, factor.whitened)), 0.0)
    return replace(student, readout=student.readout + factor.unwhiten(factor.whitened)), rss


class Readout:
    """F with F Fᵀ = Σ c cᵀ, features scaled to one size; a ridge at the level of rounding tames equal features."""

    def __init__(self, sums: dict[str, np.ndarray]) -> None:
        hh = sums["hh"]
        scale = np.sqrt(np.diag(hh))
        self.scale = np.where(scale > 0, scale, 1.0)
        scaled = hh / self.scale / self.scale[:, None]
        ridge = RANK * len(hh)
        while True:
            self.factor, failed = dpotrf(scaled + ridge * np.eye(len(hh)), lower=1, clean=1)
            if not failed:
                break
            ridge *= 100.0
        self.whitened = self.whiten(sums["hr"])

    def whiten(self, right: np.ndarray) -> np.ndarray:
        """F⁻¹ right."""
        return dtrtrs(self.factor, right / self.scale[:, None], lower=1)[0]

    def unwhiten(self, right: np.ndarray) -> np.ndarray:
        """F⁻ᵀ right."""
        return dtrtrs(self.factor, right, lower=1, trans=1)[0] / self.scale[:, None]


class _Step:
    """The damped step at a student, for any damping."""

    def __init__(self, source: Source, student: DeepStudent, rss: float, single: bool) -> None:
        self.student = student
        n = source.n_samples or 1
        sums = reduce(source, DeepGaussNewtonSums(student, np.sqrt(max(rss / n, 1e-300)), single))
        self.readout = Readout(sums.sums)
        self.E = [self.readout.whiten(hj) for hj in sums.sums["hj"]]
        self.gradient = sums.sums["jr"].copy()
        self.S = sums.curvature()
        diagonal = np.diag(self.S).copy()
        self.diagonal = np.maximum(diagonal, (1e-6 if single else 1e-10) * diagonal.max(initial=1e-300))
        self.least_damping = 1e-9 if single else 1e-14
        for output, E in enumerate(self.E):
            self.S -= E.T @ E
            self.gradient -= E.T @ self.readout.whitened[:, output]

    def solve(self, damping: float) -> np.ndarray | None:
        """δ; None where S + λD is not positive definite to working precision."""
        matrix = self.S + np.diag(max(damping, self.least_damping) * self.diagonal)
        factor, failed = dpotrf(matrix, lower=1, overwrite_a=1)
        return None if failed else dpotrs(factor, self.gradient, lower=1)[0]

    def predicted_decrease(self, step: np.ndarray, damping: float) -> float:
        """What the linear model says Σ r² falls by, the readout's own part included."""
        damped = max(damping, self.least_damping) * self.diagonal
        whitened = self.readout.whitened
        return float(step @ (self.gradient + damped * step) + np.vdot(whitened, whitened))

    def moved(self, step: np.ndarray) -> DeepStudent:
        """The student one step on, its readout following."""
        along = np.stack([E @ step for E in self.E], axis=1)
        follow = self.readout.unwhiten(self.readout.whitened - along)
        hidden, start = [], 0
        for V in self.student.hidden:
            hidden.append(V + step[start : start + V.size].reshape(V.shape))
            start += V.size
        return replace(self.student, hidden=tuple(hidden), readout=self.student.readout + follow)
