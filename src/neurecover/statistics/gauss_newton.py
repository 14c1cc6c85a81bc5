"""Sums for least squares on  y ≈ A·act(V x̃) + L x + c,  x̃ = (x, 1) or x.

The readout Θ = (A | L | c)ᵀ (q, p) acts on the features h = (act(V x̃), x, 1) of a sample; L and c are there on
request. With the gated inputs m = (act'(v_j·x̃) x̃)_j of size m·D and the residual r = y − Θᵀh, everything that
a Gauss–Newton or variable-projection step needs is a sum that does not involve A:

    Σ h hᵀ,   Σ h rᵀ,   Σ |r|²           (readout)
    Σ h mᵀ,   Σ m mᵀ,   Σ m rᵀ           (curvature)

∂y_o/∂v_j = A_oj·act'(v_j·x̃)·x̃, so block (i, j) of the curvature is (A_i·A_j) times that of Σ m mᵀ: the cost does
not grow with the number of outputs. The residual is formed sample by sample, never as a difference of sums, so
that steps stay accurate when it is at the level of rounding.
"""

from __future__ import annotations

import numpy as np

from neurecover.models import Student
from neurecover.statistics.base import Statistic, by_root, float64, no_readout
from neurecover.statistics.gate_pairs import PIECE, add_gate_pairs, feature_products, gated_products, no_pairs
from neurecover.statistics.regions import Regions, can_divide, divide


