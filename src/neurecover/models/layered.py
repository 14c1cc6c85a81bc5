"""The base class of networks of any depth, with or without an affine term,

    h₀ = x,    h_l = act(W_l h_{l−1} + b_l)  for l = 1 … L,    y = A h_L + C x + c,

given by `layers` (W_1, b_1), …, (W_L, b_L), (A, c), `activation`, and C, which is None without an affine term. The
methods here need only these three. `Network` (L = 1, arrays by name) and `DeepNetwork` inherit them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neurecover.activations import Activation
from neurecover.models import checks
from neurecover.models.formats.files import header, write_npz
from neurecover.models.formats.methods import Exchanged

Layer = tuple[NDArray[np.float64], NDArray[np.float64]]
L = TypeVar("L", bound="Layered")


class Layered(Exchanged):
    """A network that is given by `layers`, `activation` and `C`."""

    activation: Activation
    C: NDArray[np.float64] | None
    kind: str  # the kind of network, as written in its file

    if TYPE_CHECKING:

        @property
        def layers(self) -> tuple[Layer, ...]:
            """(W_1, b_1), …, (W_L, b_L), (A, c)."""

        @property
        def n_hidden(self) -> Any:
            """The number of hidden units; for a `DeepNetwork`, one number per layer."""

        @property
        def arrays(self) -> dict[str, NDArray[np.float64]]:
            """All arrays by their names in a file, in the order of `models.parameters`: C comes before c."""

        def with_layers(self: L, layers: Sequence[tuple[ArrayLike, ArrayLike | None]], C: ArrayLike | None) -> L:
            """Return the network of the same kind and activation with other layers and another affine term."""

    @property
    def depth(self) -> int:
        """The number of hidden layers."""
        return len(self.layers) - 1

    @property
    def n_inputs(self) -> int:
        return self.layers[0][0].shape[1]

    @property
    def n_outputs(self) -> int:
        return len(self.layers[-1][0])

    @property
    def n_parameters(self) -> int:
        return sum(array.size for array in self.arrays.values())

    @property
    def hidden_weights(self) -> tuple[NDArray[np.float64], ...]:
        """W_1, …, W_L."""
        return tuple(W for W, _ in self.layers[:-1])

    @property
    def hidden_activations(self) -> tuple[Activation, ...]:
        """The activation of every hidden layer; all are the same."""
        return (self.activation,) * self.depth

    def preactivations(self, X: ArrayLike) -> list[NDArray[np.float64]]:
        """Return W_l h_{l−1} + b_l for every hidden layer.

        Parameters
        ----------
        X : array_like of shape (n, d)
            The inputs.

        Returns
        -------
        list of ndarray of shape (n, k_l)
            One array per hidden layer.

        Examples
        --------
        >>> import neurecover as nr
        >>> nr.Network([[3.0, 4.0]], [5.0], [[2.0]]).preactivations([[1.0, 1.0]])
        [array([[12.]])]
        """
        H, values = checks.inputs(X, self.n_inputs), []
        for W, b in self.layers[:-1]:
            values.append(H @ W.T + b)
            H = self.activation(values[-1])
        return values

    def __call__(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the outputs (n, p) for inputs X (n, d)."""
        inputs = H = checks.inputs(X, self.n_inputs)
        for W, b in self.layers[:-1]:
            H = self.activation(H @ W.T + b)
        A, c = self.layers[-1]
        return H @ A.T + c if self.C is None else H @ A.T + inputs @ self.C.T + c

    def fixed_scales(self: L) -> L:
        """Return the same function in a form where no scale is free, layer by layer.

        act(s z) = s^h act(z) allows unit rows in every hidden layer, with ‖w‖^h moved into the columns above;
        exp(z + b) = e^b exp(z) allows zero biases. Zero rows and C stay unchanged.

        Returns
        -------
        Network or DeepNetwork
            The network in that form.

        Examples
        --------
        >>> import neurecover as nr
        >>> nr.Network([[3.0, 4.0]], [5.0], [[2.0]]).fixed_scales().A
        array([[10.]])
        """
        exponential, h = self.activation.name == "exp", self.activation.homogeneity
        if h is None and not exponential:
            return self
        layers, factor = [], np.ones(self.n_inputs)
        for W, b in self.layers[:-1]:
            W = W * factor
            if exponential:
                layers.append((W, np.zeros_like(b)))
                factor = np.exp(b)
                continue
            norm = np.linalg.norm(W, axis=1)
            norm = np.where(norm > 0, norm, 1.0)
            layers.append((W / norm[:, None], b / norm))
            factor = norm**h
        A, c = self.layers[-1]
        return self.with_layers([*layers, (A * factor, c)], self.C)

    def normal_form(self: L) -> L:
        """Return the same function with every free scale fixed, and the sign of every unit that can be negated alone.

        If a unit's (w, b) can be negated, the normal form makes the entry of w of largest size positive. Two cases
        allow this. First, act(−z) = ς act(z) + κ; κ is added to the biases above. Second, one hidden layer with an
        affine term and act(z) − act(−z) = m z (relu, leaky_relu, softplus, silu, gelu): then a act(w·x + b) =
        a act(−w·x − b) + m a (w·x + b), where m a wᵀ is added to C and m a b to c. A given C counts as free even if it
        is zero. With more hidden layers this is impossible: m z of a lower layer would have to pass the layers above,
        and in the top layer w·h_{L−1} is not affine in x.

        Returns
        -------
        Network or DeepNetwork
            The network in normal form.

        Examples
        --------
        >>> import neurecover as nr
        >>> nr.Network([[-3.0, -4.0]], [5.0], [[2.0]], activation="tanh").normal_form().W
        array([[3., 4.]])
        """
        scaled, mirror = self.fixed_scales(), mirror_of(self)
        if mirror is None:
            return scaled
        sign, constant, slope = mirror
        layers, C = list(scaled.layers), scaled.C
        for number in range(self.depth):
            (W, b), (above, offset) = layers[number : number + 2]
            back = looks_back(W)
            turn = np.where(back, -1.0, 1.0)
            layers[number] = (W * turn[:, None], b * turn)
            offset = offset + constant * above[:, back].sum(axis=1)
            if slope and C is not None:
                C, offset = C + slope * above[:, back] @ W[back], offset + slope * above[:, back] @ b[back]
            layers[number + 1] = (np.where(back, sign * above, above), offset)
        return self.with_layers(layers, C)

    def save(self, path: str | Path) -> None:
        """Write an `.npz` file that holds the arrays, the activation's name and a format version.

        Parameters
        ----------
        path : path
            The file to write; `neurecover.load` reads it.

        Examples
        --------
        >>> net.save("net.npz")  # doctest: +SKIP
        """
        write_npz(path, self.to_arrays())

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that `save` writes, by name."""
        return header(self.kind, str(self.activation), affine=self.C is not None) | self.arrays

    def _repr_html_(self) -> str | None:
        from neurecover.report import in_notebook

        return in_notebook("network", self)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(n_inputs={self.n_inputs}, n_hidden={self.n_hidden}, n_outputs={self.n_outputs}, "
            f"activation={str(self.activation)!r}{'' if self.C is None else ', affine=True'})"
        )


def mirror_of(network: Layered) -> tuple[float, float, float] | None:
    """Return (ς, κ, m) of act(z) = ς act(−z) + κ + m z if this makes the sign of every unit free, else None.

    With m ≠ 0 the network must have a single hidden layer and an affine term, to which m z is added.
    """
    if network.activation.reflection is None and (network.C is None or network.depth != 1):
        return None
    return mirror(network.activation)


def mirror(activation: Activation) -> tuple[float, float, float] | None:
    """Return (ς, κ, m) of act(z) = ς act(−z) + κ + m z, with m = 0 if possible; None if there are none."""
    if activation.reflection is not None:
        return *activation.reflection, 0.0
    return None if activation.odd_slope is None else (1.0, 0.0, activation.odd_slope)


def looks_back(W: np.ndarray) -> np.ndarray:
    """Return a mask of the rows whose entry of largest size is negative; the normal form negates them if it can."""
    if W.shape[1] == 0:
        return np.zeros(len(W), dtype=bool)
    return W[np.arange(len(W)), np.argmax(np.abs(W), axis=1)] < 0.0
