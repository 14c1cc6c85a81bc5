"""A network with any number of hidden layers,

    h₀ = x,    h_l = act(W_l h_{l−1} + b_l)  for l = 1 … L,    y = A h_L + C x + c,

given as the list of pairs (W_1, b_1), …, (W_L, b_L), (A, c), and C if there is an affine term.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neurecover.activations import Activation, get
from neurecover.models import checks
from neurecover.models.layered import Layer, Layered
from neurecover.models.network import Network


@dataclass(frozen=True, eq=False, init=False, repr=False)
class DeepNetwork(Layered):
    """A network of any depth: h_l = act(W_l h_{l−1} + b_l), y = A h_L + C x + c.

    The arrays are float64 and read-only.

    Parameters
    ----------
    layers : sequence of pairs of array_like
        (W, b) from the inputs up, the last one (A, c) without activation; b may be None for zeros.
    activation : str or Activation, default="relu"
        The function of the hidden units.
    C : array_like of shape (p, d) or None, default=None
        The affine term C x; None for a network without one.

    Examples
    --------
    >>> import numpy as np
    >>> import neurecover as nr
    >>> net = nr.DeepNetwork([(np.eye(2), None), (np.ones((3, 2)), None), (np.ones((1, 3)), [0.5])])
    >>> net.n_hidden, net([[1.0, -1.0]])
    ((2, 3), array([[3.5]]))
    """

    layers: tuple[Layer, ...]
    activation: Activation
    C: NDArray[np.float64] | None
    kind = "deep"

    def __init__(
        self,
        layers: Sequence[tuple[ArrayLike, ArrayLike | None]],
        activation: str | Activation = "relu",
        C: ArrayLike | None = None,
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
        if C is not None and len(checked) == 1:
            raise ValueError("C needs a hidden layer beside it. Got none: A x + c is affine already, so add C to A.")
        object.__setattr__(self, "layers", tuple(checked))
        object.__setattr__(self, "activation", get(activation))
        object.__setattr__(self, "C", checks.affine_term(C, self.n_outputs, self.n_inputs))

    @property
    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """W1, b1, W2, b2, …; the last pair is (A, c), with C between A and c if there is one."""
        arrays: dict[str, NDArray[np.float64]] = {}
        for number, (W, b) in enumerate(self.layers, start=1):
            affine = {} if self.C is None or number < len(self.layers) else {"C": self.C}
            arrays |= {f"W{number}": W, **affine, f"b{number}": b}
        return arrays

    @property
    def n_hidden(self) -> tuple[int, ...]:
        """The number of units of every hidden layer."""
        return tuple(len(W) for W, _ in self.layers[:-1])

    def hidden(self, X: ArrayLike) -> list[NDArray[np.float64]]:
        """Return the values h_1, …, h_L of the hidden layers.

        Parameters
        ----------
        X : array_like of shape (n, d)
            The inputs.

        Returns
        -------
        list of ndarray of shape (n, k_l)
            One array per hidden layer.
        """
        return [self.activation(Z) for Z in self.preactivations(X)]

    def with_layers(self, layers: Sequence[tuple[ArrayLike, ArrayLike | None]], C: ArrayLike | None) -> DeepNetwork:
        """Return the network of the same activation with other weights.

        Parameters
        ----------
        layers : sequence of (array_like, array_like)
            (W_1, b_1), …, (W_L, b_L), (A, c).
        C : array_like of shape (p, d) or None
            The affine term.

        Returns
        -------
        DeepNetwork
            A new network; this one is unchanged.
        """
        return DeepNetwork(layers, self.activation, C)

    def take(self, units: Sequence[ArrayLike]) -> DeepNetwork:
        """Return the network made of the given units of each hidden layer, in that order."""
        if len(units) != self.depth:
            raise ValueError(f"take needs one list of units per hidden layer, {self.depth}. Got {len(units)} instead.")
        layers, below = [], np.arange(self.n_inputs)
        for (W, b), kept in zip(self.layers, [*units, np.arange(self.n_outputs)]):
            kept = np.asarray(kept)
            kept = kept.astype(int) if kept.size == 0 else kept
            layers.append((W[kept][:, below], b[kept]))
            below = kept
        return DeepNetwork(layers, self.activation, self.C)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that `save` writes, by name: W1, b1, W2, b2, …; the last pair is (A, c)."""
        return super().to_arrays() | {"n_layers": np.array(len(self.layers))}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], activation: Activation | None = None) -> DeepNetwork:
        """Build the network from the arrays of `to_arrays`, with the given or the named activation; else KeyError."""
        numbers = range(1, int(arrays["n_layers"]) + 1)
        layers = [(arrays[f"W{i}"], arrays[f"b{i}"]) for i in numbers]
        return cls(layers, activation or str(arrays["activation"]), arrays.get("C"))

    def __reduce__(self) -> tuple[type[DeepNetwork], tuple[object, ...]]:
        """Rebuild copies and pickles through the constructor, so that their arrays are read-only too."""
        return DeepNetwork, (self.layers, self.activation, self.C)


def network_of(
    layers: Sequence[tuple[ArrayLike, ArrayLike | None]],
    activation: str | Activation = "relu",
    C: ArrayLike | None = None,
) -> Network | DeepNetwork:
    """Return the network of these layers (W, b), …, (A, c): a `Network` for one hidden layer, else a `DeepNetwork`."""
    if len(layers) == 2:
        (W, b), (A, c) = layers
        return Network(W, b, A, c, activation, C)
    return DeepNetwork(layers, activation, C)
