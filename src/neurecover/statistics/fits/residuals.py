"""Sums of the outputs y and of the residuals y − f(x) of a network."""

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from neurecover.statistics.base import Statistic, by_root, float64, row_sums, setting


class Residuals(Statistic):
    """Σ r, Σ r², Σ r⁴, max |r|, Σ y and Σ y² per output, with r = y − predict(x) and y taken about `origin` (p,).

    Weights enter the sums of r, y, r² and y² as w and the sum of r⁴ as w²; the unweighted Σ r² is kept as well.
    `width` is the number of hidden values per sample that `predict` holds in memory.
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
        names = ("residual", "residual_squared", "residual_max", "output", "output_squared")
        self.sums = {"n": np.zeros((), dtype=np.int64)} | {name: np.zeros(n_outputs) for name in names}
        self.row_bytes = 8 * (3 * n_outputs + 2 * width)

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, Y = float64(X, Y)
        predicted = self.predict(X)
        if predicted.shape != Y.shape:
            raise ValueError(f"predict needs to return shape {Y.shape}, as Y. Got {predicted.shape} instead.")
        R = Y - predicted
        Y = Y - self.origin
        self._count(len(R), weight)
        np.maximum(self.sums["residual_max"], np.abs(R).max(axis=0, initial=0.0), out=self.sums["residual_max"])
        self.sums["residual"] += row_sums(R.T, weight)
        self.sums["output"] += row_sums(Y.T, weight)
        if weight is not None:
            self.sums["unweighted_squared"] += np.einsum("ij,ij->j", R, R)
            R, Y = by_root(weight, R, Y)
        self.sums["residual_squared"] += np.einsum("ij,ij->j", R, R)
        self.sums["output_squared"] += np.einsum("ij,ij->j", Y, Y)

    def weigh(self) -> None:
        super().weigh()
        self.sums.setdefault("unweighted_squared", np.zeros_like(self.sums["residual_squared"]))

    @property
    def mean_squares(self) -> np.ndarray:
        """The mean over the samples of w r², with w their weights, for every output, (p,)."""
        return self.per_row("residual_squared")

    @property
    def mse(self) -> float:
        """The mean over samples and outputs of w r²."""
        return float(self.mean_squares.mean())

    @property
    def rms(self) -> np.ndarray:
        """The root mean square of r without weights, (p,)."""
        return np.sqrt(self.per_row("unweighted_squared" if "weight" in self.sums else "residual_squared"))

    @property
    def output_variance(self) -> np.ndarray:
        """The variance of every output, (p,), comparable with the mean of w r²."""
        variance = np.maximum(self.average("output_squared") - self.average("output") ** 2, 0.0)
        return variance * (self.weight / self.n) if "weight" in self.sums else variance
