"""Read blocks ahead: a second thread decodes the next blocks while the current one is in use."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from typing import TypeVar

T = TypeVar("T")
DEPTH = 2  # blocks in the queue: while one is computed on, one is ready and one is being read


def read_ahead(blocks: Iterator[T]) -> Generator[T]:
    """Yield the values of `blocks` in order, read in another thread; an error of `blocks` is raised at its place."""
    ready: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(DEPTH)
    stopped = threading.Event()

    def put(item: tuple[T | None, BaseException | None]) -> bool:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def read() -> None:
        try:
            for block in blocks:
                if not put((block, None)):
                    return
            put((None, StopIteration()))
        except BaseException as error:  # raised again where the blocks are used
            put((None, error))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        while True:
            block, error = ready.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield block  # type: ignore[misc]
    finally:
        stopped.set()
        thread.join()
