"""Jennrich's algorithm for T = Σᵢ uᵢ ⊗ vᵢ ⊗ tᵢ [ATV21, Theorem 1.5].

With the uᵢ linearly independent, the vᵢ too, and no two tᵢ parallel, two contractions of the third axis

    T(·, ·, a) = U diag(tᵢ·a) Vᵀ,      T(·, ·, b) = U diag(tᵢ·b) Vᵀ

share their factors, and the generalised eigenvectors of the pencil are V⁻ᵀ. One random pair (a, b) is the paper's
form. Two of its eigenvalues (tᵢ·a)/(tᵢ·b) may be so close that noise makes of them a complex pair, whose eigenvectors
are no longer uᵢ and uₗ, though they still span the same plane. So many pairs are drawn, a complex pair is
replaced by a real basis of its plane, every candidate is scored by how much of the tensor it leaves, and the
best are polished by second-order least squares.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eig

from neurecover.exceptions import UnsolvableError, breakdown
from neurecover.tensors.product_sums import ProductPoint
from neurecover.tensors.separable import descend_best
from neurecover.tensors.subspace import left_singular


@dataclass(frozen=True)
class Components:
    """T ≈ Σᵢ uᵢ ⊗ vᵢ ⊗ tᵢ with one component per row of U, V (both of unit rows) and T.

    `relative_error` is ‖T − Σ …‖_F / ‖T‖_F.
    """

    U: np.ndarray
    V: np.ndarray
    T: np.ndarray
    relative_error: float


@breakdown("The decomposition")
def jennrich(
    tensor: np.ndarray,
    rank: int,
    rng: np.random.Generator,
    *,
    pairs: int = 10,
    polished: int = 2,
    max_iterations: int = 100,
) -> Components:
    """The `rank` components of a tensor (d₁, d₂, d₃), rank ≤ min(d₁, d₂).

    `pairs` random contractions are tried, and the `polished` best go through at most `max_iterations` steps
    of least squares. pairs=1, max_iterations=0 is the paper's algorithm.
    """
    tensor = np.asarray(tensor, dtype=float)
    if tensor.ndim != 3 or not np.all(np.isfinite(tensor)) or not np.any(tensor):
        raise UnsolvableError(
            f"A finite third-order tensor, not zero, is needed. Got one of shape {tensor.shape} instead."
        )
    d1, d2, d3 = tensor.shape
    left = leading_directions(tensor.reshape(d1, -1), rank)
    right = leading_directions(tensor.transpose(1, 0, 2).reshape(d2, -1), rank)
    core = np.einsum("abc,ai,bj->ijc", tensor, left, right, optimize=True)
    candidates = []
    for _ in range(pairs):
        a, b = rng.standard_normal((2, d3))
        U = pencil_directions(core @ a, core @ b)
        candidates.append(ProductPoint(tensor, U @ left.T, _partners(U, core) @ right.T))
    best = descend_best(candidates, polished, max_iterations)
    return Components(best.U, best.V, best.A.T, float(np.sqrt(best.loss / best.scale)))


def pencil_directions(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The uᵢ, as unit rows, of two matrices U diag(α) Vᵀ and U diag(β) Vᵀ of full rank k.

    The columns of a complex pair give the real and the imaginary part of one of them: a basis of their plane.
    """
    (alpha, beta), X = eig(first, second, homogeneous_eigvals=True)
    # first·x = α y and second·x = β y with y along u; this sum is (|α|² + |β|²) y, safe where α or β vanishes.
    images = first @ X * alpha.conj() + second @ X * beta.conj()
    turn = np.exp(-0.5j * np.angle(np.sum(images**2, axis=0)))
    images = images * turn  # real and imaginary parts are now orthogonal
    directions = np.where(alpha.imag < 0.0, images.imag, images.real)
    # A direction that both matrices annihilate has no image; it stands for itself, with weight zero.
    directions = np.where(np.linalg.norm(directions, axis=0) > 0.0, directions, X.real)
    return (directions / np.linalg.norm(directions, axis=0)).T


def leading_directions(matrix: np.ndarray, rank: int) -> np.ndarray:
    """An orthonormal basis, (d, rank), of the directions in which the columns of a matrix (d, m) are largest."""
    d, m = matrix.shape
    if rank > min(d, m):
        raise UnsolvableError(
            f"{rank} components need flattenings of at least that rank. Got one of shape {d} × {m} instead; "
            "for more components than dimensions flatten a tensor of higher order."
        )
    return left_singular(matrix)[0][:, :rank]


def _partners(U: np.ndarray, core: np.ndarray) -> np.ndarray:
    """The vᵢ for known uᵢ: (Uᵀ)⁻¹ applied to the first axis leaves vᵢ ⊗ tᵢ, of rank one, in row i."""
    separated = np.einsum("ia,abc->ibc", np.linalg.pinv(U.T), core)
    return np.linalg.svd(separated, full_matrices=False)[0][:, :, 0]
