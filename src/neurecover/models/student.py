"""What is fitted on the way to a network: a wide hidden layer with a free affine part beside it,

y ≈ A·act(V x̃) + L x + c,        x̃ = (x, 1) or x.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.activations import Activation
from neurecover.models.network import Network


@dataclass(frozen=True)
class Student:
    """y ≈ A·act(V x̃) + L x + c: V (m, D), Θ (q, p) = rows of Aᵀ, then of Lᵀ if `affine`, then c if `bias`.

    D is d + 1 with `bias` (the last column of V holds the biases), else d.
    """

    activation: Activation
    V: np.ndarray
    readout: np.ndarray
    bias: bool
    affine: bool

    @classmethod
    def of(cls, network: Network, bias: bool) -> Student:
        """The network as a student without an affine part."""
        V = np.hstack([network.W, network.b[:, None]]) if bias else network.W
        readout = np.vstack([network.A.T, network.c[None]]) if bias else network.A.T
        return cls(network.activation, V, readout, bias, affine=False)

    @property
    def n_hidden(self) -> int:
        return len(self.V)

    @property
    def n_inputs(self) -> int:
        return self.V.shape[1] - self.bias

    @property
    def n_outputs(self) -> int:
        return self.readout.shape[1]

    @property
    def A(self) -> np.ndarray:
        """The output weights of the hidden units, (p, m)."""
        return self.readout[: self.n_hidden].T

    def extended(self, X: np.ndarray) -> np.ndarray:
        """x̃ of every sample."""
        return np.hstack([X, np.ones((len(X), 1))]) if self.bias else X

    def features(self, X_extended: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """h = (act(z), x, 1) of every sample, z = V x̃."""
        H = self.activation(Z)
        if self.affine:
            return np.hstack([H, X_extended])
        return np.hstack([H, np.ones((len(H), 1))]) if self.bias else H

    def __call__(self, X: np.ndarray) -> np.ndarray:
        X_extended = self.extended(X)
        return self.features(X_extended, X_extended @ self.V.T) @ self.readout
