"""Every published method by its name, on data that meets its assumptions, and the classifiers of halfspaces."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

import neurecover as nr
from goldens.drawing import network, unit_rows, with_noise
from goldens.outcome import Outcome, of_recovery

Case = Callable[[Path], Outcome]


def _network(method: str, d: int, k: int, p: int, n: int, bias: float = 0.0, noise: float = 0.0) -> Case:
    def run(folder: Path) -> Outcome:
        rng = np.random.default_rng(0)
        truth, X = network(rng, d, k, p, bias), rng.standard_normal((n, d))
        Y = with_noise(truth(X), noise, rng)
        found = nr.recover(X, Y, k, method=method, bias=bias > 0.0, random_state=0)
        return of_recovery(found, truth, 0.05 if noise else 1e-8)

    return run


def _orthonormal(folder: Path) -> Outcome:
    rng = np.random.default_rng(0)
    W, A = np.linalg.qr(rng.standard_normal((6, 6)))[0], rng.standard_normal((8, 6))
    truth, X = nr.Network(W, None, A), rng.standard_normal((2_000, 6))
    return of_recovery(nr.recover(X, truth(X), 6, method="exact_ica", bias=False, random_state=0), truth)


def _gross_errors(folder: Path) -> Outcome:
    rng = np.random.default_rng(0)
    truth, X = network(rng, 6, 3, 30, 0.0), rng.standard_normal((600, 6))
    Y = truth(X)
    Y += 50.0 * (rng.random(Y.shape) < 0.03) * rng.choice([-1.0, 1.0], Y.shape)
    return of_recovery(nr.recover(X, Y, 3, method="sparse_noise", bias=False, random_state=0), truth)


def _products(H: np.ndarray, weight: float = 1.0) -> np.ndarray:
    """The sum of the units and of their products two by two."""
    return H.sum(axis=1) + weight * sum(H[:, i] * H[:, j] for i, j in combinations(range(H.shape[1]), 2))


def _composite(n: int, k: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw orthonormal units of threshold 1.5 on one input more than there are units, below products."""
    rng = np.random.default_rng(0)
    W, X = np.linalg.qr(rng.standard_normal((k + 1, k + 1)))[0][:k], rng.standard_normal((n, k + 1))
    return W, X, _products(np.maximum(X @ W.T - 1.5, 0.0))


def _lowest_layer(n_hidden: int | None) -> Case:
    def run(folder: Path) -> Outcome:
        W, X, Y = _composite(10_000)
        # Which terms a polynomial has beyond those of the truth is up to the run.
        return of_recovery(nr.recover_lowest_layer(X, Y, n_hidden, random_state=0), W, repeatable=False)

    return run


def _upper_network(folder: Path) -> Outcome:
    """The lowest layer below a network of one hidden layer, both found."""
    W, X, _ = _composite(6_000)
    rng = np.random.default_rng(2)
    V, a = rng.uniform(0.5, 1.5, (3, 3)) * rng.choice([-1.0, 1.0], (3, 3)) / np.sqrt(3.0), rng.uniform(0.5, 1.5, 3)
    Y = np.maximum(np.maximum(X @ W.T - 1.0, 0.0) @ V.T + rng.uniform(0.05, 0.4, 3), 0.0) @ a
    return of_recovery(nr.recover_lowest_layer(X, Y, 3, upper="network", n_upper=3, random_state=0), W)


def _estimated(W: np.ndarray, X: np.ndarray, Y: np.ndarray, bound: float, **options: Any) -> Outcome:
    """An estimate alone, which is right up to an angle and has no certificate."""
    found = nr.estimate(X, Y, random_state=0, **options)
    return Outcome(np.zeros((0, X.shape[1])) if found.network is None else found.network, W, found.method, bound=bound)


def _directions(method: str, n: int, k: int, bound: float) -> Case:
    return lambda folder: _estimated(*_composite(n, k), bound, n_hidden=k, method=method)


def _even(folder: Path) -> Outcome:
    W, X, _ = _composite(20_000)
    return _estimated(W, X, _products(np.abs(X @ W.T)), 0.15, n_hidden=3, method="even", activation="abs")


def _rejection(folder: Path) -> Outcome:
    W, X, _ = _composite(120_000)
    Y = _products(1.0 / (1.0 + np.exp(3.0 - X @ W.T)), 0.0)
    return _estimated(W, X, Y, 0.5, n_hidden=3, method="rejection", activation="sigmoid")


def _zero_one(method: str, rate: float, threshold: float) -> Case:
    """Exponential units whose weights are 0 and 1, of which the method finds every one."""

    def run(folder: Path) -> Outcome:
        W = np.array([[1, 1, 0, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 1, 1, 0]], dtype=float)
        X = np.random.default_rng(0).standard_normal((40_000, 7))
        Y = _products(np.exp(rate * (X @ W.T - threshold)), 0.1)
        return _estimated(W, X, Y, 1e-8, method=method, activation="exp")

    return run


def _halfspaces(classifier: Any, union: bool, flipped: float, k: int | None) -> Case:
    def run(folder: Path) -> Outcome:
        rng = np.random.default_rng(0)
        W, X = unit_rows(rng, 2, 3), rng.standard_normal((1_000, 3))
        y = ((X @ W.T > 1.3).any(axis=1) == union) ^ (rng.random(len(X)) < flipped)
        model = classifier(k, random_state=0).fit(X, y)
        return Outcome(model.halfspaces_.normals, W, type(model).__name__, model.certificate_, 0.1, repeatable=False)

    return run


CASES: dict[str, Case] = {
    "hermite": _network("hermite", 5, 4, 1, 3_000, 0.5),
    "symmetric": _network("symmetric", 6, 5, 6, 1_000),
    "exact_tensor": _network("exact_tensor", 6, 5, 6, 2_000),
    "exact_ica": _orthonormal,
    "exact_symmetric": _network("exact_symmetric", 6, 5, 6, 2_000),
    "noisy_tensor": _network("noisy_tensor", 5, 3, 4, 1_500, noise=0.05),
    "sign_patterns": _network("sign_patterns", 4, 2, 3, 30),
    "one_sparse": _network("one_sparse", 5, 4, 2, 400),
    "arbitrary_noise": _network("arbitrary_noise", 4, 2, 3, 200),
    "sparse_noise": _gross_errors,
    "least_squares": _network("least_squares", 5, 4, 1, 400, 0.5),
    "lowest_layer": _lowest_layer(3),
    "lowest_layer, k not told": _lowest_layer(None),
    "lowest_layer, below a network": _upper_network,
    "landscape": _directions("landscape", 20_000, 3, 0.35),
    "steep_directions": _directions("steep_directions", 10_000, 2, 0.25),
    "even": _even,
    "rejection": _rejection,
    "cliques": _zero_one("cliques", 0.6, 4.0),
    "exponential": _zero_one("exponential", 1.0, 0.0),
    "union of halfspaces": _halfspaces(nr.HalfspaceUnion, True, 0.0, None),
    "union of halfspaces, flipped labels": _halfspaces(nr.HalfspaceUnion, True, 0.02, 2),
    "intersection of halfspaces": _halfspaces(nr.HalfspaceIntersection, False, 0.0, 2),
}
