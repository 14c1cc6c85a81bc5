"""The sums behind the distinguishing matrix of given hidden weights [GKLW19, Def. 1]."""

import numpy as np

from neurecover.statistics.base import Statistic, row_products, row_sums


class DistinguishingSums(Statistic):
    """Σ ψ and Σ ψ νᵀ, ψ = packed x xᵀ (d(d+1)/2) and ν_ij = zᵢ zⱼ 1{zᵢ zⱼ ≤ 0} for the pairs i < j of z = W x.

    Time is n·d(d+1)/2·k(k−1)/2 multiply–adds in one matrix product, memory 8 bytes for each pair of features.
    """

    def __init__(self, W: np.ndarray) -> None:
        self.W = np.array(W, dtype=float)
        self.settings = {"W": self.W}
        k, d = self.W.shape
        D2, pairs = d * (d + 1) // 2, k * (k - 1) // 2
        self.sums = {"n": np.zeros((), dtype=np.int64), "psi": np.zeros(D2), "cross": np.zeros((D2, pairs))}
        self.row_bytes = 8 * (D2 + 3 * pairs + d + k)

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        rows = np.ascontiguousarray(np.asarray(X, dtype=np.float64).T)
        Z = self.W @ rows
        psi = row_products(rows)
        i, j = np.triu_indices(len(Z), 1)
        opposite = np.minimum(Z[i] * Z[j], 0.0)
        self._count(rows.shape[1], weight)
        self.sums["psi"] += row_sums(psi, weight)
        opposite = opposite if weight is None else opposite * weight
        self.sums["cross"] += psi @ opposite.T
