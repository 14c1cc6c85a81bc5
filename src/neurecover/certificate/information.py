"""What the samples say about each parameter: the Fisher information of a student, its inverse, and a test for more.

With noise of variance σ² the estimates have covariance σ² F⁻¹, F = Σ Jᵀ J over all parameters (V, Θ). Its blocks come
from the Gauss–Newton sums: (V, V) is (AᵀA ⊗ 1) ∘ Σ m mᵀ, (Θ_o, V_j) is A_oj Σ h m_jᵀ, (Θ_o, Θ_o) is Σ h hᵀ.

A positively homogeneous activation leaves the scale of every unit free: F is zero along (v_j, −h·A_j), and for exp
along (b_j, −A_j). These k directions are filled in before F is inverted.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.special import chdtrc

from neurecover.statistics import GaussNewtonSums
from neurecover.statistics.base import symmetric


class Information:
    """F at a student without affine part, parameters in the order V (m·D), then Θ output by output (p·q)."""

    def __init__(self, sums: GaussNewtonSums) -> None:
        self.student = student = sums.student
        q, p = student.readout.shape
        s, A, (m, D) = sums.sums, student.A, student.V.shape
        size = m * D
        F = np.zeros((size + p * q, size + p * q))
        F[:size, :size], self.hm = sums.curvature()
        F[:size, :size].reshape(m, D, m, D)[...] *= (A.T @ A)[:, None, :, None]
        for o in range(p):
            rows = slice(size + o * q, size + (o + 1) * q)
            F[rows, rows] = s["hh"][:q, :q]
            F[rows, :size] = self.hm[:q] * np.repeat(A[o], D)
            F[:size, rows] = F[rows, :size].T
        self.sums, self.size = sums, size
        scale = np.sqrt(np.diag(F))
        self.scale = np.where(scale > 0, scale, 1.0)
        self.gauge = self._gauge()
        G = self.gauge * self.scale[:, None]
        G = G / np.maximum(np.linalg.norm(G, axis=0), 1e-300)
        self.scaled = F / self.scale / self.scale[:, None] + G @ G.T
        self._inverse = _positive_inverse(self.scaled)

    def _gauge(self) -> np.ndarray:
        """One column per unit: the direction that changes no output, (parameters, m) or (parameters, 0)."""
        student = self.student
        (m, D), (q, p) = student.V.shape, student.readout.shape
        h = student.activation.homogeneity
        translation = student.activation.name == "exp" and student.bias
        if h is None and not translation:
            return np.zeros((self.size + p * q, 0))
        G = np.zeros((self.size + p * q, m))
        for j in range(m):
            own = np.eye(D)[-1] if translation else student.V[j]
            G[j * D : (j + 1) * D, j] = own
            G[self.size + j :: q, j] = -(1.0 if h is None else h) * student.A[:, j]
        return G

    def inverse(self) -> np.ndarray | None:
        """A generalised inverse of F; None where F is singular.

        Along the free directions it holds an arbitrary choice, which the normal form takes out again.
        """
        return None if self._inverse is None else self._inverse / self.scale / self.scale[:, None]

    @property
    def weakest(self) -> float:
        """A lower bound on the smallest eigenvalue of F scaled to unit diagonal, the free scales apart: 1/‖F⁻¹‖₁.

        At the level of rounding, or zero, where some parameter is not determined.
        """
        return 0.0 if self._inverse is None else 1.0 / float(np.abs(self._inverse).sum(axis=0).max())

    def score_test(self, noise_variance: float) -> float:
        """The probability, if the residual is noise of this variance, of correlating with the probes as it does.

        Rao's test for adding the probes to the readout: S = gᵀ (F_ee − F_eθ F⁻¹ F_θe)⁻¹ g / σ² is χ² with one degree of
        freedom per probe and output. g is the part of Σ h_e r that no change of the parameters explains.
        """
        student, s = self.student, self.sums.sums
        q, p = student.readout.shape
        n_probes = len(s["hh"]) - q
        D = student.V.shape[1]
        score = np.concatenate([self._gradient(), s["hr"][q:].T.ravel()])
        cross = np.zeros((n_probes * p, len(self.scaled)))
        own = np.zeros((n_probes * p, n_probes * p))
        for o in range(p):
            rows = slice(o * n_probes, (o + 1) * n_probes)
            cross[rows, : self.size] = self.hm[q:] * np.repeat(student.A[o], D)
            cross[rows, self.size + o * q : self.size + (o + 1) * q] = s["hh"][q:, :q]
            own[rows, rows] = s["hh"][q:, q:]
        inverse = self.inverse()
        if inverse is None:
            return 0.0
        solved = inverse @ cross.T
        schur = own - cross @ solved
        g = score[len(self.scaled) :] - solved.T @ score[: len(self.scaled)]
        scale = np.sqrt(np.maximum(np.diag(own), 1e-300))
        values, vectors = np.linalg.eigh(schur / scale / scale[:, None])
        kept = values > 1e-8
        along = vectors[:, kept].T @ (g / scale)
        return float(chdtrc(np.count_nonzero(kept), np.sum(along**2 / values[kept]) / noise_variance))

    def _gradient(self) -> np.ndarray:
        student, s = self.student, self.sums.sums
        q = len(student.readout)
        hidden = np.einsum("jdo,oj->jd", s["mr"].reshape(*student.V.shape, -1), student.A)
        return np.concatenate([hidden.ravel(), s["hr"][:q].T.ravel()])


def _positive_inverse(matrix: np.ndarray) -> np.ndarray | None:
    factor, info = dpotrf(matrix, lower=1)
    if info:
        return None
    inverse, info = dpotri(factor, lower=1, overwrite_c=1)
    return None if info else symmetric(inverse)
