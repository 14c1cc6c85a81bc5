"""Sums for least squares over all parameters θ of any network: with J = ∂y/∂θ and the residual r = y − f(x),

    Σ Jᵀ J,    Σ Jᵀ r,    Σ r²  per output.

`probes` are hidden units that the network does not have, (e, d + 1) with biases last; each adds a column per output to
J, its value on that output alone. The residual is formed sample by sample, so that it keeps its digits at the level of
rounding.
"""

from __future__ import annotations

import numpy as np

from neurecover.models import Composite, Layered, Model, jacobian, parameters
from neurecover.statistics.base import Statistic, add_gram, by_root, float64, symmetric


class ModelSums(Statistic):
    """The sums at one network; parameters in the order of `models.parameters`, then the probes, output by output."""

    def __init__(self, model: Model, probes: np.ndarray | None = None) -> None:
        self.model = model
        self.probes = np.empty((0, model.n_inputs + 1)) if probes is None else probes
        theta, p = parameters(model), model.n_outputs
        self.settings = {"theta": theta, "probes": self.probes}
        self.n_parameters = len(theta)
        size = self.n_parameters + p * len(self.probes)
        self.sums = {
            "n": np.zeros((), dtype=np.int64),
            "jj": np.zeros((size, size), order="F"),  # the lower triangle
            "jr": np.zeros(size),
            "rr": np.zeros(p),
        }
        self.row_bytes = 24 * p * size

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, Y = float64(X, Y)
        R = Y - self.model(X)
        J = jacobian(self.model, X)
        if len(self.probes):
            values = self.model.activation(X @ self.probes[:, :-1].T + self.probes[:, -1])
            own = np.einsum("ne,oq->noqe", values, np.eye(R.shape[1])).reshape(*R.shape, -1)
            J = np.concatenate([J, own], axis=2)
        J, R = by_root(weight, J, R)
        rows = np.ascontiguousarray(J.reshape(R.size, -1).T)
        self._count(len(X), weight)
        self.sums["jj"] = add_gram(self.sums["jj"], rows)
        self.sums["jr"] += rows @ R.ravel()
        self.sums["rr"] += np.einsum("ij,ij->j", R, R)

    def curvature(self) -> np.ndarray:
        """Σ Jᵀ J, probes included."""
        return symmetric(self.sums["jj"])


class UnitsOn(Statistic):
    """How often every hidden unit of a network is on, and how often off, layer after layer, and Σ z² on either side.

    A sample at a kink, |w·h + b| ≤ near·(|w||h| + |b|), is neither; `at_kink` counts those at the kink of any unit.
    """

    def __init__(self, model: Model, near: float = 0.0) -> None:
        self.model, self.near = model, near
        self.settings = {"theta": parameters(model), "near": np.array(near)}
        k = len(incoming(model))
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
    """(n, units): 1 where a unit is on, −1 where it is off or its preactivation zero, 0 at the kink if near > 0."""
    parts, H = [np.zeros((len(X), 0))], X
    # A threshold is a bias reversed, and of a deep network every layer has weights of its own.
    biases = _biases(model)
    for Z, W, b in zip(model.preactivations(X), model.hidden_weights, biases):
        if near == 0.0:
            parts.append(np.where(Z > 0.0, 1, -1))
            continue
        blur = near * (np.linalg.norm(H, axis=1)[:, None] * np.linalg.norm(W, axis=1) + np.abs(b))
        parts.append(np.where(np.abs(Z) <= blur, 0, np.where(Z > 0.0, 1, -1)))
        H = model.activation(Z)
    return np.hstack(parts)


def _biases(model: Layered | Composite) -> list[np.ndarray]:
    if not isinstance(model, Composite):
        return [b for _, b in model.layers[:-1]]
    above = model.upper
    return [model.threshold, *(_biases(above) if isinstance(above, Layered) else [])]


def incoming(model: Model) -> np.ndarray:
    """The number of weights of every hidden unit, its bias included, layer after layer."""
    return np.concatenate([np.full(len(W), W.shape[1] + 1) for W in model.hidden_weights] or [np.zeros(0, dtype=int)])
