"""Test whether the inputs are distributed symmetrically, x like −x.

x ~ −x exactly when the imaginary part of the characteristic function vanishes, E[sin(t·x)] = 0 for every t. The sines
are bounded, so their means are Gaussian for any n worth testing, whatever the tails of x. With s = sin(F x) for m
frequencies and x ~ −x,

    n · s̄ᵀ E[s sᵀ]⁻¹ s̄   is asymptotically χ² with m degrees of freedom.
"""

import numpy as np

from neurecover.statistics.base import Statistic


class OddProjections(Statistic):
    """Σ s and Σ s sᵀ for s = sin(F x), F = `frequencies` (m, d)."""

    def __init__(self, frequencies: np.ndarray) -> None:
        self.frequencies = np.array(frequencies, dtype=float)
        self.settings = {"frequencies": self.frequencies}
        m, d = self.frequencies.shape
        self.sums = {"n": np.zeros((), dtype=np.int64), "sine": np.zeros(m), "square": np.zeros((m, m))}
        self.row_bytes = 8 * (2 * m + d)

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        s = np.sin(np.asarray(X, dtype=np.float64) @ self.frequencies.T)
        s = s if weight is None else s * weight[:, None]
        self._count(len(X), weight)
        self.sums["sine"] += s.sum(axis=0)
        self.sums["square"] += s.T @ s

    def quadratic_form(self) -> tuple[float, int]:
        """Return n s̄ᵀ E[s sᵀ]⁻¹ s̄ and its degrees of freedom; directions without variance are left out."""
        values, vectors = np.linalg.eigh(self.per_row("square"))
        kept = values > 1e-10 * max(values.max(initial=0.0), 1e-300)
        along = vectors[:, kept].T @ self.per_row("sine")
        return float(self.n * np.sum(along**2 / values[kept])), int(np.count_nonzero(kept))
