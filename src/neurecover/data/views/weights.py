"""Weights w ≥ 0 of the rows, of which only the ratios matter.

A source holds the weights as one more output column, so that files, streams and clusters need no other reader.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from neurecover.data.options import PrepareOptions
from neurecover.data.source import Source, WeightedBlocks
from neurecover.data.sources.arrays import ArraySource
from neurecover.data.views.view import Seen, View

COLUMN = "sample_weight"


class WeightedRows(View):
    """The rows of a source whose last output is the weight w; weights are w·scale, and rows with w = 0 are left out."""

    def __init__(self, parent: Source, scale: float = 1.0) -> None:
        super().__init__(parent)
        self.scale, self.output_names = scale, parent.output_names[:-1]

    @property
    def weighted(self) -> bool:
        return True

    @property
    def streams(self) -> bool:
        return self.parent.streams

    def scaled(self, scale: float, n_samples: int) -> WeightedRows:
        """Return the same n_samples rows with the weights w·scale."""
        rows = copy.copy(self)
        rows.scale, rows.n_samples = scale, n_samples
        return rows

    def identity(self) -> list[object]:
        return [type(self).__name__, *self.parent.identity()]

    def _seen(self, X: np.ndarray, Y: np.ndarray) -> Seen:
        weight = Y[:, -1]
        if weight.min(initial=0.0) < 0.0:
            raise ValueError(
                f"{self.origin}, column {self.parent.output_names[-1]!r}: expected weights from 0. "
                f"Got {weight.min()} instead; leave out a row with a weight of 0."
            )
        mine = weight > 0.0
        return (X, Y, None) if mine.all() else (X[mine], Y[mine], mine)

    def _weighted_blocks(self, rows: int) -> WeightedBlocks:
        for X, Y, _ in super()._weighted_blocks(rows):
            yield X, Y[:, :-1], self.scale * Y[:, -1].astype(np.float64)


class Unweighted(View):
    """The rows of a source without their weights."""

    def __init__(self, parent: Source) -> None:
        super().__init__(parent, n_samples=parent.n_samples)

    @property
    def weighted(self) -> bool:
        return False

    def _seen(self, X: np.ndarray, Y: np.ndarray) -> Seen:
        return X, Y, None

    def _weighted_blocks(self, rows: int) -> WeightedBlocks:
        return ((X, Y, None) for X, Y, _ in super()._weighted_blocks(rows))


def without_weights(source: Source) -> Source:
    """Return the source without weights."""
    return Unweighted(source) if source.weighted else source


def moderate_weights(source: ArraySource, most: float = PrepareOptions().moderate) -> ArraySource:
    """Return the samples with weights clipped to within a factor `most` of their median.

    A search uses these weights, so that a few heavy rows do not decide alone where it goes.
    """
    weight = source.weights()
    if weight is None:
        return source
    middle = float(np.median(weight))
    within = np.clip(weight, middle / most, middle * most)
    return source if np.array_equal(within, weight) else source.with_weight(within)


def with_weights(source: ArraySource, sample_weight: Any) -> WeightedRows:
    """Check sample_weight, one number ≥ 0 per row, and return the source with these weights."""
    n = source.count()
    try:
        weight = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"sample_weight: expected one number for each of {n} rows. Got {type(sample_weight).__name__} instead."
        ) from None
    if weight.shape != (n,):
        raise ValueError(f"sample_weight: expected shape ({n},), one weight per row. Got shape {weight.shape} instead.")
    wrong = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0.0)))
    if len(wrong):
        raise ValueError(
            f"sample_weight, row {wrong[0]}: expected a finite number from 0. Got {weight[wrong[0]]} instead; "
            "a weight of 0 leaves the row out."
        )
    if not weight.any():
        raise ValueError("sample_weight: expected some positive weight. Got zeros alone instead; leave it out.")
    both = source.with_output(weight)
    both.input_names, both.output_names = source.input_names, (*source.output_names, COLUMN)
    return WeightedRows(both)


def name_weight(source: Source) -> Source:
    """Rename the last output as the weight, and return the source."""
    source.output_names = (*source.output_names[:-1], COLUMN)
    return source
