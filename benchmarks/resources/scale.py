"""Time and memory against the number of samples n, inputs d and units k, for samples that are streamed from files.

Every row is a `recover` in a process of its own, on noisy samples of a random network. Time is that of the processor; a
pass is timed between its first block and its last. The last pass is the heaviest: it sums the information of P
parameters and the covariance of their scores, 4 P² floating-point operations per row as these are defined. `share` is
their rate as a share of that of one large matrix product in the same process; it is above one where sums by region of
the input spare most of them. Rows with `workers` are that pass alone, here (0) and on workers (`bench workers`).
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.resources.files import written
from benchmarks.resources.process import in_own_process, peak_bytes
from benchmarks.resources.workers import compared
from neurecover.data import open as open_samples
from neurecover.experiment import Experiment, Row, Track
from neurecover.pipeline import recover

# Of these one size at a time is varied.
USUAL = {"n": 1_000_000, "d": 20, "k": 6, "kind": "parquet"}
VARIED: list[dict[str, Any]] = [
    *({"varied": "n", "n": n} for n in (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)),
    *({"varied": "d", "d": d, "n": 300_000} for d in (30, 100, 300)),
    *({"varied": "k", "k": k} for k in (3, 12)),
    {"varied": "kind", "kind": "npy"},
    {"varied": "all", "n": 10_000_000, "d": 50, "k": 10},
]
EXPECTED = {"n": 1.0, "d": 2.0}  # powers with which the last pass grows


def _run(track: Track) -> list[Row]:
    rows = [_measured(USUAL | case) for case in track(VARIED, "sizes")]
    for row in compared(track):
        if row["workers"] == 0 and row["processors"] == 1:
            continue
        shared = {name: row[name] for name in ("n", "d", "k", "CPU seconds", "wall seconds")}
        rows.append(
            {
                **dict.fromkeys(rows[0]),
                **shared,
                "workers": row["workers"],
                "kind": "parquet",
                "varied": "workers",
                "pass seconds": row["wall seconds"],
            }
        )
    for varied, expected in EXPECTED.items():
        mine = [row for row in rows if row["varied"] == varied and row["pass seconds"]]
        if len(mine) < 2:
            continue
        sizes, seconds = ([float(row[name]) for row in mine] for name in (varied, "pass seconds"))  # type: ignore[arg-type]
        slope = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
        blank: Row = dict.fromkeys(rows[0])
        rows.append({**blank, "varied": f"power of {varied}", "pass seconds": round(slope, 2), "share": expected})
    return rows


def _measured(case: dict[str, Any]) -> Row:
    """Measure one case in a process of its own, whose peak memory is then its own."""
    with tempfile.TemporaryDirectory() as folder:
        return case | {"workers": None} | in_own_process(recover_from_files, case, folder)


def recover_from_files(case: dict[str, Any], folder: str) -> Row:
    """Write the samples of a case to files, recover from them, and return what it took."""
    truth, place = written(case, Path(folder))
    told: list[tuple[str, float]] = []

    def progress(stage: str, _: float) -> None:
        told.append((stage, time.process_time()))

    source = open_samples(place)
    began, wall = time.process_time(), time.perf_counter()
    found = recover(source, n_hidden=case["k"], random_state=0, progress=progress)
    seconds, wall = time.process_time() - began, time.perf_counter() - wall
    errors = found.certificate.standard_errors
    whole = single = np.nan
    if errors is not None:
        true, W = truth.normal_form().W, found.network.layers[0][0]
        apart = np.square(W - true[np.square(W[:, None] - true).sum(axis=2).argmin(axis=1)])
        whole, single = apart.sum() / np.square(errors["W"]).sum(), np.mean(apart / np.square(errors["W"]))
    per_pass, count = _last_pass(told)
    return {
        "verdict": found.certificate.verdict,
        "passes": count,
        "CPU seconds": round(seconds, 2),
        "wall seconds": round(wall, 2),
        "peak MB": round(peak_bytes() / 2**20),
        "error² / bound": round(float(whole), 3),  # the weights of the weakest unit have most part in both
        "mean z²": round(float(single), 3),
        "pass seconds": per_pass and round(per_pass, 2),
        "share": per_pass and round(_operations(case) * case["n"] / per_pass / _product_rate(), 2),
    }


def _last_pass(told: list[tuple[str, float]]) -> tuple[float | None, int]:
    """Return the seconds of the last pass, from the times of its blocks, and how many passes there were."""
    numbers = [int(stage.split()[1]) for stage, _ in told if stage.startswith("pass ")]
    if not numbers:
        return None, 0
    times = [moment for stage, moment in told if stage.startswith(f"pass {numbers[-1]} ")]
    blocks = len(times)
    return (times[-1] - times[0]) * blocks / (blocks - 1) if blocks > 1 else None, len(set(numbers))


def _operations(case: dict[str, Any]) -> float:
    return 4.0 * (case["k"] * (case["d"] + 2) + 1) ** 2


def _product_rate(size: int = 1_200, times: int = 5) -> float:
    """Return the operations per second of a matrix product with one thread."""
    A = np.ones((size, size))
    with threadpool_limits(1):
        A @ A
        began = time.process_time()
        for _ in range(times):
            A @ A
    return 2.0 * size**3 * times / (time.process_time() - began)


EXPERIMENTS = (Experiment("scale", "Time and memory for samples larger than memory", _run),)
