"""The base class of statistics: named sums over samples that can be updated, merged and stored."""

from __future__ import annotations

import copy
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from math import isqrt
from types import MappingProxyType
from typing import ClassVar, Self

import numpy as np
from numpy.typing import DTypeLike
from scipy.linalg.blas import dsyrk

FEW = 512  # up to this many columns, two gathers are faster than one product per row (measured)


class Statistic(ABC):
    """Sums over samples, S = Σᵢ s(xᵢ, yᵢ), whose size does not depend on the number of samples.

    With weights w a sum of products is Σᵢ wᵢ s(xᵢ, yᵢ), as if sample i occurred wᵢ times. Scores, whose squares are
    summed too, become wᵢ s and (wᵢ s)², because sample i is still one sample. Counts and maxima ignore weights.

    `sums` holds the arrays by name, `n` among them; the names in `maxima` are largest values instead. Both
    operations are associative and commutative, so any partition of the samples, merged in any order, gives
    the same statistic up to rounding, and a new statistic is the identity.

    `settings` holds the arrays on which s itself depends, such as an origin: they are stored with the sums, and
    sums over other settings are refused. `row_bytes` is the working memory that `update` takes per sample, from
    which the reduction chooses its block size.
    """

    maxima: ClassVar[frozenset[str]] = frozenset()
    sums: dict[str, np.ndarray]
    settings: Mapping[str, np.ndarray] = MappingProxyType({})
    row_bytes: int

    @abstractmethod
    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        """Add the samples of one block, X (m, d) and Y (m, p), with positive weights (m,) or without."""

    @property
    def n(self) -> int:
        """The number of samples that have been added."""
        return int(self.sums["n"])

    @property
    def weight(self) -> float:
        """Σ w, which is n if samples have no weights."""
        return float(self.sums["weight"]) if "weight" in self.sums else self.n

    @property
    def n_bytes(self) -> int:
        """The memory of the sums, in bytes."""
        return sum(value.nbytes for value in self.sums.values())

    def blank(self) -> Self:
        """Return a statistic built like this one, without samples."""
        fresh = copy.copy(self)
        fresh.sums = {
            name: np.full_like(value, -np.inf if name in self.maxima else 0, order="K", subok=False)
            for name, value in self.sums.items()
        }
        return fresh

    def merge(self, other: Self) -> None:
        """Add the sums of another statistic of the same kind."""
        self._check_alike(f"A {type(other).__name__}", other.sums | dict(other.settings))
        for name, value in other.sums.items():
            combine = np.maximum if name in self.maxima else np.add
            combine(self.sums[name], value, out=self.sums[name])

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return sums and settings for storage; `from_arrays` of a statistic built the same way reads them back."""
        return {name: value.copy("K") for name, value in (self.sums | dict(self.settings)).items()}

    def from_arrays(self, arrays: Mapping[str, np.ndarray]) -> Self:
        """Return a statistic built like this one that holds the given sums."""
        arrays = dict(arrays)  # an open .npz archive reads a member again at every access
        self._check_alike("The stored arrays", arrays)
        result = copy.copy(self)
        result.sums = {name: np.array(arrays[name], dtype=value.dtype, order="K") for name, value in self.sums.items()}
        return result

    def average(self, name: str) -> np.ndarray:
        """Return a sum divided by Σ w, which is n without weights; an error if nothing was added."""
        self._check_any()
        return self.sums[name] / self.weight

    def per_row(self, name: str) -> np.ndarray:
        """Return a sum divided by n. Used for w r², whose mean is σ² if Var r = σ²/w."""
        self._check_any()
        return self.sums[name] / self.n

    def weigh(self) -> None:
        """Prepare the sums for weighted samples, before the first of them is added."""
        self.sums.setdefault("weight", np.zeros(()))

    def _count(self, rows: int, weight: np.ndarray | None) -> None:
        if weight is not None:
            self.weigh()
            self.sums["weight"] += weight.sum()
        self.sums["n"] += rows

    def _check_any(self) -> None:
        if self.n == 0:
            raise ValueError(
                f"{type(self).__name__} averages over at least one sample. Got none instead; update it first."
            )

    def _check_alike(self, what: str, arrays: Mapping[str, np.ndarray]) -> None:
        expected = {name: value.shape for name, value in (self.sums | dict(self.settings)).items()}
        came = {name: np.shape(value) for name, value in arrays.items()}
        if expected != came:
            raise ValueError(
                f"{type(self).__name__} needs arrays of shapes {expected}. {what} gave {came} instead; "
                "build both with the same arguments."
            )
        for name, value in self.settings.items():
            if not np.array_equal(value, arrays[name]):
                raise ValueError(
                    f"{type(self).__name__} adds sums of one and the same {name}. "
                    f"{what} has another instead; build both with the same arguments."
                )


def float64(X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Convert both blocks to double precision, so that single-precision samples are summed in double precision."""
    return np.asarray(X, dtype=np.float64), np.asarray(Y, dtype=np.float64)


