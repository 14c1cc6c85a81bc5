"""Levenberg–Marquardt with variable projection for  y ≈ A·act(V x̃) + L x + c.

For fixed hidden weights V the readout Θ = (A | L | c)ᵀ is a linear least-squares solution, so the problem is one in V
alone [Golub & Pereyra 1973]. With P the projector onto the features h and M the gated inputs, Kaufman's step is

    (S + λD) δ = g,   S = (AᵀA ⊗ 1) ∘ Mᵀ(I − P)M,   g = A-weighted Mᵀ r,   D = diag of (AᵀA ⊗ 1) ∘ MᵀM.

S is the Schur complement of the full Gauss–Newton matrix once Θ is eliminated, so the same sums serve the full
problem: then Θ moves by its own part of the step (`projected=False`) instead of to its optimum for the new V.
The loop itself is `solve.Loop`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from neurecover.data import Source, reduce
from neurecover.models import Student
from neurecover.refine.matrix_free import product_system
from neurecover.refine.steps import HiddenSystem, ReadoutFactor, dense_system
from neurecover.solve import Deadline, Loop, Outcome, Tolerances
from neurecover.statistics import GaussNewtonSums, ReadoutSums

DENSE_LIMIT = 2_000  # hidden weights; beyond, conjugate gradients are faster than the dense matrix (measured)
EXACT = 1e-20  # Σ r² / Σ y² below which a fit is taken for noiseless
TOLERANCES = Tolerances(rounding=1e-29, promise=1e-13, gain=1e-12)


@dataclass(frozen=True, eq=False)
class FitPoint:
    """A student with its Σ r² on the samples (`loss`) and Σ y² (`scale`)."""

    source: Source
    student: Student
    loss: float
    scale: float
    projected: bool
    deadline: Deadline

    @cached_property
    def _system(self) -> HiddenSystem:
        return step_system(self.source, self.student, self.deadline)

    def system(self) -> HiddenSystem:
        return self._system

    def moved(self, step: np.ndarray) -> FitPoint | None:
        change = step.reshape(self.student.V.shape)
        readout = self.student.readout + self._system.readout.follow(change)
        moved = replace(self.student, V=self.student.V + change, readout=readout)
        with np.errstate(over="ignore", invalid="ignore"):  # a step too long for exp or a power is rejected
            sums = reduce(self.source, ReadoutSums(moved)).sums
        if not np.isfinite(sums["rr"]) or not np.isfinite(sums["hh"]).all():
            return None
        best = ReadoutFactor(sums)
        if not self.projected:
            return replace(self, student=moved, loss=best.rss)
        return replace(self, student=replace(moved, readout=readout + best.step), loss=best.best_rss)


class Descent:
    """One run, advanced a few iterations at a time so that runs can be raced.

    `student` and `rss` are the current point, `outcome` says whether anything more can be gained. The deadline cuts
    a solution of the equations short; `advance` begins nothing after it.
    """

    def __init__(
        self, source: Source, student: Student, *, projected: bool = True, deadline: Deadline | None = None
    ) -> None:
        self.deadline = deadline or Deadline()
        empty = reduce(source, ReadoutSums(replace(student, readout=np.zeros_like(student.readout))))
        self.total = float(empty.sums["rr"])
        self.n_equations = empty.n * student.n_outputs
        best = ReadoutFactor(reduce(source, ReadoutSums(student)).sums)
        start = replace(student, readout=student.readout + best.step)
        self._loop = Loop(FitPoint(source, start, best.best_rss, self.total, projected, self.deadline), TOLERANCES)
        if student.n_hidden == 0 and self._loop.outcome is Outcome.RUNNING:
            self._loop.outcome = Outcome.CONVERGED

    @property
    def student(self) -> Student:
        return self._loop.point.student

    @property
    def rss(self) -> float:
        """Σ r²."""
        return self._loop.point.loss

    @property
    def relative_rss(self) -> float:
        """Σ r² / Σ y²."""
        return self.rss / self.total if self.total > 0 else 0.0

    @property
    def iterations(self) -> int:
        return self._loop.iterations

    @property
    def outcome(self) -> Outcome:
        return self._loop.outcome

    @property
    def running(self) -> bool:
        return self.outcome is Outcome.RUNNING

    def advance(self, iterations: int) -> Descent:
        """Take up to `iterations` more accepted or rejected steps."""
        self._loop.advance(iterations, self.deadline)
        return self


def step_system(source: Source, student: Student, deadline: Deadline) -> HiddenSystem:
    """The dense equations while their matrix is small, else conjugate gradients."""
    if student.V.size <= DENSE_LIMIT:
        return dense_system(reduce(source, GaussNewtonSums(student)))
    return product_system(source, student, deadline)
