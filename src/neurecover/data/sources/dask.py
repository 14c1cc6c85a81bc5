"""Samples in a Dask array or data frame: each worker sums its own partitions, and only the sums are transferred.

A pass consists of rounds of eight partitions, or of 64 if there are very many. One task sums the rows of each
partition; further tasks on the workers merge eight sums each until a round has one statistic, which is sent here. For
N partitions and S bytes of sums, N·S/8 or N·S/64 bytes arrive, and no rows. Enough rounds are under way to keep the
workers busy. Rounds are merged in their order, which does not depend on the number of workers, and a run's record is
written between rounds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from zlib import crc32

import numpy as np

from neurecover.data.formats.columns import Columns, choose
from neurecover.data.loop import add_block, one_blas_thread
from neurecover.data.passes import Pass
from neurecover.data.source import Blocks, Source, check_real, numbered
from neurecover.data.sources.arrays import ArraySource
from neurecover.models.formats.libraries import optional
from neurecover.statistics import Statistic

S = TypeVar("S", bound=Statistic)

FAN_IN = 8  # sums that one task merges
MANY = 512  # with more partitions than this, a round has FAN_IN² of them
AHEAD = 3  # partitions under way per worker
STEP = 2**16  # rows of a partition that are checked and added at a time


class DaskSource(Source):
    """A data frame or an array (n, columns) with chosen columns, or a pair of arrays X (n, d) and Y (n,) or (n, p)."""

    reads_ahead = True
    elsewhere = True

    def __init__(self, data: Any, inputs: Columns | None, outputs: Columns | None, client: Any = None) -> None:
        self._dask = optional("dask", "Reading Dask collections", "cluster")
        self._client = client
        self.origin = "the Dask collection"
        if isinstance(data, tuple | list):
            self._open_pair(data, inputs, outputs)
            return
        named = not _is_array(data)
        if named and not hasattr(data, "columns"):
            raise ValueError(f"Expected a Dask array or data frame. Got {type(data).__name__} instead.")
        if named:
            names, self.n_samples = [str(name) for name in data.columns], None
            parts = list(data.to_delayed())
        else:
            names = [str(j) for j in range(_matrix(data, self.origin).shape[1])]
            self.n_samples, parts = _length(data), _row_parts(data)
        choice = choose(names, inputs, outputs, self.origin)
        self.input_names, self.output_names = choice.input_names, choice.output_names
        columns = (self.input_names, self.output_names) if named else (choice.inputs, choice.outputs)
        self._parts = [_Part((part,), number, *columns) for number, part in enumerate(parts)]

    def _open_pair(self, data: Any, inputs: Columns | None, outputs: Columns | None) -> None:
        if len(data) != 2 or not all(_is_array(part) for part in data):
            raise ValueError(
                "Expected one Dask collection or a pair of Dask arrays (X, Y). Got something else in the pair instead; "
                "put both in one data frame."
            )
        if inputs is not None or outputs is not None:
            raise ValueError("A pair of Dask arrays holds X and Y apart, so no columns are chosen.")
        X, Y = _matrix(data[0], "X"), data[1]
        Y = _matrix(Y[:, None] if Y.ndim == 1 else Y, "Y")
        if _length(X) != _length(Y) or X.shape[1] == 0 or Y.shape[1] == 0:
            raise ValueError(f"Expected X (n, d) and Y (n, p) of as many rows. Got {X.shape} and {Y.shape} instead.")
        Y = Y.rechunk({0: X.chunks[0]}) if _length(X) is not None else Y
        self.n_samples = _length(X)
        self.input_names, self.output_names = numbered("x", X.shape[1]), numbered("y", Y.shape[1])
        pairs = zip(_row_parts(X), _row_parts(Y), strict=True)
        self._parts = [_Part(pair, number, (), ()) for number, pair in enumerate(pairs)]

    def identity(self) -> list[object]:
        keys = crc32(" ".join(str(value.key) for part in self._parts for value in part.values).encode())
        return [type(self).__name__, list(self.input_names), list(self.output_names), len(self._parts), keys]

    def _blocks(self, rows: int) -> Blocks:
        """Yield blocks in this process, one partition at a time, for uses other than statistics."""
        load = self._dask.delayed(_loaded, pure=False)
        for part in self._parts:
            X, Y = self._result(self._submitted(load(part.values, part.without_values(), self.origin)))
            for start in range(0, len(X), rows):
                yield X[start : start + rows], Y[start : start + rows]

    def reduced(
        self, source: Source, current: Pass[S], progress: Callable[[int, int | None], object] | None, block_bytes: int
    ) -> S:
        """Add every partition, after applying the views that `source` stands for, to the statistic of the pass."""
        add, merge = (self._dask.delayed(task, pure=False) for task in (_added, _merged))
        here = _Here(self)
        work = self._dask.delayed(_Work(source.on(here), current.statistic.blank(), here, block_bytes), traverse=False)

        size = FAN_IN if len(self._parts) <= MANY else FAN_IN**2

        def submit(first: int) -> Any:
            sums = [add(part.values, part.without_values(), work) for part in self._parts[first : first + size]]
            while len(sums) > 1:
                sums = [merge(sums[i : i + FAN_IN]) for i in range(0, len(sums), FAN_IN)]
            return self._submitted(sums[0])

        waiting: deque[tuple[int, Any]] = deque()
        for first in range(current.position, len(self._parts), size):
            waiting.append((first + size, submit(first)))
            if (len(waiting) - 1) * size > AHEAD * self._n_workers():
                self._take(waiting, current, progress)
        while waiting:
            self._take(waiting, current, progress)
        return current.statistic

    def _take(self, waiting: deque[tuple[int, Any]], current: Pass[S], progress: Any) -> None:
        end, future = waiting.popleft()
        rows, part = self._result(future)
        current.statistic.merge(part)
        current.advance(rows, position=end)
        if progress is not None:
            progress(current.done, self.n_samples)

    def _submitted(self, value: Any) -> Any:
        client = self._client or _current_client()
        if client is None:
            return value
        with _reaching():
            return client.compute(value)

    def _n_workers(self) -> int:
        client = self._client or _current_client()
        if client is None:
            return 1
        with _reaching():
            return max(sum(client.nthreads().values()), 1)

    def _result(self, future: Any) -> Any:
        if self._dask.is_dask_collection(future):  # there is no client
            return future.compute()
        with _reaching():
            return future.result()


@contextmanager
def _reaching() -> Iterator[None]:
    """Raise an error with a one-sentence message if the scheduler or workers are lost."""
    distributed = optional("distributed", "A cluster", "cluster")
    try:
        yield
    except distributed.KilledWorker:
        raise OSError(
            "Workers died again and again on one partition, most likely for want of memory: give the collection "
            "smaller partitions, or the workers more memory."
        ) from None
    except (distributed.CancelledError, distributed.comm.core.CommClosedError, TimeoutError) as error:
        raise OSError(
            f"The Dask scheduler went away ({type(error).__name__}): start it again and make the same call; with "
            "checkpoint= it goes on where it was."
        ) from None


@dataclass(frozen=True)
class _Part:
    """One partition: its values as Dask tasks, its number and the columns in use (none if X and Y are separate)."""

    values: tuple[Any, ...]
    number: int
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]

    def without_values(self) -> _Part:
        return _Part((), self.number, self.inputs, self.outputs)


class _Here(ArraySource):
    """A stand-in on a worker for the source of the blocks: its names and origin, without rows."""

    def __init__(self, source: DaskSource) -> None:
        self.origin, self.n_samples = source.origin, None
        self.input_names, self.output_names = source.input_names, source.output_names


@dataclass(frozen=True, eq=False)
class _Work:
    """The view, statistic and block size that every task of a pass needs."""

    view: Source
    statistic: Statistic
    about: _Here
    block_bytes: int


def _loaded(values: tuple[Any, ...], part: _Part, origin: str) -> tuple[np.ndarray, np.ndarray]:
    """Return X and Y of a partition as arrays."""
    where = f"{origin}, partition {part.number}"
    if len(values) == 2:
        return np.asarray(values[0]), np.asarray(values[1])
    (value,) = values
    if not hasattr(value, "columns"):
        table = np.asarray(value)
        return table[:, part.inputs], table[:, part.outputs]
    value = value.rename(columns=str)
    missing = [name for name in part.inputs + part.outputs if name not in value.columns]
    if missing:
        raise ValueError(
            f"{where}: expected the columns of the others. Got one without {missing[0]!r} instead; make all partitions "
            "alike."
        )
    X, Y = (value[list(names)].to_numpy() for names in (part.inputs, part.outputs))
    check_real(X.dtype, where)
    check_real(Y.dtype, where)
    return X, Y


def _added(values: tuple[Any, ...], part: _Part, work: _Work) -> tuple[int, Statistic]:
    """Return the number of rows of a partition and their sums; runs on a worker, with one BLAS thread."""
    X, Y = _loaded(values, part, work.about.origin)
    statistic = work.statistic.blank()
    if len(X) == 0:
        return 0, statistic
    source = ArraySource(X, Y, origin=f"{work.about.origin}, partition {part.number}")
    source.input_names, source.output_names = work.about.input_names, work.about.output_names
    with one_blas_thread():
        for block in source.blocks(STEP):
            add_block(work.view, statistic, *block, work.block_bytes)
    return len(X), statistic


def _merged(parts: list[tuple[int, Statistic]]) -> tuple[int, Statistic]:
    (rows, statistic), *others = parts
    statistic = statistic.from_arrays(statistic.to_arrays())  # a copy, because a task must not modify its arguments
    for more, other in others:
        rows += more
        statistic.merge(other)
    return rows, statistic


def beside(Y: Any, weight: Any) -> Any:
    """Append weights, an array of any kind, as the last column of Dask outputs (n,) or (n, p)."""
    arrays = optional("dask.array", "Reading Dask collections", "cluster")
    weight = arrays.asarray(weight)
    if weight.ndim != 1 or _length(weight) != _length(Y):
        raise ValueError(
            f"sample_weight: expected shape ({Y.shape[0]},), one weight per row. Got shape {weight.shape} instead."
        )
    Y = Y[:, None] if Y.ndim == 1 else Y
    return arrays.concatenate([Y, weight.rechunk((Y.chunks[0],))[:, None]], axis=1)


def _is_array(data: Any) -> bool:
    return hasattr(data, "chunks") and hasattr(data, "dtype")


def _matrix(array: Any, what: str) -> Any:
    check_real(array.dtype, what)
    if array.ndim != 2:
        raise ValueError(f"{what}: expected a Dask array of two dimensions. Got shape {array.shape} instead.")
    return array.rechunk({1: -1}) if array.numblocks[1] > 1 else array


def _row_parts(array: Any) -> list[Any]:
    return list(_matrix(array, "the Dask collection").to_delayed()[:, 0])


def _length(array: Any) -> int | None:
    return None if np.isnan(array.shape[0]) else int(array.shape[0])


def _current_client() -> Any:
    """Return the client that Dask itself would use, if there is one."""
    try:
        from distributed import default_client

        return default_client()
    except (ImportError, ValueError):
        return None