def by_root(weight: np.ndarray | None, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """Multiply arrays whose first index is the sample by √w, so that products of two of them have weight w."""
    if weight is None:
        return arrays
    root = np.sqrt(weight)
    return tuple(array * root.reshape(-1, *(1,) * (array.ndim - 1)) for array in arrays)


def add_gram(total: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Return total + F Fᵀ in the lower triangle, for features F (q, m) in rows and `total` (q, q) in Fortran order.

    The result overwrites `total`, without a second matrix of its size.
    """
    if features.size == 0:
        return total
    return dsyrk(1.0, features.T, beta=1.0, c=total, trans=1, lower=1, overwrite_c=1)


def symmetric(lower: np.ndarray) -> np.ndarray:
    """Return the full symmetric matrix, given its lower triangle."""
    return np.tril(lower) + np.tril(lower, -1).T


def unpack_symmetric(packed: np.ndarray) -> np.ndarray:
    """Return the symmetric (q, q) matrix whose upper triangle, row by row, is `packed`."""
    q = (isqrt(8 * len(packed) + 1) - 1) // 2
    matrix = np.empty((q, q), dtype=packed.dtype)
    i, j = _pairs(q)
    matrix[i, j] = matrix[j, i] = packed
    return matrix


@lru_cache(maxsize=16)
def _pairs(q: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the row and column indices of the upper triangle, row by row."""
    return np.triu_indices(q)


_buffers = threading.local()


def scratch(name: str, shape: tuple[int, int], dtype: DTypeLike = float) -> np.ndarray:
    """Return an uninitialised work array, in the same memory for every use of the name within a thread.

    Allocating megabytes for every block makes the system map and unmap pages each time, which takes as long as filling
    the array.
    """
    size = shape[0] * shape[1] * np.dtype(dtype).itemsize
    buffer = getattr(_buffers, name, None)
    if buffer is None or buffer.size < size:
        buffer = np.empty(size, dtype=np.uint8)
        setattr(_buffers, name, buffer)
    return buffer[:size].view(dtype).reshape(shape)


def row_products(Z: np.ndarray, name: str | None = None) -> np.ndarray:
    """Return z_i·z_j, i ≤ j, for every column of Z (q, m): (q(q + 1)/2, m), in the scratch array `name` if given."""
    q, m = Z.shape
    shape = (q * (q + 1) // 2, m)
    products = np.empty(shape, dtype=Z.dtype) if name is None else scratch(name, shape, Z.dtype)
    if m <= FEW:
        first, second = _pairs(q)
        np.take(Z, first, axis=0, out=products, mode="clip")
        products *= Z.take(second, axis=0)
        return products
    row = 0
    for i in range(q):
        np.multiply(Z[i], Z[i:], out=products[row : row + q - i])
        row += q - i
    return products


def row_sums(rows: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Return Σ w z for the columns z of (q, m)."""
    return rows.sum(axis=1) if weight is None else rows @ weight


def setting(name: str, value: np.ndarray | None, default: np.ndarray) -> np.ndarray:
    """Return `value` in double precision, or the default if it is None; refuse a shape other than the default's."""
    if value is None:
        return default
    array = np.array(value, dtype=np.float64)
    if array.shape != default.shape:
        raise ValueError(f"{name} needs shape {default.shape}. Got {array.shape} instead.")
    return array
