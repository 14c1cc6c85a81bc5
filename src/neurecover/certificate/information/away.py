"""Samples away from kinks. Without noise, a sample at a kink hardly tells anything about the unit's weights.

An exact fit can put the kink of a unit right through a sample at which the true unit is off, z = 0 up to rounding. If
that sample counted as on, it would seem to determine weights that no other sample shows.
"""

from __future__ import annotations

import numpy as np

from neurecover.data import Source
from neurecover.data.views.view import Seen, View
from neurecover.models import Model
from neurecover.statistics.checks.units_on import sides


def away_from_kinks(samples: Source, model: Model, near: float) -> Source:
    """Return the samples that are not at a kink; all samples if the model has no kinks or no sample would be left."""
    if model.activation.homogeneity != 1.0:
        return samples
    X = np.asarray(samples.collect()[0], dtype=np.float64)
    away = (sides(model, X, near) != 0).all(axis=1)
    return samples if away.all() or not away.any() else AwayFromKinks(samples, model, near)


class AwayFromKinks(View):
    """The samples of a source that are farther than `near` from every kink of a network."""

    def __init__(self, samples: Source, model: Model, near: float) -> None:
        super().__init__(samples, "away from kinks")
        self._model, self._near = model, near

    def _seen(self, X: np.ndarray, Y: np.ndarray) -> Seen:
        kept = (sides(self._model, np.asarray(X, dtype=np.float64), self._near) != 0).all(axis=1)
        return X[kept], Y[kept], kept
