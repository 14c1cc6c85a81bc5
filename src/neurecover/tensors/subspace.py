"""The span of the units from Hermite coefficients, before any unit is known.

Every wᵢ lies in the column space of every flattening of Tⱼ = Σᵢ A_i hⱼ(bᵢ) wᵢ^{⊗j} to d × C(d + j − 2, j − 1). The flattenings of all orders
and outputs are put side by side, each in units of its noise, and the leading left singular vectors are taken.

Noise. An estimate from normalised Hermite features has independent errors of standard deviation σ in the orthonormal
coordinates of Tⱼ/√j!. Its flattening F then has row and column sums of variances

    Σ over a row = σ² C(d + j − 1, j) / d,        Σ over a column = σ² (d + j − 1) / j.

The norm of a Gaussian matrix with such sums is about √row + √column, and exceeds its mean by σ√(2 log 1/δ) with probability at most δ,
since the norm is a 1-Lipschitz function of the coordinates. Singular values above that are not noise.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import factorial, log, sqrt

import numpy as np

from neurecover.tensors.packing import checked, flatten, n_packed


@dataclass(frozen=True)
class Span:
    """An orthonormal basis (d, r) of the span, all singular values in units of the noise, and the threshold that chose r."""

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
    """The span of the units from packed Tⱼ (p, n_packed(d, j)), order j ≥ 1 to tensor.

    standard_error is σ, one for all outputs or (p,): the error of a coefficient of a normalised feature. Zero, for exact
    tensors, puts the threshold at rounding. The rank is the number of singular values that noise
    would exceed with probability `false_alarm` at most, unless it is given.
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
    matrix = np.concatenate(sides, axis=1)
    if matrix.shape[1] > d:
        matrix = np.linalg.qr(matrix.T, mode="r").T
    vectors, values, _ = np.linalg.svd(matrix)
    if exact:
        threshold = 100.0 * d * np.finfo(float).eps * float(values.max(initial=0.0))
    else:
        threshold = noise_norm(d, orders, p, false_alarm)
    r = int(np.sum(values > threshold)) if rank is None else rank
    return Span(vectors[:, :r], values, threshold)


def noise_norm(d: int, orders: list[int], n_outputs: int, false_alarm: float) -> float:
    """What the largest singular value of pure noise with σ = 1 exceeds with probability `false_alarm` at most."""
    row = sum(n_outputs * n_packed(d, j) / d for j in orders)
    column = max((d + j - 1) / j for j in orders)
    return sqrt(row) + sqrt(column) + sqrt(2.0 * log(1.0 / false_alarm))
