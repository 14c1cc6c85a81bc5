"""Solve (S + λD) δ = g with a dense S by one Cholesky factorisation per λ, in time q³/3; linear least squares."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs, dtrtrs


@dataclass(frozen=True)
class DenseSystem:
    """The equations (S + λD) δ = g in arrays: symmetric S (q, q), of which only the lower triangle is read, g (q,) and
    D (q,).

    S is best in Fortran order. `offset` is a decrease that every step adds, such as that of eliminated unknowns. Below
    the damping `least`, S is dominated by rounding.
    """

    S: np.ndarray
    g: np.ndarray
    D: np.ndarray
    offset: float = 0.0
    least: float = 0.0

    def solve(self, damping: float) -> np.ndarray | None:
        """Return δ, or None if S + λD is not positive definite to working precision."""
        matrix = self.S.copy(order="F")
        np.einsum("ii->i", matrix)[:] += max(damping, self.least) * self.D
        factor, info = dpotrf(matrix, lower=1, overwrite_a=1, clean=0)
        return None if info else dpotrs(factor, self.g, lower=1)[0]

    def predicted_decrease(self, step: np.ndarray, damping: float) -> float:
        """Return 2 δ·g − δ·S δ plus the offset, for the δ that solves (S + λD) δ = g."""
        return float(step @ (self.g + max(damping, self.least) * self.D * step)) + self.offset


def damping_diagonal(diagonal: np.ndarray, least: float = 1e-10) -> np.ndarray:
    """Return D from the diagonal of the curvature, with small entries raised to `least`, relative to the largest."""
    return np.maximum(diagonal, least * diagonal.max(initial=1e-300))


class Readout:
    """The factor F of F Fᵀ = BᵀB, with columns scaled to equal size; a ridge at rounding level allows equal columns."""

    def __init__(self, gram: np.ndarray, ridge: float = 1e-13) -> None:
        scale = np.sqrt(gram.diagonal())
        self.scale = np.where(scale > 0.0, scale, 1.0)
        scaled = gram / self.scale / self.scale[:, None]
        ridge *= max(len(gram), 1)
        while True:
            matrix = scaled.copy()
            matrix.flat[:: len(matrix) + 1] += ridge
            self.factor, failed = dpotrf(matrix, lower=1, overwrite_a=1, clean=1)
            if not failed:
                break
            ridge *= 100.0

    def solve(self, right: np.ndarray) -> np.ndarray:
        """Return (BᵀB)⁻¹ right. A network without units and biases has no columns; LAPACK would refuse that case."""
        if not len(right):
            return right
        return dpotrs(self.factor, right / self.scale[:, None], lower=1)[0] / self.scale[:, None]

    def whiten(self, right: np.ndarray) -> np.ndarray:
        """Return F⁻¹ right."""
        if not len(right):
            return right
        return dtrtrs(self.factor, right / self.scale[:, None], lower=1)[0]

    @cached_property
    def inverse(self) -> np.ndarray:
        """(BᵀB)⁻¹ for columns scaled to equal size."""
        lower = np.tril(dpotri(self.factor, lower=1)[0])
        return lower + np.tril(lower, -1).T
