"""Samples that are already arrays, in memory or memory-mapped."""

import copy
from typing import Any

import numpy as np

from neurecover.data.source import (
    IN_MEMORY,
    LABELS_SHOW,
    Blocks,
    Source,
    WeightedBlocks,
    check_real,
    check_shapes,
    numbered,
)


class ArraySource(Source):
    """X (n, d) and Y (n,) or (n, p): anything that numpy turns into an array of real numbers, or a table.

    `weight` (n,) holds positive weights of the rows. Arrays and memory maps are not copied. The columns of a table keep
    their names; other columns are called x0, x1, … and y0, y1, …
    """

    without_a_value = "drop the row or fill the value"
    _weight: np.ndarray | None = None

    def __init__(self, X: Any, Y: Any, *, origin: str = "the arrays", weight: np.ndarray | None = None) -> None:
        self.origin = origin
        self._X = _real_array(X, f"{origin}, X")
        Y_array = _real_array(Y, f"{origin}, Y", labels=True)
        check_shapes(self._X.shape, Y_array.shape, origin)
        self._Y = Y_array.reshape(len(Y_array), -1)
        self.input_names = _names(X, "x", self._X.shape[1])
        self.output_names = _names(Y, "y", self._Y.shape[1])
        self.n_samples, self._weight = len(self._X), weight

    @property
    def weighted(self) -> bool:
        return self._weight is not None

    @property
    def streams(self) -> bool:
        return not self.weighted and super().streams  # a block of a stream has its weights among its outputs

    def named_like(self, source: Source) -> "ArraySource":
        """Copy the column names of a source and the assumptions about it; return self."""
        self.input_names, self.output_names = source.input_names, source.output_names
        self.assumed = source.base.assumed
        return self

    def select(self, rows: np.ndarray) -> "ArraySource":
        """Return the samples in these rows, with the same column names."""
        weight = None if self._weight is None else self._weight[rows]
        part = ArraySource(self._X[rows], self._Y[rows], origin=self.origin, weight=weight)
        part.input_names, part.output_names, part.held = self.input_names, self.output_names, self.held
        return part

    def with_output(self, column: np.ndarray) -> "ArraySource":
        """Return the samples with one more output."""
        return ArraySource(self._X, np.column_stack([self._Y, column]), origin=self.origin)

    def with_weight(self, weight: np.ndarray | None) -> "ArraySource":
        """Return the samples with these weights."""
        same = copy.copy(self)
        same._weight = weight
        return same

    def _weighted_blocks(self, rows: int) -> WeightedBlocks:
        for first, (X, Y) in zip(range(0, len(self._X), rows), self._blocks(rows)):
            yield X, Y, None if self._weight is None else self._weight[first : first + rows]

    def _blocks_from(self, rows: int, start: int) -> Blocks:
        for first in range(start, len(self._X), rows):
            yield self._X[first : first + rows], self._Y[first : first + rows]


def _real_array(values: Any, what: str, labels: bool = False) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError:
        raise ValueError(
            f"{what}: expected a rectangular array of numbers. Got rows of unequal length instead."
        ) from None
    if array.dtype == object and array.ndim in (1, 2):
        _refuse_text(array.reshape(len(array), -1), values, what, labels)
    check_real(array.dtype, what, labels)
    if np.ma.is_masked(values):
        raise ValueError(f"{what}: expected every value. Got a masked array instead; drop the rows that are masked.")
    return array


def _refuse_text(array: np.ndarray, values: Any, what: str, labels: bool) -> None:
    """Raise an error that names the column of a table that holds text, with an example."""
    names = _names(values, "", array.shape[1])
    for name, column in zip(names, array.T):
        text = next((value for value in column if isinstance(value, str)), None)
        if text is not None:
            where = f"{what}, column {name!r}" if hasattr(values, "columns") else what
            hint = LABELS_SHOW if labels else "leave the column out, or give it as numbers"
            raise ValueError(f"{where}: expected real numbers. Got {text!r} instead; {hint}.")


def _names(values: Any, letter: str, count: int) -> tuple[str, ...]:
    columns = getattr(values, "column_names", getattr(values, "columns", None))
    if columns is not None and not callable(columns) and len(columns) == count:
        return tuple(str(name) for name in columns)
    return numbered(letter, count)


class Block(ArraySource):
    """One block of another source, as it was read and checked there."""

    _piece = True

    def __init__(self, X: np.ndarray, Y: np.ndarray, source: Source, weight: np.ndarray | None = None) -> None:
        self.origin, self.input_names, self.output_names = source.origin, source.input_names, source.output_names
        self._X, self._Y, self._weight, self.n_samples = X, Y, weight, len(X)


def complete_rows(source: Source) -> ArraySource:
    """Return the rows of a source that lack no value, in memory; infinite values are not missing and stay."""
    kept, rows = [], 0
    for X, Y in source._blocks(65_536):
        whole = ~(np.isnan(X).any(axis=1) | np.isnan(Y).any(axis=1))
        kept.append((X[whole], Y[whole]))
        rows += len(X)
        if 8 * rows * (source.n_inputs + source.n_outputs) > IN_MEMORY:
            raise ValueError(
                f"{source.origin}: missing='drop' needs samples that fit in memory. Got more than {rows} rows instead; "
                "write the file without those that lack a value."
            )
    X, Y = (np.concatenate(part) for part in zip(*kept))
    if len(X) == 0:
        raise ValueError(f"{source.origin}: expected a row without missing values. Got none of {rows} instead.")
    found = ArraySource(X, Y, origin=source.origin).named_like(source)
    if len(X) < rows:
        found.assumed = f"{rows - len(X)} of {rows} rows lack a value and were left out."
    return found
