"""Samples in `.npy` files, memory-mapped: one table, or one file for X and one for Y.

The pages of a memory map that have been read count as memory of the process until the map is closed. Every block
therefore has its own map, which is closed when the block is released.
"""

from pathlib import Path
from tokenize import TokenError
from typing import Literal

import numpy as np

from neurecover.data.formats.columns import Columns, choose
from neurecover.data.source import Blocks, Source, check_real

# A header is a Python literal; parsing a damaged one can raise any of these.
UNREADABLE = (ValueError, EOFError, TokenError, SyntaxError, TypeError, RecursionError, MemoryError, OverflowError)


class NpySource(Source):
    """One array (n, columns) whose columns, named "0", "1", …, are split in inputs and outputs."""

    reads_ahead = True

    def __init__(self, path: Path, inputs: Columns | None = None, outputs: Columns | None = None) -> None:
        self.origin = str(path)
        self._table = _mapped(path)
        if self._table.ndim != 2 or len(self._table) == 0:
            raise ValueError(
                f"{path}: expected one array of shape (n, columns) with n ≥ 1. "
                f"Got shape {self._table.shape} instead; two files are opened as a pair (X.npy, Y.npy)."
            )
        names = [str(j) for j in range(self._table.shape[1])]
        self._choice = choose(names, inputs, outputs, self.origin)
        self.input_names = self._choice.input_names
        self.output_names = self._choice.output_names
        self.n_samples = len(self._table)

    def _files(self) -> list[Path]:
        return [Path(str(self._table.filename))]

    def _blocks_from(self, rows: int, start: int) -> Blocks:
        for first in range(start, len(self._table), rows):
            block = _rows(self._table, first, rows)
            yield block[:, self._choice.inputs], block[:, self._choice.outputs]


class NpyPair(Source):
    """X (n, d) in one file and Y (n,) or (n, p) in another; weights (n,) in a third file become the last output."""

    reads_ahead = True

    def __init__(self, x_path: Path, y_path: Path, weight: Path | None = None) -> None:
        self.origin = f"{x_path} and {y_path}"
        self._X, self._outputs = _mapped(x_path), [_mapped(y_path)]
        if weight is not None:
            self._outputs.append(_mapped(weight))
        beside = None if weight is None else (weight.name, self._outputs[1].shape, str(weight))
        self._name_apart(self._X.shape, self._outputs[0].shape, beside)

    def _files(self) -> list[Path]:
        return [Path(str(table.filename)) for table in (self._X, *self._outputs)]

    def _blocks_from(self, rows: int, start: int) -> Blocks:
        for first in range(start, len(self._X), rows):
            Y = [_rows(table, first, rows) for table in self._outputs]
            columns = [values.reshape(len(values), -1) for values in Y]
            yield _rows(self._X, first, rows), columns[0] if len(columns) == 1 else np.hstack(columns)


def _rows(table: np.memmap, start: int, count: int) -> np.ndarray:
    """Read rows start, …, start + count − 1 of the table through a new memory map."""
    order: Literal["C", "F"] = "C" if table.flags.c_contiguous else "F"
    again = np.memmap(str(table.filename), table.dtype, "r", table.offset, table.shape, order)
    return np.asarray(again)[start : start + count]


def _mapped(path: Path) -> np.memmap:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (*UNREADABLE, OSError) as error:
        raise ValueError(
            f"{path}: expected an intact .npy file of numbers. Got one that cannot be read ({error}) instead."
        ) from error
    if not isinstance(array, np.memmap):
        raise ValueError(f"{path}: expected a .npy file. Got an .npz archive instead; give it that suffix.")
    check_real(array.dtype, str(path))
    return array
