"""Least squares that is linear in part of its unknowns, for features with known inner products.

Every fit in this package is  min ‖Y − A Φ(θ)‖², where the row φᵢ of Φ is a function of unit i's parameters θᵢ. For
given θ the best A is a linear solution, so the search is over θ alone (variable projection, Kaufman's form):

    (S + λD) δ = g,    S = (AᵀA ⊗ 1) ∘ (∂Φ ∂Φᵀ − Cᵀ K⁻¹ C),    K = Φ Φᵀ,    C = Φ ∂Φᵀ,    gᵢ = Σₒ A_oi ∂φᵢ R_oᵀ,

where R = Y − A Φ is the residual and D the diagonal of (AᵀA ⊗ 1) ∘ ∂Φ ∂Φᵀ. The inner products K, C and ∂Φ ∂Φᵀ of
rank-one tensors have closed forms in the k × k angles, so the cost of a step does not depend on the size of the
tensors. The residual is formed explicitly, which keeps the gradient accurate down to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular

from neurecover.exceptions import UnsolvableError
from neurecover.solve import DenseSystem, Loop, Point, Tolerances, damping_diagonal, limit

# A residual here is one sum over k components; its loss is exact to a few roundings, N being small.
TOLERANCES = Tolerances(rounding=1e-31, promise=1e-14, gain=1e-13)


@dataclass(frozen=True)
class Inner:
    """Inner products of the features φ and of their derivatives, q parameters per unit."""

    K: np.ndarray  # (k, k)
    C: np.ndarray  # (k, k, q):  ⟨φᵢ, ∂φₗ⟩
    B: np.ndarray  # (k, q, k, q):  ⟨∂φᵢ, ∂φₗ⟩


def step_system(inner: Inner, A: np.ndarray, gradient: np.ndarray, idle: np.ndarray) -> DenseSystem:
    """Return S, g and D from the inner products.

    `gradient` (k, q) is g. `idle` (k, m, q) are unit directions of each unit's parameters that change nothing,
    such as the radius of a normalised vector; S is given a one along them so that it can be inverted.
    """
    k, q = gradient.shape
    size = np.einsum("oi,oi->i", A, A) * np.einsum("iaia->i", inner.B) / max(q, 1)
    size = np.where(size > 0.0, size, 1.0)
    E = _whitened(inner.K, inner.C.reshape(k, k * q))
    S = inner.B - (E.T @ E).reshape(k, q, k, q)
    S *= (A.T @ A)[:, None, :, None]
    diagonal = np.einsum("iaia->ia", inner.B) * np.einsum("oi,oi->i", A, A)[:, None]
    unit = np.arange(k)
    S[unit, :, unit, :] += size[:, None, None] * np.einsum("ima,imb->iab", idle, idle)
    diagonal += size[:, None] * np.einsum("ima,ima->ia", idle, idle)
    # S is symmetric, so its transpose is S in Fortran order.
    return DenseSystem(S.reshape(k * q, k * q).T, gradient.ravel(), damping_diagonal(diagonal.ravel()))


P = TypeVar("P", bound=Point)


def descend(point: P, max_iterations: int) -> tuple[P, int]:
    """Descend until no step helps or time is up; return the point and the number of steps tried."""
    loop = Loop(point, TOLERANCES).advance(max_iterations, limit())
    return loop.point, loop.iterations


def descend_best(starts: Sequence[P], polished: int, max_iterations: int) -> P:
    """Descend from the `polished` best starts and return the best end point; one at rounding ends the search."""
    ends: list[P] = []
    for start in sorted(starts, key=lambda point: point.loss)[:polished]:
        ends.append(descend(start, max_iterations)[0])
        if ends[-1].loss <= 10.0 * TOLERANCES.rounding * ends[-1].scale:
            break
    return min(ends, key=lambda point: point.loss)


def readout(Y: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Return the A (p, k) that minimises ‖Y − A Φ‖ for features Φ (k, N).

    Features that vanish get the weight zero; those that nearly coincide are regularised at the level of rounding.
    """
    norms = np.linalg.norm(features, axis=1)
    inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0.0)
    scaled = features * inverse[:, None]
    factor = _cholesky(scaled @ scaled.T)
    A = np.zeros((len(Y), len(features)))
    # The first pass solves the normal equations; the others correct its errors from rounding and from the ridge.
    for _ in range(3):
        A += cho_solve((factor, True), scaled @ (Y - A @ scaled).T, check_finite=False).T
    return A * inverse


def _whitened(K: np.ndarray, C: np.ndarray) -> np.ndarray:
    scale = np.sqrt(np.diag(K))
    scale = np.where(scale > 0.0, scale, 1.0)
    factor = _cholesky(K / scale / scale[:, None])
    return solve_triangular(factor, C / scale[:, None], lower=True, check_finite=False)


def _cholesky(matrix: np.ndarray) -> np.ndarray:
    ridge = 1e-14 * max(len(matrix), 1)
    while ridge < 1.0:
        try:
            return cholesky(matrix + ridge * np.eye(len(matrix)), lower=True, check_finite=False)
        except LinAlgError:
            ridge *= 100.0
    raise UnsolvableError("The components have grown beyond the range of floating point. Scale the tensors down.")
