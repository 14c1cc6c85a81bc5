"""Samples in a Zarr store: a group with arrays X, Y and perhaps weights, or one array (n, columns)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from neurecover.data.formats.columns import Columns, choose
from neurecover.data.source import Blocks, Source, check_real
from neurecover.models.formats.libraries import optional

MARKS = ("zarr.json", ".zgroup", ".zarray")


class ZarrSource(Source):
    """Samples in a Zarr store, read in whole chunks.

    `weight` names the array (n,) of weights in a group; it becomes the last output.
    """

    reads_ahead = True

    def __init__(
        self, path: Path, inputs: Columns | None = None, outputs: Columns | None = None, weight: str | None = None
    ) -> None:
        self.origin = str(path)
        store = _opened(path)
        self._arrays: tuple[Any, ...]
        self._choice: tuple[list[int], list[int]] | None = None
        if hasattr(store, "shape"):
            if len(store.shape) != 2 or 0 in store.shape:
                raise ValueError(f"{path}: expected an array of shape (n, columns). Got {store.shape} instead.")
            check_real(store.dtype, self.origin)
            names = [str(j) for j in range(store.shape[1])]
            choice = choose(names, inputs, outputs, self.origin)
            self._arrays, self._choice = (store,), (list(choice.inputs), list(choice.outputs))
            self.input_names, self.output_names = choice.input_names, choice.output_names
        else:
            if inputs is not None or outputs is not None:
                raise ValueError(f"{path}: a group holds X and Y apart, so no columns are chosen.")
            names = ["X", "Y"] if weight is None else ["X", "Y", weight]
            if not set(names) <= set(store.array_keys()):
                found = ", ".join(sorted(store.array_keys())) or "none"
                more = "" if weight is None else f", and {weight} for the weights,"
                raise ValueError(f"{path}: expected arrays X and Y{more} in the group. Got {found} instead.")
            self._arrays = tuple(store[name] for name in names)
            for name, array in zip(names, self._arrays):
                check_real(array.dtype, f"{path}, {name}")
            beside = None if weight is None else (weight, self._arrays[2].shape, f"{path}, {weight}")
            self._name_apart(self._arrays[0].shape, self._arrays[1].shape, beside)
        self.n_samples = self._arrays[0].shape[0]

    def _blocks_from(self, rows: int, start: int) -> Blocks:
        chunk = self._arrays[0].chunks[0]
        if rows > chunk:
            rows -= rows % chunk
        for first in range(start, self.n_samples or 0, rows):
            parts = [_read(array, first, rows, self.origin) for array in self._arrays]
            if self._choice is not None:
                yield parts[0][:, self._choice[0]], parts[0][:, self._choice[1]]
            else:
                yield parts[0], np.hstack([part.reshape(len(part), -1) for part in parts[1:]])


def is_zarr(path: Path) -> bool:
    """Return whether a folder is a Zarr store."""
    return path.is_dir() and any((path / mark).exists() for mark in MARKS)


def is_zarr_group(path: Path) -> bool:
    """Return whether a folder is a Zarr store with separate arrays X and Y."""
    return is_zarr(path) and not hasattr(_opened(path), "shape")


def _opened(path: Path) -> Any:
    zarr = optional("zarr", "Reading Zarr", "data")
    try:
        return zarr.open(str(path), mode="r")
    except Exception as error:
        raise ValueError(f"{path}: expected a Zarr store. Got one that cannot be read ({error}) instead.") from error


def _read(array: Any, first: int, rows: int, origin: str) -> np.ndarray:
    try:
        return np.asarray(array[first : first + rows])
    except Exception as error:
        raise ValueError(
            f"{origin}: expected an intact Zarr store. Rows {first} to {first + rows - 1} cannot be read ({error})."
        ) from error
