"""On which side of its kink every hidden unit of a network is, sample by sample and in sums."""

from __future__ import annotations

import numpy as np

from neurecover.models import Composite, Layered, Model, parameters
from neurecover.statistics.base import Statistic, by_root, float64


class UnitsOn(Statistic):
    """How often every hidden unit of a network is on, and how often off, layer after layer, and Σ z² on either side.

    A sample at a kink, |w·h + b| ≤ near·(|w||h| + |b|), is neither; `at_kink` counts those at the kink of any unit.
    """

    def __init__(self, model: Model, near: float = 0.0) -> None:
        self.model, self.near = model, near
        self.settings = {"theta": parameters(model), "near": np.array(near)}
        k = len(weights_per_unit(model))
        self.sums = {"n": np.zeros((), dtype=np.int64), "at_kink": np.zeros((), dtype=np.int64)}
        self.sums |= {"on": np.zeros(k, dtype=np.int64), "off": np.zeros(k, dtype=np.int64)}
        self.sums |= {"on_squared": np.zeros(k), "off_squared": np.zeros(k)}
        self.row_bytes = 48 * max(k, 1)

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, Y = float64(X, Y)
        side = sides(self.model, X, self.near)
        self._count(len(X), weight)
        self.sums["at_kink"] += np.count_nonzero((side == 0).any(axis=1))
        self.sums["on"] += np.count_nonzero(side > 0, axis=0)
        self.sums["off"] += np.count_nonzero(side < 0, axis=0)
        (Z,) = by_root(weight, np.hstack([np.zeros((len(X), 0)), *self.model.preactivations(X)]))
        self.sums["on_squared"] += np.sum(np.maximum(Z, 0.0) ** 2, axis=0)
        self.sums["off_squared"] += np.sum(np.minimum(Z, 0.0) ** 2, axis=0)


def sides(model: Model, X: np.ndarray, near: float) -> np.ndarray:
    """Return (n, units): 1 where a unit is on, −1 where it is off or z = 0; 0 at the kink if near > 0."""
    parts, H = [np.zeros((len(X), 0))], X
    # A threshold is a bias reversed, and of a deep network every layer has weights of its own.
    biases = _biases(model)
    for Z, W, b, act in zip(model.preactivations(X), model.hidden_weights, biases, model.hidden_activations):
        if near == 0.0 or act.homogeneity is None:  # a smooth unit has no kink
            parts.append(np.where(Z > 0.0, 1, -1))
            H = act(Z)
            continue
        blur = near * (np.linalg.norm(H, axis=1)[:, None] * np.linalg.norm(W, axis=1) + np.abs(b))
        parts.append(np.where(np.abs(Z) <= blur, 0, np.where(Z > 0.0, 1, -1)))
        H = act(Z)
    return np.hstack(parts)


def _biases(model: Layered | Composite) -> list[np.ndarray]:
    if not isinstance(model, Composite):
        return [b for _, b in model.layers[:-1]]
    above = model.upper
    return [model.threshold, *(_biases(above) if isinstance(above, Layered) else [])]


def weights_per_unit(model: Model) -> np.ndarray:
    """Return the number of weights of every hidden unit, its bias included, layer after layer."""
    return np.concatenate([np.full(len(W), W.shape[1] + 1) for W in model.hidden_weights] or [np.zeros(0, dtype=int)])
