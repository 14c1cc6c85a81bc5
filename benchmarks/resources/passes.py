"""What a pass over samples costs: its arithmetic against the machine's own, and its memory.

A Hermite pass with F features is one symmetric rank-n update, which needs n·F·(F + 1) floating-point operations,
a multiplication and an addition for every sample and pair of features. Making the features, the products with y
and reading the samples add time but are not counted. The yardstick is a square matrix product of 2·m³ operations.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.linalg.blas import dgemm
from threadpoolctl import threadpool_info

from benchmarks.resources.process import in_own_process, peak_bytes
from neurecover.data import ArraySource, open, reduce
from neurecover.experiment import Experiment, Row, Track
from neurecover.statistics import HermiteSums, Moments
from neurecover.statistics.moments.hermite import n_features

_CHUNK = 250_000  # rows written at a time: 20 MB at 20 columns


@dataclass(frozen=True)
class HermiteRate:
    """Operations per second of the pass and of the matrix product, the best of each over the rounds."""

    r: int
    degree: int
    n: int
    n_features: int
    threads: int
    hermite_flops: float
    gemm_flops: float

    @property
    def share(self) -> float:
        """The part of the machine's matrix-product rate that the whole pass reaches."""
        return self.hermite_flops / self.gemm_flops


@dataclass(frozen=True)
class PassMemory:
    """Peak resident memory in bytes of a fresh process: once it has imported, after each of its two passes.

    The peak never falls, so `hermite_peak` is that of the whole process. Pages of the mapped file are in it.
    """

    rows: int
    columns: int
    file_bytes: int
    imported_peak: int
    moments_peak: int
    hermite_peak: int
    moments_seconds: float
    hermite_seconds: float


def hermite_rate(r: int = 16, degree: int = 4, n: int = 50_000, gemm_size: int = 4_000, rounds: int = 3) -> HermiteRate:
    """Time a full Hermite regression's pass over n samples, and matrix products before and after every pass."""
    rng = np.random.default_rng(0)
    source = ArraySource(rng.standard_normal((n, r), dtype=np.float32), rng.standard_normal(n, dtype=np.float32))
    square = np.asfortranarray(rng.standard_normal((gemm_size, gemm_size)))
    gemm, hermite = [], []
    for _ in range(rounds):
        gemm.append(_seconds(lambda: dgemm(1.0, square, square)))
        hermite.append(_seconds(lambda: reduce(source, HermiteSums(r, 1, degree))))
        gemm.append(_seconds(lambda: dgemm(1.0, square, square)))
    F = n_features(r, degree)
    return HermiteRate(
        r=r,
        degree=degree,
        n=n,
        n_features=F,
        threads=max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"),
        hermite_flops=n * F * (F + 1) / min(hermite),
        gemm_flops=2 * gemm_size**3 / min(gemm),
    )


def pass_memory(rows: int = 10_000_000, d: int = 20) -> PassMemory:
    """Measure the memory of a Moments and a degree-2 Hermite pass over a float32 .npy file (rows, d).

    The last column is y. The file is written to a temporary directory, read by a process of its own, and removed.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "samples.npy"
        _write_normal(path, rows, d)
        figures = in_own_process(measure_passes, str(path))
        return PassMemory(rows=rows, columns=d, file_bytes=path.stat().st_size, **figures)


def measure_passes(path: str) -> dict[str, float]:
    """Make both passes of `pass_memory`, in a process of their own, and return its figures."""
    imported = peak_bytes()
    source = open(path)
    d, p = source.n_inputs, source.n_outputs
    moments_seconds = _seconds(lambda: reduce(source, Moments(d, p)))
    moments = peak_bytes()
    hermite_seconds = _seconds(lambda: reduce(source, HermiteSums(d, p, degree=2)))
    return {
        "imported_peak": imported,
        "moments_peak": moments,
        "hermite_peak": peak_bytes(),
        "moments_seconds": moments_seconds,
        "hermite_seconds": hermite_seconds,
    }


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _write_normal(path: Path, rows: int, columns: int) -> None:
    rng = np.random.default_rng(0)
    table = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, columns))
    for start in range(0, rows, _CHUNK):
        stop = min(start + _CHUNK, rows)
        table[start:stop] = rng.standard_normal((stop - start, columns), dtype=np.float32)
    table.flush()


def _run(track: Track) -> Iterator[Row]:
    for measure in track((_rate_row, _memory_row), "passes over samples"):
        yield measure()


def _rate_row() -> Row:
    rate = hermite_rate()
    what = f"Hermite pass, r = {rate.r}, degree {rate.degree}, n = {rate.n}, share of the matrix-product rate"
    return {"figure": what, "measured": round(rate.share, 3), "needed": "at least 0.5"}


def _memory_row() -> Row:
    memory = pass_memory()
    what = f"peak memory of passes over {memory.rows} x {memory.columns} float32, MB"
    return {"figure": what, "measured": round(memory.hermite_peak / 1e6), "needed": "under 600"}


EXPERIMENTS = (Experiment("passes", "What a pass over samples costs", _run),)
