"""Sums for least squares over all parameters θ of any network: with J = ∂y/∂θ and the residual r = y − f(x),

    Σ Jᵀ J,    Σ Jᵀ r,    Σ r²  per output.

`probes` are hidden units that the network does not have, (e, d + 1) with biases last; each adds a column per output to
J, its value on that output alone. The residual is formed sample by sample, so that it keeps its digits at the level of
rounding.
"""

from __future__ import annotations

import numpy as np

from neurecover.models import Model, jacobian, parameters
from neurecover.statistics.base import Statistic, add_gram, float64, symmetric


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

    def update(self, X: np.ndarray, Y: np.ndarray) -> None:
        X, Y = float64(X, Y)
        R = Y - self.model(X)
        J = jacobian(self.model, X)
        if len(self.probes):
            values = self.model.activation(X @ self.probes[:, :-1].T + self.probes[:, -1])
            own = np.einsum("ne,oq->noqe", values, np.eye(R.shape[1])).reshape(*R.shape, -1)
            J = np.concatenate([J, own], axis=2)
        rows = np.ascontiguousarray(J.reshape(R.size, -1).T)
        self.sums["n"] += len(X)
        self.sums["jj"] = add_gram(self.sums["jj"], rows)
        self.sums["jr"] += rows @ R.ravel()
        self.sums["rr"] += np.einsum("ij,ij->j", R, R)

    def curvature(self) -> np.ndarray:
        """Σ Jᵀ J, probes included."""
        return symmetric(self.sums["jj"])


class UnitsOn(Statistic):
    """How often every hidden unit of a network is on, its preactivation positive, layer after layer."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.settings = {"theta": parameters(model)}
        self.sums = {"n": np.zeros((), dtype=np.int64), "on": np.zeros(len(incoming(model)), dtype=np.int64)}
        self.row_bytes = 16 * max(len(incoming(model)), 1)

    def update(self, X: np.ndarray, Y: np.ndarray) -> None:
        X, Y = float64(X, Y)
        counts = [np.count_nonzero(Z > 0.0, axis=0) for Z in self.model.preactivations(X)]
        self.sums["n"] += len(X)
        self.sums["on"] += np.concatenate(counts) if counts else np.zeros(0, dtype=np.int64)


def incoming(model: Model) -> np.ndarray:
    """The number of weights of every hidden unit, its bias included, layer after layer."""
    return np.concatenate([np.full(len(W), W.shape[1] + 1) for W in model.hidden_weights] or [np.zeros(0, dtype=int)])
