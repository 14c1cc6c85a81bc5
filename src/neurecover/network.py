"""The object everything is about: a network with one hidden layer,

    y = A · act(W x + b) + c,        W (k, d), b (k,), A (p, k), c (p,),

one hidden unit per row of W and per column of A.
"""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from neurecover.activations import Activation, get

FORMAT_VERSION = 1
_ARRAYS = ("W", "b", "A", "c")


@dataclass(frozen=True, eq=False, init=False)
class Network:
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
        W, A = _matrix("W", W), _matrix("A", A)
        k, p = W.shape[0], A.shape[0]
        if p == 0:
            raise ValueError(f"A needs one row per output, at least one. Got A of shape {A.shape} instead.")
        if A.shape[1] != k:
            raise ValueError(f"A needs one column per row of W, that is {k}. Got A of shape {A.shape} instead.")
        arrays = {"W": W, "b": _vector("b", b, k), "A": A, "c": _vector("c", c, p)}
        for name, array in arrays.items():
            array.flags.writeable = False
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
        X = np.asarray(X, dtype=np.float64)
        if X.ndim != 2 or X.shape[1] != self.n_inputs:
            raise ValueError(f"X needs shape (n, {self.n_inputs}). Got {X.shape} instead.")
        return self.hidden(X) @ self.A.T + self.c

    def hidden(self, X: np.ndarray) -> np.ndarray:
        """The hidden values act(W x + b), (n, k)."""
        return self.activation(X @ self.W.T + self.b)

    def normal_form(self) -> Network:
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
        return {
            "format_version": np.array(FORMAT_VERSION),
            "activation": np.array(str(self.activation)),
            **{name: getattr(self, name) for name in _ARRAYS},
        }

    def __reduce__(self) -> tuple:
        """Copies and pickles go through the constructor, so that their arrays are read-only too."""
        return Network, (self.W, self.b, self.A, self.c, self.activation)

    def __repr__(self) -> str:
        return (
            f"Network(n_inputs={self.n_inputs}, n_hidden={self.n_hidden}, n_outputs={self.n_outputs}, "
            f"activation={str(self.activation)!r})"
        )


def replace_arrays(network: Network, **arrays: np.ndarray) -> Network:
    """The network with some of its arrays exchanged."""
    current = {name: getattr(network, name) for name in _ARRAYS} | arrays
    return Network(**current, activation=network.activation)


def load(path: str | Path) -> Network:
    """Read a network that `Network.save` or `Recovery.save` wrote."""
    return from_arrays(read_npz(path), path)


def read_npz(path: str | Path) -> dict[str, np.ndarray]:
    """Every array of an `.npz` file, never unpickled."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("it holds one array without a name")
        with archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # damage shows as any of a dozen kinds, from BadZipFile to LZMAError
        raise ValueError(f"{path} is not a readable .npz file of plain arrays ({error}).") from None


def write_npz(path: str | Path, arrays: dict[str, np.ndarray]) -> None:
    """Write the arrays to exactly this path, whatever its suffix; if that fails, what was there before stays."""
    # Through a link to the file itself; a device or a pipe cannot be replaced and is written to.
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        return _write_archive(target, arrays)
    beside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        _write_archive(beside, arrays)
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)


def from_arrays(arrays: dict[str, np.ndarray], path: str | Path) -> Network:
    """The network in the arrays of a file; `path` is for the error message."""
    missing = [name for name in (*_ARRAYS, "activation", "format_version") if name not in arrays]
    if missing:
        raise ValueError(
            f"{path} is not a saved network: it lacks {', '.join(missing)}. "
            f"It holds {', '.join(sorted(arrays)) or 'nothing'}."
        )
    version, activation = arrays["format_version"], arrays["activation"]
    if version.shape != () or version.dtype.kind not in "iu" or version < 1:
        raise ValueError(f"{path}: format_version needs to be a whole number from 1. Got {version.tolist()!r} instead.")
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{path} has format version {version}, and this release reads up to {FORMAT_VERSION}. "
            "Update neurecover to read it."
        )
    if activation.shape != () or activation.dtype.kind != "U":
        raise ValueError(f"{path}: activation needs to be one text. Got {activation.tolist()!r} instead.")
    W, b, A, c = (arrays[name] for name in _ARRAYS)
    try:
        return Network(W, b, A, c, activation=str(activation))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _write_archive(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _matrix(name: str, value: ArrayLike) -> np.ndarray:
    array = _real(name, value)
    if array.ndim != 2:
        raise ValueError(f"{name} needs two dimensions. Got shape {array.shape} instead.")
    return array


def _vector(name: str, value: ArrayLike | None, size: int) -> np.ndarray:
    array = np.zeros(size) if value is None else _real(name, value)
    if array.shape != (size,):
        raise ValueError(f"{name} needs shape ({size},). Got {array.shape} instead.")
    return array


def _real(name: str, value: ArrayLike) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} needs real numbers. Got dtype {array.dtype} instead.")
    array = np.array(array, dtype=np.float64)
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} needs finite numbers. Got {np.count_nonzero(~np.isfinite(array))} that are not.")
    return array
