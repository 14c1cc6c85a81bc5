"""The Fisher information matrix of a network, its inverse, and a test for missing units.

With noise of variance σ² the estimates have covariance σ² F⁻¹, F = Σ JᵀJ over the free parameters in the order of
`models.parameters`. The function does not determine the scale of every unit (`models.free_directions`): F is zero along
these directions, which are filled in before it is inverted. `normal_form` has the covariance with fixed scales.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri
from scipy.special import chdtrc

from neurecover.models import Model, free_directions_among
from neurecover.solve import afford
from neurecover.statistics import InformationSums


@dataclass(frozen=True, eq=False)
class Information:
    """F (P, P) at a network, over its `free` parameters (indices); the others are fixed.

    `cross` (P, E) and `own` (E, E) are the same sums for E columns of probes, which are units that the network lacks.
    `score` (P + E,) is the sum of r times each of these columns.
    """

    model: Model
    free: np.ndarray
    F: np.ndarray
    cross: np.ndarray
    own: np.ndarray
    score: np.ndarray

    @classmethod
    def of(cls, sums: InformationSums) -> Information:
        """Build the information from its sums at a network."""
        afford(100.0 * sums.size**2)  # F is written and read several times, which is slower than arithmetic
        (F, score), P = sums.information(), len(sums.free)
        return cls(sums.model, sums.free, F[:P, :P], F[:P, P:], F[P:, P:], score)

    @cached_property
    def scale(self) -> np.ndarray:
        scale = np.sqrt(np.diag(self.F))
        return np.where(scale > 0.0, scale, 1.0)

    @cached_property
    def gauge(self) -> np.ndarray:
        """The directions that change no output, among the free parameters, (P, g)."""
        return free_directions_among(self.model, self.free)[self.free]

    @property
    def n_determinable(self) -> int:
        """The number of parameters that samples can determine: all except the free scales."""
        return len(self.free) - self.gauge.shape[1]

    @cached_property
    def _scaled_root(self) -> np.ndarray | None:
        """The lower K with F⁻¹ = KᵀK for F scaled to unit diagonal, its free directions filled in; None if singular."""
        afford(len(self.F) ** 3)
        G = self.gauge * self.scale[:, None]
        G = G / np.maximum(np.linalg.norm(G, axis=0), 1e-300)
        factor, info = dpotrf(self.F / self.scale / self.scale[:, None] + G @ G.T, lower=1)
        if info:
            return None
        K, info = dtrtri(factor, lower=1, overwrite_c=1)
        return None if info else K

    @cached_property
    def weakest(self) -> float:
        """A lower bound, 1/tr F⁻¹, on the smallest eigenvalue of F scaled to unit diagonal, without the free scales.

        It is at the level of rounding, or zero, if some parameter is not determined.
        """
        return 0.0 if self._scaled_root is None else 1.0 / float(np.sum(self._scaled_root**2))

    @cached_property
    def root(self) -> np.ndarray:
        """R (P, P) with R Rᵀ a generalised inverse of F; its part along the free directions is arbitrary."""
        assert self._scaled_root is not None
        return self._scaled_root.T / self.scale[:, None]

    @cached_property
    def inverse(self) -> np.ndarray:
        return self.root @ self.root.T

    @cached_property
    def explained(self) -> np.ndarray:
        """F⁻¹ Σ Jᵀe, (P, E): the change of the parameters that best imitates each probe."""
        return self.root @ (self.root.T @ self.cross)

    def unexplained(self, T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return score and information (q,), (q, q) of the columns e T, T (E, q), beyond what parameters explain."""
        P, solved, cross = len(self.F), self.explained @ T, self.cross @ T
        return T.T @ self.score[P:] - solved.T @ self.score[:P], T.T @ self.own @ T - cross.T @ solved

    def score_test(self, noise_variance: float, own: np.ndarray) -> float:
        """Return the p-value of the residual's correlation with the probes `own`, under noise of this variance.

        Rao's test for adding the probes to the readout: S = gᵀ (F_ee − F_eθ F⁻¹ F_θe)⁻¹ g / σ² is χ² with one degree of
        freedom per probe and output. g is the part of Σ h_e r that no change of the parameters explains.
        """
        if noise_variance <= 0.0:
            return 1.0
        g, schur = self.unexplained(np.eye(self.cross.shape[1])[:, own])
        scale = np.sqrt(np.maximum(np.diag(self.own)[own], 1e-300))
        values, vectors = np.linalg.eigh(schur / scale / scale[:, None])
        kept = values > 1e-8
        along = vectors[:, kept].T @ (g / scale)
        return float(chdtrc(np.count_nonzero(kept), np.sum(along**2 / values[kept]) / noise_variance))
