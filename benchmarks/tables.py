"""Networks planted in tables that people have: pixels, counts, inputs mostly zero, categories, collinear columns.

The inputs are those of tables that scikit-learn ships, or five numbers beside a category in columns of its own, eight
beside two categories, counts of different rates, inputs that are mostly zero, and strokes on 28 × 28 pixels, all of
them standardised; the outputs are a random network's, without noise. Solved is a network that answers every row to
rounding and whose certificate either is exact and right, or says which weights the rows determine, none of them wrong.
Of a network with a unit that is on, or off, in fewer rows than it has weights, no method can find every weight; they
are counted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from neurecover.experiment import Experiment, Row, Track
from neurecover.matching import compare
from neurecover.models import Model, Network
from neurecover.pipeline import recover
from neurecover.results import Recovery
from neurecover.simulate import teacher

FIRST_SEED = 9_500  # no setting was chosen on these
RIGHT = 1e-8  # error of a weight that was said to be determined


@dataclass(frozen=True)
class Problem:
    """The table, units and outputs of the network, how often, and the median seconds allowed."""

    table: str
    k: int
    p: int
    seeds: int
    needed: int
    seconds: float


PROBLEMS = (
    *(Problem(table, 4, 1, 5, 5, 2.0) for table in ("iris", "diabetes", "wine", "breast_cancer")),
    Problem("digits", 8, 10, 5, 5, 10.0),
    Problem("digits", 16, 10, 5, 4, 10.0),
    Problem("category of 30 levels", 6, 1, 10, 9, 5.0),
    Problem("category, as indicators", 6, 1, 10, 0, 5.0),
    Problem("two categories", 6, 1, 10, 8, 5.0),
    Problem("counts", 8, 1, 10, 8, 5.0),
    Problem("mostly zero", 8, 1, 10, 8, 5.0),
    Problem("strokes", 16, 10, 3, 2, 150.0),
)


def inputs_of(table: str, seed: int) -> np.ndarray:
    """Return the inputs, standardised, without those that are constant; indicators may be left as 0 and 1.

    For a network of typical biases units are then on, or off, in hardly any row of some levels.
    """
    rng, n = np.random.default_rng(seed), 4_000
    if table.startswith("category"):
        X = np.hstack([rng.standard_normal((n, 5)), np.eye(30)[rng.integers(30, size=n)]])
        if table.endswith("indicators"):
            return X
    elif table == "two categories":
        X = np.hstack([rng.standard_normal((n, 8)), *(np.eye(m)[rng.integers(m, size=n)] for m in (4, 6))])
    elif table == "counts":
        X = rng.poisson(rng.uniform(0.02, 2.0, 30), (n, 30)).astype(float)
    elif table == "mostly zero":
        X = (rng.random((n, 30)) < rng.uniform(0.01, 0.2, 30)) * rng.exponential(1.0, (n, 30))
    elif table == "strokes":
        X = strokes(15_000, 28, rng)
    else:
        from sklearn import datasets

        X = getattr(datasets, f"load_{table}")().data
    X = X[:, X.std(axis=0) > 0]
    return (X - X.mean(axis=0)) / X.std(axis=0)


def strokes(n: int, side: int, rng: np.random.Generator) -> np.ndarray:
    """Draw images (n, side²) of three strokes each, from 0 to 255; a pixel is zero in most of them.

    A stroke is ten round dots along a path whose direction changes at random.
    """
    images, at = np.zeros((n, side, side)), np.arange(side)
    for _ in range(3):
        place, velocity = rng.uniform(0.0, side - 1.0, (n, 2)), rng.normal(0.0, 1.2, (n, 2))
        for _ in range(10):
            velocity += rng.normal(0.0, 0.5, (n, 2))
            place = np.clip(place + velocity, 0.0, side - 1.0)
            down, across = (np.exp(-0.5 * (at - place[:, [axis]]) ** 2) for axis in (0, 1))
            np.maximum(images, down[:, :, None] * across[:, None, :], out=images)
    return np.where(images < 0.1, 0.0, np.round(255.0 * images)).reshape(n, -1)


def _measure(problem: Problem, track: Track) -> Row:
    solved, answered, lies, hidden, seconds, shares, n, d = 0, 0, 0, 0, [], [], 0, 0
    for seed in track(range(FIRST_SEED, FIRST_SEED + problem.seeds), f"{problem.table}, {problem.k} units"):
        X = inputs_of(problem.table, seed)
        n, d = X.shape
        truth = teacher(d, problem.k, problem.p, random_state=seed)
        Y = truth(X)
        on = np.count_nonzero(X @ truth.W.T + truth.b > 0, axis=0)
        hidden += bool(np.minimum(on, n - on).min() <= d)
        began = time.process_time()
        found = recover(X, Y, problem.k, random_state=seed, time_budget=6.0 * problem.seconds)
        seconds.append(time.process_time() - began)
        share, wrong = vouched_for(found, truth)
        shares.append(share)
        answers = bool(np.abs(found.network(X) - Y).max() <= RIGHT * np.abs(Y).max())
        answered += answers
        solved += answers and share > 0.0 and not wrong
        lies += wrong
    return {
        "table": problem.table,
        "d": d,
        "n": n,
        "k": problem.k,
        "p": problem.p,
        "seeds": problem.seeds,
        "answers every row": answered,
        "solved": solved,
        "needed": problem.needed,
        "unit on or off in too few rows": hidden,
        "said determined but wrong": lies,
        "median share of W determined": round(float(np.median(shares)), 3),
        "median CPU seconds": round(float(np.median(seconds)), 2),
        "allowed": problem.seconds,
    }


def vouched_for(found: Recovery[Model], truth: Network) -> tuple[float, bool]:
    """Return the share of hidden weights that the certificate vouches for, and whether one of those is wrong."""
    if found.certificate.verdict == "exact":
        comparison = compare(found.network, truth)
        return 1.0, comparison.weight_error > RIGHT or any(comparison.unmatched)
    determined = found.certificate.determined
    if determined is None or not isinstance(found.network, Network):
        return 0.0, False
    wrong = False
    for row, seen in zip(found.network.W, determined["W"]):
        if seen.any():
            # A row has unit norm over what is determined of it.
            size = np.linalg.norm(truth.W[:, seen], axis=1, keepdims=True)
            apart = np.abs(row[seen] - truth.W[:, seen] / np.maximum(size, 1e-300)).max(axis=1)
            wrong |= bool(apart.min() > RIGHT)
    return float(np.mean(determined["W"])), wrong


def _run(track: Track) -> Iterator[Row]:
    return (_measure(problem, track) for problem in PROBLEMS)


EXPERIMENTS = (Experiment("tables", "Networks planted in tables that people have", _run),)
