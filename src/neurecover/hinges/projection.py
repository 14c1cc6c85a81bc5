"""Hinge columns with other columns projected out, by sums over suffixes.

For P (m, q) with orthonormal columns, in units of √w, M = I − P Pᵀ, and hinges h_p = √w (z − p)₊,

    A = Hᵀ M H = Hᵀ H − Rᵀ R,   R = Pᵀ H,   b = Hᵀ M √w y,

and every entry is a polynomial in p whose coefficients are sums over the inputs beyond p. A set S of hinges takes
gain_S = b_S A_S⁻¹ b_S off the sum of squares.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from neurecover.hinges.points import Points

_TINY = 1e-9  # of a column's square that is left when others are projected out: below, it is in their span


@dataclass(frozen=True, eq=False)
class HingeSums:
    """`A` (G, G) and `b` (G,) of the hinges at G places, with `R` (q, G)."""

    places: np.ndarray
    A: np.ndarray
    b: np.ndarray
    R: np.ndarray


@dataclass(frozen=True, eq=False)
class Projection:
    """The points with the span of `basis` (m, q) projected out; `residual` is M √w y and `coordinates` Pᵀ √w y."""

    points: Points
    basis: np.ndarray
    residual: np.ndarray
    coordinates: np.ndarray

    @classmethod
    def of(cls, points: Points, columns: np.ndarray) -> Projection:
        """Project the columns (m, q), without √w, out of the outputs; a column in the span of others is left out."""
        root = np.sqrt(points.w)
        scaled = root[:, None] * columns
        norms = np.linalg.norm(scaled, axis=0)
        basis, triangle = np.linalg.qr(scaled / np.where(norms > 0.0, norms, 1.0))
        basis = basis[:, np.abs(np.diag(triangle)) > _TINY]
        return cls.onto(points, basis, root * points.y)

    @classmethod
    def onto(cls, points: Points, basis: np.ndarray, outputs: np.ndarray) -> Projection:
        """Project an orthonormal basis out of outputs (m,), both in units of √w."""
        coordinates = basis.T @ outputs
        residual = outputs - basis @ coordinates
        return cls(points, basis, residual - basis @ (basis.T @ residual), coordinates)

    @property
    def rss(self) -> float:
        """The residual sum of squares, that within the groups included."""
        return float(self.residual @ self.residual) + self.points.within

    @cached_property
    def suffixes(self) -> np.ndarray:
        """Sums over the inputs from each on: of w, w z, w z², √w r, √w r z, and of √w P, √w P z."""
        points, root = self.points, np.sqrt(self.points.w)
        r, P, z = root * self.residual, root[:, None] * self.basis, points.z
        columns = np.column_stack([points.w, points.w * z, points.w * z**2, r, r * z, P, P * z[:, None]])
        sums = np.zeros((len(z) + 1, columns.shape[1]))
        sums[:-1] = np.cumsum(columns[::-1], axis=0)[::-1]
        return sums

    def hinges(self, places: np.ndarray) -> HingeSums:
        """Return A, b and R of hinges at the places (G,), in any order."""
        q = self.basis.shape[1]
        sums = self.suffixes[np.searchsorted(self.points.z, places, side="right")]
        R = (sums[:, 5 + q :] - places[:, None] * sums[:, 5 : 5 + q]).T
        later = np.where(places[:, None] >= places, np.arange(len(places))[:, None], np.arange(len(places)))
        s0, s1, s2 = sums[:, 0][later], sums[:, 1][later], sums[:, 2][later]
        A = s2 - (places[:, None] + places) * s1 + places[:, None] * places * s0
        own = np.diag(A).copy()
        A = A - R.T @ R
        # What the others span up to rounding is no column of its own: it gains nothing.
        np.fill_diagonal(A, np.where(np.diag(A) > _TINY * own, np.diag(A), np.inf))
        return HingeSums(places, A, sums[:, 4] - places * sums[:, 3], R)


def hinge_columns(z: np.ndarray, breaks: np.ndarray) -> np.ndarray:
    """Return 1, z and (z − p)₊ for every break p, (m, K + 2)."""
    return np.column_stack([np.ones(len(z)), z, np.maximum(z[:, None] - breaks, 0.0)])


def tangent_columns(z: np.ndarray, breaks: np.ndarray) -> np.ndarray:
    """Return 1, z, (z − p)₊ and the derivative's steps 1(z > p), (m, 2K + 2)."""
    return np.column_stack([hinge_columns(z, breaks), z[:, None] > breaks])


def solve_sets(A: np.ndarray, b: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Factor A_S = L Lᵀ for all sets (T, K) at once; return L (K, K, T) and L⁻¹ b_S (K, T), whose squares are gains."""
    T, K = sets.shape
    L, u = np.zeros((K, K, T)), np.zeros((K, T))
    for i in range(K):
        for j in range(i + 1):
            entry = A[sets[:, i], sets[:, j]] - np.einsum("kt,kt->t", L[i, :j], L[j, :j])
            if i == j:
                own = A[sets[:, i], sets[:, i]]
                L[i, i] = np.sqrt(np.where(entry > _TINY * own, entry, np.inf))
            else:
                L[i, j] = entry / L[j, j]
        u[i] = (b[sets[:, i]] - np.einsum("kt,kt->t", L[i, :i], u[:i])) / L[i, i]
    return L, u
