"""The span of the units from Hermite coefficients, before any unit is known.

Every wᵢ lies in the column space of every flattening (1, j − 1) of Tⱼ = Σᵢ aᵢ hⱼ(bᵢ) wᵢ^{⊗j}. The flattenings
of all orders and outputs are concatenated, each in units of its noise, and the leading left singular
vectors span the result.

An estimate from normalised Hermite features has independent errors of standard deviation σ in the orthonormal
coordinates of Tⱼ/√j!. The variances in its flattening then add up to

    σ² C(d + j − 1, j) / d  over a row,        σ² (d + j − 1) / j  over a column.

The norm of a Gaussian matrix with such sums is about √row + √column, and exceeds its mean by σ√(2 log 1/δ) with
probability at most δ, since the norm is a 1-Lipschitz function of the coordinates. Singular values above
that are not noise. Measured, the largest singular value of pure noise is 0.5 to 0.8 of this bound at δ = 0.01.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import factorial, log, sqrt

import numpy as np

from neurecover.exceptions import UnsolvableError
from neurecover.tensors.packing import checked, flatten, n_packed


@dataclass(frozen=True)
class Span:
    """An orthonormal basis (d, r) of the span, with the d singular values and the threshold in units of the noise."""

    basis: np.ndarray
    singular_values: np.ndarray
    threshold: float


def span(
    coefficients: Mapping[int, np.ndarray],
    d: int,
    standard_error: np.ndarray | float,
    *,
    rank: int | None = None,
    false_alarm: float = 0.01,
) -> Span:
    """Find the span of the units from packed Tⱼ (p, n_packed(d, j)), j ≥ 1 the keys.

    standard_error is σ, one for all outputs or (p,): the error of a coefficient of a normalised feature. Zero,
    for exact tensors, puts the threshold at rounding. If the rank is not given, it is the number of singular
    values above a threshold that noise exceeds with probability at most `false_alarm`.
    """
    orders = sorted(coefficients)
    if not orders or orders[0] < 1:
        raise ValueError(f"The span is seen in the orders from 1 on. Got orders {orders} instead.")
    rows = {j: np.atleast_2d(checked(coefficients[j], d, j)) for j in orders}
    p = len(rows[orders[0]])
    sigma = np.broadcast_to(np.asarray(standard_error, dtype=float), (p,))
    exact = not np.any(sigma)
    if np.any(sigma < 0.0) or (not exact and not np.all(sigma)):
        raise ValueError(
            f"The standard errors need to be positive, or all zero for exact tensors. Got {sigma} instead."
        )
    unit = np.ones(p) if exact else sigma
    sides = [
        flatten(T / unit[:, None], d, (1, j - 1)).transpose(1, 0, 2).reshape(d, -1) / sqrt(factorial(j))
        for j, T in rows.items()
    ]
    vectors, values = left_singular(np.concatenate(sides, axis=1))
    rounding = 100.0 * d * np.finfo(float).eps * float(values[0])
    threshold = rounding if exact else noise_norm(d, orders, p, false_alarm)
    r = int(np.sum(values > threshold)) if rank is None else rank
    return Span(vectors[:, :r], values, threshold)


def whitening(matrix: np.ndarray, rank: int) -> np.ndarray:
    """Return B (r, rank) with Bᵀ M B = I on the leading eigenvectors of M.

    For M = Σᵢ sᵢ wᵢwᵢᵀ with all sᵢ > 0 the uᵢ = √sᵢ Bᵀwᵢ are orthonormal. If the sᵢ have both signs, use `decompose` or
    `joint_diagonalise`, which need no whitening.
    """
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1][:rank], vectors[:, ::-1][:, :rank]
    if not values[-1] > len(matrix) * np.finfo(float).eps * abs(values[0]):
        raise UnsolvableError(
            f"Whitening {rank} components needs that many positive eigenvalues. Got {values[-1]:.3g} for the last of "
            "them instead; decompose and joint_diagonalise work without whitening."
        )
    return vectors / np.sqrt(values)


def left_singular(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the left singular vectors (d, d) and the d singular values, decreasing, of a matrix (d, m)."""
    d, m = matrix.shape
    # The left singular vectors equal those of the d × d triangular factor; padding handles m < d.
    small = np.asarray(np.linalg.qr(matrix.T, mode="r")).T if m > d else np.pad(matrix, ((0, 0), (0, d - m)))
    vectors, values, _ = np.linalg.svd(small)
    return vectors, values


def noise_norm(d: int, orders: list[int], n_outputs: int, false_alarm: float) -> float:
    """Return the bound that the largest singular value of pure noise, σ = 1, exceeds with at most this probability."""
    row = sum(n_outputs * n_packed(d, j) / d for j in orders)
    column = max((d + j - 1) / j for j in orders)
    return sqrt(row) + sqrt(column) + sqrt(2.0 * log(1.0 / false_alarm))
