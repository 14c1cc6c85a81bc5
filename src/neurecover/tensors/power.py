"""The tensor power method with deflation, on whitened symmetric tensors of order 3 or more.

Let M = Σᵢ sᵢ wᵢwᵢᵀ with all sᵢ > 0, and B (r, k) with BᵀMB = I. Then uᵢ = √sᵢ Bᵀwᵢ are orthonormal, and

    T(B, …, B) = Σᵢ λᵢ uᵢ^{⊗j},      λᵢ = tᵢ sᵢ^{−j/2},      for  T = Σᵢ tᵢ wᵢ^{⊗j}.

The map u ← T(·, u, …, u)/‖·‖ converges to one of the ±uᵢ from almost every start, quadratically for j = 3. What has been
found is subtracted. Whitening needs an M that is positive definite on the span: where the sᵢ have both
signs use `decompose` or `joint_diagonalise`, which need none.
"""

from dataclasses import dataclass

import numpy as np

from neurecover.tensors.packing import flatten, multiplicities, pack, rank_one, symmetric_power, unpack


@dataclass(frozen=True)
class PowerComponents:
    """T ≈ Σᵢ weightsᵢ wᵢ^{⊗j}, unit rows wᵢ in W (k, r); `iterations` of the slowest component."""

    W: np.ndarray
    weights: np.ndarray
    iterations: int


def whitening(matrix: np.ndarray, rank: int) -> np.ndarray:
    """B (r, rank) with Bᵀ M B = I on the leading eigenvectors of M."""
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1][:rank], vectors[:, ::-1][:, :rank]
    if not values[-1] > len(matrix) * np.finfo(float).eps * abs(values[0]):
        raise ValueError(
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
    r, k = B.shape
    if order < 3:
        raise ValueError(f"The power method needs a tensor of order 3 or more. Got {order} instead.")
    residual = whitened(packed, B, order)
    U, slowest = np.empty((0, k)), 0
    for _ in range(k):
        starts = rng.standard_normal((restarts, k))
        starts -= starts @ U.T @ U
        u, steps = _iterate(residual, order, starts / np.linalg.norm(starts, axis=1)[:, None], max_iterations)
        value = symmetric_power(u[None], order)[0] @ (residual * np.sqrt(multiplicities(k, order)))
        residual = residual - rank_one(u[None], order, np.array([value]))
        U, slowest = np.concatenate([U, u[None]]), max(slowest, steps)
    # M B maps uᵢ to √sᵢ wᵢ; with M⁻¹ = B Bᵀ on the span, M B is the pseudo-inverse of Bᵀ.
    W = U @ np.linalg.pinv(B)
    W /= np.linalg.norm(W, axis=1)[:, None]
    root = np.sqrt(multiplicities(r, order))
    weights = np.linalg.lstsq(symmetric_power(W, order).T, packed * root, rcond=None)[0]
    return PowerComponents(W, weights, slowest)


def whitened(packed: np.ndarray, B: np.ndarray, order: int) -> np.ndarray:
    """T(B, …, B), packed in the k dimensions of B (r, k)."""
    full = unpack(packed, len(B), order)
    for _ in range(order):
        # The contracted axis returns as the last one, so after `order` turns every axis has had its own.
        full = np.tensordot(full, B, axes=(0, 0))
    return pack(full, order)


def _iterate(packed: np.ndarray, order: int, U: np.ndarray, max_iterations: int) -> tuple[np.ndarray, int]:
    """The best fixed point of u ← ±T(·, u, …, u)/‖·‖ from all the rows of U, and the steps it took."""
    k = U.shape[1]
    matrix = flatten(packed, k, (order - 1, 1))
    tolerance = 4.0 * np.finfo(float).eps * np.sqrt(k)
    for step in range(1, max_iterations + 1):
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
    return U[best], step
