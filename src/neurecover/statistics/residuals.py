"""How far a network is from the samples: sums of the outputs and of the residuals y − f(x)."""

from collections.abc import Callable
from typing import Self

import numpy as np

from neurecover.statistics.base import Statistic, float64


class Residuals(Statistic):
    """Σ r, Σ r², max |r|, Σ y and Σ y² per output, with r = y − predict(x) and y taken about `origin`."""

    def __init__(
        self,
        predict: Callable[[np.ndarray], np.ndarray],
        n_outputs: int,
        width: int = 1,
        origin: np.ndarray | None = None,
    ) -> None:
        self.predict = predict
        self.origin = np.zeros(n_outputs) if origin is None else np.asarray(origin, dtype=np.float64)
        names = ("residual", "residual_squared", "residual_max", "output", "output_squared")
        self.sums = {"n": np.zeros((), dtype=np.int64)} | {name: np.zeros(n_outputs) for name in names}
        self.row_bytes = 8 * (3 * n_outputs + 2 * width)

    def update(self, X: np.ndarray, Y: np.ndarray) -> None:
        X, Y = float64(X, Y)
        R = Y - self.predict(X)
        Y = Y - self.origin
        self.sums["n"] += len(R)
        self.sums["residual"] += R.sum(axis=0)
        self.sums["residual_squared"] += np.einsum("ij,ij->j", R, R)
        self.sums["residual_max"] = np.maximum(self.sums["residual_max"], np.abs(R).max(axis=0))
        self.sums["output"] += Y.sum(axis=0)
        self.sums["output_squared"] += np.einsum("ij,ij->j", Y, Y)

    def merge(self, other: Self) -> None:
        largest = np.maximum(self.sums["residual_max"], other.sums["residual_max"])
        super().merge(other)
        self.sums["residual_max"] = largest

    @property
    def mse(self) -> float:
        """The mean over samples and outputs of r²."""
        return float(self.sums["residual_squared"].sum() / (self.n * len(self.origin)))

    @property
    def output_variance(self) -> np.ndarray:
        """The variance of every output, (p,)."""
        mean = self.sums["output"] / self.n
        return np.maximum(self.sums["output_squared"] / self.n - mean**2, 0.0)
