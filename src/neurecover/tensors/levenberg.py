"""Levenberg–Marquardt on a least-squares problem that is linear in part of its unknowns.

Every fit in this room is  min ‖Y − A Φ(θ)‖²  with the row φᵢ of Φ a function of unit i's own parameters θᵢ. For
given θ the best A is a linear solution, so the search is over θ alone (variable projection, Kaufman's form):

    (S + λD) δ = g,    S = (AᵀA ⊗ 1) ∘ (∂Φ ∂Φᵀ − Cᵀ K⁻¹ C),    K = Φ Φᵀ,    C = Φ ∂Φᵀ,    gᵢ = Σₒ A_oi ∂φᵢ R_oᵀ,

R = Y − A Φ the residual and D the diagonal of (AᵀA ⊗ 1) ∘ ∂Φ ∂Φᵀ. The inner products K, C and ∂Φ ∂Φᵀ of rank-one
tensors have closed forms in the k × k angles, so a step costs the same whatever the size of the tensors;
the residual is formed explicitly, and keeps the gradient accurate down to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, solve_triangular

ROUNDING = 1e-31  # ‖R‖² / ‖Y‖² at which double precision has nothing left to give


class Point(Protocol):
    """A value of θ with the A that is best for it."""

    @property
    def loss(self) -> float:
        """‖Y − A Φ‖²"""

    @property
    def scale(self) -> float:
        """‖Y‖²"""

    def system(self) -> System:
        """The equations of the next step."""

    def moved(self, step: np.ndarray) -> Self:
        """The point θ + step (k, q), with its own best A."""


@dataclass(frozen=True)
class Inner:
    """Inner products of the features φ and of their derivatives, q parameters per unit."""

    K: np.ndarray  # (k, k)
    C: np.ndarray  # (k, k, q):  ⟨φᵢ, ∂φₗ⟩
    B: np.ndarray  # (k, q, k, q):  ⟨∂φᵢ, ∂φₗ⟩


@dataclass(frozen=True)
class System:
    """(S + λD) δ = g, with D a diagonal."""

    S: np.ndarray
    g: np.ndarray
    D: np.ndarray

    @classmethod
    def assemble(cls, inner: Inner, A: np.ndarray, gradient: np.ndarray, idle: np.ndarray) -> System:
        """S, g and D from the inner products.

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
        diagonal = np.maximum(diagonal, 1e-10 * diagonal.max(initial=1e-300))
        return cls(S.reshape(k * q, k * q), gradient.ravel(), diagonal.ravel())

    def solve(self, damping: float) -> np.ndarray | None:
        matrix = self.S.copy()
        matrix[np.diag_indices_from(matrix)] += damping * self.D
        try:
            return cho_solve(cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False), self.g)
        except LinAlgError:
            return None


P = TypeVar("P", bound=Point)


def descend(point: P, shape: tuple[int, int], max_iterations: int) -> tuple[P, int]:
    """The point where no step helps any more, and the number of steps that were tried."""
    damping, growth = 1e-2, 2.0
    system: System | None = None
    for iteration in range(max_iterations):
        if point.loss <= ROUNDING * point.scale or damping > 1e12:
            return point, iteration
        system = point.system() if system is None else system
        step = system.solve(damping)
        if step is None:
            damping, growth = damping * growth, growth * 2.0
            continue
        predicted = float(step @ (system.g + damping * system.D * step))
        trial = point.moved(step.reshape(shape))
        if not trial.loss < point.loss:
            if predicted <= 1e-14 * point.loss:
                return point, iteration + 1
            damping, growth = damping * growth, growth * 2.0
            continue
        decrease = point.loss - trial.loss
        gain = decrease / predicted if predicted > 0.0 else 1.0
        damping *= max(0.2, 1.0 - (2.0 * min(gain, 1.0) - 1.0) ** 3)  # [Nielsen 1999]
        damping, growth = max(damping, 1e-13), 2.0
        converged = decrease <= 1e-13 * point.loss and gain > 0.5
        point, system = trial, None
        if converged:
            return point, iteration + 1
    return point, max_iterations


def descend_best(starts: Sequence[P], shape: tuple[int, int], polished: int, max_iterations: int) -> P:
    """The best end of descents from the `polished` best starts; one that leaves only rounding ends the search."""
    ends: list[P] = []
    for start in sorted(starts, key=lambda point: point.loss)[:polished]:
        ends.append(descend(start, shape, max_iterations)[0])
        if ends[-1].loss <= 10.0 * ROUNDING * ends[-1].scale:
            break
    return min(ends, key=lambda point: point.loss)


def readout(Y: np.ndarray, features: np.ndarray) -> np.ndarray:
    """The A (p, k) that minimises ‖Y − A Φ‖ for features Φ (k, N).

    Features that vanish get the weight zero; those that nearly coincide are regularised at the level of rounding.
    """
    norms = np.linalg.norm(features, axis=1)
    inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0.0)
    scaled = features * inverse[:, None]
    factor = _cholesky(scaled @ scaled.T)
    A = np.zeros((len(Y), len(features)))
    # The first pass is the normal equations; the others take back what they lost to rounding and to the ridge.
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
    raise ValueError("The components have grown beyond the range of floating point. Scale the tensors down.")
