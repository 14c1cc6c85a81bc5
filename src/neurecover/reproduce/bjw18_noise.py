"""The methods of [BJW18] under noise: Gaussian that averages out, gross errors in few entries, any that is fixed."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from neurecover.algorithms.bjw18.corruption import sparse_noise
from neurecover.algorithms.bjw18.guesses import arbitrary_noise
from neurecover.algorithms.bjw18.projection import noisy_tensor
from neurecover.data import ArraySource
from neurecover.exceptions import UnsolvableError
from neurecover.experiment import Experiment, Row, Track, fresh_seeds
from neurecover.matching import compare
from neurecover.reproduce.bjw18 import NEVER, K, conditioned_teacher, exact_error
from neurecover.simulate import SparseGross, sample, teacher

NOISE = 0.5  # standard deviation
NOISY_N, NOISY_TRIALS = 20_000, 50
SLOPE_SIZES, SLOPE_TRIALS = (5_000, 20_000, 80_000, 320_000), 10  # of the fitted power of n


def _noisy_error(seed: int, n: int) -> tuple[float, bool]:
    net = conditioned_teacher(seed)
    X, Y = sample(net, n, noise=NOISE, random_state=seed)
    found = noisy_tensor(ArraySource(X, Y), K, net.activation, np.random.default_rng(seed)).network
    errors = compare(found, net)
    # A wrong sign puts a unit at distance about 2 from its own.
    return errors.weight_error, errors.weight_error < 1.0


def _run_noisy(track: Track) -> list[Row]:
    right = [_noisy_error(seed, NOISY_N)[1] for seed in track(range(NOISY_TRIALS), "signs")]
    rows: list[Row] = [
        {"figure": "signs all right", "n": NOISY_N, "trials": NOISY_TRIALS, "required": ">= 49", "measured": sum(right)}
    ]
    medians = []
    for n in track(SLOPE_SIZES, "sizes"):
        medians.append(float(np.median([_noisy_error(seed, n)[0] for seed in range(SLOPE_TRIALS)])))
        rows.append(
            {"figure": "median weight error", "n": n, "trials": SLOPE_TRIALS, "required": "", "measured": medians[-1]}
        )
    slope = float(np.polyfit(np.log(SLOPE_SIZES), np.log(medians), 1)[0])
    rows.append(
        {
            "figure": "slope of log error in log n",
            "n": "",
            "trials": "",
            "required": "-0.6 to -0.45",
            "measured": round(slope, 3),
        }
    )
    return rows


# Outputs and share of wrong entries, with how many of 20 must be exact with the mask right.
GROSS_ERRORS = ((60, 0.05, 19), (30, 0.1, 18), (12, 0.05, 18), (30, 0.2, 18), (12, 0.1, 18), (12, 0.2, 18))


def _run_sparse_noise(track: Track) -> list[Row]:
    rows: list[Row] = []
    for p, share, required in GROSS_ERRORS:
        masks, errors = [], []
        began = time.process_time()
        for seed in track(fresh_seeds(20), f"{p} outputs, {share:.0%} wrong"):
            net = teacher(8, 5, p, kind="gaussian", bias=0.0, random_state=seed)
            X, Y = sample(net, 2_000, noise=SparseGross(share, 100.0), random_state=seed)
            try:
                found = sparse_noise(ArraySource(X, Y), None, net.activation, np.random.default_rng(seed))
            except UnsolvableError:
                masks.append(False)
                errors.append(NEVER)
                continue
            masks.append(np.array_equal(found.mask, np.abs(Y - net(X)) > 50.0))
            errors.append(exact_error(found.exact, net))
        right = np.array(masks) & (np.array(errors) <= 1e-8)
        rows.append(
            {
                "outputs": p,
                "wrong": share,
                "trials": 20,
                "required": required,
                "reached": int(right.sum()),
                "masks_right": sum(masks),
                "largest_error": max(errors),
                "cpu_seconds_per_trial": round((time.process_time() - began) / 20, 2),
            }
        )
    return rows


def fixed_noises(Y: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    """Yield noise chosen without sight of the inputs, each of the Frobenius norm of Y, by name."""
    n, p = Y.shape
    spikes = np.zeros_like(Y)
    hit = rng.choice(n, n // 100, replace=False)
    spikes[hit] = rng.choice([-1.0, 1.0], (len(hit), p))
    shapes = {
        "constant offset": np.tile(rng.standard_normal(p), (n, 1)),
        "spikes in 1 % of the samples": spikes,
        "a wave of rank one": np.outer(np.sin(np.arange(n)), rng.standard_normal(p)),
        "bursts of 50 samples": np.repeat(rng.standard_normal((n // 50 + 1, p)), 50, axis=0)[:n],
        "one output only": np.outer(rng.standard_normal(n), np.eye(p)[0]),
    }
    for name, E in shapes.items():
        yield name, E * (np.linalg.norm(Y) / np.linalg.norm(E))


def _run_arbitrary(track: Track) -> list[Row]:
    worst: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for k in (1, 2):
        for seed in track(range(10), f"k = {k}"):
            rng = np.random.default_rng(seed)
            net = teacher(6, k, 4, bias=0.0, random_state=seed)
            X, Y = sample(net, 4_000, random_state=seed)
            for name, E in fixed_noises(Y, rng):
                began = time.perf_counter()
                ratio = arbitrary_noise(X, Y + E, k, rng).residual / float(np.linalg.norm(E))
                worst.setdefault((k, name), []).append((ratio, time.perf_counter() - began))
    return [
        {
            "k": k,
            "noise": name,
            "trials": len(figures),
            "required": "<= 1.1",
            "largest_ratio": round(max(r for r, _ in figures), 4),
            "largest_seconds": round(max(s for _, s in figures), 2),
        }
        for (k, name), figures in worst.items()
    ]


EXPERIMENTS = (
    Experiment("bjw18-noisy", "Signs by projection and the rate in n, noise 0.5", _run_noisy),
    Experiment(
        "bjw18-sparse-noise", "Five units, 5 to 20 % of the entries off by 100: mask and weights", _run_sparse_noise
    ),
    Experiment("bjw18-arbitrary", "Residual over the norm of fixed noise of the signal's size", _run_arbitrary),
)
