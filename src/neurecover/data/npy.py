"""Samples in `.npy` files, memory-mapped: one table, or one file for X and one for Y."""

from pathlib import Path
from tokenize import TokenError

import numpy as np

from neurecover.data.arrays import ArraySource
from neurecover.data.columns import Columns, choose
from neurecover.data.source import Blocks, Source, check_real


class NpySource(Source):
    """One array (n, columns) whose columns, named "0", "1", …, are split in inputs and outputs."""

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

    def _blocks(self, rows: int) -> Blocks:
        for start in range(0, len(self._table), rows):
            block = self._table[start : start + rows]
            yield block[:, self._choice.inputs], block[:, self._choice.outputs]


def npy_pair(x_path: Path, y_path: Path) -> ArraySource:
    """X (n, d) in one file and Y (n,) or (n, p) in another."""
    return ArraySource(_mapped(x_path), _mapped(y_path), origin=f"{x_path} and {y_path}")


def _mapped(path: Path) -> np.ndarray:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError, TokenError) as error:
        raise ValueError(
            f"{path}: expected an intact .npy file of numbers. Got one that cannot be read ({error}) instead."
        ) from error
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{path}: expected a .npy file. Got an .npz archive instead; give it that suffix.")
    check_real(array.dtype, str(path))
    return np.asarray(array)
