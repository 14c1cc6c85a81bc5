"""Σ w gᵢgⱼ x̃x̃ᵀ for every pair of units, with the gates g = act'(z) of a sample and a weight w.

The sum is symmetric in (i, j) and in x̃x̃ᵀ, so it is the product of two lists of pairs. It has a quarter of the entries
of Σ w m mᵀ, with the gated inputs m = (g_j x̃)_j, and takes half the time. The last gate is always on. If the
rows of a block lie in few linear regions, x̃x̃ᵀ is summed over each region, then weighted by its gates (`regions`).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import DTypeLike

from neurecover.models import Student
from neurecover.statistics.base import row_products, unpack_symmetric
from neurecover.statistics.fits.regions import Regions

PIECE = 16 * 2**20  # bytes of products that are formed at a time


def no_pairs(m: int, D: int, dtype: DTypeLike = float) -> np.ndarray:
    """Return an empty sum (zeros) for m units and D inputs."""
    return np.zeros(((m + 1) * (m + 2) // 2, D * (D + 1) // 2), dtype=dtype)


def add_gate_pairs(
    total: np.ndarray, gates: np.ndarray, X: np.ndarray, regions: Regions | None, weight: np.ndarray | None = None
) -> None:
    """Add to `total` the sum over rows with gates (n, m) and inputs X (n, D), each times its weight (n,) if there are
    any.
    """
    if regions is None:
        rows = max(1, PIECE // (total.itemsize * sum(total.shape)))
        for first in range(0, len(X), rows):
            piece = slice(first, first + rows)
            _add_piece(total, gates[piece], X[piece], None if weight is None else weight[piece])
        return
    D = X.shape[1]
    upper = np.ravel_multi_index(np.triu_indices(D), (D, D))
    pairs = row_products(_with_on(gates[regions.members]))
    for own, moments in regions.products(X, X if weight is None else weight[:, None] * X):
        total += pairs[:, own] @ moments.reshape(-1, D * D).take(upper, axis=1)


def _add_piece(total: np.ndarray, gates: np.ndarray, X: np.ndarray, weight: np.ndarray | None) -> None:
    pairs = row_products(_with_on(gates), "gates")
    if weight is not None:
        pairs *= weight
    total += pairs @ row_products(np.ascontiguousarray(X.T), "inputs").T


def _with_on(gates: np.ndarray) -> np.ndarray:
    rows = np.ones((gates.shape[1] + 1, len(gates)), dtype=gates.dtype)
    rows[:-1] = gates.T
    return rows


def gated_products(pairs: np.ndarray, m: int, D: int) -> tuple[np.ndarray, np.ndarray]:
    """Return Σ w m mᵀ (m·D, m·D) and, for the gate that is always on, Σ w x̃ mᵀ (D, m·D)."""
    whole = pairs.ravel().take(_positions(m, D))
    return whole[: m * D], whole[m * D :]


def feature_products(student: Student, mm: np.ndarray, on: np.ndarray, degree: float) -> np.ndarray:
    """Return Σ w h mᵀ (q, m·D) for an activation that is homogeneous of this degree, degree·act(z) = act'(z)·z [Euler].

    h is the input of the readout of a student with one hidden layer.
    """
    (V,) = student.V
    units = (V[:, None, :] @ mm.reshape(*V.shape, V.size))[:, 0] / degree
    return np.vstack([on[: student.reads(1)[0]], units])


@lru_cache(maxsize=4)
def _positions(m: int, D: int) -> np.ndarray:
    """Return the index, among the pairs of m + 1 gates and D inputs, of every entry of the ((m + 1)·D, m·D) matrix."""
    gates, inputs = _triangle(m + 1), _triangle(D)
    n_inputs = D * (D + 1) // 2
    return (n_inputs * gates[:, None, :m, None] + inputs[:, None, :]).reshape((m + 1) * D, m * D)


def _triangle(q: int) -> np.ndarray:
    """Return a matrix (q, q) of the position of the pairs (i, j) and (j, i) in the upper triangle read row by row."""
    return unpack_symmetric(np.arange(q * (q + 1) // 2))
