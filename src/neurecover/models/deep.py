"""A network with any number of hidden layers,

    h₀ = x,    h_l = act(W_l h_{l−1} + b_l)  for l = 1 … L,    y = A h_L + c,

given as the list of pairs (W_1, b_1), …, (W_L, b_L), (A, c).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from neurecover.activations import Activation, get
from neurecover.models import checks
from neurecover.models.exchange.methods import Exchanged
from neurecover.models.files import header, write_npz
from neurecover.models.network import looks_back

Layer = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False, init=False)
class DeepNetwork(Exchanged):
    """Layers (W, b), the last one (A, c) without activation. The arrays are float64 and read-only; b may be None."""

    layers: tuple[Layer, ...]
    activation: Activation

    def __init__(
        self, layers: Sequence[tuple[ArrayLike, ArrayLike | None]], activation: str | Activation = "relu"
    ) -> None:
        if len(layers) < 1:
            raise ValueError("A network needs at least the layer of its outputs, (A, c). Got no layer instead.")
        checked: list[Layer] = []
        for number, (weights, bias) in enumerate(layers, start=1):
            W = checks.matrix(f"the weights of layer {number}", weights)
            if checked and W.shape[1] != len(checked[-1][0]):
                raise ValueError(
                    f"Layer {number} needs one column per unit of the layer below, that is {len(checked[-1][0])}. "
                    f"Got shape {W.shape} instead."
                )
            checked.append((W, checks.vector(f"the bias of layer {number}", bias, len(W))))
        if len(checked[-1][0]) == 0:
            raise ValueError("The last layer needs one row per output, at least one. Got none instead.")
        object.__setattr__(self, "layers", tuple(checked))
        object.__setattr__(self, "activation", get(activation))

    @property
    def n_inputs(self) -> int:
        return self.layers[0][0].shape[1]

    @property
    def n_hidden(self) -> tuple[int, ...]:
        """The units of every hidden layer."""
        return tuple(len(W) for W, _ in self.layers[:-1])

    @property
    def depth(self) -> int:
        """The number of hidden layers."""
        return len(self.layers) - 1

    @property
    def n_outputs(self) -> int:
        return len(self.layers[-1][0])

    @property
    def n_parameters(self) -> int:
        return sum(W.size + b.size for W, b in self.layers)

    def __call__(self, X: ArrayLike) -> np.ndarray:
        """The outputs (n, p) for inputs X (n, d)."""
        A, c = self.layers[-1]
        values = self.hidden(X)
        return (values[-1] if values else checks.inputs(X, self.n_inputs)) @ A.T + c

    @property
    def hidden_weights(self) -> tuple[np.ndarray, ...]:
        """W_1, …, W_L."""
        return tuple(W for W, _ in self.layers[:-1])

    def hidden(self, X: ArrayLike) -> list[np.ndarray]:
        """The values h_1, …, h_L of the hidden layers, each (n, k_l)."""
        return [self.activation(Z) for Z in self.preactivations(X)]

    def preactivations(self, X: ArrayLike) -> list[np.ndarray]:
        """W_l h_{l−1} + b_l for every hidden layer, each (n, k_l)."""
        H, values = checks.inputs(X, self.n_inputs), []
        for W, b in self.layers[:-1]:
            values.append(H @ W.T + b)
            H = self.activation(values[-1])
        return values

    def fixed_scales(self) -> DeepNetwork:
        """The same function with unit rows in every hidden layer, the scale handed up to the next one.

        act(s z) = s^h act(z) lets a row's length move into the columns above. Rows that are zero, and networks whose
        activation has no such h, stay as they are.
        """
        h = self.activation.homogeneity
        if h is None:
            return self
        layers, factor = [], np.ones(self.n_inputs)
        for W, b in self.layers[:-1]:
            W = W * factor
            norm = np.linalg.norm(W, axis=1)
            norm = np.where(norm > 0, norm, 1.0)
            layers.append((W / norm[:, None], b / norm))
            factor = norm**h
        A, c = self.layers[-1]
        return DeepNetwork([*layers, (A * factor, c)], self.activation)

    def normal_form(self) -> DeepNetwork:
        """The same function with every scale, and the sign of every unit that may be turned by itself, fixed.

        Where act(−z) = ς act(z) + κ, rows have a positive entry of largest size, and κ goes into the biases above.
        """
        scaled, mirror = self.fixed_scales(), self.activation.reflection
        if mirror is None:
            return scaled
        layers = list(scaled.layers)
        for number in range(self.depth):
            (W, b), (above, offset) = layers[number : number + 2]
            back = looks_back(W)
            turn = np.where(back, -1.0, 1.0)
            layers[number] = (W * turn[:, None], b * turn)
            offset = offset + mirror[1] * above[:, back].sum(axis=1)
            layers[number + 1] = (np.where(back, mirror[0] * above, above), offset)
        return DeepNetwork(layers, self.activation)

    def take(self, units: Sequence[ArrayLike]) -> DeepNetwork:
        """The network made of the given units of each hidden layer, in that order."""
        if len(units) != self.depth:
            raise ValueError(f"take needs one list of units per hidden layer, {self.depth}. Got {len(units)} instead.")
        layers, below = [], np.arange(self.n_inputs)
        for (W, b), kept in zip(self.layers, [*units, np.arange(self.n_outputs)]):
            kept = np.asarray(kept)
            kept = kept.astype(int) if kept.size == 0 else kept
            layers.append((W[kept][:, below], b[kept]))
            below = kept
        return DeepNetwork(layers, self.activation)

    def save(self, path: str | Path) -> None:
        """Write an `.npz` file that holds the arrays, the activation's name and a format version."""
        write_npz(path, self.to_arrays())

    def to_arrays(self) -> dict[str, np.ndarray]:
        """What `save` writes, by name: W1, b1, W2, b2, …, the last pair being (A, c)."""
        arrays = header("deep", str(self.activation)) | {"n_layers": np.array(len(self.layers))}
        for number, (W, b) in enumerate(self.layers, start=1):
            arrays |= {f"W{number}": W, f"b{number}": b}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], activation: Activation | None = None) -> DeepNetwork:
        """Read what `to_arrays` wrote, its activation by name or as given; KeyError where an array is missing."""
        numbers = range(1, int(arrays["n_layers"]) + 1)
        return cls([(arrays[f"W{i}"], arrays[f"b{i}"]) for i in numbers], activation or str(arrays["activation"]))

    def __reduce__(self) -> tuple:
        """Copies and pickles go through the constructor, so that their arrays are read-only too."""
        return DeepNetwork, (self.layers, self.activation)

    def _repr_html_(self) -> str | None:
        from neurecover.report import in_notebook

        return in_notebook("network", self)

    def __repr__(self) -> str:
        return (
            f"DeepNetwork(n_inputs={self.n_inputs}, n_hidden={self.n_hidden}, n_outputs={self.n_outputs}, "
            f"activation={str(self.activation)!r})"
        )
