"""From what a person has at hand, a path or arrays, to a source."""

import os
from pathlib import Path
from typing import Any

from neurecover.data.arrays import ArraySource
from neurecover.data.columns import Columns
from neurecover.data.csv import CsvSource
from neurecover.data.npy import NpySource, npy_pair
from neurecover.data.npz import NpzSource
from neurecover.data.parquet import ParquetSource
from neurecover.data.source import Source
from neurecover.models.files import existing

PathLike = str | os.PathLike[str]

_TABLES: dict[str, type[NpySource] | type[CsvSource] | type[ParquetSource]] = {
    ".npy": NpySource,
    ".csv": CsvSource,
    ".parquet": ParquetSource,
    ".pq": ParquetSource,
}


def open(
    path: PathLike | tuple[PathLike, PathLike], inputs: Columns | None = None, outputs: Columns | None = None
) -> Source:
    """The samples of a file, chosen by its suffix: .npz, .npy, .csv, .parquet or .pq.

    An .npz archive holds X and Y, and so does a pair of files ("X.npy", "Y.npy"). In the other
    formats inputs and outputs are lists of column names or positions; the outputs default to the
    columns whose name starts with y, or else to the last one, the inputs to all that is left.
    """
    if isinstance(path, tuple | list):
        _refuse_columns(inputs, outputs, "A pair of .npy files")
        if len(path) != 2 or any(Path(part).suffix.lower() != ".npy" for part in path):
            raise ValueError(f"Expected one path or a pair (X.npy, Y.npy). Got {[str(part) for part in path]} instead.")
        return npy_pair(existing(path[0]), existing(path[1]))
    file = existing(path)
    suffix = file.suffix.lower()
    if suffix == ".npz":
        _refuse_columns(inputs, outputs, f"{file}: an .npz archive")
        return NpzSource(file)
    if suffix not in _TABLES:
        known = ", ".join([".npz", *_TABLES])
        raise ValueError(f"{file}: expected a file with one of the suffixes {known}. Got {suffix or 'none'!r} instead.")
    return _TABLES[suffix](file, inputs, outputs)


def as_source(X: Any, Y: Any = None) -> Source:
    """X itself if it is a source, the file if it is a path, otherwise the arrays X and Y."""
    if isinstance(X, Source | str | os.PathLike):
        if Y is not None:
            raise ValueError(
                f"A source or a file holds its own outputs. Got Y as a {type(Y).__name__} beside it instead."
            )
        return X if isinstance(X, Source) else open(X)
    if Y is None:
        raise ValueError(f"Inputs given as an array need the outputs Y beside them. Got X as {type(X).__name__} alone.")
    return ArraySource(X, Y)


def _refuse_columns(inputs: Columns | None, outputs: Columns | None, what: str) -> None:
    if inputs is not None or outputs is not None:
        raise ValueError(
            f"{what} holds X and Y apart, so no columns are chosen. Got inputs={inputs!r}, outputs={outputs!r} instead."
        )
