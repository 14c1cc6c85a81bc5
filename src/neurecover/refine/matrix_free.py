"""The equations (S + λD) δ = g of networks whose S is too large to form.

S δ takes one pass over the samples: forwards u = A (act′ ∘ (δ x̃)), backwards (act′ ∘ Aᵀu) x̃ᵀ. The preconditioner is the
block of every unit's own weights, (A_j·A_j) Σ m_j m_jᵀ + λD.
"""

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from neurecover.data import Source, reduce
from neurecover.models import Student
from neurecover.refine.steps import HiddenSystem, ReadoutFactor, project_gradient
from neurecover.solve import ConjugateSystem, Deadline, damping_diagonal
from neurecover.solve.conjugate import Operator
from neurecover.statistics import CurvatureProduct, UnitBlockSums

TOLERANCE, MAX_PRODUCTS = 1e-3, 150


def product_system(source: Source, student: Student, deadline: Deadline | None = None) -> HiddenSystem:
    """The same equations as `dense_system`, solved to a relative accuracy of TOLERANCE."""
    sums = reduce(source, UnitBlockSums(student)).sums
    A, (m, D) = student.A, student.V.shape
    readout = ReadoutFactor(sums)
    readout.couple(A, sums["hm"])
    gradient = project_gradient(A, readout, sums["mr"], (m, D)).ravel()
    blocks = sums["blocks"] * np.einsum("oj,oj->j", A, A)[:, None, None]
    diagonal = damping_diagonal(np.einsum("jdd->jd", blocks).ravel())

    def product(v: np.ndarray) -> np.ndarray:
        step = v.reshape(m, D)
        full = reduce(source, CurvatureProduct(student, step)).sums["product"]
        seen = readout.E.T @ readout.image(step)
        return (full - np.einsum("jdo,oj->jd", seen.reshape(m, D, -1), A)).ravel()

    equations = ConjugateSystem(
        product,
        gradient,
        diagonal,
        lambda damping: _own_blocks(blocks, damping * diagonal.reshape(m, D)),
        tolerance=TOLERANCE,
        max_products=MAX_PRODUCTS,
        offset=readout.decrease,
        deadline=deadline,
    )
    return HiddenSystem(equations, readout)


def _own_blocks(blocks: np.ndarray, damped: np.ndarray) -> Operator:
    m, D = damped.shape
    factors = [
        cho_factor(block + np.diag(extra) + 1e-12 * np.trace(block) * np.eye(D)) for block, extra in zip(blocks, damped)
    ]
    return lambda v: np.concatenate([cho_solve(f, part) for f, part in zip(factors, v.reshape(m, D))])
