"""A preconditioner from every unit's own block of S, for inputs that depend on which units are on.

The Kronecker product of `single` takes gates and inputs for independent. Pixels and counts are not: where a unit is on
some of them hardly vary, and along those conjugate gradients take hundreds of products. A unit's own block shows them,

    B_j = ‖A_j‖² (M_j − N_jᵀ M⁻¹ N_j),    M_j = Σ g_j² x̃x̃ᵀ,    N_j = Σ g_j x̃x̃ᵀ,    M = Σ x̃x̃ᵀ,

the second term where an affine part explains that much. With L_j L_jᵀ = B_j + λD_j, and K the units' factor of the
Kronecker product scaled to a unit diagonal,

    C = L (K ⊗ 1) Lᵀ,        L = diag(L_1, …, L_m),

is the Kronecker product again where all B_j are in proportion. Blocks cost as much as some forty products, twice that
with an affine part (measured at D = 785), and change little from step to step, so they are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import solve_triangular

from neurecover.solve.conjugate import Operator

if TYPE_CHECKING:
    from neurecover.refine.single import SingleProducts

RIDGE = 1e-6  # of the diagonal: what single precision leaves of a sum of products
FLOOR = 1e-4  # of K's eigenvalues
MOST_BYTES = 2**29  # of all blocks; beyond, there are none
RATE = 5e10  # multiplications and additions a second, in single precision, that a processor of today makes at the least


class UnitBlocks:
    """B_j of all units, (m, D, D)."""

    def __init__(self, products: SingleProducts) -> None:
        held, gates, root = products.held, products.gates, products.held.root_weight
        m, D = products.student.V.shape
        affine = products.projection.a == D
        self.blocks, crossed = np.zeros((m, D, D)), np.zeros((m, D, D) if affine else 0)
        for rows in products.row_blocks():
            X = held.inputs[rows] if root is None else root[rows] * held.inputs[rows]
            for j, gate in enumerate(gates[rows].T):
                on = gate != 0.0
                seen = gate[on, None] * held.inputs[rows][on]
                self.blocks[j] += seen.T @ seen
                if affine:
                    crossed[j] += X[on].T @ seen
        if affine:
            for block, cross in zip(self.blocks, crossed):
                block -= cross.T @ held.inverse_moments @ cross
        self.blocks *= products.own_weights[:, None, None]

    @staticmethod
    def possible(products: SingleProducts, seconds: float) -> bool:
        """Whether there is room for them, and so much time."""
        n, (m, D) = len(products.gates), products.student.V.shape
        return 8 * m * D**2 <= MOST_BYTES and 2.0 * n * m * D**2 <= RATE * seconds

    def preconditioner(self, products: SingleProducts, damping: float) -> Operator:
        """C⁻¹, for the K and the D of these products."""
        m, D = products.student.V.shape
        inverse = np.empty((m, D, D), dtype=np.float32)
        for j, (block, diagonal) in enumerate(zip(self.blocks, products.diagonal)):
            inverse[j] = _inverse_root(block, max(damping, RIDGE) * diagonal)
        values, vectors = np.linalg.eigh(products.unit_correlations())
        between = (vectors / np.maximum(values, FLOOR) @ vectors.T).astype(np.float32)
        transposed = inverse.transpose(0, 2, 1)

        def apply(v: np.ndarray) -> np.ndarray:
            scaled = np.matmul(inverse, v.reshape(m, D, 1))[:, :, 0]
            return np.matmul(transposed, (between @ scaled)[:, :, None]).ravel()

        return apply


def _inverse_root(block: np.ndarray, ridge: np.ndarray) -> np.ndarray:
    """R with RᵀR = (block + diag(ridge))⁻¹, or, where rounding left a negative one, of the nearest above the ridge."""
    damped = block + np.diag(ridge)
    try:
        return solve_triangular(np.linalg.cholesky(damped), np.eye(len(damped)), lower=True)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(damped)
        return (vectors / np.sqrt(np.maximum(values, ridge.min()))).T
