"""A preconditioner from every unit's own block of S, for inputs that depend on which units are on.

The Kronecker product of `products` takes gates and inputs for independent. Pixels and counts are not: where a unit is
on some of them hardly vary, and along those conjugate gradients take hundreds of products. A unit's own block shows
them,

    B_j = M_j − N_jᵀ M⁻¹ N_j,    M_j = Σ ω_j c cᵀ,    N_j = ‖A_j‖ Σ g_j c cᵀ,    M = Σ c cᵀ,    ω_j = Σ_o (∂y_o/∂z_j)²,

the second term for one layer where the readout reads c. With L_j L_jᵀ = B_j + λD_j, and K the units' factor of the
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
    from neurecover.fit.products import Products

RIDGE = 1e-6  # of the diagonal: what single precision leaves of a sum of products
FLOOR = 1e-4  # of K's eigenvalues


class UnitBlocks:
    """B_j of all units, one array (m_l, D_l, D_l) per layer."""

    def __init__(self, products: Products) -> None:
        student = products.student
        self.blocks = [np.zeros((*V.shape, V.shape[1])) for V in student.V]
        if student.depth == 1:
            size = np.sum(student.top.astype(np.float64) ** 2, axis=1)
            squares = [np.square(self._gates(products)) * size.astype(np.float32)]
        else:
            squares = [np.zeros((len(products.values.F), m), dtype=np.float32) for m in student.widths]
            for by_layer in products.by_outputs():
                for total, u in zip(squares, by_layer):
                    total += u * u
        for layer, omega in enumerate(squares):
            self._add(products, layer, omega)
        if student.depth == 1 and products.base == student.n_base:
            self._take_explained(products, size)

    @staticmethod
    def fit_in(products: Products) -> bool:
        """Tell whether there is room for them."""
        student = products.student
        needed = sum(8 * V.shape[0] * V.shape[1] ** 2 for V in student.V)
        return needed <= products.point.options.block_bytes

    @staticmethod
    def _gates(products: Products) -> np.ndarray:
        gates = products.values.gates[0]
        return gates if products.root is None else products.root * gates

    def _add(self, products: Products, layer: int, omega: np.ndarray) -> None:
        base, below = products.student.reads(layer)
        for rows in products.rows():
            c = products.values.F[rows, :base]
            c = np.hstack([c, products.values.H[rows, below]]) if layer else c
            for block, weight in zip(self.blocks[layer], np.sqrt(omega[rows]).T):
                seen = weight != 0.0
                part = weight[seen, None] * c[seen]
                block += part.T @ part

    def _take_explained(self, products: Products, size: np.ndarray) -> None:
        """Take away what the readout explains of every unit's block."""
        inverse, F = np.linalg.inv(products.point.samples.moments), products.values.F
        gates = self._gates(products)
        for block, gate, weight in zip(self.blocks[0], gates.T, size):
            cross = np.zeros_like(block)
            for rows in products.rows():
                part = gate[rows, None] * F[rows]
                left = F[rows] if products.root is None else products.root[rows] * F[rows]
                cross += left.T @ part
            block -= weight * (cross.T @ inverse @ cross)

    def preconditioner(self, products: Products, damping: float) -> Operator:
        """Return C⁻¹, for the K and the D of these products."""
        diagonals, parts = products.student.split(products.diagonal), []
        for layer, (blocks, diagonal) in enumerate(zip(self.blocks, diagonals)):
            ridge = max(damping, RIDGE) * diagonal
            inverse = np.array([_inverse_root(block, extra) for block, extra in zip(blocks, ridge)], dtype=np.float32)
            values, vectors = np.linalg.eigh(products.unit_correlations(layer))
            parts.append((inverse, (vectors / np.maximum(values, FLOOR) @ vectors.T).astype(np.float32)))

        def apply(v: np.ndarray) -> np.ndarray:
            out = []
            for (inverse, between), part in zip(parts, products.student.split(v)):
                scaled = np.matmul(inverse, part[:, :, None])[:, :, 0]
                out.append(np.matmul(inverse.transpose(0, 2, 1), (between @ scaled)[:, :, None]).ravel())
            return np.concatenate(out)

        return apply


def _inverse_root(block: np.ndarray, ridge: np.ndarray) -> np.ndarray:
    """Return R with RᵀR = (block + diag(ridge))⁻¹, or, where rounding left a negative one, of the nearest above the
    ridge.
    """
    damped = block + np.diag(ridge)
    try:
        return solve_triangular(np.linalg.cholesky(damped), np.eye(len(damped)), lower=True)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(damped)
        return (vectors / np.sqrt(np.maximum(values, ridge.min()))).T