class ReadoutSums(Statistic):
    """Σ h hᵀ, Σ h rᵀ and Σ |r|² at a student: what the best readout for its hidden units needs."""

    def __init__(self, student: Student) -> None:
        self.student = student
        self.settings = {"V": student.V, "readout": student.readout}
        q, p = student.readout.shape
        self.sums = no_readout(q, p)
        self.row_bytes = 8 * (3 * q + 2 * p)

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        self._readout(X, Y, weight)

    def _readout(
        self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Add the readout sums and return x̃, z, h and r, all but z times √w."""
        X, Y = float64(X, Y)
        X_extended = self.student.extended(X)
        Z = X_extended @ self.student.V.T
        h = self.student.features(X_extended, Z)
        R = Y - h @ self.student.readout
        X_extended, h, R = by_root(weight, X_extended, self._probed(h, X_extended), R)
        self._count(len(X), weight)
        self.sums["hh"] += h.T @ h
        self.sums["hr"] += h.T @ R
        self.sums["rr"] += np.vdot(R, R)
        return X_extended, Z, h, R

    def _probed(self, h: np.ndarray, X_extended: np.ndarray) -> np.ndarray:
        """The features that are summed: h, and what a subclass appends to it."""
        return h

    def _gated(
        self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Add the readout sums and return Mᵀ (m·D, n), h (n, q) and r (n, p), each times √w."""
        X_extended, Z, h, R = self._readout(X, Y, weight)
        gates = np.ascontiguousarray(self.student.activation.derivative(Z).T)
        X_rows = np.ascontiguousarray(X_extended.T)
        return (gates[:, None, :] * X_rows[None, :, :]).reshape(self.student.V.size, len(Z)), h, R


class UnitBlockSums(ReadoutSums):
    """The readout sums, Σ h mᵀ, Σ m rᵀ and only every unit's own block of Σ m mᵀ, (m, D, D).

    Time n·q·m·D instead of n·(m·D)².
    """

    def __init__(self, student: Student) -> None:
        super().__init__(student)
        m, D = student.V.shape
        q, p = student.readout.shape
        self.sums |= {"hm": np.zeros((q, m * D)), "mr": np.zeros((m * D, p)), "blocks": np.zeros((m, D, D))}
        self.row_bytes += 16 * m * D

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        M, h, R = self._gated(X, Y, weight)
        self.sums["hm"] += (M @ h).T
        self.sums["mr"] += M @ R
        own = M.reshape(*self.student.V.shape, -1)
        self.sums["blocks"] += own @ own.transpose(0, 2, 1)


class GaussNewtonSums(ReadoutSums):
    """The readout sums, Σ m rᵀ and, packed, the curvature Σ m mᵀ; see `curvature`.

    Σ h mᵀ follows from the same `pairs` where the activation is homogeneous.

    `probes` (e, D) are hidden units that the student does not have: their values follow h in every sum (q + e rows)
    and do not enter the residual.
    """

    def __init__(self, student: Student, probes: np.ndarray | None = None) -> None:
        super().__init__(student)
        m, D = student.V.shape
        self.probes = np.empty((0, D)) if probes is None else probes
        self.settings = {**self.settings, "probes": self.probes}
        self.degree = None if len(self.probes) else student.activation.homogeneity or None
        q, p = len(student.readout) + len(self.probes), student.n_outputs
        self.sums |= {"hh": np.zeros((q, q)), "hr": np.zeros((q, p)), "mr": np.zeros((m * D, p))}
        self.sums["pairs"] = no_pairs(m, D)
        self._divides = can_divide(student.activation, m)
        self.row_bytes += 8 * (D * p + len(self.probes))
        self.row_bytes += 8 * (2 * D + q) if self._divides else 8 * sum(self.sums["pairs"].shape)
        if self.degree is None:
            self.sums["hm"] = np.zeros((q, m * D))
            self.row_bytes += 8 * q if self._divides else 8 * m * D

    def _probed(self, h: np.ndarray, X_extended: np.ndarray) -> np.ndarray:
        return np.hstack([h, self.student.activation(X_extended @ self.probes.T)]) if len(self.probes) else h

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X_extended, Z, h, R = self._readout(X, Y, weight)
        m, D = self.student.V.shape
        gates = self.student.activation.derivative(Z)
        regions = divide(Z, D) if self._divides else None
        add_gate_pairs(self.sums["pairs"], gates, X_extended, regions)
        inputs_by_residuals = X_extended[:, :, None] * R[:, None, :]
        self.sums["mr"] += (gates.T @ inputs_by_residuals.reshape(len(Z), -1)).reshape(m * D, -1)
        if self.degree is None:
            self._add_features(h, gates, X_extended, regions)

    def _add_features(self, h: np.ndarray, gates: np.ndarray, X: np.ndarray, regions: Regions | None) -> None:
        """Σ h mᵀ where it is not in the pairs."""
        (m, D), q = self.student.V.shape, h.shape[1]
        if regions is not None:
            for own, moments in regions.products(h, X):
                hm = np.tensordot(moments, gates[regions.members[own]], (0, 0))  # (q, D, m)
                self.sums["hm"] += hm.transpose(0, 2, 1).reshape(q, m * D)
            return
        rows = max(1, PIECE // (8 * m * D))
        for first in range(0, len(X), rows):
            own = slice(first, first + rows)
            M = gates[own, :, None] * X[own, None, :]
            self.sums["hm"] += h[own].T @ M.reshape(-1, m * D)

    def curvature(self) -> tuple[np.ndarray, np.ndarray]:
        """Σ m mᵀ (m·D, m·D) and Σ h mᵀ (q, m·D)."""
        mm, on = gated_products(self.sums["pairs"], *self.student.V.shape)
        return mm, self.sums["hm"] if self.degree is None else feature_products(self.student, mm, on, self.degree)


class CurvatureProduct(Statistic):
    """Σ Jᵀ J δ for the hidden weights' part J of the Jacobian and one direction δ (m, D), in time n·m·D."""

    def __init__(self, student: Student, direction: np.ndarray) -> None:
        self.student, self.direction = student, direction
        self.settings = {"V": student.V, "readout": student.readout, "direction": direction}
        self.sums = {"n": np.zeros((), dtype=np.int64), "product": np.zeros_like(direction)}
        self.row_bytes = 8 * (4 * student.n_hidden + student.V.shape[1])

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, Y = float64(X, Y)
        A = self.student.A
        X_extended = self.student.extended(X)
        gates = self.student.activation.derivative(X_extended @ self.student.V.T)
        forward = (gates * (X_extended @ self.direction.T)) @ A.T
        X_extended, forward = by_root(weight, X_extended, forward)
        self._count(len(X), weight)
        self.sums["product"] += (gates * (forward @ A)).T @ X_extended


class PreactivationRange(Statistic):
    """The largest z_j = v_j·x̃ of every hidden unit over the samples, the largest −z_j, and how often z_j > 0."""

    maxima = frozenset({"highest", "lowest"})

    def __init__(self, student: Student) -> None:
        self.student = student
        self.settings = {"V": student.V}
        self.sums = {"n": np.zeros((), dtype=np.int64), "on": np.zeros(student.n_hidden, dtype=np.int64)}
        self.sums |= {name: np.full(student.n_hidden, -np.inf) for name in sorted(self.maxima)}
        self.row_bytes = 8 * (student.n_hidden + student.V.shape[1])

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, Y = float64(X, Y)
        Z = self.student.extended(X) @ self.student.V.T
        self._count(len(X), weight)
        self.sums["on"] += np.count_nonzero(Z > 0, axis=0)
        self.sums["highest"] = np.maximum(self.sums["highest"], Z.max(axis=0, initial=-np.inf))
        self.sums["lowest"] = np.maximum(self.sums["lowest"], (-Z).max(axis=0, initial=-np.inf))
