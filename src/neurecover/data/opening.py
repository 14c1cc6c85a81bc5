"""Open a path, a table or arrays as a source."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from neurecover.data.formats.columns import Column, Columns, Without, default_outputs, is_output_name
from neurecover.data.formats.csv import CsvSource
from neurecover.data.formats.npy import NpyPair, NpySource
from neurecover.data.formats.npz import NpzSource
from neurecover.data.formats.parquet import ParquetSource
from neurecover.data.formats.zarr import ZarrSource, is_zarr, is_zarr_group
from neurecover.data.source import Source
from neurecover.data.sources.arrays import ArraySource, complete_rows
from neurecover.data.sources.sparse import sparse_source
from neurecover.data.sources.tables import arrow_table, is_table, table_source
from neurecover.data.views.weights import WeightedRows, name_weight, with_weights
from neurecover.models.checks import as_dense, is_sparse
from neurecover.models.formats.files import regular_file

PathLike = str | os.PathLike[str]
MISSING = ("refuse", "drop")

_TABLES: dict[str, type[NpySource] | type[CsvSource] | type[ParquetSource] | type[ZarrSource]] = {
    ".npy": NpySource,
    ".csv": CsvSource,
    ".tsv": CsvSource,
    ".parquet": ParquetSource,
    ".pq": ParquetSource,
}


def open(
    data: Any,
    inputs: Columns | None = None,
    outputs: Columns | None = None,
    *,
    drop: Columns | None = None,
    weight: Column | os.PathLike[str] | None = None,
    missing: str = "refuse",
    client: Any = None,
) -> Source:
    """Open the samples of a file, a folder, a table or a Dask collection as a source.

    A path may be an .npz, .npy, .csv, .tsv, .parquet or .pq file, a folder of Parquet files, or a Zarr store. X and Y
    are separate in an .npz archive, a Zarr group, a pair of files ("X.npy", "Y.npy") and a pair of Dask arrays. Tables
    are pandas and polars frames, Arrow tables, and objects with `__dataframe__`.

    Parameters
    ----------
    data : path, pair of paths, table or Dask collection
        The samples.
    inputs, outputs : str, int, list of these or None, default=None
        Columns by name or position, if X and Y are not separate. The outputs default to the columns named y, y0, y_1,
        …, or to the last one if columns have no names; the inputs default to all other columns.
    drop : str, int, list of these or None, default=None
        Columns to leave out, in place of `inputs`: the inputs are then all other columns.
    weight : str, int, path or None, default=None
        The column with the weights of the rows, which must be ≥ 0; see `recover`. If X and Y are separate, the name of
        a third array (n,), or for a pair of files the path of a third file, "w.npy".
    missing : {"refuse", "drop"}, default="refuse"
        How to treat rows that lack a value: "refuse" raises a ValueError that names the first such row; "drop" leaves
        them out, if the samples fit in memory, and the result says how many were dropped.
    client : distributed.Client or None, default=None
        The client whose workers process a Dask collection; None for Dask's own choice.

    Returns
    -------
    Source
        The samples, read in blocks, for `recover`, `estimate` and `verify` in place of arrays.

    Examples
    --------
    >>> import pandas as pd
    >>> import neurecover as nr
    >>> table = pd.DataFrame({"dose": [1.0, 2.0], "age": [30, 40], "response": [0.1, 0.3]})
    >>> source = nr.open(table, outputs="response")
    >>> source.input_names, source.output_names
    (('dose', 'age'), ('response',))
    """
    if missing not in MISSING:
        raise ValueError(f"missing needs to be one of {', '.join(MISSING)}. Got {missing!r} instead.")
    if drop is not None:
        if inputs is not None:
            raise ValueError("inputs and drop both choose the inputs. Give one of them.")
        inputs = Without((drop,) if isinstance(drop, str) or not isinstance(drop, Iterable) else drop)
    if weight is not None:
        column = os.fspath(weight) if isinstance(weight, os.PathLike) else weight
        source: Source = WeightedRows(_complete(_with_column(data, inputs, outputs, column, client), missing))
    else:
        source = _complete(_open(data, inputs, outputs, client), missing)
    if outputs is None and not any(map(is_output_name, source.output_names)):
        taken = f"The last column, {source.output_names[0]!r}, was taken as the output."
        source.base.assumed = " ".join(filter(None, (taken, source.base.assumed)))
    return source


def _open(data: Any, inputs: Columns | None = None, outputs: Columns | None = None, client: Any = None) -> Source:
    dask = is_dask(data) or (isinstance(data, tuple | list) and any(is_dask(part) for part in data))
    if dask:
        from neurecover.data.sources.dask import DaskSource

        return DaskSource(data, inputs, outputs, client)
    if client is not None:
        raise ValueError(f"client goes with a Dask array or data frame. Got {type(data).__name__} instead.")
    if isinstance(data, tuple | list):
        _refuse_columns(inputs, outputs, "A pair of .npy files")
        if len(data) != 2 or any(Path(part).suffix.lower() != ".npy" for part in data):
            raise ValueError(f"Expected one path or a pair (X.npy, Y.npy). Got {[str(part) for part in data]} instead.")
        return NpyPair(regular_file(data[0]), regular_file(data[1]))
    if is_table(data):
        return table_source(data, inputs, outputs)
    if not isinstance(data, str | os.PathLike):
        raise ValueError(
            f"Expected a path, a table or a Dask collection. Got {type(data).__name__} instead; arrays X and Y go "
            "straight to recover."
        )
    file = _found(data)
    if file.is_dir():
        return ZarrSource(file, inputs, outputs) if is_zarr(file) else ParquetSource(file, inputs, outputs)
    suffix = file.suffix.lower()
    if suffix == ".npz":
        _refuse_columns(inputs, outputs, f"{file}: an .npz archive")
        return NpzSource(file)
    if suffix not in _TABLES:
        known = ", ".join([".npz", *_TABLES])
        raise ValueError(
            f"{file}: expected a file with one of the suffixes {known}, or a folder. Got {suffix or 'none'!r} instead; "
            "rename a table of text to .csv."
        )
    return _TABLES[suffix](file, inputs, outputs)


def as_source(X: Any, Y: Any = None, sample_weight: Any = None) -> Source:
    """Return X itself if it is a source, `open(X)` if it is a path or a table, else a source of the arrays X and Y.

    X may be sparse. sample_weight (n,) holds the weights of the rows, if the rows are in memory.
    """
    if sample_weight is not None and is_dask(X) and is_dask(Y):
        from neurecover.data.sources.dask import beside

        return WeightedRows(name_weight(open((X, beside(Y, sample_weight)))))
    source = _as_source(X, Y)
    if sample_weight is None:
        return source
    if not isinstance(source, ArraySource):
        raise ValueError(
            f"{source.origin}: sample_weight goes with arrays and tables in memory. Name the column that holds the "
            "weights instead: neurecover.open(path, weight=column)."
        )
    return with_weights(source, sample_weight)


def _as_source(X: Any, Y: Any) -> Source:
    if isinstance(X, Source | str | os.PathLike):
        if Y is not None:
            raise ValueError(
                f"A source or a file holds its own outputs. Got Y as a {type(Y).__name__} beside it instead."
            )
        return X if isinstance(X, Source) else open(X)
    if is_dask(X) or is_dask(Y):
        return open(X if Y is None else (X, Y))
    if Y is None and is_table(X):
        return open(X)
    if Y is None and (callable(X) or hasattr(X, "predict")):
        raise ValueError(
            f"A model is queried through an oracle: neurecover.oracle(model), with n_samples. Got a "
            f"{type(X).__name__} instead."
        )
    if Y is None:
        raise ValueError(f"Inputs given as an array need the outputs Y beside them. Got X as {type(X).__name__} alone.")
    if is_sparse(X):
        return sparse_source(X, Y)
    check_frame(X, Y)
    return _with_names(ArraySource(_numbers(X), _numbers(as_dense(Y))), X, Y)


def check_frame(X: Any, Y: Any) -> None:
    """Raise an error that lists all columns of a data frame that are not numeric or lack values.

    Rows of X and Y with different labels are refused too: they were meant to be paired by label, or are out of step.
    """
    wrong: list[str] = []
    cures: list[str] = []
    for table in (X, Y):
        if not (hasattr(table, "columns") and hasattr(table, "dtypes") and hasattr(table, "isna")):
            continue
        for name, kind in zip(table.columns, table.dtypes):
            if getattr(kind, "kind", "O") not in "biuf":
                wrong.append(f"{name!r} ({kind})")
                date = getattr(kind, "kind", "O") in "mM"
                cures.append("give dates as numbers" if date else "leave columns of text out or encode them")
        lacking = [f"{name!r} ({int(count)} missing)" for name, count in table.isna().sum().items() if count]
        wrong += lacking
        cures += ["drop or fill rows that lack a value"] if lacking else []
    rows: list[Any] = [getattr(table, "index", None) for table in (X, Y)]
    if all(hasattr(index, "equals") for index in rows) and len(rows[0]) == len(rows[1]) and not rows[0].equals(rows[1]):
        raise ValueError(
            "The data frame: expected the same row labels in X and Y. Got different ones instead; pair the rows by "
            "Y.loc[X.index], or take them as they stand with Y.to_numpy()."
        )
    if wrong:
        raise ValueError(
            f"The data frame: expected columns of numbers or booleans without missing values. Got {', '.join(wrong)} "
            f"instead; {', and '.join(dict.fromkeys(cures))}."
        )


def _numbers(values: Any) -> Any:
    """Return the values as an array; boolean columns of a data frame with numeric columns become 0 and 1."""
    mixed = hasattr(values, "columns") and hasattr(values, "to_numpy") and np.asarray(values).dtype == object
    return values.to_numpy(dtype=np.float64) if mixed else _plain(values)


def _with_names(source: ArraySource, X: Any, Y: Any) -> ArraySource:
    """Return the source with the names of the columns of a data frame X, and of a frame or series Y."""
    names = [getattr(table, "column_names", getattr(table, "columns", ())) for table in (X, Y)]  # Arrow: column_names
    if len(names[0]) == source.n_inputs:
        source.input_names = tuple(map(str, names[0]))
    if len(names[1]) == source.n_outputs:
        source.output_names = tuple(map(str, names[1]))
    elif getattr(Y, "name", None) is not None and source.n_outputs == 1:
        source.output_names = (str(Y.name),)
    return source


def _with_column(data: Any, inputs: Columns | None, outputs: Columns | None, weight: Column, client: Any) -> Source:
    """Open samples with a column of weights, which is read as the last output and excluded from the inputs."""
    path = Path(data) if isinstance(data, str | os.PathLike) else None
    if isinstance(data, tuple | list) or (path is not None and (path.suffix.lower() == ".npz" or is_zarr_group(path))):
        _open(data, inputs, outputs, client)  # raises if it is no pair, or has no columns to name
        return _weights_apart(data, weight)
    try:
        weights = _open(data, None, weight, client)
    except ValueError as error:
        raise ValueError(str(error).replace("given for the outputs", "given for the weights")) from None
    (name,), others = weights.output_names, weights.input_names
    if outputs is None:  # those by default of the other columns
        given: tuple[Column, ...] = inputs if isinstance(inputs, Without) else ()
        if inputs is not None and not given:
            given = _open(data, inputs, name, client).input_names
        free = [column for column in others if column not in given]
        outputs = [free[j] for j in default_outputs(free, weights.origin)]
    found = _open(data, inputs, outputs, client)
    read_inputs, read_outputs = ([n for n in names if n != name] for names in (found.input_names, found.output_names))
    return _open(data, read_inputs, [*read_outputs, name], client)


def _complete(source: Source, missing: str) -> Source:
    """Return the source itself, or with missing="drop" its complete rows, in memory."""
    if missing == "refuse":
        return source
    return complete_rows(source)


def _weights_apart(data: Any, weight: Column) -> Source:
    """Open separate X and Y with weights in a third array."""
    if isinstance(data, tuple | list):
        if any(is_dask(part) for part in data):
            raise ValueError("weight names a column. Got Dask arrays instead; give recover a third, sample_weight.")
        if not isinstance(weight, str) or Path(weight).suffix.lower() != ".npy":
            raise ValueError(f"The weights of a pair of .npy files are in a third, w.npy. Got {weight!r} instead.")
        return NpyPair(regular_file(data[0]), regular_file(data[1]), regular_file(weight))
    if not isinstance(weight, str) or weight in ("X", "Y"):
        raise ValueError(f"{data}: expected the name of an array of weights beside X and Y. Got {weight!r} instead.")
    file = _found(data)
    return ZarrSource(file, weight=weight) if file.is_dir() else NpzSource(file, weight)


def is_dask(value: Any) -> bool:
    """Return whether the value is a Dask collection, without importing Dask."""
    return callable(getattr(value, "__dask_graph__", None)) and hasattr(value, "dask")


def _plain(values: Any) -> Any:
    """Convert a table that numpy cannot read by itself into one that it can."""
    return arrow_table(values) if is_table(values) and not hasattr(values, "__array__") else values


def _found(path: PathLike) -> Path:
    folder = Path(path)
    return folder if folder.is_dir() else regular_file(path)


def _refuse_columns(inputs: Columns | None, outputs: Columns | None, what: str) -> None:
    if inputs is not None or outputs is not None:
        raise ValueError(f"{what} holds X and Y apart, so no columns are chosen. Leave out inputs, outputs and drop.")
