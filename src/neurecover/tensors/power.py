"""The tensor power method with deflation, on whitened symmetric tensors of order 3 or more.

Let M = Σᵢ sᵢ wᵢwᵢᵀ with all sᵢ > 0, and B (r, k) with BᵀMB = I. Then uᵢ = √sᵢ Bᵀwᵢ are orthonormal, and

    T(B, …, B) = Σᵢ λᵢ uᵢ^{⊗j},      λᵢ = tᵢ sᵢ^{−j/2},      for  T = Σᵢ tᵢ wᵢ^{⊗j}.

The map u ← T(·, u, …, u)/‖·‖ converges to one of the ±uᵢ from almost every start, quadratically for j = 3 and faster
for larger j. What has been found is subtracted. Whitening needs an M that is positive definite on the span:
where the sᵢ have both signs use `decompose` or `joint_diagonalise`, which need none.
"""

from dataclasses import dataclass

import numpy as np

from neurecover.exceptions import UnsolvableError
from neurecover.tensors.packing import flatten, inner, monomials, pack, rank_one, symmetric_power, unpack
from neurecover.tensors.power_sums import best_weights


@dataclass(frozen=True)
class PowerComponents:
    """T ≈ Σᵢ weightsᵢ wᵢ^{⊗j}, unit rows wᵢ in W (k, r)."""

    W: np.ndarray
    weights: np.ndarray


def whitening(matrix: np.ndarray, rank: int) -> np.ndarray:
    """B (r, rank) with Bᵀ M B = I on the leading eigenvectors of M."""
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1][:rank], vectors[:, ::-1][:, :rank]
    if not values[-1] > len(matrix) * np.finfo(float).eps * abs(values[0]):
        raise UnsolvableError(
            f"Whitening {rank} components needs that many positive eigenvalues. Got {values[-1]:.3g} for the last of "
            "them instead; decompose and joint_diagonalise work without whitening."
        )
    return vectors / np.sqrt(values)


def power_method(
    packed: np.ndarray,
    B: np.ndarray,
    order: int,
    rng: np.random.Generator,
    *,
    restarts: int = 30,
    max_iterations: int = 200,
) -> PowerComponents:
    """The k components of a packed symmetric tensor (n_packed(r, order),) that the matrix B (r, k) makes orthogonal.

    Each is the best by |T(u, …, u)| of `restarts` random starts, which are iterated together.
    """
    k = B.shape[1]
    if order < 3:
        raise ValueError(f"The power method needs a tensor of order 3 or more. Got {order} instead.")
    residual = whitened(packed, B, order)
    U = np.empty((0, k))
    for _ in range(k):
        starts = rng.standard_normal((restarts, k))
        starts -= starts @ U.T @ U
        u = _iterate(residual, order, starts / np.linalg.norm(starts, axis=1)[:, None], max_iterations)
        value = inner(monomials(u, order), residual, k, order)
        residual = residual - rank_one(u[None], order, np.array([value]))
        U = np.concatenate([U, u[None]])
    # M B maps uᵢ to √sᵢ wᵢ; with M⁻¹ = B Bᵀ on the span, M B is the pseudo-inverse of Bᵀ.
    W = U @ np.linalg.pinv(B)
    W /= np.linalg.norm(W, axis=1)[:, None]
    return PowerComponents(W, best_weights(packed, W, order)[0])


def whitened(packed: np.ndarray, B: np.ndarray, order: int) -> np.ndarray:
    """T(B, …, B), packed in the k dimensions of B (r, k)."""
    full = unpack(packed, len(B), order)
    for _ in range(order):
        # The contracted axis returns as the last one, so after `order` turns every axis has had its own.
        full = np.tensordot(full, B, axes=(0, 0))
    return pack(full, order)


def _iterate(packed: np.ndarray, order: int, U: np.ndarray, max_iterations: int) -> np.ndarray:
    """The fixed point of u ← ±T(·, u, …, u)/‖·‖ with the largest |T(u, …, u)| that the rows of U lead to."""
    k = U.shape[1]
    matrix = flatten(packed, k, (order - 1, 1))
    tolerance = 4.0 * np.finfo(float).eps * np.sqrt(k)
    for _ in range(max_iterations):
        image = symmetric_power(U, order - 1) @ matrix
        norms = np.linalg.norm(image, axis=1)
        image = np.where(norms[:, None] > 0.0, image / np.where(norms > 0.0, norms, 1.0)[:, None], U)
        # For even orders a negative λ turns u over at every step.
        image *= np.where(np.einsum("ia,ia->i", image, U) < 0.0, -1.0, 1.0)[:, None]
        change = np.linalg.norm(image - U, axis=1)
        U = image
        best = int(np.argmax(norms))
        if change[best] <= tolerance:
            break
    return U[best]
