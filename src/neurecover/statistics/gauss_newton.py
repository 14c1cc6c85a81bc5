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
from neurecover.statistics.base import Statistic, by_root, float64
from neurecover.statistics.gate_pairs import PIECE, add_gate_pairs, feature_products, gated_products, no_pairs
from neurecover.statistics.regions import Regions, can_divide, divide


class ReadoutSums(Statistic):
    """Σ h hᵀ, Σ h rᵀ and Σ |r|² at a student: what the best readout for its hidden units needs."""

    def __init__(self, student: Student) -> None:
        self.student = student
        self.settings = {"V": student.V, "readout": student.readout}
        q, p = student.readout.shape
        self.sums = {
            "n": np.zeros((), dtype=np.int64),
            "hh": np.zeros((q, q)),
            "hr": np.zeros((q, p)),
            "rr": np.zeros(()),
        }
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

    def information(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Σ JᵀJ and Σ Jᵀr over W, b, A and c, those that are free, then the probes output by output; and the free ones.

        The block (V, V) is (AᵀA ⊗ 1) ∘ Σ m mᵀ, (Θ_o, V_j) is A_oj Σ h m_jᵀ and (Θ_o, Θ_o) is Σ h hᵀ.
        """
        student, s = self.student, self.sums
        (m, D), (q, p), A = student.V.shape, student.readout.shape, student.A
        n_probes, size = len(s["hh"]) - q, m * D
        width = q + n_probes
        F = np.zeros((size + p * width, size + p * width))
        F[:size, :size], hm = self.curvature()
        F[:size, :size].reshape(m, D, m, D)[...] *= (A.T @ A)[:, None, :, None]
        F[size:, :size] = (np.repeat(A, D, axis=1)[:, None] * hm).reshape(p * width, size)
        F[:size, size:] = F[size:, :size].T
        for o in range(p):
            rows = slice(size + o * width, size + (o + 1) * width)
            F[rows, rows] = s["hh"]
        hidden = np.einsum("jdo,oj->jd", s["mr"].reshape(m, D, -1), A)
        score = np.concatenate([hidden.ravel(), s["hr"].T.ravel()])
        free, order = network_order(student, n_probes)
        return F[order][:, order], score[order], free


def network_order(student: Student, n_probes: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The free parameters of a student's network in the order of `models.parameters`, and where each of them, then
    every probe output by output, stands among the student's own.
    """
    (k, D), p, bias = student.V.shape, student.n_outputs, student.bias
    d, q = D - bias, k + bias
    width = q + n_probes
    unit, output = np.arange(k)[:, None], np.arange(p)[:, None]
    in_W = (unit * D + np.arange(d)).ravel()
    in_b = (unit * D + d).ravel() if bias else np.zeros(0, dtype=int)
    in_A = (k * D + output * width + np.arange(k)).ravel()
    in_c = (k * D + output * width + k).ravel() if bias else np.zeros(0, dtype=int)
    probes = (k * D + output * width + q + np.arange(n_probes)).ravel()
    starts = np.cumsum([0, k * d, k, p * k])
    free = np.concatenate([np.arange(k * d), starts[2] + np.arange(p * k)])
    if bias:
        free = np.arange(starts[3] + p)
    return free, np.concatenate([in_W, in_b, in_A, in_c, probes])
