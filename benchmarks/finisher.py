"""How often the finisher recovers a network exactly, how long it takes, and what it is worth under noise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.coverage import deviations
from neurecover.experiment import Experiment, Row, Track, picture
from neurecover.matching import compare
from neurecover.models import Model, Network
from neurecover.pipeline import recover
from neurecover.planning import unit_variances
from neurecover.results import Recovery
from neurecover.simulate import sample, teacher


@dataclass(frozen=True)
class Problem:
    """A kind of teacher, how many samples of it, and what is asked of the finisher on it."""

    label: str
    d: int
    k: int
    p: int
    n: int
    seeds: int
    needed: int
    seconds: float
    kind: str = "gaussian"
    bias: bool = True
    told: bool = True

    def draw(self, seed: int, noise: float = 0.0) -> tuple[Network, np.ndarray, np.ndarray]:
        truth = teacher(self.d, self.k, self.p, kind=self.kind, bias=0.7 * self.bias, random_state=seed)
        return truth, *sample(truth, self.n, noise=noise, random_state=seed)

    def solve(self, seed: int) -> tuple[Network, Recovery[Model], np.ndarray]:
        truth, X, Y = self.draw(seed)
        return truth, recover(X, Y, self.k if self.told else None, bias=self.bias, random_state=seed), X


PROBLEMS = (
    Problem("one output, biases", 10, 10, 1, 600, 100, 98, 0.5),
    Problem("one output, biases", 10, 10, 1, 360, 100, 85, 5.0),
    Problem("one output, biases, k not told", 10, 10, 1, 1_200, 100, 95, 2.0, told=False),
    Problem("one output, biases", 20, 20, 1, 2_200, 25, 24, 4.0),
    Problem("one output, biases", 50, 50, 1, 13_000, 10, 10, 12.0),
    Problem("one output, biases", 100, 20, 1, 10_500, 10, 10, 10.0),
    Problem("one output, biases, k > d", 10, 20, 1, 1_600, 25, 24, 2.0),
    Problem("orthonormal, no bias", 10, 10, 10, 100, 100, 98, 0.3, kind="orthonormal", bias=False),
    Problem("orthonormal, no bias", 10, 10, 10, 60, 100, 80, 1.0, kind="orthonormal", bias=False),
    Problem("orthonormal, no bias", 32, 32, 32, 500, 25, 24, 5.0, kind="orthonormal", bias=False),
    Problem("one output, unit rows, biases", 10, 10, 1, 600, 100, 0, 0.5, kind="sphere"),
)


def _success(problem: Problem, track: Track) -> Row:
    solved, seconds, lies, hidden = 0, [], 0, 0
    for seed in track(range(problem.seeds), f"{problem.label} d={problem.d} k={problem.k} p={problem.p} n={problem.n}"):
        truth, recovery, X = problem.solve(seed)
        errors = compare(recovery.network, truth)
        right = errors.weight_error <= 1e-10 and not any(errors.unmatched)
        solved += right and recovery.certificate.verdict == "exact"
        lies += recovery.certificate.verdict == "exact" and not right
        hidden += _undetermined(truth, X)
        seconds.append(recovery.seconds)
    return {
        "problem": problem.label,
        "d": problem.d,
        "k": problem.k,
        "p": problem.p,
        "n": problem.n,
        "seeds": problem.seeds,
        "exact": solved,
        "needed": problem.needed,
        "said exact but wrong": lies,
        "unit on for too few samples": hidden,
        "median seconds": round(float(np.median(seconds)), 3),
        "allowed seconds": problem.seconds,
        "longest seconds": round(max(seconds), 2),
    }


def _undetermined(truth: Network, X: np.ndarray) -> bool:
    """Tell whether some unit of a one-output network is on for too few samples to determine its weights."""
    on = np.count_nonzero(X @ truth.W.T + truth.b > 0, axis=0)
    return truth.n_outputs == 1 and bool(on.min() < truth.n_inputs + 1)


def _run_success(track: Track) -> Iterator[Row]:
    return (_success(problem, track) for problem in PROBLEMS)


def _run_noise(track: Track) -> Iterator[Row]:
    """Hold the squared weight error against the Cramér–Rao bound at the true weights and count the covered weights."""
    problem, noise = Problem("one output, biases, noise 0.1", 10, 10, 1, 20_000, 40, 40, 0.0), 0.1
    for seed in track(range(problem.seeds), problem.label):
        truth, X, Y = problem.draw(seed, noise=noise)
        truth = truth.normal_form()
        recovery = recover(X, Y, problem.k, random_state=seed)
        order, z = compare(recovery.network, truth).permutation, deviations(recovery, truth)
        yield {
            "seed": seed,
            "verdict": recovery.certificate.verdict,
            "squared weight error": float(np.sum((recovery.network.layers[0][0][order] - truth.W) ** 2)),
            "Cramer-Rao bound": cramer_rao(truth, X, noise),
            "parameters in 95 % interval": 0 if z is None else int(np.count_nonzero(np.abs(z) <= 1.96)),
            "parameters": 0 if z is None else len(z),
            "seconds": round(recovery.seconds, 2),
        }


def cramer_rao(truth: Network, X: np.ndarray, noise: float) -> float:
    """Return the least possible Σ‖δw‖² of an unbiased estimate in normal form: σ² tr of the w-blocks of F⁻¹."""
    return noise**2 * float(unit_variances(truth, X).sum())


def _draw_noise(rows: list[dict[str, str]], path: Path) -> None:
    bound = [float(row["Cramer-Rao bound"]) for row in rows]
    error = [float(row["squared weight error"]) for row in rows]
    ends = [min(bound) / 1.5, max(bound) * 1.5]
    with picture(path, size=(5, 4)) as (_, axis):
        axis.loglog(bound, error, "o", alpha=0.7)
        axis.loglog(ends, ends, "k--", linewidth=1, label="Cramér–Rao bound")
        axis.set(xlabel="bound at the true weights", ylabel="squared weight error")
        axis.legend()


EXPERIMENTS = (
    Experiment("finisher", "Exact recovery without noise, by problem", _run_success),
    Experiment("noise", "Weight error under label noise against the Cramér–Rao bound", _run_noise, _draw_noise),
)
