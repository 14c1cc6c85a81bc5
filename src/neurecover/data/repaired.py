"""Samples whose gross errors are set aside: an output that a network contradicts becomes what the network says."""

from collections.abc import Callable

import numpy as np

from neurecover.data.source import Blocks, Source


class Repaired(Source):
    """A source in which every y with |y − predict(x)| > tolerance is predict(x) instead.

    `share` is the part of the outputs that this concerns; it takes one pass.
    """

    def __init__(self, parent: Source, predict: Callable[[np.ndarray], np.ndarray], tolerance: float) -> None:
        self._parent, self._predict, self._tolerance = parent, predict, tolerance
        self.origin = f"{parent.origin} (gross errors set aside)"
        self.n_samples = parent.n_samples
        self.input_names, self.output_names = parent.input_names, parent.output_names

    @property
    def share(self) -> float:
        wrong = total = 0
        for X, Y in self._parent.blocks(65_536):
            wrong += int(np.count_nonzero(self._wrong(X, Y)[0]))
            total += Y.size
        return wrong / total

    def _blocks(self, rows: int) -> Blocks:
        for X, Y in self._parent.blocks(rows):
            wrong, predicted = self._wrong(X, Y)
            yield X, np.where(wrong, predicted, Y)

    def _wrong(self, X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        predicted = self._predict(np.asarray(X, dtype=np.float64))
        return np.abs(Y - predicted) > self._tolerance, predicted
