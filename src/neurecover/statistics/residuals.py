"""How far a network is from the samples: sums of the outputs and of the residuals y − f(x)."""

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from neurecover.statistics.base import Statistic, float64, setting


class Residuals(Statistic):
    """Σ r, Σ r², Σ r⁴, max |r|, Σ y and Σ y² per output, with r = y − predict(x) and y taken about `origin` (p,).

    `width` is the number of hidden values per sample that `predict` holds while it works.
    """

    maxima: ClassVar[frozenset[str]] = frozenset({"residual_max"})

    def __init__(
        self,
        predict: Callable[[np.ndarray], np.ndarray],
        n_outputs: int,
        width: int = 1,
        origin: np.ndarray | None = None,
    ) -> None:
        self.predict = predict
        self.origin = setting("origin", origin, np.zeros(n_outputs))
        self.settings = {"origin": self.origin}
        names = ("residual", "residual_squared", "residual_fourth", "residual_max", "output", "output_squared")
        self.sums = {"n": np.zeros((), dtype=np.int64)} | {name: np.zeros(n_outputs) for name in names}
        self.row_bytes = 8 * (3 * n_outputs + 2 * width)

    def update(self, X: np.ndarray, Y: np.ndarray) -> None:
        X, Y = float64(X, Y)
        predicted = self.predict(X)
        if predicted.shape != Y.shape:
            raise ValueError(f"predict needs to return shape {Y.shape}, as Y. Got {predicted.shape} instead.")
        R = Y - predicted
        Y = Y - self.origin
        self.sums["n"] += len(R)
        self.sums["residual"] += R.sum(axis=0)
        self.sums["residual_squared"] += np.einsum("ij,ij->j", R, R)
        self.sums["residual_fourth"] += np.einsum("ij,ij->j", R**2, R**2)
        np.maximum(self.sums["residual_max"], np.abs(R).max(axis=0, initial=0.0), out=self.sums["residual_max"])
        self.sums["output"] += Y.sum(axis=0)
        self.sums["output_squared"] += np.einsum("ij,ij->j", Y, Y)

    @property
    def mse(self) -> float:
        """The mean over samples and outputs of r²."""
        return float(self.average("residual_squared").mean())

    @property
    def output_variance(self) -> np.ndarray:
        """The variance of every output, (p,)."""
        return np.maximum(self.average("output_squared") - self.average("output") ** 2, 0.0)

    @property
    def kurtosis(self) -> float:
        """E r⁴ / (E r²)² of the output where it is largest: 3 for Gaussian noise; 0 where no output has a residual."""
        second, fourth = self.average("residual_squared"), self.average("residual_fourth")
        return float(np.divide(fourth, second**2, out=np.zeros_like(second), where=second**2 > 0).max())
