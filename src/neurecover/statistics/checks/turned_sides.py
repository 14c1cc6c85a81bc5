"""The variance that samples near a kink add to the estimates, because their side of the kink is uncertain.

Let the estimate of a unit's (w, b) have the error e, and let h be the unit's inputs. A sample with |z| < |e·(h, 1)|
lies on the wrong side of the estimated kink. Its score m (gᵀr) (h, 1) is then in one sum and not in the other, where g
are the derivatives of the outputs by the unit and m is the change of act′ at the kink. These differences do not vanish
to first order: if e is normal with the covariance S of (w, b), they add to the variance of the scores

    m² Σ_i Φ(−|z_i|/s_i) (g_iᵀr_i)² (h_i, 1) (h_i, 1)ᵀ,        s_i² = (h_i, 1)ᵀ S (h_i, 1).

For a broken line with its kink at ψ and n inputs of density f there, n f E|ψ̂ − ψ| samples contribute. The errors
therefore grow by a share that falls only like n^(−1/2): at n = 100 a 95 % interval without this term covers 91 %.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from neurecover.models import Layered, Model, parameters
from neurecover.statistics.base import Statistic, float64

FAR = 4.0  # standard errors from a kink at which Φ is negligible, 3e-5


class TurnedSides(Statistic):
    """The variances of M g due to uncertain sides, Σ Φ(−|z|/s) (M g)² over samples and units, (q,); M = `moves` (q, P).

    g is the part of a sample's score that switches with the side. R = `root` (P, m) gives the covariance R Rᵀ of the
    `free` parameters.
    """

    def __init__(self, network: Layered, free: np.ndarray, moves: np.ndarray, root: np.ndarray) -> None:
        self.network, self.moves, self.root = network, moves, root
        place = np.full(len(parameters(network)), -1)
        place[free] = np.arange(len(free))
        self.own, start = [], 0  # per hidden layer, the positions of (w_j, b_j), or of w_j if biases are fixed
        for W, b in network.layers[:-1]:
            rows = np.arange(start, start + W.size).reshape(W.shape)
            biases = start + W.size + np.arange(len(b))
            self.own.append(place[np.column_stack([rows, biases]) if (place[biases] >= 0).all() else rows])
            start += W.size + len(b)
        self.settings = {"theta": parameters(network), "moves": moves, "root": root}
        self.sums = {"n": np.zeros((), dtype=np.int64), "turned": np.zeros(len(moves))}
        widths = sum(len(own) for own in self.own)
        self.row_bytes = 8 * ((4 + network.n_outputs) * widths + len(moves) + root.shape[1])

    @classmethod
    def is_for(cls, model: Model) -> bool:
        """Return whether the units have kinks."""
        return isinstance(model, Layered) and model.activation.homogeneity == 1.0

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, Y = float64(X, Y)
        act, layers = self.network.activation, self.network.layers
        Z = self.network.preactivations(X)
        R = Y - self.network(X)
        R = R if weight is None else weight[:, None] * R
        self._count(len(X), weight)
        pulled = R @ layers[-1][0]  # gᵀr of every unit, from the last layer down
        for layer in range(len(Z) - 1, -1, -1):
            below = act(Z[layer - 1]) if layer else X
            self._add(self.own[layer], np.abs(Z[layer]), pulled, below)
            pulled = (pulled * act.derivative(Z[layer])) @ layers[layer][0]

    def _add(self, rows: np.ndarray, Z: np.ndarray, pulled: np.ndarray, below: np.ndarray) -> None:
        ones = np.column_stack([below, np.ones(len(below))])[:, : rows.shape[1]]
        reach = FAR * np.linalg.norm(ones, axis=1)
        for j, own in enumerate(rows):
            near = np.flatnonzero(Z[:, j] < reach * np.linalg.norm(self.root[own], 2))
            s = np.linalg.norm(ones[near] @ self.root[own], axis=1)
            near, s = near[s > 0.0], s[s > 0.0]
            moved = pulled[near, j, None] * (ones[near] @ self.moves[:, own].T)
            self.sums["turned"] += ndtr(-Z[near, j] / s) @ np.square(moved)

    def variances(self) -> np.ndarray:
        """Return the additional variances of M g, (q,)."""
        step = float(np.diff(self.network.activation.derivative(np.array([-1.0, 1.0])))[0])
        return np.asarray(step**2 * self.sums["turned"])
