"""The interface of every source of samples.

A source stands for n rows (x_i, y_i), x_i in R^d and y_i in R^p, that are read in blocks. Every pass over a source
yields the same rows in the same order, whatever the block size, and holds one block in memory at a time.
"""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Optional
from zlib import crc32

import numpy as np

Blocks = Iterator[tuple[np.ndarray, np.ndarray]]
WeightedBlocks = Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]]
LARGEST, SMALLEST = 1e100, 1e-100  # sizes of values; their squares and products do not overflow or underflow
MOST_COLUMNS = 20_000  # the second moments of this many columns fill 3 GB
FIRST_ROWS = 65_536  # rows that identify an array when a run is continued
IN_MEMORY = 128 * 2**20  # bytes of samples in double precision beyond which they are streamed
FEW_ROWS, FEW_FACTOR = 1_000, 8  # with so few rows per input a search may need all: eight times the bytes


class Source:
    """Samples (x_i, y_i), i = 0 … n − 1, readable again and again.

    origin is the name of the samples in error messages. n_samples is None if only a pass can count
    them. A subclass sets these four attributes and yields its rows from `_blocks` or `_blocks_from`.
    """

    origin: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    n_samples: int | None
    reads_ahead = False  # whether reading blocks is slow and may be done in another thread
    held = False  # whether the samples count as few enough for many passes, whatever their number
    elsewhere = False  # whether the source sums its rows itself, on the machines that hold them (`reduced`)
    parent: Optional["Source"] = None  # the source that this one is a view of
    without_a_value = "drop the row, fill the value, or open the samples with missing='drop'"  # the remedy
    assumed = ""  # what was assumed of the columns and rows: a sentence that begins the summary
    _piece = False  # whether this is a view of one block, already checked and possibly with no rows left

    @property
    def n_inputs(self) -> int:
        """The dimension d of x."""
        return len(self.input_names)

    @property
    def n_outputs(self) -> int:
        """The dimension p of y."""
        return len(self.output_names)

    @property
    def streams(self) -> bool:
        """Whether the samples are, or may be, too many for a search to make many passes over all of them."""
        if self.held:
            return False
        if self.n_samples is None:
            return True
        most = IN_MEMORY * (FEW_FACTOR if self.n_samples < FEW_ROWS * self.n_inputs else 1)
        return 8 * self.n_samples * (self.n_inputs + self.n_outputs) > most

    @property
    def weighted(self) -> bool:
        """Whether rows have weights; a view has the weights of its parent."""
        return self.parent is not None and self.parent.weighted

    @property
    def base(self) -> "Source":
        """The source that the rows are read from, beneath all views."""
        return self if self.parent is None else self.parent.base

    def on(self, base: "Source") -> "Source":
        """Return the same view of another base, such as one block of this one; its number of rows is unknown."""
        if self.parent is None:
            return base
        view = copy.copy(self)
        view.parent, view._piece, view.n_samples = self.parent.on(base), base._piece, None
        return view

    def blocks(self, rows: int) -> Blocks:
        """Yield one pass: pairs X (m, d), Y (m, p) with 1 ≤ m ≤ rows, every value finite.

        float32 stays float32 and every other type becomes float64. A block may be a view of the
        caller's own array: read it, never write to it.
        """
        return ((X, Y) for X, Y, _ in self.weighted_blocks(rows))

    def weighted_blocks(self, rows: int) -> WeightedBlocks:
        """Yield the same pass with the positive weights (m,) of the rows, or None if rows have no weights."""
        if rows < 1:
            raise ValueError(f"A block holds at least one row. Got rows={rows} instead.")
        return self._weighted_blocks(rows) if self._piece else self._checked(self._weighted_blocks(rows), 0)

    def blocks_from(self, rows: int, start: int) -> Blocks:
        """Yield the blocks of `blocks(rows)` from row `start` on, which is the first row of a block."""
        raw = ((X, Y, None) for X, Y in self._blocks_from(rows, start))
        return ((X, Y) for X, Y, _ in self._checked(raw, start))

    def collect(self) -> tuple[np.ndarray, np.ndarray]:
        """Read the whole source as two float64 arrays X (n, d) and Y (n, p)."""
        X, Y = zip(*self.blocks(65_536), strict=True)
        return np.concatenate(X, dtype=np.float64), np.concatenate(Y, dtype=np.float64)

    def weights(self) -> np.ndarray | None:
        """Read the weights of all rows, (n,); None if rows have no weights."""
        if not self.weighted:
            return None
        return np.concatenate([weight for *_, weight in self.weighted_blocks(65_536) if weight is not None])

    def count(self) -> int:
        """Return the number of samples; if it is unknown, count them in one pass and remember the number."""
        if self.n_samples is None:
            self.n_samples = sum(len(X) for X, _ in self.blocks(65_536))
        return self.n_samples

    def identity(self) -> list[object]:
        """Return values, to be written as JSON, that identify these samples when a run is continued.

        Files are identified by name, size and time of their last change, other sources by their first rows.
        """
        what: list[object] = [type(self).__name__, self.n_samples, list(self.input_names), list(self.output_names)]
        files = self._files()
        if files:
            return [*what, *([str(file), file.stat().st_size, file.stat().st_mtime_ns] for file in files)]
        X, Y = next(self.blocks(FIRST_ROWS))
        return [*what, crc32(np.ascontiguousarray(X).tobytes()), crc32(np.ascontiguousarray(Y).tobytes())]

    def _name_apart(
        self, x_shape: tuple[int, ...], y_shape: tuple[int, ...], weight: tuple[str, tuple[int, ...], str] | None = None
    ) -> None:
        """Check and name the columns of separate X and Y; `weight` is the name, shape and origin of the weights.

        The weights become the last output.
        """
        check_shapes(x_shape, y_shape, self.origin)
        self.n_samples, self.input_names = x_shape[0], numbered("x", x_shape[1])
        self.output_names = numbered("y", y_shape[1] if len(y_shape) > 1 else 1)
        if weight is not None:
            name, shape, where = weight
            check_weight_shape(shape, self.n_samples, where)
            self.output_names = (*self.output_names, name)

    def _files(self) -> list[Path]:
        """Return the files that hold the samples."""
        return []

    def _blocks(self, rows: int) -> Blocks:
        """Yield one pass over the raw rows, at most `rows` at a time; `blocks` checks the values.

        A source defines this method, or `_blocks_from` if it can begin at any row.
        """
        return self._blocks_from(rows, 0)

    def _weighted_blocks(self, rows: int) -> WeightedBlocks:
        """Yield the same pass with weights; a source that has weights overrides `weighted`."""
        return ((X, Y, None) for X, Y in self._blocks(rows))

    def _blocks_from(self, rows: int, start: int) -> Blocks:
        """Yield the blocks of `_blocks(rows)` from row `start` on."""
        done = 0
        for X, Y in self._blocks(rows):
            if done >= start:
                yield X, Y
            done += len(X)

    def _where(self, row: int) -> str:
        """Return a phrase that locates sample `row` (counted from 0) in the file or array, for messages."""
        return f"row {row}"

    def _checked(self, raw: WeightedBlocks, done: int) -> WeightedBlocks:
        for X, Y, weight in raw:
            if len(X) == 0:
                continue
            X, Y = _floating(X), _floating(Y)
            self._check_finite(X, Y, done)
            done += len(X)
            yield X, Y, weight
        if done == 0:
            what = "sample of positive weight" if self.weighted else "sample"
            raise ValueError(f"{self.origin}: expected at least one {what}. Got 0 rows instead.")

    def _check_finite(self, X: np.ndarray, Y: np.ndarray, first_row: int) -> None:
        if _within_bounds(X) and _within_bounds(Y):
            return
        block, names = np.hstack([X.astype(np.float64), Y.astype(np.float64)]), (*self.input_names, *self.output_names)
        i, j = np.argwhere(~(np.abs(block) <= LARGEST))[0]
        where = f"{self.origin}, {self._where(first_row + int(i))}, column {names[j]!r}"
        if np.isfinite(block[i, j]):
            raise ValueError(
                f"{where}: expected numbers up to {LARGEST:.0e}, whose squares can be added. "
                f"Got {block[i, j]} instead; give the column in other units."
            )
        others = [repr(names[k]) for k in np.flatnonzero(~np.isfinite(block).all(axis=0)) if k != j]
        too = f" The same in column{'s' * (len(others) > 1)} {', '.join(others)}." if others else ""
        raise ValueError(f"{where}: expected a finite number. Got {block[i, j]} instead; {self.without_a_value}.{too}")

    def __repr__(self) -> str:
        n = "an unknown number of" if self.n_samples is None else self.n_samples
        d, p = self.n_inputs, self.n_outputs
        shape = f"{n} samples, {d} input{'s' * (d != 1)}, {p} output{'s' * (p != 1)}"
        return f"<{type(self).__name__} {self.origin}: {shape}>"


