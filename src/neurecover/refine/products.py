"""The step (S + λD) δ = g by conjugate gradients, for networks whose S is too large to form.

S δ takes one pass over the samples: forwards u = A (act′ ∘ (δ x̃)), backwards (act′ ∘ Aᵀu) x̃ᵀ. The preconditioner is the
block of every unit's own weights, (A_j·A_j) Σ m_j m_jᵀ + λD.
"""

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.linalg import LinearOperator, cg

from neurecover.data import Source, reduce
from neurecover.models import Student
from neurecover.refine.steps import ReadoutFactor, predicted_decrease, project_gradient
from neurecover.statistics import CurvatureProduct, UnitBlockSums

TOLERANCE, MAX_PRODUCTS = 1e-3, 150


class ProductSolver:
    """The same step as `DenseSolver`, to a relative accuracy of TOLERANCE."""

    def __init__(self, source: Source, student: Student) -> None:
        self.source, self.student = source, student
        sums = reduce(source, UnitBlockSums(student)).sums
        m, D = student.V.shape
        self.readout = ReadoutFactor(sums)
        self.readout.couple(student.A, sums["hm"])
        self.gradient = project_gradient(student.A, self.readout, sums["mr"], (m, D)).ravel()
        self.blocks = sums["blocks"] * np.einsum("oj,oj->j", student.A, student.A)[:, None, None]
        diagonal = np.einsum("jdd->jd", self.blocks).ravel()
        self.diagonal = np.maximum(diagonal, 1e-10 * diagonal.max(initial=1e-300))

    def solve(self, damping: float) -> np.ndarray | None:
        m, D = self.student.V.shape
        damped = damping * self.diagonal
        factors = [
            cho_factor(block + np.diag(extra) + 1e-12 * np.trace(block) * np.eye(D))
            for block, extra in zip(self.blocks, damped.reshape(m, D))
        ]
        precondition = LinearOperator(
            (m * D, m * D),
            lambda v: np.concatenate([cho_solve(f, part) for f, part in zip(factors, v.reshape(m, D))]),
            dtype=np.float64,
        )
        matrix = LinearOperator(
            (m * D, m * D), lambda v: self._product(v.reshape(m, D)) + damped * v.ravel(), dtype=np.float64
        )
        step, _ = cg(matrix, self.gradient, rtol=TOLERANCE, maxiter=MAX_PRODUCTS, M=precondition)
        return step.reshape(m, D)

    def predicted_decrease(self, step: np.ndarray, damping: float) -> float:
        return predicted_decrease(step.ravel(), self.gradient, damping * self.diagonal, self.readout)

    def _product(self, step: np.ndarray) -> np.ndarray:
        full = reduce(self.source, CurvatureProduct(self.student, step)).sums["product"]
        seen = self.readout.E.T @ self.readout.image(step)
        return (full - np.einsum("jdo,oj->jd", seen.reshape(*step.shape, -1), self.student.A)).ravel()
