"""Tables that pandas reads before they are opened: from standard input, and with categories."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def read_table(path: Path, one_hot: bool, drop: Sequence[str | int]) -> pd.DataFrame:
    """Read a table into memory, from standard input for "-".

    With `one_hot` a column of text that is not in `drop` becomes one column of 0 and 1 for each of its values except
    the first: the columns of all values would add up to one, which duplicates the bias.
    """
    if str(path) != "-":
        frame = _read(path)
    else:
        with tempfile.NamedTemporaryFile("w+", encoding="utf-8", suffix=".csv") as file:
            shutil.copyfileobj(sys.stdin, file)
            file.flush()
            frame = _read(Path(file.name), "standard input")
    frame = _with_categories(frame, drop) if one_hot else frame
    frame.attrs["origin"] = "standard input" if str(path) == "-" else str(path)
    return frame


def _read(path: Path, name: str | None = None) -> pd.DataFrame:
    """Read a file with pandas, with the header and separator that `nr.open` would find."""
    from neurecover.data.formats.csv import read_header

    pd = _pandas()
    suffix = path.suffix.lower()
    if suffix in (".parquet", ".pq"):
        return pd.read_parquet(path)
    if suffix not in (".csv", ".tsv"):
        raise ValueError(
            f"{path}: --one-hot changes a table: .csv, .tsv or .parquet. Got {suffix or 'none'!r} instead."
        )
    try:
        header = read_header(path, name or str(path))
        return pd.read_csv(path, sep=header.separator, header=None, names=header.names, skiprows=header.line)
    except (pd.errors.EmptyDataError, pd.errors.ParserError, UnicodeDecodeError) as error:
        raise ValueError(f"{name or path}: expected a table in CSV. Got none that can be read ({error}).") from None


def _with_categories(frame: pd.DataFrame, drop: Sequence[str | int]) -> pd.DataFrame:
    """Replace each text column by columns of 0 and 1 for its values, in order; missing text gives nan in all."""
    pd = _pandas()
    parts = []
    for name in frame.columns:
        column = frame[[name]]
        if frame[name].dtype.kind not in "biuf" and name not in drop:
            column = pd.get_dummies(column, drop_first=True, dtype=float)
            column[frame[name].isna()] = float("nan")
        parts.append(column)
    return pd.concat(parts, axis=1)


def _pandas() -> Any:
    from neurecover.models.formats.libraries import optional

    return optional("pandas", "Reading a table from standard input, and --one-hot,", "data")
