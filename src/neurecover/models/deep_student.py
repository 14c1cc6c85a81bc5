"""What is fitted on the way to a network of several hidden layers: every layer sees all that is below it,

    c₀ = (x, 1) or x,    h_l = act(V_l c_{l−1}),    c_l = (h_l, c_{l−1})  for l = 1 … L,    y ≈ Θᵀ c_L.

The skips make the sign of a unit a matter of convention: with act(z) − act(−z) = m z, a unit that looks the other way
differs by a linear function of c_{l−1}, which every layer above can see. They also keep descents out of most local
minima that a network without skips has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.activations import Activation


@dataclass(frozen=True)
class Pass:
    """The features c_L (n, q) of some samples and the gates act′(z_l) (n, m_l) of every layer, lowest first."""

    features: np.ndarray
    gates: tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False)
class DeepStudent:
    """V_l (m_l, D_{l−1}) in `hidden`, lowest layer first, and Θ (q, p); D₀ is d + 1 with `bias`, else d.

    The activation is act(z) = act′(z)·z with one slope on either side of zero: relu or leaky relu.
    """

    activation: Activation
    hidden: tuple[np.ndarray, ...]
    readout: np.ndarray
    bias: bool

    @property
    def depth(self) -> int:
        return len(self.hidden)

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(len(V) for V in self.hidden)

    @property
    def n_inputs(self) -> int:
        return (self.hidden[0].shape[1] if self.hidden else len(self.readout)) - self.bias

    @property
    def n_outputs(self) -> int:
        return self.readout.shape[1]

    @property
    def n_hidden_weights(self) -> int:
        return sum(V.size for V in self.hidden)

    def below(self, layer: int) -> slice:
        """Where c_{l−1}, the input of layer l = `layer` + 1, stands within c_L."""
        return slice(sum(self.widths[layer:]), None)

    def own(self, layer: int) -> slice:
        """Where the values of that layer stand within c_L."""
        return slice(sum(self.widths[layer + 1 :]), sum(self.widths[layer:]))

    def forward(self, X: np.ndarray, dtype: type = np.float64) -> Pass:
        """All values of the samples X (n, d), in the given precision."""
        n, q = len(X), len(self.readout)
        features: np.ndarray = np.empty((n, q), dtype=dtype)
        features[:, q - self.bias :] = 1.0
        features[:, q - self.bias - self.n_inputs : q - self.bias] = X
        gates = []
        low = dtype(self.activation.derivative(-1.0))
        for layer, V in enumerate(self.hidden):
            Z = features[:, self.below(layer)] @ V.T.astype(dtype, copy=False)
            gate = np.where(Z > 0, dtype(1.0), low)
            np.multiply(gate, Z, out=features[:, self.own(layer)])
            gates.append(gate)
        return Pass(features, tuple(gates))

    def backward(self, values: Pass, output: int) -> tuple[np.ndarray, ...]:
        """u_l = ∂y_o/∂z_l (n, m_l) of one output for every layer, lowest first; ∂y_o/∂V_l is u_l ⊗ c_{l−1}."""
        dtype = values.features.dtype
        G = np.tile(self.readout[:, output].astype(dtype), (len(values.features), 1))
        by_layer: list[np.ndarray] = []
        for layer in range(self.depth - 1, -1, -1):
            U = G[:, self.own(layer)] * values.gates[layer]
            G[:, self.below(layer)] += U @ self.hidden[layer].astype(dtype, copy=False)
            by_layer.insert(0, U)
        return tuple(by_layer)

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return self.forward(X).features @ self.readout
