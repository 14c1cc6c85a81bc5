"""Samples in a Parquet file, streamed through pyarrow in batches of the chosen columns."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from neurecover.data.columns import Columns, choose
from neurecover.data.extra import arrow
from neurecover.data.source import Blocks, Source

# Bytes read ahead per column. Without a buffer pyarrow loads the whole column of a row group, and
# writers put a million rows and more in one group.
_BUFFER = 2**16


class ParquetSource(Source):
    """Columns of integers, floats, decimals or booleans; a null is refused with its row and column."""

    def __init__(self, path: Path, inputs: Columns | None = None, outputs: Columns | None = None) -> None:
        self.origin = str(path)
        self._path = path
        with self._file() as file:
            schema = file.schema_arrow
            self.n_samples = file.metadata.num_rows
        repeated = sorted(name for name, count in Counter(schema.names).items() if count > 1)
        if repeated:
            raise ValueError(
                f"{path}: expected every column to have a name of its own. Got {repeated[0]!r} more than once instead."
            )
        choice = choose(schema.names, inputs, outputs, self.origin)
        if self.n_samples == 0:
            raise ValueError(f"{path}: expected at least one sample. Got 0 rows instead.")
        self.input_names = choice.input_names
        self.output_names = choice.output_names
        self._x_dtype = _common_dtype(schema, choice.inputs, self.origin)
        self._y_dtype = _common_dtype(schema, choice.outputs, self.origin)

    def _blocks(self, rows: int) -> Blocks:
        names = list(self.input_names + self.output_names)
        with self._file() as file:
            for batch in file.iter_batches(batch_size=rows, columns=names):
                yield (
                    _matrix(batch, self.input_names, self._x_dtype),
                    _matrix(batch, self.output_names, self._y_dtype),
                )

    @contextmanager
    def _file(self) -> Iterator[Any]:
        pa, pq = arrow(), arrow("parquet")
        try:
            with pq.ParquetFile(self._path, buffer_size=_BUFFER, pre_buffer=False) as file:
                yield file
        except (pa.ArrowException, OSError) as error:
            raise ValueError(
                f"{self.origin}: expected an intact Parquet file. Got one that cannot be read ({error}) instead."
            ) from error


def _common_dtype(schema: Any, positions: tuple[int, ...], origin: str) -> np.dtype:
    """float32 where every column is float32, float64 otherwise."""
    types = arrow("types")
    for j in positions:
        kind = schema.field(j).type
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)):
            raise ValueError(
                f"{origin}, column {schema.names[j]!r}: expected numbers. Got type {kind} instead; "
                "leave the column out of inputs and outputs."
            )
    single = all(types.is_float32(schema.field(j).type) for j in positions)
    return np.dtype(np.float32 if single else np.float64)


def _matrix(batch: Any, names: tuple[str, ...], dtype: np.dtype) -> np.ndarray:
    # A null becomes nan here and is refused, with its row, by Source.blocks.
    target = arrow().from_numpy_dtype(dtype)
    block = np.empty((batch.num_rows, len(names)), dtype)
    for j, name in enumerate(names):
        column = batch.column(name)
        if column.type != target:
            column = column.cast(target, safe=False)
        block[:, j] = column.to_numpy(zero_copy_only=False)
    return block
