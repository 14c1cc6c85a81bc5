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
from math import isfinite, sqrt

import numpy as np

from neurecover.data import Source, reduce
from neurecover.models import Student
from neurecover.refine.held import Held, hold, readout_sums
from neurecover.refine.matrix_free import product_system
from neurecover.refine.single import SingleSystem
from neurecover.refine.steps import HiddenSystem, ReadoutFactor, dense_system
from neurecover.refine.unit_blocks import UnitBlocks
from neurecover.solve import Damping, Deadline, Loop, Outcome, Tolerances
from neurecover.statistics import GaussNewtonSums

DENSE_LIMIT = 600  # hidden weights; beyond, conjugate gradients are faster than the dense matrix (measured)
EXACT = 1e-20  # Σ r² / Σ y² below which a fit is taken for noiseless
LOOSE, TIGHT = 0.1, 1e-3  # how accurately conjugate gradients solve for a step, relative to its right side
TOLERANCES = Tolerances(rounding=1e-29, promise=1e-13, gain=1e-12)


@dataclass(frozen=True, eq=False)
class FitPoint:
    """A student with its Σ r² on the samples (`loss`) and Σ y² (`scale`).

    `hh` is Σ h hᵀ, and `tolerance` how accurately a step from here is worth computing, unless steps are `dense`;
    `blocks` are those of the units at an earlier point, where equations were hard to solve.
    """

    source: Source
    student: Student
    loss: float
    scale: float
    hh: np.ndarray
    projected: bool
    deadline: Deadline
    dense: bool
    tolerance: float = LOOSE
    blocks: UnitBlocks | None = None

    @cached_property
    def _system(self) -> HiddenSystem | SingleSystem:
        if self.dense:
            return dense_system(reduce(self.source, GaussNewtonSums(self.student)))
        if isinstance(self.source, Held) and self.projected:
            return SingleSystem(self.source, self.student, self.hh, self.tolerance, self.deadline, self.blocks)
        return product_system(self.source, self.student, self.deadline)

    def system(self) -> HiddenSystem | SingleSystem:
        return self._system

    def moved(self, step: np.ndarray) -> FitPoint | None:
        change = step.reshape(self.student.V.shape)
        readout = self.student.readout + self._system.follow(change)
        student = replace(self.student, V=self.student.V + change, readout=readout)
        with np.errstate(over="ignore", invalid="ignore"):  # a step too long for exp or a power is rejected
            sums = readout_sums(self.source, student)
        if not isfinite(sums["rr"]) or not np.isfinite(sums["hh"]).all():
            return None
        best, tolerance = ReadoutFactor(sums), self.tolerance
        loss = best.rss
        if self.projected:
            student, loss = replace(student, readout=readout + best.step), best.best_rss
            # The error left in a step bounds the next decrease: it should be no larger than the last one, |r′|/|r|.
            tolerance = min(max(sqrt(loss / self.loss), TIGHT), LOOSE)
        blocks = self._system.blocks if isinstance(self._system, SingleSystem) else None
        return replace(self, student=student, loss=loss, hh=sums["hh"], tolerance=tolerance, blocks=blocks)


def is_large(n_weights: int) -> bool:
    """Whether so many hidden weights are beyond the dense solver."""
    return n_weights > DENSE_LIMIT


class Descent:
    """One run, advanced a few iterations at a time so that runs can be raced.

    `student` and `rss` are the current point, `outcome` says whether anything more can be gained. The deadline cuts
    a solution of the equations short; `advance` begins nothing after it. Steps are computed by the dense solver where
    there are few weights, or if `dense`.
    """

    def __init__(
        self,
        source: Source,
        student: Student,
        *,
        projected: bool = True,
        deadline: Deadline | None = None,
        dense: bool = False,
    ) -> None:
        self.deadline = deadline or Deadline()
        self.large = is_large(student.V.size) and not dense
        if self.large and projected:
            source = hold(source, student.bias)
        with np.errstate(over="ignore", invalid="ignore"):  # where e^z is beyond all numbers nothing is to be gained
            sums = readout_sums(source, replace(student, readout=np.zeros_like(student.readout)))
            self.total = float(sums["rr"])
            self.n_equations = int(sums["n"]) * student.n_outputs
            if student.readout.any():
                sums = readout_sums(source, student)
            best = ReadoutFactor(sums)
        start = replace(student, readout=student.readout + best.step)
        point = FitPoint(source, start, best.best_rss, self.total, sums["hh"], projected, self.deadline, not self.large)
        # Products in single precision say nothing of curvatures below their rounding.
        smallest = 1e-7 if isinstance(source, Held) and self.large else Damping().smallest
        self._loop = Loop(point, TOLERANCES, Damping(smallest=smallest))
        if (student.n_hidden == 0 or not isfinite(best.best_rss)) and self._loop.outcome is Outcome.RUNNING:
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
        if not isfinite(self.rss):
            return np.inf
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
