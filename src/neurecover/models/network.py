"""The object everything is about: a network with one hidden layer,

    y = A · act(W x + b) + c,        W (k, d), b (k,), A (p, k), c (p,),

one hidden unit per row of W and per column of A.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from neurecover.activations import Activation, get
from neurecover.models import checks
from neurecover.models.exchange.methods import Exchanged
from neurecover.models.files import header, write_npz

_ARRAYS = ("W", "b", "A", "c")


@dataclass(frozen=True, eq=False, init=False)
class Network(Exchanged):
    """y = A · act(W x + b) + c. The arrays are float64 and read-only; `b` and `c` default to zero."""

    W: np.ndarray
    b: np.ndarray
    A: np.ndarray
    c: np.ndarray
    activation: Activation

    def __init__(
        self,
        W: ArrayLike,
        b: ArrayLike | None,
        A: ArrayLike,
        c: ArrayLike | None = None,
        activation: str | Activation = "relu",
    ) -> None:
        W, A = checks.matrix("W", W), checks.matrix("A", A)
        k, p = W.shape[0], A.shape[0]
        if p == 0:
            raise ValueError(f"A needs one row per output, at least one. Got A of shape {A.shape} instead.")
        if A.shape[1] != k:
            raise ValueError(f"A needs one column per row of W, that is {k}. Got A of shape {A.shape} instead.")
        for name, array in zip(_ARRAYS, (W, checks.vector("b", b, k), A, checks.vector("c", c, p))):
            object.__setattr__(self, name, array)
        object.__setattr__(self, "activation", get(activation))

    @property
    def n_inputs(self) -> int:
        return self.W.shape[1]

    @property
    def n_hidden(self) -> int:
        return self.W.shape[0]

    @property
    def n_outputs(self) -> int:
        return self.A.shape[0]

    @property
    def n_parameters(self) -> int:
        return sum(getattr(self, name).size for name in _ARRAYS)

    def __call__(self, X: ArrayLike) -> np.ndarray:
        """The outputs (n, p) for inputs X (n, d)."""
        return self.hidden(checks.inputs(X, self.n_inputs)) @ self.A.T + self.c

    def hidden(self, X: np.ndarray) -> np.ndarray:
        """The hidden values act(W x + b), (n, k)."""
        return self.activation(X @ self.W.T + self.b)

    @property
    def hidden_weights(self) -> tuple[np.ndarray, ...]:
        """The weights of every hidden layer, here of the one."""
        return (self.W,)

    def preactivations(self, X: np.ndarray) -> list[np.ndarray]:
        """W x + b, (n, k), as the one entry of a list."""
        return [X @ self.W.T + self.b]

    def fixed_scales(self) -> Network:
        """The same function with every scale that it leaves free fixed.

        act(s z) = s^h act(z) allows unit rows of W, with ‖w‖^h moved into A; exp(z + b) = e^b exp(z)
        allows zero biases. Rows of W that are zero stay as they are.
        """
        if self.activation.name == "exp":
            return replace_arrays(self, b=np.zeros_like(self.b), A=self.A * np.exp(self.b))
        h = self.activation.homogeneity
        if h is None:
            return self
        norm = np.linalg.norm(self.W, axis=1)
        norm = np.where(norm > 0, norm, 1.0)
        return replace_arrays(self, W=self.W / norm[:, None], b=self.b / norm, A=self.A * norm**h)

    def normal_form(self) -> Network:
        """The same function with every scale, and the sign of every unit that may be turned by itself, fixed.

        Where act(−z) = ς act(z) + κ, rows of W have a positive entry of largest size, and κ goes into c.
        """
        scaled, mirror = self.fixed_scales(), self.activation.reflection
        if mirror is None:
            return scaled
        back = looks_back(scaled.W)
        turn = np.where(back, -1.0, 1.0)
        return replace_arrays(
            scaled,
            W=scaled.W * turn[:, None],
            b=scaled.b * turn,
            A=np.where(back, mirror[0] * scaled.A, scaled.A),
            c=scaled.c + mirror[1] * scaled.A[:, back].sum(axis=1),
        )

    def take(self, units: ArrayLike) -> Network:
        """The network made of the given hidden units, in that order."""
        units = np.asarray(units)
        units = units.astype(int) if units.size == 0 else units
        return replace_arrays(self, W=self.W[units], b=self.b[units], A=self.A[:, units])

    def save(self, path: str | Path) -> None:
        """Write an `.npz` file that holds the arrays, the activation's name and a format version."""
        write_npz(path, self.to_arrays())

    def to_arrays(self) -> dict[str, np.ndarray]:
        """What `save` writes, by name."""
        return header("network", str(self.activation)) | {name: getattr(self, name) for name in _ARRAYS}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], activation: Activation | None = None) -> Network:
        """Read what `to_arrays` wrote, its activation by name or as given; KeyError where an array is missing."""
        W, b, A, c = (arrays[name] for name in _ARRAYS)
        return cls(W, b, A, c, activation=activation or str(arrays["activation"]))

    def __reduce__(self) -> tuple:
        """Copies and pickles go through the constructor, so that their arrays are read-only too."""
        return Network, (self.W, self.b, self.A, self.c, self.activation)

    def _repr_html_(self) -> str | None:
        from neurecover.report import in_notebook

        return in_notebook("network", self)

    def __repr__(self) -> str:
        return (
            f"Network(n_inputs={self.n_inputs}, n_hidden={self.n_hidden}, n_outputs={self.n_outputs}, "
            f"activation={str(self.activation)!r})"
        )


def looks_back(W: np.ndarray) -> np.ndarray:
    """Which rows have a negative entry of largest size: those that a normal form turns, where they may be."""
    if W.shape[1] == 0:
        return np.zeros(len(W), dtype=bool)
    return W[np.arange(len(W)), np.argmax(np.abs(W), axis=1)] < 0.0


def replace_arrays(network: Network, **arrays: np.ndarray) -> Network:
    """The network with some of its arrays exchanged."""
    current = {name: getattr(network, name) for name in _ARRAYS} | arrays
    return Network(**current, activation=network.activation)
