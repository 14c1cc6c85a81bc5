"""(S + λD) δ = g with S formed: one Cholesky factorisation per λ, time q³/3 for q unknowns. Linear least squares."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs, dtrtrs


@dataclass(frozen=True)
class DenseSystem:
    """S (q, q), symmetric and best in Fortran order, of which the lower triangle is read; g (q,); D (q,), a diagonal.

    `offset` is a decrease that comes with every step, such as that of unknowns which are eliminated. `least` is the
    damping below which S is nothing but rounding.
    """

    S: np.ndarray
    g: np.ndarray
    D: np.ndarray
    offset: float = 0.0
    least: float = 0.0

    def solve(self, damping: float) -> np.ndarray | None:
        """Return δ, or None where S + λD is not positive definite to working precision."""
        matrix = self.S.copy(order="F")
        np.einsum("ii->i", matrix)[:] += max(damping, self.least) * self.D
        factor, info = dpotrf(matrix, lower=1, overwrite_a=1, clean=0)
        return None if info else dpotrs(factor, self.g, lower=1)[0]

    def predicted_decrease(self, step: np.ndarray, damping: float) -> float:
        """Return 2 δ·g − δ·S δ for the δ that solves (S + λD) δ = g, and the offset."""
        return float(step @ (self.g + max(damping, self.least) * self.D * step)) + self.offset


def damping_diagonal(diagonal: np.ndarray, least: float = 1e-10) -> np.ndarray:
    """Return D from the diagonal of the curvature: an unknown that hardly matters is damped like one of `least`."""
    return np.maximum(diagonal, least * diagonal.max(initial=1e-300))


class Readout:
    """F with F Fᵀ = BᵀB, columns scaled to one size; a ridge, per column, at the level of rounding tames equal ones."""

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
        """Return (BᵀB)⁻¹ right; a network without units and biases has no columns, which LAPACK refuses."""
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
        """(BᵀB)⁻¹ for columns scaled to one size."""
        lower = np.tril(dpotri(self.factor, lower=1)[0])
        return lower + np.tril(lower, -1).T
