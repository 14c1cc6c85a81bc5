"""Random matrices: with unit rows, orthonormal, with a given condition number, or with near-parallel pairs of rows."""

import numpy as np


def unit_rows(rng: np.random.Generator, n_rows: int, n_columns: int) -> np.ndarray:
    """Draw rows g/‖g‖ with g ~ N(0, I): independent and uniform on the sphere."""
    return normalised(rng.standard_normal((n_rows, n_columns)))


def orthonormal(rng: np.random.Generator, n_rows: int, n_columns: int) -> np.ndarray:
    """Draw M with M Mᵀ = I if n_rows ≤ n_columns, else MᵀM = I; the distribution is invariant under rotation."""
    if n_rows < n_columns:
        return orthonormal(rng, n_columns, n_rows).T
    q, r = np.linalg.qr(rng.standard_normal((n_rows, n_columns)))
    # QR alone is not uniform: Q is unique, and so rotation invariant, only if the diagonal of R is positive.
    return q * np.where(np.diag(r) < 0, -1.0, 1.0)


def conditioned(rng: np.random.Generator, n_rows: int, n_columns: int, condition: float) -> np.ndarray:
    """Draw U Σ Vᵀ, U and V random orthonormal, Σ_ii = λ^-i for i = 0, …, r − 1, r = min(shape) [GKLW19, §4.3].

    λ = condition^(1/(r − 1)), so that the largest singular value is 1 and the smallest 1/condition.
    """
    rank = min(n_rows, n_columns)
    singular_values = condition ** -np.linspace(0.0, 1.0, rank)
    return (orthonormal(rng, n_rows, rank) * singular_values) @ orthonormal(rng, rank, n_columns)


def near_parallel(rng: np.random.Generator, n_rows: int, n_columns: int, angle: float) -> np.ndarray:
    """Draw unit rows with the given angle between rows 2i and 2i + 1; if the number is odd, the last row has no pair.

    The first of a pair is u, uniform on the sphere, the second cos(angle) u + sin(angle) v with v uniform
    on the unit sphere of u's orthogonal complement.
    """
    rows = unit_rows(rng, n_rows, n_columns)
    n_pairs = n_rows // 2
    u, v = rows[0 : 2 * n_pairs : 2], rows[1 : 2 * n_pairs : 2]
    v = normalised(v - np.sum(u * v, axis=1, keepdims=True) * u)
    rows[1 : 2 * n_pairs : 2] = np.cos(angle) * u + np.sin(angle) * v
    return rows


def normalised(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
