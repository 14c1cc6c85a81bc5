"""Networks from chosen queries: every kind of box that `extract` reads, and boxes that it has to give up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import neurecover as nr
from goldens.drawing import deep_network, network
from goldens.outcome import Outcome, of_recovery

Case = Callable[[Path], Outcome]
COARSE = 1e-5  # weight error of a box that answers in seven digits


def _shallow(seed: int, activation: str = "relu", told: str = "auto", p: int = 1, **options: Any) -> Case:
    def run(folder: Path) -> Outcome:
        truth = network(np.random.default_rng(seed), 6, 5, p, activation=activation)
        return of_recovery(nr.extract(nr.oracle(truth, 6), activation=told, random_state=0, **options), truth)

    return run


def _in_single_precision(activation: str) -> Case:
    """Every number and every sum in single precision; the truth has weights that it holds."""

    def run(folder: Path) -> Outcome:
        drawn = network(np.random.default_rng(0), 6, 5, activation=activation)
        W, b, A, c = (array.astype(np.float32) for array in (drawn.W, drawn.b, drawn.A, drawn.c))
        act = {"relu": lambda z: np.maximum(z, np.float32(0)), "tanh": np.tanh}[activation]
        box = nr.oracle(lambda X: act(X.astype(np.float32) @ W.T + b) @ A.T + c, 6)
        truth = nr.Network(*(array.astype(float) for array in (W, b, A, c)), activation)
        return of_recovery(nr.extract(box, random_state=0), truth, COARSE)

    return run


def _rounded(folder: Path) -> Outcome:
    truth = network(np.random.default_rng(1), 6, 5)
    return of_recovery(nr.extract(nr.oracle(lambda X: np.round(truth(X), 6), 6), random_state=0), truth, COARSE)


def _several(seed: int, dims: tuple[int, ...], **options: Any) -> Case:
    def run(folder: Path) -> Outcome:
        truth = deep_network(np.random.default_rng(seed), dims)
        return of_recovery(nr.extract(nr.oracle(truth, dims[0]), random_state=seed, **options), truth)

    return run


def _no_network(folder: Path) -> Outcome:
    box = nr.oracle(lambda X: np.sin(X).sum(axis=1), 4)
    return of_recovery(nr.extract(box, random_state=0), network(np.random.default_rng(0), 4, 4))


def _samples_of_a_box(folder: Path) -> Outcome:
    truth = network(np.random.default_rng(2), 4, 3)
    return of_recovery(nr.recover(nr.oracle(truth, 4), n_hidden=3, n_samples=500, random_state=0), truth)


CASES: dict[str, Case] = {
    "one layer": _shallow(0),
    "one layer, three outputs": _shallow(1, p=3),
    "one layer, k told": _shallow(2, n_hidden=5),
    "one layer, leaky relu": _shallow(0, "leaky_relu", "leaky_relu"),
    "one layer, abs": _shallow(0, "abs", "abs"),
    "one layer, tanh": _shallow(0, "tanh"),
    "one layer, sigmoid": _shallow(0, "sigmoid", "sigmoid"),
    "one layer, single precision": _in_single_precision("relu"),
    "one layer, single precision, tanh": _in_single_precision("tanh"),
    "one layer, six decimals": _rounded,
    "one layer, too few queries": _shallow(0, query_budget=60),
    "two layers": _several(1, (5, 4, 3, 1)),
    "two layers, two outputs, widths told": _several(3, (5, 4, 3, 2), n_hidden=(4, 3)),
    "three layers": _several(1, (5, 4, 3, 2, 1)),
    "no network": _no_network,
    "samples of a box": _samples_of_a_box,
}
