"""Weights from questions: how many were asked, how close the weights are, and how often it worked.

He-scaled random networks (weights of variance 2/fan-in, biases 0.1·N(0, 1)) answer in double precision; widths and
depth are found. "counting bound" is the number of parameters over the number of outputs, below which no method can be.
The published figures are those of Carlini, Jagielski, Mironov (CRYPTO 2020), whose attack is given the widths.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from neurecover.data import oracle
from neurecover.experiments.experiment import Experiment, Row, Track
from neurecover.matching import compare
from neurecover.models import DeepNetwork, Network
from neurecover.pipeline import extract

FIRST_SEED = 1_000  # no setting was chosen on these


@dataclass(frozen=True)
class Problem:
    """Widths from the inputs to the outputs, how often, the error and questions allowed, and what is published."""

    dims: tuple[int, ...]
    seeds: int
    needed: int
    error: float
    queries: int | None
    published: str = ""
    time_budget: float = 300.0


PROBLEMS = (
    Problem((10, 10, 1), 20, 20, 1e-12, 500),
    Problem((64, 32, 1), 20, 20, 1e-10, 5_500),
    Problem((784, 32, 1), 10, 10, 1e-9, 30_000),
    Problem((784, 128, 1), 5, 5, 1e-9, 130_000, "2^21.5 queries, error 2^-25"),
    Problem((784, 128, 10), 5, 5, 1e-10, 20_000),
    Problem((1000, 500, 1), 2, 2, 1e-8, 1_050_000),
    Problem((10, 20, 1), 10, 9, 1e-10, 1_000),
    Problem((10, 10, 10, 1), 20, 19, 1e-12, 10_000),
    Problem((10, 15, 15, 1), 20, 19, 1e-12, 30_000),
    Problem((80, 40, 20, 1), 5, 5, 1e-12, 80_000),
    Problem((40, 20, 10, 10, 1), 20, 18, 1e-10, 80_000, "2^17.8 queries, error 2^-27"),
    Problem((10, 20, 20, 1), 20, 18, 1e-12, 80_000),
    Problem((784, 32, 16, 1), 3, 3, 1e-10, 200_000),
    Problem((20, 16, 12, 8, 4, 1), 10, 6, 1e-9, None),
    Problem((10, 20, 20, 20, 1), 5, 2, 1e-9, None),
)


def he_network(dims: tuple[int, ...], seed: int) -> Network | DeepNetwork:
    """Weights of variance 2/(fan-in), biases 0.1·N(0, 1)."""
    rng = np.random.default_rng(seed)
    layers = [(rng.standard_normal((b, a)) * np.sqrt(2.0 / a), 0.1 * rng.standard_normal(b)) for a, b in pairwise(dims)]
    if len(layers) > 2:
        return DeepNetwork(layers)
    (W, b), (A, c) = layers
    return Network(W, b, A, c)


def _measure(problem: Problem, track: Track) -> Row:
    name = "-".join(map(str, problem.dims))
    solved, lies, queries, errors, seconds = 0, 0, [], [], []
    bound = 0.0
    for seed in track(range(FIRST_SEED, FIRST_SEED + problem.seeds), name):
        truth = he_network(problem.dims, seed)
        bound = truth.n_parameters / truth.n_outputs
        began = time.perf_counter()
        found = extract(oracle(truth, truth.n_inputs), random_state=seed, time_budget=problem.time_budget)
        seconds.append(time.perf_counter() - began)
        queries.append(found.n_queries or 0)
        error = np.inf
        if type(found.network) is type(truth) and found.network.n_hidden == truth.n_hidden:
            comparison = compare(found.network, truth)
            error = max(comparison.weight_error, comparison.bias_error)
        exact = found.certificate.verdict == "exact"
        errors.append(error)
        solved += exact and error <= problem.error
        lies += exact and error > 1e-6
    return {
        "network": name,
        "counting bound": round(bound),
        "seeds": problem.seeds,
        "solved": solved,
        "needed": problem.needed,
        "median queries": int(np.median(queries)),
        "allowed queries": problem.queries or "",
        "median error": f"{np.median(errors):.1e}",
        "largest error": f"{max(errors):.1e}",
        "allowed error": problem.error,
        "said exact but wrong": lies,
        "median seconds": round(float(np.median(seconds)), 2),
        "published": problem.published,
    }


def _run(track: Track) -> list[Row]:
    return [_measure(problem, track) for problem in PROBLEMS]


EXTRACT = Experiment("extract", "Weights from chosen questions, widths and depth found", _run)
