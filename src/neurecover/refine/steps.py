"""The equations (S + λD) δ = g of one step from the sums at a point; the mathematics is in `descent`."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotrf, dtrtrs

from neurecover.solve import DenseSystem, Direction, damping_diagonal
from neurecover.statistics import GaussNewtonSums


class ReadoutFactor:
    """The Cholesky factor of Σ h hᵀ (scaled to unit diagonal) and the readout that is best for given hidden units.

    A ridge at the level of rounding keeps duplicate and dead units harmless: it damps the correction, not Θ.
    """

    def __init__(self, sums: dict[str, np.ndarray]) -> None:
        hh = sums["hh"]
        scale = np.sqrt(hh.diagonal())
        self.scale = np.where(scale > 0, scale, 1.0)
        scaled = hh / self.scale / self.scale[:, None]
        self.factor = _cholesky_with_ridge(scaled)
        self.whitened = self.whiten(sums["hr"])
        self.step = self.unwhiten(self.whitened)
        self.rss = float(sums["rr"])
        self.decrease = float(np.vdot(self.whitened, self.whitened))  # what `step` takes off Σ r²
        # Features beyond all numbers, as e^z has them, explain nothing.
        self.best_rss = max(self.rss - self.decrease, 0.0) if np.isfinite(self.decrease) else np.inf

    def whiten(self, right: np.ndarray) -> np.ndarray:
        """F⁻¹ right, with F Fᵀ = Σ h hᵀ."""
        return dtrtrs(self.factor, right / self.scale[:, None], lower=1)[0]

    def unwhiten(self, right: np.ndarray) -> np.ndarray:
        """F⁻ᵀ right."""
        return dtrtrs(self.factor, right, lower=1, trans=1)[0] / self.scale[:, None]

    def couple(self, A: np.ndarray, hm: np.ndarray) -> None:
        """Remember how the hidden weights act on the features: E = F⁻¹ Σ h mᵀ."""
        self.A, self.E = A, np.asfortranarray(self.whiten(hm))

    def image(self, step: np.ndarray) -> np.ndarray:
        """F⁻¹ Σ h (J δ)ᵀ, (q, p): what a change `step` (m, D) of the hidden weights does along the features."""
        return (self.E * step.ravel()).reshape(len(self.E), *step.shape).sum(axis=2) @ self.A.T

    def follow(self, step: np.ndarray) -> np.ndarray:
        """The readout's part of the joint Gauss–Newton step whose hidden part is `step` (m, D)."""
        return self.unwhiten(self.whitened - self.image(step))


@dataclass(frozen=True)
class HiddenSystem:
    """The equations for the hidden weights, with the readout eliminated, and the way back to it."""

    equations: Direction
    readout: ReadoutFactor

    def solve(self, damping: float) -> np.ndarray | None:
        return self.equations.solve(damping)

    def predicted_decrease(self, step: np.ndarray, damping: float) -> float:
        return self.equations.predicted_decrease(step, damping)

    def follow(self, step: np.ndarray) -> np.ndarray:
        """The readout's part of the joint Gauss–Newton step whose hidden part is `step` (m, D)."""
        return self.readout.follow(step)


def dense_system(sums: GaussNewtonSums) -> HiddenSystem:
    """S formed, to be factorised: time (m·D)³/3."""
    A, (m, D) = sums.student.A, sums.student.V.shape
    readout = ReadoutFactor(sums.sums)
    mm, hm = sums.curvature()
    readout.couple(A, hm)
    weights = A.T @ A
    diagonal = np.repeat(weights.diagonal(), D) * mm.diagonal()
    # All of this is in the lower triangle of matrices in Fortran order, as LAPACK wants it.
    S = dsyrk(-1.0, readout.E, beta=1.0, c=mm.T, trans=1, lower=1, overwrite_c=1)
    S.T.reshape(m, D, m, D)[...] *= weights[:, None, :, None]
    gradient = project_gradient(A, readout, sums.sums["mr"], (m, D)).ravel()
    return HiddenSystem(DenseSystem(S, gradient, damping_diagonal(diagonal), readout.decrease), readout)


def project_gradient(A: np.ndarray, readout: ReadoutFactor, mr: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """g = Σ_o A_oj (Mᵀ(I − P) r_o)_j, (m, D)."""
    return np.einsum("jdo,oj->jd", (mr - readout.E.T @ readout.whitened).reshape(*shape, -1), A)


def _cholesky_with_ridge(scaled: np.ndarray) -> np.ndarray:
    ridge = 1e-13 * max(len(scaled), 1)
    while True:
        matrix = scaled.copy()
        np.einsum("ii->i", matrix)[:] += ridge
        factor, info = dpotrf(matrix.T, lower=1, overwrite_a=1, clean=1)
        if info == 0:
            return factor
        ridge *= 100.0
