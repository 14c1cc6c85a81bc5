"""Samples in a Parquet file or a folder of them, streamed through pyarrow, one row group after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from neurecover.data.formats.columns import Columns, choose
from neurecover.data.source import Blocks, Source
from neurecover.models.formats.libraries import arrow

SUFFIXES = (".parquet", ".pq")
# Bytes read ahead per column. Without a buffer pyarrow loads the whole column of a row group, and
# writers put a million rows and more in one group.
_BUFFER = 2**16


@dataclass(frozen=True)
class _Group:
    """One row group of one file."""

    path: Path
    number: int
    n_rows: int


class ParquetSource(Source):
    """Columns of integers, floats, decimals or booleans; a null is refused with its row and column.

    The files of a folder are read in the order of their names, and each file must have the chosen columns.
    """

    reads_ahead = True

    def __init__(self, path: Path, inputs: Columns | None = None, outputs: Columns | None = None) -> None:
        self.origin = str(path)
        files = parquet_files(path) if path.is_dir() else [path]
        schemas, self._groups = [], []
        for file in files:
            with _file(file) as opened:
                schemas.append(opened.schema_arrow)
                counts = [opened.metadata.row_group(j).num_rows for j in range(opened.metadata.num_row_groups)]
                self._groups += [_Group(file, j, count) for j, count in enumerate(counts) if count]
        repeated = sorted(name for name, count in Counter(schemas[0].names).items() if count > 1)
        if repeated:
            raise ValueError(
                f"{path}: expected every column to have a name of its own. Got {repeated[0]!r} more than once instead."
            )
        choice = choose(schemas[0].names, inputs, outputs, self.origin)
        self.n_samples = sum(group.n_rows for group in self._groups)
        if self.n_samples == 0:
            raise ValueError(f"{path}: expected at least one sample. Got 0 rows instead.")
        self.input_names = choice.input_names
        self.output_names = choice.output_names
        for file, schema in zip(files, schemas):
            missing = [name for name in self.input_names + self.output_names if schema.names.count(name) != 1]
            if missing:
                raise ValueError(
                    f"{file}: expected the columns of {files[0].name}. Got a file without {missing[0]!r} instead; "
                    "leave it out of the folder, or name inputs and outputs that all files have."
                )
        self._x_dtype, self._y_dtype = (
            np.result_type(*(common_dtype(schema, names, str(file)) for file, schema in zip(files, schemas)))
            for names in (self.input_names, self.output_names)
        )

    def _files(self) -> list[Path]:
        return sorted({group.path for group in self._groups})

    def _blocks_from(self, rows: int, start: int) -> Blocks:
        names = list(self.input_names + self.output_names)
        first = 0
        for group in self._groups:
            if first + group.n_rows > start:
                with _file(group.path, f", row group {group.number}") as file:
                    at = first
                    for batch in file.iter_batches(batch_size=rows, columns=names, row_groups=[group.number]):
                        if at >= start:
                            yield (
                                matrix(batch, self.input_names, self._x_dtype),
                                matrix(batch, self.output_names, self._y_dtype),
                            )
                        at += batch.num_rows
            first += group.n_rows

    def _where(self, row: int) -> str:
        first = 0
        for group in self._groups:
            if row < first + group.n_rows and group.path != self._groups[0].path:
                before = sum(other.n_rows for other in self._groups if other.path < group.path)
                return f"file {group.path.name}, row {row - before}"
            first += group.n_rows
        return super()._where(row)


def parquet_files(folder: Path) -> list[Path]:
    """Return the Parquet files in a folder and its subfolders, sorted by name."""
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
    if not files:
        raise ValueError(f"{folder}: expected a folder of Parquet files. Got one without any instead.")
    return files


@contextmanager
def _file(path: Path, part: str = "") -> Iterator[Any]:
    """Open the file within a context; a reading error then names the file and `part`."""
    pa, pq = arrow(), arrow("parquet")
    try:
        with pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"{path}{part}: expected an intact Parquet file. Got one that cannot be read ({reason}) instead."
        ) from error


def common_dtype(schema: Any, names: tuple[str, ...], origin: str) -> np.dtype:
    """Return float32 if every column is float32, else float64."""
    types = arrow("types")
    kinds = [schema.field(name).type for name in names]
    numbers = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    wrong = [
        (name, _in_words(str(kind))) for name, kind in zip(names, kinds) if not any(is_one(kind) for is_one in numbers)
    ]
    if wrong:
        many = len(wrong) > 1
        raise ValueError(
            f"{origin}, column{'s' * many} {', '.join(repr(name) for name, _ in wrong)}: expected numbers. Got "
            f"{' and '.join(dict.fromkeys(kind for _, kind in wrong))} instead; leave {'them' if many else 'it'} out "
            "with drop=[…]."
        )
    return np.dtype(np.float32 if all(types.is_float32(kind) for kind in kinds) else np.float64)


def _in_words(kind: str) -> str:
    texts = dict.fromkeys(("string", "large_string", "string_view", "dictionary"), "text")
    known = texts | dict.fromkeys(("timestamp", "date32", "date64"), "dates")
    return known.get(kind.partition("[")[0].partition("<")[0], f"type {kind}")


def matrix(batch: Any, names: tuple[str, ...], dtype: np.dtype) -> np.ndarray:
    """Return the named columns of a batch or table side by side, (rows, columns)."""
    # A null becomes nan here and is refused, with its row, by Source.blocks.
    target = arrow().from_numpy_dtype(dtype)
    block = np.empty((batch.num_rows, len(names)), dtype)
    for j, name in enumerate(names):
        column = batch.column(name)
        if column.type != target:
            column = column.cast(target, safe=False)
        block[:, j] = column.to_numpy(zero_copy_only=False) if batch.num_rows else ()
    return block
