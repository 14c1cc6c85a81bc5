"""One damped step (S + λD) δ = g from the sums at a point; the mathematics is in `descent`."""

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtrs

from neurecover.statistics import GaussNewtonSums


class ReadoutFactor:
    """The Cholesky factor of Σ h hᵀ (scaled to unit diagonal) and the readout that is best for given hidden units.

    A ridge at the level of rounding keeps duplicate and dead units harmless: it damps the correction, not Θ.
    """

    def __init__(self, sums: dict[str, np.ndarray]) -> None:
        hh = sums["hh"]
        scale = np.sqrt(np.diag(hh))
        self.scale = np.where(scale > 0, scale, 1.0)
        scaled = hh / self.scale / self.scale[:, None]
        self.factor = _cholesky_with_ridge(scaled)
        self.whitened = self.whiten(sums["hr"])
        self.step = self.unwhiten(self.whitened)
        self.rss = float(sums["rr"])
        self.best_rss = max(self.rss - float(np.vdot(self.whitened, self.whitened)), 0.0)

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


class DenseSolver:
    """S formed and factorised: time (m·D)³/3."""

    def __init__(self, sums: GaussNewtonSums) -> None:
        student = sums.student
        A, (m, D) = student.A, student.V.shape
        self.shape = (m, D)
        self.readout = ReadoutFactor(sums.sums)
        mm, hm = sums.curvature()
        self.readout.couple(A, hm)
        weights = A.T @ A
        # All of this is in the lower triangle of matrices in Fortran order, as LAPACK wants it.
        diagonal = np.repeat(np.diag(weights), D) * np.diag(mm)
        self.diagonal = np.maximum(diagonal, 1e-10 * diagonal.max(initial=1e-300))
        self.S = dsyrk(-1.0, self.readout.E, beta=1.0, c=mm.T, trans=1, lower=1, overwrite_c=1)
        self.S.T.reshape(m, D, m, D)[...] *= weights[:, None, :, None]
        self.gradient = project_gradient(A, self.readout, sums.sums["mr"], (m, D)).ravel()

    def solve(self, damping: float) -> np.ndarray | None:
        matrix = self.S.copy(order="F")
        np.einsum("ii->i", matrix)[:] += damping * self.diagonal
        factor, info = dpotrf(matrix, lower=1, overwrite_a=1, clean=0)
        if info:
            return None
        return dpotrs(factor, self.gradient, lower=1)[0].reshape(self.shape)

    def predicted_decrease(self, step: np.ndarray, damping: float) -> float:
        return predicted_decrease(step.ravel(), self.gradient, damping * self.diagonal, self.readout)


def project_gradient(A: np.ndarray, readout: ReadoutFactor, mr: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """g = Σ_o A_oj (Mᵀ(I − P) r_o)_j, (m, D)."""
    return np.einsum("jdo,oj->jd", (mr - readout.E.T @ readout.whitened).reshape(*shape, -1), A)


def predicted_decrease(
    step: np.ndarray, gradient: np.ndarray, damped_diagonal: np.ndarray, readout: ReadoutFactor
) -> float:
    """2 δ·g − δ·S δ + |F⁻¹ Σ h r|² for the δ that solves (S + λD) δ = g."""
    return float(step @ (gradient + damped_diagonal * step) + np.vdot(readout.whitened, readout.whitened))


def _cholesky_with_ridge(scaled: np.ndarray) -> np.ndarray:
    ridge = 1e-13 * max(len(scaled), 1)
    while True:
        matrix = scaled.copy()
        np.einsum("ii->i", matrix)[:] += ridge
        factor, info = dpotrf(matrix.T, lower=1, overwrite_a=1, clean=1)
        if info == 0:
            return factor
        ridge *= 100.0
