"""Directions from a pencil of two matrices: the core of Jennrich's algorithm [ATV21, Theorem 1.5].

Two contractions of the third axis of Σᵢ uᵢ ⊗ vᵢ ⊗ tᵢ, for instance, are two matrices with common factors,

    U diag(α) Vᵀ,      U diag(β) Vᵀ.

If the uᵢ are linearly independent and no two (αᵢ, βᵢ) are parallel, the generalised eigenvectors of the pencil are V⁻ᵀ.
Two eigenvalues αᵢ/βᵢ may be so close that noise turns them into a complex pair. Its eigenvectors no longer give uᵢ and
uₗ but still span the same plane. A complex pair is therefore replaced by a real basis of this plane, in which the
following least-squares fit (`joint_diagonalise`) finds the two.
"""

import numpy as np
from scipy.linalg import eig

from neurecover.exceptions import UnsolvableError
from neurecover.tensors.subspace import left_singular


def pencil_directions(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the uᵢ, as unit rows, of two matrices U diag(α) Vᵀ and U diag(β) Vᵀ of full rank k.

    For a complex pair, the two rows are the real and the imaginary part of one direction: a basis of their plane.
    """
    (alpha, beta), X = eig(first, second, homogeneous_eigvals=True)
    # first·x = α y and second·x = β y with y along u; this sum is (|α|² + |β|²) y, safe if α or β vanishes.
    images = first @ X * alpha.conj() + second @ X * beta.conj()
    turn = np.exp(-0.5j * np.angle(np.sum(images**2, axis=0)))
    images = images * turn  # real and imaginary parts are now orthogonal
    directions = np.where(alpha.imag < 0.0, images.imag, images.real)
    # A direction that both matrices annihilate has no image; use the direction itself, with weight zero.
    directions = np.where(np.linalg.norm(directions, axis=0) > 0.0, directions, X.real)
    return (directions / np.linalg.norm(directions, axis=0)).T


def leading_directions(matrix: np.ndarray, rank: int) -> np.ndarray:
    """Return an orthonormal basis, (d, rank), of the directions in which the columns of a matrix are largest."""
    d, m = matrix.shape
    if rank > min(d, m):
        raise UnsolvableError(
            f"{rank} components need flattenings of at least that rank. Got one of shape {d} × {m} instead; "
            "for more components than dimensions flatten a tensor of higher order."
        )
    return left_singular(matrix)[0][:, :rank]