def _within_bounds(block: np.ndarray) -> bool:
    # Compare Python floats, because float32 cannot represent 1e100; nan fails both comparisons.
    return block.size == 0 or (float(block.max()) <= LARGEST and float(block.min()) >= -LARGEST)


def _floating(block: np.ndarray) -> np.ndarray:
    kind = np.float32 if block.dtype.newbyteorder("=") == np.float32 else np.float64
    return block.astype(kind, copy=False)


LABELS_SHOW = "class labels show no weights but those of halfspaces; try neurecover.HalfspaceUnion"


def check_real(dtype: np.dtype, what: str, labels: bool = False) -> None:
    """Refuse a dtype whose values are not real numbers: object, text, complex, dates, records.

    `labels` says that text in this column would stand for classes; the message then says so.
    """
    if labels and dtype.kind in "US":
        raise ValueError(f"{what}: expected real numbers. Got text instead; {LABELS_SHOW}.")
    if dtype.kind not in "fiub":
        raise ValueError(
            f"{what}: expected real numbers. Got dtype {dtype} instead; convert it first, for example with "
            ".astype(float)."
        )


def check_columns(count: int, origin: str) -> None:
    """Refuse a table so wide that its second moments would not fit in memory."""
    if count > MOST_COLUMNS:
        raise ValueError(
            f"{origin}: expected at most {MOST_COLUMNS} columns. Got {count} instead; choose or combine columns first."
        )


