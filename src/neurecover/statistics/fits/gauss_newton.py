"""Sums over the gated inputs m = (act'(v_j·x̃) x̃)_j of a student of one layer, as `search.gates` reads them."""

from __future__ import annotations

from typing import Any

import numpy as np

from neurecover.statistics.base import Statistic, by_root, float64


class GaussNewtonSums(Statistic):
    """Σ m mᵀ, Σ h mᵀ and Σ h hᵀ with h = (act(V x̃), x, 1), at a `fit.networks.OneLayer` with an affine part."""

    def __init__(self, student: Any) -> None:
        self.student = student
        self.settings = {"V": student.V, "readout": student.readout}
        q, size = len(student.readout), student.V.size
        self.sums = {"n": np.zeros((), dtype=np.int64), "hh": np.zeros((q, q))}
        self.sums |= {"mm": np.zeros((size, size)), "hm": np.zeros((q, size))}
        self.row_bytes = 8 * (3 * q + 3 * size)

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, Y = float64(X, Y)
        extended = self.student.extended(X)
        H, gates = self.student.activation.with_derivative(extended @ self.student.V.T)
        m = (gates[:, :, None] * extended[:, None, :]).reshape(len(X), -1)
        h, m = by_root(weight, np.hstack([H, extended]), m)
        self._count(len(X), weight)
        for name, left, right in (("hh", h, h), ("mm", m, m), ("hm", h, m)):
            self.sums[name] += left.T @ right

    def curvature(self) -> tuple[np.ndarray, np.ndarray]:
        """Return Σ m mᵀ (m·D, m·D) and Σ h mᵀ (q, m·D)."""
        return self.sums["mm"], self.sums["hm"]
