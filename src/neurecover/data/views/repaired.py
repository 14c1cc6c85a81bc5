"""Samples without their gross errors: an output that contradicts a network is ignored, the row's others are used."""

from collections.abc import Callable

import numpy as np

from neurecover.data.source import Source
from neurecover.data.views.view import Seen, View


class Repaired(View):
    """A source in which every y with |y − predict(x)| > tolerance is replaced by predict(x): its residual is zero.

    Rows in which every output would be replaced are left out.
    """

    def __init__(self, parent: Source, predict: Callable[[np.ndarray], np.ndarray], tolerance: float) -> None:
        super().__init__(parent, "gross errors set aside")
        self._predict, self._tolerance = predict, tolerance

    def _seen(self, X: np.ndarray, Y: np.ndarray) -> Seen:
        predicted = self._predict(np.asarray(X, dtype=np.float64))
        wrong = np.abs(Y - predicted) > self._tolerance
        kept = ~wrong.all(axis=1)
        return X[kept], np.where(wrong, predicted, Y)[kept], kept
