"""Check arrays of weights (real, finite, of the right shape) and copy them to read-only float64 arrays."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def matrix(name: str, value: ArrayLike) -> np.ndarray:
    """Return a float64 copy with two dimensions."""
    array = _real(name, value)
    if array.ndim != 2:
        raise ValueError(f"{name} needs two dimensions. Got shape {array.shape} instead.")
    return array


def vector(name: str, value: ArrayLike | None, size: int) -> np.ndarray:
    """Return a float64 copy of shape (size,); zeros for None."""
    array = _real(name, np.zeros(size) if value is None else value)
    if array.shape != (size,):
        raise ValueError(f"{name} needs shape ({size},). Got {array.shape} instead.")
    return array


def affine_term(value: ArrayLike | None, n_outputs: int, n_inputs: int) -> np.ndarray | None:
    """Return a float64 copy of shape (n_outputs, n_inputs); None if there is no affine term."""
    if value is None:
        return None
    array = _real("C", value)
    if array.shape != (n_outputs, n_inputs):
        raise ValueError(
            f"C needs one row per output and one column per input, shape ({n_outputs}, {n_inputs}). "
            f"Got {array.shape} instead."
        )
    return array


def inputs(X: ArrayLike, n_inputs: int) -> np.ndarray:
    """Return X as a float64 array (n, n_inputs)."""
    X = np.asarray(as_dense(X), dtype=np.float64)
    if X.ndim != 2 or X.shape[1] != n_inputs:
        raise ValueError(f"X needs shape (n, {n_inputs}). Got {X.shape} instead.")
    return X


def _real(name: str, value: ArrayLike) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} needs real numbers. Got dtype {array.dtype} instead.")
    array = np.array(array, dtype=np.float64)
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} needs finite numbers. Got {np.count_nonzero(~np.isfinite(array))} that are not.")
    array.flags.writeable = False
    return array


def is_sparse(values: Any) -> bool:
    """Return whether the value is a sparse matrix or array, without importing SciPy."""
    return hasattr(values, "tocsr") and hasattr(values, "toarray")


def as_dense(values: Any) -> Any:
    """Convert a sparse matrix or array to a dense one; return anything else unchanged."""
    return values.toarray() if is_sparse(values) else values
