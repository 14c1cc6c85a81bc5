"""Inputs in a SciPy sparse matrix; only the rows of the current block are made dense."""

from __future__ import annotations

from typing import Any

import numpy as np

from neurecover.data.source import Blocks, Source, check_real
from neurecover.data.sources.arrays import ArraySource
from neurecover.models.checks import as_dense


class SparseSource(Source):
    """X (n, d), a sparse matrix or array, with Y (n,) or (n, p)."""

    def __init__(self, X: Any, Y: Any) -> None:
        self.origin = "the arrays"
        check_real(X.dtype, f"{self.origin}, X")
        self._X = X.tocsr()
        Y = np.asarray(as_dense(Y))
        check_real(Y.dtype, f"{self.origin}, Y", labels=True)
        self._name_apart(self._X.shape, Y.shape)
        self._Y = Y.reshape(len(Y), -1)

    def _blocks_from(self, rows: int, start: int) -> Blocks:
        for first in range(start, len(self._Y), rows):
            yield self._X[first : first + rows].toarray(), self._Y[first : first + rows]


def sparse_source(X: Any, Y: Any) -> Source:
    """Return the samples as dense arrays if they fit in memory, else as a sparse source."""
    source = SparseSource(X, Y)
    return source if source.streams else ArraySource(*source.collect())
