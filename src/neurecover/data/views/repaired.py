"""Samples whose gross errors are set aside: an output that a network contradicts is repaired, or its row left out."""

from collections.abc import Callable

import numpy as np

from neurecover.data.source import Source
from neurecover.data.views.view import Seen, View


class Repaired(View):
    """A source in which every y with |y − predict(x)| > tolerance is predict(x) instead."""

    def __init__(self, parent: Source, predict: Callable[[np.ndarray], np.ndarray], tolerance: float) -> None:
        super().__init__(parent, "gross errors set aside", parent.n_samples)
        self._predict, self._tolerance = predict, tolerance

    def _seen(self, X: np.ndarray, Y: np.ndarray) -> Seen:
        predicted = self._predict(np.asarray(X, dtype=np.float64))
        return X, np.where(np.abs(Y - predicted) > self._tolerance, predicted, Y), None


class Uncontradicted(View):
    """The rows of a source, as they are, in which every output has |y − predict(x)| ≤ tolerance."""

    def __init__(self, parent: Source, predict: Callable[[np.ndarray], np.ndarray], tolerance: float) -> None:
        super().__init__(parent, "rows with gross errors left out")
        self._predict, self._tolerance = predict, tolerance

    def _seen(self, X: np.ndarray, Y: np.ndarray) -> Seen:
        kept = np.all(np.abs(Y - self._predict(np.asarray(X, dtype=np.float64))) <= self._tolerance, axis=1)
        return X[kept], Y[kept], kept
