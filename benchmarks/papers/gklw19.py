"""What the library makes of the method of [GKLW19], beyond what the paper says.

Tables: exact recovery with the finisher, noise under inputs of many shapes, inputs that are not symmetric, the two
detectors against each other, the number of units found from the gap, queries at x and −x, and the memory of the largest
case.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.resources.process import in_own_process, peak_bytes
from neurecover.algorithms.gklw19.learner import OURS, Settings, learn
from neurecover.algorithms.gklw19.reflection import symmetry_test
from neurecover.data import ArraySource, oracle, reduce
from neurecover.experiment import Experiment, Row, Track
from neurecover.matching import compare
from neurecover.models import replace_arrays
from neurecover.pipeline import recover
from neurecover.reproduce.gklw19 import orthonormal, paper_errors
from neurecover.simulate import sample, teacher
from neurecover.simulate.inputs import Distribution, Gaussian, Perturbed, Uniform
from neurecover.statistics.moments.detector import PureNeuronSums

EXACT = 1e-9  # largest error of a weight that counts as exact


def _exact(track: Track) -> list[Row]:
    cells = [(10, 300, inputs, seed) for inputs in ("gaussian", "mixture") for seed in range(20)]
    cells += [(32, 10_000, "gaussian", seed) for seed in range(10)]
    rows: list[Row] = []
    for size, n, inputs, seed in track(cells, "recoveries"):
        truth = orthonormal(size, seed)
        X, Y = sample(truth, n, inputs=inputs, random_state=seed)
        found = recover(X, Y, n_hidden=size, method="symmetric", bias=False, random_state=seed)
        error = compare(found.network, truth).weight_error
        rows.append(
            {
                "size": size,
                "n": n,
                "inputs": inputs,
                "seed": seed,
                "verdict": found.certificate.verdict,
                "weight_error": error,
                "exact": bool(error < EXACT),
                "seconds": round(found.seconds, 2),
                "required": "19 of 20" if size == 10 else "9 of 10",
            }
        )
    return rows


def _input_laws() -> dict[str, str | Distribution]:
    Q = np.random.default_rng(0).standard_normal((10, 10))
    return {
        "uniform": "uniform",
        "laplace": "laplace",
        "student(5)": "student(5)",
        "rademacher(0.3)": "rademacher(0.3)",
        "uniform, (Q, 0.2)-perturbed": Perturbed(Uniform(), Q, 0.2),
    }


def _noisy(track: Track) -> list[Row]:
    cells = [(name, seed) for name in _input_laws() for seed in range(5)]
    rows: list[Row] = []
    for name, seed in track(cells, "recoveries"):
        inputs = _input_laws()[name]
        truth = orthonormal(10, seed)
        X, Y = sample(truth, 10_000, inputs=inputs, noise=0.1, random_state=seed)
        X_test, Y_test = sample(truth, 20_000, inputs=inputs, noise=0.1, random_state=1_000 + seed)
        floor = replace_arrays(truth, A=np.linalg.lstsq(truth.hidden(X), Y, rcond=None)[0].T)
        floor_mse = float(np.mean((Y_test - floor(X_test)) ** 2))
        estimate = learn(ArraySource(X, Y), 10, truth.activation, np.random.default_rng(seed))[0].network
        found = recover(X, Y, n_hidden=10, method="symmetric", bias=False, random_state=seed)
        rows.append(
            {
                "inputs": name,
                "seed": seed,
                "floor": floor_mse,
                "estimate": float(np.mean((Y_test - estimate(X_test)) ** 2)) / floor_mse,
                "finished": float(np.mean((Y_test - found.network(X_test)) ** 2)) / floor_mse,
                "verdict": found.certificate.verdict,
                "required": "finished at most 1.2 times the floor",
            }
        )
    return rows


def _asymmetric(track: Track) -> list[Row]:
    laws: dict[str, str | Distribution] = {
        "gaussian (symmetric)": "gaussian",
        "student(5) (symmetric)": "student(5)",
        "exponential": "exponential",
        "skewed": "skewed",
        "gaussian, mean 0.2": Gaussian(mean=0.2),
    }
    cells = [(name, n, seed) for name in laws for n in (1_000, 10_000) for seed in range(5)]
    rows: list[Row] = []
    for name, n, seed in track(cells, "recoveries"):
        truth = orthonormal(10, seed)
        X, Y = sample(truth, n, inputs=laws[name], random_state=seed)
        test = symmetry_test(ArraySource(X, Y), np.random.default_rng(seed))
        found = recover(X, Y, n_hidden=10, method="symmetric", bias=False, random_state=seed)
        error = compare(found.network, truth).weight_error
        rows.append(
            {
                "inputs": name,
                "n": n,
                "seed": seed,
                "chi_squared": test.chi_squared,
                "degrees": test.degrees,
                "p_value": test.p_value,
                "called_symmetric": test.symmetric,
                "verdict": found.certificate.verdict,
                "weight_error": error,
                "exact_and_wrong": found.certificate.verdict == "exact" and error > 1e-6,
            }
        )
    return rows


def _detectors(track: Track) -> list[Row]:
    cells = [
        (size, n, inputs, noise, seed)
        for size, n in ((10, 1_000), (10, 10_000), (32, 10_000))
        for inputs in ("gaussian", "mixture")
        for noise in (0.0, 0.01, 0.03, 0.1, 0.3)
        for seed in range(3)
    ]
    rows: list[Row] = []
    for size, n, inputs, noise, seed in track(cells, "both detectors"):
        truth = orthonormal(size, seed)
        X, Y = sample(truth, n, inputs=inputs, noise=noise, random_state=seed)
        answers = learn(ArraySource(X, Y), size, truth.activation, np.random.default_rng(seed), OURS)
        errors = {found.detector: paper_errors(found.network, truth, X, Y).W for found in answers}
        rows.append(
            {
                "size": size,
                "n": n,
                "inputs": inputs,
                "noise": noise,
                "seed": seed,
                "noisy": errors["noisy"],
                "pointwise": errors["pointwise"],
                "chosen": answers[0].detector,
                "chosen_is_better": errors[answers[0].detector] <= min(errors.values()),
            }
        )
    return rows


def _units(track: Track) -> list[Row]:
    cells = [
        (k, p, noise, inputs)
        for k in (1, 2, 3, 5, 8, 10)
        for p in (10, 15)
        for noise in (0.0, 0.1)
        for inputs in ("gaussian", "mixture")
    ]
    rows: list[Row] = []
    for k, p, noise, inputs in track(cells, "settings"):
        counts = []
        for seed in range(5):
            truth = teacher(10, k, p, kind="orthonormal", bias=0.0, random_state=seed)
            X, Y = sample(truth, 5_000, inputs=inputs, noise=noise, random_state=seed)
            found = learn(ArraySource(X, Y), None, truth.activation, np.random.default_rng(seed), Settings("noisy"))
            counts.append(found[0].network.n_hidden)
        right = sum(count == k for count in counts)
        rows.append({"k": k, "p": p, "noise": noise, "inputs": inputs, "right": right, "of": len(counts)})
    return rows


def _queries(track: Track) -> list[Row]:
    rows: list[Row] = []
    for seed in track(range(10), "black boxes"):
        truth = teacher(10, 8, 12, bias=0.0, random_state=seed)
        for n in (60, 80, 120):
            box = oracle(truth, 10, n_samples=n, random_state=seed)
            network = learn(box, 8, truth.activation, np.random.default_rng(seed))[0].network
            rows.append({"seed": seed, "queries": n, "weight_error": compare(network, truth).weight_error})
    return rows


def _memory(track: Track) -> Iterator[Row]:
    for size, n in track([(32, 100_000)], "a process of its own"):
        yield in_own_process(measure_memory, size, n)


def measure_memory(size: int, n: int) -> dict[str, Any]:
    """Run the detector's pass and the whole method; return the memory and time of each."""
    truth = orthonormal(size, 0)
    X, Y = sample(truth, n, random_state=0)
    source = ArraySource(X, Y)
    before = peak_bytes()
    began = time.perf_counter()
    reduce(source, PureNeuronSums(np.eye(size), np.eye(size), (0.5, 0.5)))
    pass_seconds, pass_peak = time.perf_counter() - began, peak_bytes()
    began = time.perf_counter()
    learn(source, size, truth.activation, np.random.default_rng(0))
    return {
        "size": size,
        "n": n,
        "megabytes_before": round(before / 2**20),
        "megabytes_after_pass": round(pass_peak / 2**20),
        "megabytes_after_method": round(peak_bytes() / 2**20),
        "pass_seconds": round(pass_seconds, 2),
        "method_seconds": round(time.perf_counter() - began, 2),
        "required": "within 2048 MB",
    }


EXPERIMENTS = (
    Experiment("gklw19-exact", "[GKLW19] with the finisher: 10 × 10 at n = 300, 32 × 32 at n = 10,000", _exact),
    Experiment("gklw19-noisy", "[GKLW19] noise 0.1 under inputs of many shapes, against the noise floor", _noisy),
    Experiment("gklw19-asymmetric", "[GKLW19] inputs that are not symmetric", _asymmetric),
    Experiment("gklw19-detectors", "[GKLW19] the moment detector against the pointwise one", _detectors),
    Experiment("gklw19-units", "[GKLW19] the number of units from the gap", _units),
    Experiment("gklw19-queries", "[GKLW19] a black box asked at x and −x, without the finisher", _queries),
    Experiment("gklw19-memory", "[GKLW19] memory and time at d = k = p = 32, n = 100,000", _memory),
)
