"""The side of the kink on which every hidden unit is (on or off), sample by sample and counted."""

from __future__ import annotations

import numpy as np

from neurecover.models import Composite, Layered, Model, parameters
from neurecover.statistics.base import Statistic, by_root, float64


class UnitsOn(Statistic):
    """The number of samples on which every hidden unit is on, and off, layer by layer, and Σ z² on either side.

    At a kink, |w·h + b| ≤ near·(|w||h| + |b|), a unit is neither on nor off; `at_kink` counts the samples at any kink.
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
    """Return the side (n, units) of every unit in every row: 1 if it is on, −1 if it is off.

    At z = 0 a unit counts as off; with near > 0, 0 marks units within `near` of their kink.
    """
    parts, H = [np.zeros((len(X), 0))], X
    # A threshold is a bias with the opposite sign, and in a deep network every layer has its own weights.
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
