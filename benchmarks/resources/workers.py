"""One pass over samples in this process, and on one and two Dask workers of one thread each.

The pass is the heaviest of a recovery: the information of all parameters and the covariance of their scores. Parts of
the samples are as many for every worker and take several tenths of a second each. Every place makes one pass that is
not timed, and the best of those that are counts. This process reads ahead, so that it has a thread for decoding beside
that for arithmetic: the first row is this process held to one processor, as a worker of one thread is, and the second
the same on all of them. `speed` is the time of the first row by the clock over that of the others.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.resources.files import PIECE, written
from neurecover.data import Source, reduce
from neurecover.data import open as open_samples
from neurecover.data.loop import one_blas_thread
from neurecover.experiment import Experiment, Row, Track
from neurecover.models import Network
from neurecover.statistics import InformationSums, ScoreSums, Together

CASE = {"n": 24 * PIECE, "d": 50, "k": 10, "kind": "parquet"}  # as many parts for either of two workers
TIMES = 3  # passes that are timed, the best of which counts
# Dask has its workers give memory back at every call, and a task then faults in the pages of every array anew: 1.7 s of
# 4 s of CPU a pass; the allocator of Arrow does the same, 0.05 s a partition, and so do the heaps of 64 MB that glibc
# makes for every thread, up to 0.8 s. These are what docs/cluster.md advises; glibc takes no larger threshold for maps.
MEMORY = {
    "MALLOC_TRIM_THRESHOLD_": str(2**28),
    "MALLOC_MMAP_THRESHOLD_": str(2**25),
    "MALLOC_ARENA_MAX": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
PLACES = [(0, True), (0, False), (1, False), (2, False)]  # so many workers, and whether held to one processor

Spent = Callable[[], list[float]]


def compared(track: Track) -> Iterator[Row]:
    """Measure this process on one processor and on all (0 workers), then one worker and two; a row each."""
    with tempfile.TemporaryDirectory() as folder:
        truth, path = written(CASE, Path(folder))
        first: dict[str, float] = {}
        expected: dict[str, np.ndarray] = {}
        for workers, held in track(PLACES, "places"):
            with _opened(path, workers) as (source, spent), _on_one_processor(held):
                row, sums = _measured(truth, source, spent)
            first, expected = first or row, expected or sums
            yield {
                **{name: CASE[name] for name in ("n", "d", "k")},
                "workers": workers,
                "processors": 1 if held else os.cpu_count(),
                **{name: round(value, 2) for name, value in row.items()},
                "speed": round(first["wall seconds"] / row["wall seconds"], 2),
                "apart": max(_apart(sums[name], value) for name, value in expected.items()),
            }


@contextmanager
def _on_one_processor(held: bool) -> Iterator[None]:
    """Keep all threads of this process on one processor, where the system can be told so (Linux)."""
    if not (held and hasattr(os, "sched_setaffinity")):
        yield
        return
    allowed = os.sched_getaffinity(0)

    def keep_to(processors: set[int]) -> None:
        for thread in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(thread), processors)

    keep_to({min(allowed)})
    try:
        yield
    finally:
        keep_to(allowed)


@contextmanager
def _opened(path: Path, workers: int) -> Iterator[tuple[Source, Spent]]:
    """Open the samples here or on so many workers; also give the CPU seconds that each process has spent so far."""
    if workers == 0:
        yield open_samples(path), lambda: [time.process_time()]
        return
    import dask
    from dask import dataframe
    from distributed import Client, LocalCluster

    kept: dict[str, object] = {f"distributed.nanny.pre-spawn-environ.{name}": value for name, value in MEMORY.items()}
    kept["distributed.worker.profile.enabled"] = False  # a look at every thread each 10 ms: 5 % of a worker's time
    with (
        dask.config.set(kept),
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        frame = dataframe.read_parquet(path, split_row_groups=1)
        yield open_samples(frame, client=client), lambda: list(client.run(time.process_time).values())


def _measured(truth: Network, source: Source, spent: Spent) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Return the best of some passes, and their sums."""
    best: dict[str, float] = {}
    with one_blas_thread():
        sums = reduce(source, _heaviest(truth)).to_arrays()
        for _ in range(TIMES):
            before, began = spent(), time.perf_counter()
            reduce(source, _heaviest(truth))
            wall = time.perf_counter() - began
            each = [after - start for start, after in zip(before, spent())]
            made = {"wall seconds": wall, "CPU seconds": sum(each), "CPU of a worker": max(each)}
            best = {name: min(value, best.get(name, value)) for name, value in made.items()}
    return best, sums


def _heaviest(truth: Network) -> Together:
    return Together(curvature=InformationSums.of(truth), scores=ScoreSums(truth))


def _apart(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max(initial=0.0) / max(np.abs(expected).max(initial=0.0), 1e-300))


EXPERIMENTS = (Experiment("workers", "A pass in one process and on worker processes", compared),)
