"""Thousands of hidden weights from samples, without noise: how often all come back, in what time and memory.

Every recovery is a process of its own with one thread, so that the peak of its memory is its own; the samples are in
it. No setting was chosen on these seeds. Of a network with a unit that is on, or off, in fewer samples than it has
weights no method can find every weight; they are counted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import astuple, dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.resources.process import in_own_process, peak_bytes
from neurecover.experiment import Experiment, Row, Track
from neurecover.matching import compare
from neurecover.pipeline import recover
from neurecover.simulate import sample, teacher

FIRST_SEED = 3_000  # no setting was chosen on these
EXACT = 1e-10  # weight error of a solved network: rounding, times what the equations magnify it by


@dataclass(frozen=True)
class Problem:
    """Inputs, units, outputs and samples; seeds, how many of them have to be solved, and the median seconds allowed."""

    d: int
    k: int
    p: int
    n: int
    seeds: int
    needed: int
    seconds: float


PROBLEMS = (
    Problem(100, 100, 1, 52_000, 5, 4, 150.0),
    Problem(784, 32, 10, 30_000, 5, 4, 150.0),
    Problem(784, 128, 10, 100_000, 2, 1, 900.0),
)


def solve(d: int, k: int, p: int, n: int, seed: int, seconds: float) -> dict[str, float | str]:
    """Recover a random network with unit rows; return the verdict, the error and what it took."""
    truth = teacher(d, k, p, random_state=seed)
    X, Y = sample(truth, n, random_state=seed)
    with threadpool_limits(1):
        began = time.process_time()
        found = recover(X, Y, k, random_state=seed, time_budget=4.0 * seconds)
        took = time.process_time() - began
    on = np.count_nonzero(X @ truth.W.T + truth.b > 0.0, axis=0)
    return {
        "seldom": float(np.minimum(on, n - on).min() <= d),
        "verdict": found.certificate.verdict,
        "error": compare(found.network, truth).weight_error,
        "seconds": took,
        "megabytes": peak_bytes() / 2**20,
    }


def _measure(problem: Problem, track: Track) -> Row:
    label = f"d = {problem.d}, k = {problem.k}"
    seeds = range(FIRST_SEED, FIRST_SEED + problem.seeds)
    size = astuple(problem)[:4]
    runs = [in_own_process(solve, *size, seed, problem.seconds) for seed in track(seeds, label)]
    right = [run["verdict"] == "exact" and float(run["error"]) <= EXACT for run in runs]
    return {
        "d": problem.d,
        "k": problem.k,
        "p": problem.p,
        "n": problem.n,
        "seeds": problem.seeds,
        "solved": sum(right),
        "needed": problem.needed,
        "said exact but wrong": sum(run["verdict"] == "exact" and not ok for run, ok in zip(runs, right)),
        "unit on or off in too few samples": sum(bool(run["seldom"]) for run in runs),
        "median error": f"{np.median([run['error'] for run in runs]):.1e}",
        "median CPU seconds": round(float(np.median([run["seconds"] for run in runs])), 1),
        "allowed": problem.seconds,
        "peak MB": round(max(float(run["megabytes"]) for run in runs)),
    }


def _run(track: Track) -> Iterator[Row]:
    return (_measure(problem, track) for problem in PROBLEMS)


EXPERIMENTS = (Experiment("large", "Thousands of hidden weights from samples", _run),)
