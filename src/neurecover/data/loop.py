"""The one loop over data: feed every block of a source to a statistic.

A statistic is a sum over samples, and its size does not depend on n. The result of the loop is therefore the same,
up to rounding, for every block size and every number of threads or machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from neurecover.data.ahead import read_ahead
from neurecover.data.passes import Pass, begin_pass
from neurecover.data.source import Source
from neurecover.data.sources.arrays import Block
from neurecover.solve.limits import afford
from neurecover.statistics import Statistic

THREAD_BYTES = 4 * 2**20  # a block with less working memory than this is faster without a new thread (measured)
READ_BYTES = 16 * 2**20  # bytes of samples read from a file at a time

Progress = Callable[[int, int | None], object]
S = TypeVar("S", bound=Statistic)

_threads: ContextVar[int] = ContextVar("threads", default=1)


def reduce(source: Source, statistic: S, progress: Progress | None = None, block_bytes: int = 32 * 2**20) -> S:
    """Add every sample of the source to the statistic and return it.

    A block has as many rows as fit in block_bytes, at least one. progress(done, total) is called
    after each block; total is None if the source does not know its length. OutOfTimeError is raised when the
    surrounding `time_limit` has passed.
    """
    if source.weighted:
        statistic.weigh()
    base = source.base
    if base.streams or base.elsewhere:
        with begin_pass(base, statistic) as current:
            statistic = _streamed(source, current, progress, block_bytes)
        if base.n_samples is None:
            base.n_samples = current.done
        return statistic
    done = 0
    for X, Y, weight in source.weighted_blocks(_rows(source, statistic, block_bytes)):
        afford()
        _update(statistic, X, Y, weight)
        done += len(X)
        if progress is not None:
            progress(done, source.n_samples)
    return statistic


def add_block(source: Source, statistic: Statistic, X: np.ndarray, Y: np.ndarray, block_bytes: int) -> None:
    """Add one block of the source's base to the statistic, after applying the views that the source stands for."""
    view = source.on(Block(X, Y, source.base))
    for part in view.weighted_blocks(_rows(source, statistic, block_bytes)):
        _update(statistic, *part)


def _streamed(source: Source, current: Pass[S], progress: Progress | None, block_bytes: int) -> S:
    """Make one pass over a base that is read block by block; continue an interrupted pass where it stopped."""
    base, statistic = source.base, current.statistic
    if current.complete:
        return statistic
    if base.elsewhere:
        return base.reduced(source, current, progress, block_bytes)  # type: ignore[attr-defined]
    rows = max(1, READ_BYTES // (8 * (base.n_inputs + base.n_outputs)))
    blocks = base.blocks_from(rows, current.position)
    for X, Y in read_ahead(blocks) if base.reads_ahead else blocks:
        afford()
        add_block(source, statistic, X, Y, block_bytes)
        current.advance(len(X))
        if progress is not None:
            progress(current.done, base.n_samples)
    return statistic


def _rows(source: Source, statistic: Statistic, block_bytes: int) -> int:
    return max(1, block_bytes // (statistic.row_bytes + 8 * (source.n_inputs + source.n_outputs)))


def _update(statistic: Statistic, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None) -> None:
    work = len(X) * statistic.row_bytes
    parts = min(_threads.get(), work // THREAD_BYTES, work // max(statistic.n_bytes, 1))
    block = (X, Y) if weight is None else (X, Y, weight)
    if parts < 2:
        statistic.update(*block)
    else:
        _update_in_parts(statistic, list(zip(*(np.array_split(array, parts) for array in block))))


@contextmanager
def side_by_side() -> Iterator[None]:
    """Within the context, split blocks in `reduce` among the threads that BLAS had, and give BLAS one thread.

    numpy and SciPy each bring their own BLAS, and the idle threads of one take cores from the other: with two threads
    each, a step of a descent takes longer than with one (`neurecover bench choices`).
    """
    allowed = max((library["num_threads"] for library in _blas().info()), default=1)
    with one_blas_thread():
        before = _threads.set(allowed)
        try:
            yield
        finally:
            _threads.reset(before)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to the calling thread within the context."""
    with _blas().limit(limits=1):
        yield


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")  # slow: it searches the loaded libraries


def _update_in_parts(statistic: Statistic, parts: list[tuple[np.ndarray, ...]]) -> None:
    """Add each part to its own copy of the statistic in its own thread; merge in order, so the sums never vary."""
    others = [statistic.blank() for _ in parts[1:]]
    with ThreadPoolExecutor(len(others)) as pool:
        running = [pool.submit(other.update, *part) for other, part in zip(others, parts[1:])]
        statistic.update(*parts[0])
        for thread in running:
            thread.result()
    for other in others:
        statistic.merge(other)
