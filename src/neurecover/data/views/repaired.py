"""Samples whose gross errors are set aside: an output that a network contradicts is repaired, or its row left out."""

from collections.abc import Callable

import numpy as np

from neurecover.data.source import Source
from neurecover.data.views.view import Seen, View


class Repaired(View):
    """A source in which every y with |y − predict(x)| > tolerance is predict(x) instead."""

    def __init__(self, parent: Source, predict: Callable[[np.ndarray], np.ndarray], tolerance: float) -> None:
        self.parent, self._predict, self._tolerance = parent, predict, tolerance
        self.origin = f"{parent.origin} (gross errors set aside)"
        self.n_samples = parent.n_samples
        self.input_names, self.output_names = parent.input_names, parent.output_names

    def _seen(self, X: np.ndarray, Y: np.ndarray) -> Seen:
        wrong, predicted = self._wrong(X, Y)
        return X, np.where(wrong, predicted, Y), None

    def _wrong(self, X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        predicted = self._predict(np.asarray(X, dtype=np.float64))
        return np.abs(Y - predicted) > self._tolerance, predicted


class Uncontradicted(View):
    """The rows of a source, as they are, in which every output has |y − predict(x)| ≤ tolerance."""

    def __init__(self, parent: Source, predict: Callable[[np.ndarray], np.ndarray], tolerance: float) -> None:
        self.parent, self._predict, self._tolerance = parent, predict, tolerance
        self.origin = f"{parent.origin} (rows with gross errors left out)"
        self.n_samples = None
        self.input_names, self.output_names = parent.input_names, parent.output_names

    def _seen(self, X: np.ndarray, Y: np.ndarray) -> Seen:
        kept = np.all(np.abs(Y - self._predict(np.asarray(X, dtype=np.float64))) <= self._tolerance, axis=1)
        return X[kept], Y[kept], kept
