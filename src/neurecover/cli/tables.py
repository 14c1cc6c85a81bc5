"""Tables that are changed before they are opened: columns or rows left out, categories as columns of 0 and 1."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def read_table(path: Path, drop: str | None, dropna: bool, one_hot: bool) -> pd.DataFrame:
    """Read a table into memory and return it without the columns `drop` and, with `dropna`, without incomplete rows.

    With `one_hot` a column of text becomes one column of 0 and 1 for each of its values but the first: the columns
    of all values add up to one, which a bias says already.
    """
    frame = _read(path)
    frame.columns = frame.columns.map(str)
    if drop is not None:
        names = [name.strip() for name in drop.split(",") if name.strip()]
        unknown = [name for name in names if name not in frame.columns]
        if unknown:
            raise ValueError(
                f"--drop needs columns of the table: {', '.join(frame.columns)}. Got {', '.join(unknown)} instead."
            )
        frame = frame.drop(columns=names)
    if dropna:
        frame = frame.dropna()
        if frame.empty:
            raise ValueError("--dropna leaves no row: every row lacks a value. Drop the columns that lack most.")
    return _with_categories(frame) if one_hot else frame


def _read(path: Path) -> pd.DataFrame:
    pd = _pandas()
    standard = str(path) == "-"
    suffix = path.suffix.lower()
    if suffix in (".parquet", ".pq"):
        return pd.read_parquet(path)
    if not standard and suffix not in (".csv", ".tsv"):
        raise ValueError(
            f"{path}: --drop, --dropna and --one-hot change tables: .csv, .tsv or .parquet. Got {suffix or 'none'!r}."
        )
    try:
        return pd.read_csv(sys.stdin if standard else path, sep=None, engine="python")  # None: the separator is found
    except (pd.errors.EmptyDataError, pd.errors.ParserError, StopIteration) as error:
        name = "Standard input" if standard else str(path)
        raise ValueError(f"{name}: expected a table in CSV. Got none that can be read ({error}).") from None


def _with_categories(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns in their order, each of text replaced by its values."""
    pd = _pandas()
    parts = []
    for name in frame.columns:
        column = frame[[name]]
        if frame[name].dtype.kind not in "biuf":
            column = pd.get_dummies(column, drop_first=True, dtype=float)
        parts.append(column)
    return pd.concat(parts, axis=1)


def _pandas() -> Any:
    from neurecover.models.formats.libraries import optional

    return optional("pandas", "Reading a table from standard input, --drop, --dropna and --one-hot", "data")
