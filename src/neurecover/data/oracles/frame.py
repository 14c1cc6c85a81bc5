"""The frame of the queries to a model: x = mean + z·spread with z ~ N(0, I), around the data it was made for.

    spread = (0.9 R + 0.1 I)^{1/2} diag(s),

with the standard deviations s and the correlations R of the data. The term 0.1 I lets the queries vary in every
direction, because a weight may have a component along which the data do not vary. A constant column gets s = 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from neurecover.data.sources.arrays import ArraySource
from neurecover.data.views.whitening import Whitening

_INDEPENDENT = 0.1  # share of independent columns: see above


@dataclass(frozen=True, eq=False)
class Frame:
    """x = mean + z·spread, (d,) and (d, d)."""

    mean: np.ndarray
    spread: np.ndarray

    @classmethod
    def like(cls, data: Any) -> Frame:
        """Return the frame around samples X (n, d): an array or a data frame."""
        X, _ = ArraySource(data, np.zeros(len(data)), origin="like").collect()
        if len(X) < 2:
            raise ValueError(f"like needs at least two samples, to know their spread. Got {len(X)} instead.")
        mean, size = X.mean(axis=0), X.std(axis=0)
        size = np.where(size > 1e-14 * np.abs(mean), size, 0.0)
        Z = (X - mean) * np.divide(1.0, size, out=np.zeros_like(size), where=size > 0.0)
        R = Z.T @ Z / len(X) + np.diag((size == 0.0).astype(float))
        values, vectors = np.linalg.eigh((1.0 - _INDEPENDENT) * R + _INDEPENDENT * np.eye(len(size)))
        root = (vectors * np.sqrt(values)) @ vectors.T
        return cls(mean, root * np.where(size > 0.0, size, 1.0))

    @classmethod
    def of_columns(cls, mean: np.ndarray, size: np.ndarray) -> Frame:
        """Return the frame of independent columns with these means and standard deviations."""
        return cls(np.asarray(mean, dtype=float), np.diag(np.asarray(size, dtype=float)))

    def inputs(self, Z: np.ndarray) -> np.ndarray:
        """Return x for every row z of Z."""
        return self.mean + Z @ self.spread

    @property
    def whitening(self) -> Whitening:
        """The map from x to z, which also takes networks found on z back to x."""
        return Whitening(self.mean, np.linalg.inv(self.spread))
