"""Hermite coefficients of order 1 and 2 of a residual r = y − f(x): sums of r, r x and r x xᵀ.

For Gaussian x and any f with known coefficients, T_j(y) = T_j(r) + T_j(f), and the error of the means falls with the
size of r. Time is n·p·d² multiply–adds in matrix products, memory 8·p·d² bytes. No features are formed, so this works
in dimensions where a regression on all products x_i x_j would be too large.
"""

from collections.abc import Callable

import numpy as np

from neurecover.statistics.base import Statistic, float64


class ResidualMoments(Statistic):
    """Σ r (p,), Σ r xᵀ (p, d) and Σ r x xᵀ (p, d, d) with r = y − predict(x)."""

    def __init__(self, predict: Callable[[np.ndarray], np.ndarray], n_inputs: int, n_outputs: int) -> None:
        self.predict = predict
        d, p = n_inputs, n_outputs
        self.sums = {
            "n": np.zeros((), dtype=np.int64),
            "zeroth": np.zeros(p),
            "first": np.zeros((p, d)),
            "second": np.zeros((p, d, d)),
            "squared": np.zeros(p),
        }
        self.row_bytes = 8 * (2 * d + 3 * p)

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, Y = float64(X, Y)
        R = Y - self.predict(X)
        self._count(len(X), weight)
        WR = R if weight is None else R * weight[:, None]
        self.sums["zeroth"] += WR.sum(axis=0)
        self.sums["first"] += WR.T @ X
        self.sums["squared"] += np.einsum("ij,ij->j", WR, R)
        for total, r in zip(self.sums["second"], WR.T):
            total += (X * r[:, None]).T @ X

    def packed(self) -> dict[int, np.ndarray]:
        """Return T_1 (p, d) and T_2, packed, of the residual."""
        mean, second = self.average("zeroth"), self.average("second")
        trace = mean[:, None, None] * np.eye(second.shape[1])
        upper = np.triu_indices(second.shape[1])
        return {1: self.average("first"), 2: (second - trace)[:, *upper]}
