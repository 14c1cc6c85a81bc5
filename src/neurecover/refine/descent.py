"""Levenberg–Marquardt with variable projection for  y ≈ A·act(V x̃) + L x + c.

For fixed hidden weights V the readout Θ = (A | L | c)ᵀ is a linear least-squares solution, so the problem is one in V
alone [Golub & Pereyra 1973]. With P the projector onto the features h and M the gated inputs, Kaufman's step is

    (S + λD) δ = g,   S = (AᵀA ⊗ 1) ∘ Mᵀ(I − P)M,   g = A-weighted Mᵀ r,   D = diag of (AᵀA ⊗ 1) ∘ MᵀM.

S is the Schur complement of the full Gauss–Newton matrix once Θ is eliminated, so the same sums serve the full
problem: then Θ moves by its own part of the step (`projected=False`) instead of to its optimum for the new V.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from neurecover.data import Source, reduce
from neurecover.models import Student
from neurecover.refine.products import ProductSolver
from neurecover.refine.steps import DenseSolver, ReadoutFactor
from neurecover.statistics import GaussNewtonSums, ReadoutSums

DENSE_LIMIT = 2_000  # hidden weights; beyond, conjugate gradients are faster than the dense matrix (measured)
EXACT = 1e-20  # Σ r² / Σ y² below which a fit is taken for noiseless
ROUNDING = 1e-29  # Σ r² / Σ y² at which double precision has nothing left to give


class Descent:
    """One run, advanced a few iterations at a time so that runs can be raced.

    `student` and `rss` are the current point; `finished` says why nothing more can be gained: "exact" (residual
    at the level of rounding), "converged" (no step helps), or "" while it can go on.
    """

    def __init__(self, source: Source, student: Student, *, projected: bool = True) -> None:
        self.source, self.projected = source, projected
        self.iterations = 0
        self.finished = ""
        self._damping, self._growth = 1e-2, 2.0
        empty = reduce(source, ReadoutSums(replace(student, readout=np.zeros_like(student.readout))))
        self.total = float(empty.sums["rr"])
        self.n_equations = empty.n * student.n_outputs
        readout = ReadoutFactor(reduce(source, ReadoutSums(student)).sums)
        self.student = replace(student, readout=student.readout + readout.step)
        self.rss = readout.best_rss
        self._solver: DenseSolver | ProductSolver | None = None
        if self.rss <= ROUNDING * self.total:
            self.finished = "exact"
        elif student.n_hidden == 0:
            self.finished = "converged"

    @property
    def relative_rss(self) -> float:
        """Σ r² / Σ y²."""
        return self.rss / self.total if self.total > 0 else 0.0

    def advance(self, iterations: int) -> Descent:
        """Take up to `iterations` more accepted or rejected steps."""
        for _ in range(iterations):
            if self.finished:
                break
            self._iterate()
        return self

    def _iterate(self) -> None:
        self.iterations += 1
        if self._solver is None:
            self._solver = step_solver(self.source, self.student)
        solver = self._solver
        step = solver.solve(self._damping)
        if step is None:  # the matrix was not positive definite to working precision
            self._reject()
            return
        moved = replace(
            self.student, V=self.student.V + step, readout=self.student.readout + solver.readout.follow(step)
        )
        with np.errstate(over="ignore", invalid="ignore"):  # a step too long for exp or a power is rejected
            sums = reduce(self.source, ReadoutSums(moved)).sums
        if not np.isfinite(sums["rr"]) or not np.isfinite(sums["hh"]).all():
            self._reject()
            return
        readout = ReadoutFactor(sums)
        if self.projected:
            moved, rss = replace(moved, readout=moved.readout + readout.step), readout.best_rss
        else:
            rss = readout.rss
        predicted = solver.predicted_decrease(step, self._damping)
        if not rss < self.rss:
            self._reject()
            if predicted <= 1e-13 * self.rss:
                self.finished = "converged"
            return
        decrease = self.rss - rss
        gain = decrease / predicted if predicted > 0 else 1.0
        self._damping *= max(0.2, 1.0 - (2.0 * min(gain, 1.0) - 1.0) ** 3)  # [Nielsen 1999]
        self._damping, self._growth = max(self._damping, 1e-13), 2.0
        small = decrease <= 1e-12 * self.rss and gain > 0.5
        self.student, self.rss, self._solver = moved, rss, None
        if rss <= ROUNDING * self.total:
            self.finished = "exact"
        elif small:
            self.finished = "converged"

    def _reject(self) -> None:
        self._damping *= self._growth
        self._growth *= 2.0
        if self._damping > 1e12:
            self.finished = "converged"


def step_solver(source: Source, student: Student) -> DenseSolver | ProductSolver:
    """The dense solver while its matrix is small, else conjugate gradients."""
    if student.V.size <= DENSE_LIMIT:
        return DenseSolver(reduce(source, GaussNewtonSums(student)))
    return ProductSolver(source, student)
