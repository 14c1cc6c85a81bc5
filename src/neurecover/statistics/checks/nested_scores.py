"""Whether a residual follows columns that a larger model would have, whatever the noise of single rows.

With columns e on every output, their combinations e T and c = F⁻¹ Σ Jᵀ e T what the parameters explain of them, a row
has the score u = Σ_o r_o e T_o − g c, g = Σ_o J_oᵀ r_o its own. S = (Σu)ᵀ (Σuuᵀ)⁻¹ Σu lies below n, and
S (n − q)/(q (n − S)) is about F with q and n − q degrees of freedom [Hotelling 1931; White 1980].
"""

from __future__ import annotations

import numpy as np
from scipy.special import fdtrc

from neurecover.models import Model, jacobian, parameters
from neurecover.statistics.base import Statistic, by_root, float64
from neurecover.statistics.checks.shape_scores import Features


class NestedScores(Statistic):
    """Σ u and Σ u uᵀ for the columns `lacks`, combined by T (p·e, q); `explained` (P, q) is F⁻¹ Σ Jᵀ e T."""

    def __init__(
        self, model: Model, free: np.ndarray, lacks: Features, combine: np.ndarray, explained: np.ndarray
    ) -> None:
        self.model, self.free, self.lacks, self.combine, self.explained = model, free, lacks, combine, explained
        self.settings = {"theta": parameters(model), "combine": combine, "explained": explained}
        q = combine.shape[1]
        self.sums = {"n": np.zeros((), dtype=np.int64), "score": np.zeros(q), "covariance": np.zeros((q, q))}
        self.row_bytes = 8 * (2 * model.n_outputs * len(free) + 3 * len(combine))

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, Y = float64(X, Y)
        J = jacobian(self.model, X)[:, :, self.free]
        J, R, E = by_root(weight, J, Y - self.model(X), self.lacks(X))
        combine = self.combine.reshape(R.shape[1], -1, self.combine.shape[1])
        u = np.einsum("no,ne,oeq->nq", R, E, combine, optimize=True)
        u -= np.einsum("nop,no->np", J, R) @ self.explained
        self._count(len(X), weight)
        self.sums["score"] += u.sum(axis=0)
        self.sums["covariance"] += u.T @ u

    def p_value(self, further: np.ndarray | float = 0.0) -> float:
        """Return the p-value of these scores under noise of any kind, independent from row to row.

        Of a fit that has the columns already, Σu = 0, `further` (q,) is what Σu is without them, and Σuuᵀ grows by what
        a mean of that size adds.
        """
        n = self.n
        g = self.sums["score"] + further
        V = self.sums["covariance"] + (np.outer(g, g) - np.outer(self.sums["score"], self.sums["score"])) / max(n, 1)
        scale = np.sqrt(np.maximum(np.diag(V), 1e-300))
        values, vectors = np.linalg.eigh(V / scale / scale[:, None])
        kept = np.flatnonzero(values > 1e-10 * len(values))[-max(n // 5, 1) :]
        q = len(kept)
        if q == 0 or n <= q:
            return 1.0
        S = float(np.sum((vectors[:, kept].T @ (g / scale)) ** 2 / values[kept]))
        return float(fdtrc(q, n - q, S * (n - q) / (q * max(n - S, 1e-300))))
