"""The largest and smallest preactivation of every hidden unit of a network."""

from __future__ import annotations

import numpy as np

from neurecover.models import Model, parameters
from neurecover.statistics.base import Statistic, float64


class PreactivationRange(Statistic):
    """The largest z_j and −z_j of every hidden unit, layer by layer, and the number of samples with z_j > 0."""

    maxima = frozenset({"highest", "lowest"})

    def __init__(self, model: Model) -> None:
        self.model = model
        self.settings = {"theta": parameters(model)}
        units = sum(len(W) for W in model.hidden_weights)
        self.sums = {"n": np.zeros((), dtype=np.int64), "on": np.zeros(units, dtype=np.int64)}
        self.sums |= {name: np.full(units, -np.inf) for name in sorted(self.maxima)}
        self.row_bytes = 16 * (units + model.n_inputs)

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, Y = float64(X, Y)
        Z = np.hstack([np.zeros((len(X), 0)), *self.model.preactivations(X)])
        self._count(len(X), weight)
        self.sums["on"] += np.count_nonzero(Z > 0, axis=0)
        self.sums["highest"] = np.maximum(self.sums["highest"], Z.max(axis=0, initial=-np.inf))
        self.sums["lowest"] = np.maximum(self.sums["lowest"], (-Z).max(axis=0, initial=-np.inf))
