"""Hinge planes beside a plane, several inputs: found, covered, and their number.

Found is a sum of squares within σ² of the fit from the truth. Values that are covered are all parameters: the affine
part, and of every hinge its change of slope, its unit row and its bias.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from scipy.optimize import linear_sum_assignment

import neurecover as nr
from neurecover.data import ArraySource
from neurecover.experiment import Experiment, Row, Track, fresh_seeds
from neurecover.fit.model_fit import fit_model
from neurecover.hinges.planes import parameters
from neurecover.models import Network

SETS = 40
CELLS = (
    (2, 1, 200, 0.5),
    (2, 2, 200, 0.5),
    (2, 2, 500, 0.5),
    (3, 2, 500, 0.5),
    (3, 3, 500, 0.2),
    (5, 1, 500, 0.5),
    (5, 2, 1_000, 0.5),
    (5, 3, 2_000, 0.2),
    (3, 1, 500, 2.0),  # a weak signal
)
COUNTS = tuple((d, K) for d in (2, 3, 5) for K in (0, 1, 2, 3))


def draw(seed: int, d: int, K: int, n: int, noise: float) -> tuple[Network, np.ndarray, np.ndarray]:
    """Draw planes through the middle of normal inputs, no two within 37 degrees, beside a plane."""
    rng = np.random.default_rng([seed, d, K, n])
    W = np.zeros((0, d))
    while len(W) < K:
        w = rng.standard_normal(d)
        w /= np.linalg.norm(w)
        W = np.vstack([W, w]) if np.abs(W @ w).max(initial=0.0) < 0.8 else W
    a = rng.uniform(1.0, 2.0, K) * rng.choice([-1.0, 1.0], K)
    C = 0.5 * rng.standard_normal((1, d))
    truth = Network(W, rng.uniform(-0.7, 0.7, K), a[None], [1.0], C=C)
    X = rng.standard_normal((n, d))
    return truth, X, truth(X)[:, 0] + noise * rng.standard_normal(n)


def in_order_of(found: Network, truth: Network) -> Network:
    """Return the truth with its hinges in the order and on the sides of those found: relu(z) = z + relu(−z)."""
    planes, own = (np.column_stack([net.W, net.b]) for net in (truth, found))
    apart = np.stack([np.linalg.norm(own[:, None] - sign * planes, axis=2) for sign in (1.0, -1.0)])
    _, order = linear_sum_assignment(apart.min(axis=0))
    sign = np.where(apart[0, np.arange(len(order)), order] <= apart[1, np.arange(len(order)), order], 1.0, -1.0)
    W, b, A = truth.W[order], truth.b[order], truth.A[:, order]
    turned = A * (sign < 0.0)
    assert truth.C is not None
    return Network(sign[:, None] * W, sign * b, A, truth.c + turned @ b, C=truth.C + turned @ W)


def _planes(track: Track) -> Iterator[Callable[[], Row]]:
    for d, K, n, noise in CELLS:
        yield partial(fit_told, d, K, n, noise, track)


def fit_told(d: int, K: int, n: int, noise: float, track: Track) -> Row:
    """Return how often K hinge planes are found and covered when their number is told."""
    found, sure, wrong, failed, covered, seconds = 0, 0, 0, 0, [], []
    for seed in track(fresh_seeds(SETS), f"d = {d}, {K} hinges, n = {n}"):
        truth, X, y = draw(seed, d, K, n, noise)
        began = time.process_time()
        model = nr.HingeRegression(K).fit(X, y)
        seconds.append(time.process_time() - began)
        best = fit_model(ArraySource(X, y[:, None]), truth).rss
        good = float(np.sum((y - model.predict(X)) ** 2)) <= best + noise**2
        assert model.certificate_ is not None
        found += good
        sure += model.certificate_.verdict == "statistical"
        wrong += model.certificate_.verdict == "statistical" and not good
        failed += model.certificate_.verdict == "failed"
        lines = model.estimates()
        values = parameters(in_order_of(model.network_, truth))
        covered.append([line.low <= value <= line.high for line, value in zip(lines, values)])
    return {"d": d, "hinges": K, "n": n, "noise": noise, "sets": SETS, "found": found, "statistical": sure,
            "statistical and not found": wrong, "failed": failed, "cover": round(float(np.mean(covered)), 3),
            "median CPU s": round(float(np.median(seconds)), 2)}  # fmt: skip


def _numbers(track: Track) -> Iterator[Callable[[], Row]]:
    for d, K in COUNTS:
        yield partial(count_planes, d, K, track)


def count_planes(d: int, K: int, track: Track) -> Row:
    """Return how many hinges are found in sets with K of them, their number not told."""
    counts, seconds, sure = np.zeros(9, dtype=int), [], 0
    for seed in track(fresh_seeds(SETS), f"d = {d}, {K} hinges"):
        _, X, y = draw(seed, d, K, 200 * d, 0.3)
        began = time.process_time()
        model = nr.HingeRegression().fit(X, y)
        seconds.append(time.process_time() - began)
        counts[model.n_hinges_] += 1
        sure += model.certificate_ is not None and model.certificate_.verdict == "statistical" and model.n_hinges_ != K
    return {"d": d, "hinges": K, "n": 200 * d, "noise": 0.3, "sets": SETS,
            "right": round(float(counts[K] / counts.sum()), 3), "statistical and wrong": sure,
            "found 0, 1, 2, …": " ".join(map(str, counts)),
            "median CPU s": round(float(np.median(seconds)), 2)}  # fmt: skip


EXPERIMENTS = (
    Experiment("hinges-planes", "Hinge planes of several inputs, their number told", _planes),
    Experiment("hinges-plane-numbers", "The number of hinge planes", _numbers),
)
