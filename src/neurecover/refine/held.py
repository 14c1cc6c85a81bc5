"""Samples held in memory for many passes: the inputs once more in single precision, and their second moments.

A product with the curvature is a pass over x̃ = (x, 1) or x. In single precision it takes half the time and half the
memory, and the second moments Σ x̃x̃ᵀ, which every readout with an affine part needs, are the same for all students.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular

from neurecover.data import ArraySource, Source, reduce
from neurecover.models import Student
from neurecover.statistics import ReadoutSums
from neurecover.statistics.base import by_root
from neurecover.statistics.unit_sums import UnitSums

CACHE = 2**22  # bytes that a block of held samples works on
MOST_BYTES = 2**30  # for the inputs in single precision; larger sources are read again for every product


class Held(ArraySource):
    """A source whose samples are in memory; `inputs` (n, D) holds every x̃ in single precision."""

    def __init__(self, source: Source, bias: bool) -> None:
        if isinstance(source, ArraySource) and source.n_samples is not None:
            X, Y = next(source.blocks(source.n_samples))
        else:
            X, Y = source.collect()
        super().__init__(X, Y, origin=source.origin, weight=source.weights())
        self.bias = bias
        n, d = X.shape
        self.inputs = np.ones((n, d + bias), dtype=np.float32)
        self.inputs[:, :d] = X

    @property
    def outputs(self) -> np.ndarray:
        """Y (n, p)."""
        return self._Y

    @cached_property
    def root_weight(self) -> np.ndarray | None:
        """√w in single precision, a column."""
        return None if self._weight is None else np.sqrt(self._weight).astype(np.float32)[:, None]

    @cached_property
    def second_moments(self) -> np.ndarray:
        """Σ w x̃x̃ᵀ in double precision."""
        D = self.inputs.shape[1]
        total = np.zeros((D, D))
        for X, _, weight in self.weighted_blocks(8_192):
            (X,) = by_root(weight, np.hstack([X, np.ones((len(X), 1))]) if self.bias else X)
            total += X.T @ X
        return total

    @cached_property
    def inverse_moments(self) -> np.ndarray:
        """(Σ w x̃x̃ᵀ)⁻¹."""
        return np.linalg.inv(self.second_moments)

    @cached_property
    def inverse_root(self) -> np.ndarray:
        """R with RRᵀ = E[x̃x̃ᵀ]⁻¹ but for a small ridge: E[x̃x̃ᵀ] = LLᵀ has the inverse L⁻ᵀL⁻¹."""
        moments = self.second_moments / len(self.inputs)
        ridge = 1e-9 * np.trace(moments) / len(moments) * np.eye(len(moments))
        return solve_triangular(np.linalg.cholesky(moments + ridge), np.eye(len(moments)), lower=True).T

    @cached_property
    def inverse(self) -> np.ndarray:
        """RRᵀ in single precision."""
        return (self.inverse_root @ self.inverse_root.T).astype(np.float32)


def readout_sums(source: Source, student: Student) -> dict[str, np.ndarray]:
    """Σ h hᵀ, Σ h rᵀ and Σ |r|² of a student, without adding up again what the samples held in memory know."""
    if isinstance(source, Held):
        sums = reduce(source, UnitSums(student), block_bytes=CACHE)
        return sums.with_inputs(source.second_moments)
    return reduce(source, ReadoutSums(student)).sums


def hold(source: Source, bias: bool) -> Source:
    """The source with its samples held in memory; itself where it is so already or is too large."""
    if isinstance(source, Held):
        return source
    n = source.n_samples
    if n is None or 4 * n * (source.n_inputs + bias) > MOST_BYTES:
        return source
    return Held(source, bias)