def check_shapes(x_shape: tuple[int, ...], y_shape: tuple[int, ...], origin: str) -> None:
    """Refuse shapes other than X (n, d) with Y (n,) or (n, p) and n, d, p ≥ 1."""
    if len(x_shape) != 2 or x_shape[1] == 0:
        raise ValueError(
            f"{origin}: expected X of shape (n, d), one sample per row. Got shape {x_shape} instead; "
            "a single input is X.reshape(-1, 1)."
        )
    if len(y_shape) not in (1, 2) or y_shape[1:] == (0,):
        raise ValueError(f"{origin}: expected Y of shape (n,) or (n, p). Got shape {y_shape} instead.")
    if x_shape[0] != y_shape[0]:
        raise ValueError(
            f"{origin}: expected as many rows in X as in Y. Got {x_shape[0]} in X and {y_shape[0]} in Y instead."
        )
    if x_shape[0] == 0:
        raise ValueError(f"{origin}: expected at least one sample. Got 0 rows instead.")
    check_columns(x_shape[1] + sum(y_shape[1:]), origin)


def check_weight_shape(shape: tuple[int, ...], n: int, what: str) -> None:
    """Refuse weights other than one number for each of n rows."""
    if shape not in ((n,), (n, 1)):
        raise ValueError(f"{what}: expected shape ({n},), one weight per row. Got shape {shape} instead.")


def numbered(letter: str, count: int) -> tuple[str, ...]:
    """Return names for columns that have none: x0, x1, …"""
    return tuple(f"{letter}{j}" for j in range(count))
