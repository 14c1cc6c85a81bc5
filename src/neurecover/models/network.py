"""A network with one hidden layer,

    y = A · act(W x + b) + C x + c,        W (k, d), b (k,), A (p, k), C (p, d) or None, c (p,),

with one hidden unit per row of W and column of A. Most networks do not have the affine term C x.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neurecover.activations import Activation, get
from neurecover.models import checks
from neurecover.models.layered import Layer, Layered


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Network(Layered):
    """A network of one hidden layer: y = A · act(W x + b) + C x + c.

    The arrays are float64 and read-only.

    Parameters
    ----------
    W : array_like of shape (k, d)
        The hidden weights.
    b : array_like of shape (k,) or None
        The biases; None for zeros.
    A : array_like of shape (p, k)
        The output weights.
    c : array_like of shape (p,) or None, default=None
        The offset; None for zeros.
    activation : str or Activation, default="relu"
        The function of the hidden units: "relu", "leaky_relu(0.1)", "tanh", "gelu", …
    C : array_like of shape (p, d) or None, default=None
        The affine term; None for a network without one. A C of zeros is a free term that happens to be zero.

    Examples
    --------
    >>> import neurecover as nr
    >>> net = nr.Network([[1.0, 0.0], [0.0, 1.0]], [0.0, -1.0], [[1.0, 2.0]])
    >>> net([[3.0, 2.0]])
    array([[5.]])
    >>> net.n_inputs, net.n_hidden, net.n_outputs, net.n_parameters
    (2, 2, 1, 9)
    """

    W: NDArray[np.float64]
    b: NDArray[np.float64]
    A: NDArray[np.float64]
    c: NDArray[np.float64]
    activation: Activation
    C: NDArray[np.float64] | None
    kind = "network"

    def __init__(
        self,
        W: ArrayLike,
        b: ArrayLike | None,
        A: ArrayLike,
        c: ArrayLike | None = None,
        activation: str | Activation = "relu",
        C: ArrayLike | None = None,
    ) -> None:
        W, A = checks.matrix("W", W), checks.matrix("A", A)
        (k, d), p = W.shape, A.shape[0]
        if p == 0:
            raise ValueError(f"A needs one row per output, at least one. Got A of shape {A.shape} instead.")
        if A.shape[1] != k:
            raise ValueError(f"A needs one column per row of W, that is {k}. Got A of shape {A.shape} instead.")
        arrays = {"W": W, "b": checks.vector("b", b, k), "A": A, "c": checks.vector("c", c, p)}
        for name, array in (arrays | {"C": checks.affine_term(C, p, d)}).items():
            object.__setattr__(self, name, array)
        object.__setattr__(self, "activation", get(activation))

    @property
    def layers(self) -> tuple[Layer, Layer]:
        """(W, b), (A, c)."""
        return (self.W, self.b), (self.A, self.c)

    @property
    def arrays(self) -> dict[str, NDArray[np.float64]]:
        affine = {} if self.C is None else {"C": self.C}
        return {"W": self.W, "b": self.b, "A": self.A, **affine, "c": self.c}

    @property
    def n_hidden(self) -> int:
        return self.W.shape[0]

    def hidden(self, X: np.ndarray) -> np.ndarray:
        """Return the hidden values act(W x + b).

        Parameters
        ----------
        X : ndarray of shape (n, d)
            The inputs.

        Returns
        -------
        ndarray of shape (n, k)
            One column per unit.
        """
        return self.activation(X @ self.W.T + self.b)

    def with_layers(self, layers: Sequence[tuple[ArrayLike, ArrayLike | None]], C: ArrayLike | None) -> Network:
        """Return the network of the same activation with other weights.

        Parameters
        ----------
        layers : sequence of (array_like, array_like)
            (W, b) and (A, c).
        C : array_like of shape (p, d) or None
            The affine term.

        Returns
        -------
        Network
            A new network; this one is unchanged.
        """
        (W, b), (A, c) = layers
        return Network(W, b, A, c, self.activation, C)

    def take(self, units: ArrayLike) -> Network:
        """Return the network made of the given hidden units, in that order."""
        units = np.asarray(units)
        units = units.astype(int) if units.size == 0 else units
        return replace_arrays(self, W=self.W[units], b=self.b[units], A=self.A[:, units])

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], activation: Activation | None = None) -> Network:
        """Build the network from the arrays of `to_arrays`, with the given or the named activation; else KeyError."""
        W, b, A, c = (arrays[name] for name in ("W", "b", "A", "c"))
        return cls(W, b, A, c, activation or str(arrays["activation"]), arrays.get("C"))

    def __reduce__(self) -> tuple[type[Network], tuple[object, ...]]:
        """Rebuild copies and pickles through the constructor, so that their arrays are read-only too."""
        return Network, (self.W, self.b, self.A, self.c, self.activation, self.C)


def replace_arrays(network: Network, **arrays: np.ndarray | None) -> Network:
    """Return the network with some of its arrays replaced."""
    current = {name: getattr(network, name) for name in ("W", "b", "A", "c", "C")} | arrays
    return Network(**current, activation=network.activation)
