"""Networks from samples: one hidden layer and several, exact and noisy, weighted, from files and from a stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import neurecover as nr
from goldens.drawing import deep_network, he_network, network, with_noise
from goldens.outcome import Outcome, of_recovery

NOISE = 0.05
FAR = 0.05  # weight error that noise of NOISE does not explain at these numbers of samples


def _recovered(truth: Any, rng: np.random.Generator, n: int, noise: float = 0.0, **options: Any) -> Outcome:
    X = rng.standard_normal((n, truth.n_inputs))
    Y = truth(X)
    if noise:
        Y = with_noise(Y, noise, rng)
    return of_recovery(nr.recover(X, Y, random_state=0, **options), truth, FAR if noise else 1e-8)


def _one_layer(
    seed: int,
    d: int,
    k: int,
    p: int = 1,
    n: int = 600,
    told: bool = True,
    bias: float = 0.5,
    activation: str = "relu",
    **options: Any,
) -> Callable[[Path], Outcome]:
    """`activation` is the truth's, and what `recover` is told where the options say nothing else."""

    def run(folder: Path) -> Outcome:
        rng = np.random.default_rng(seed)
        truth = network(rng, d, k, p, bias, activation)
        call = {"n_hidden": k if told else None, "bias": bias > 0.0, "activation": activation, **options}
        return _recovered(truth, rng, n, **call)

    return run


def _found_activation(activation: str) -> Callable[[Path], Outcome]:
    def run(folder: Path) -> Outcome:
        rng = np.random.default_rng(1)
        truth = network(rng, 4, 3, activation=activation)
        return _recovered(truth, rng, 400, n_hidden=3, activation="auto")

    return run


def _too_few(folder: Path) -> Outcome:
    """One unit fewer than there are, for which there are several optima."""
    return replace(_one_layer(0, 4, 3, n=300, n_hidden=2)(folder), repeatable=False)


def _he(folder: Path) -> Outcome:
    rng = np.random.default_rng(2)
    return _recovered(he_network(rng, 6, 6, 1), rng, 600, n_hidden=6)


def _several(seed: int, dims: tuple[int, ...], n: int, told: bool = True, **options: Any) -> Callable[[Path], Outcome]:
    def run(folder: Path) -> Outcome:
        rng = np.random.default_rng(seed)
        widths = dims[1:-1] if told else None
        return _recovered(deep_network(rng, dims), rng, n, n_hidden=widths, depth=len(dims) - 2, **options)

    return run


def _weighted(noise: float) -> Callable[[Path], Outcome]:
    """Weights e^z, z normal; the noise of a row of weight w has variance in proportion to 1/w."""

    def run(folder: Path) -> Outcome:
        rng = np.random.default_rng(1)
        truth, X, w = network(rng, 5, 3), rng.standard_normal((600, 5)), np.exp(rng.standard_normal(600))
        Y = truth(X)
        Y = Y + noise * Y.std() / np.sqrt(w)[:, None] * rng.standard_normal(Y.shape)
        found = nr.recover(X, Y, 3, sample_weight=w, random_state=0)
        return of_recovery(found, truth, FAR if noise else 1e-8)

    return run


def _parquet(folder: Path) -> Outcome:
    import pyarrow
    from pyarrow import parquet

    rng = np.random.default_rng(3)
    truth, X = network(rng, 4, 3), rng.standard_normal((1_000, 4))
    columns = dict(zip(("a", "b", "c", "d", "y"), np.hstack([X, truth(X)]).T))
    parquet.write_table(pyarrow.table(columns), folder / "samples.parquet", row_group_size=128)
    return of_recovery(nr.recover(nr.open(folder / "samples.parquet"), n_hidden=3, random_state=0), truth)


def _npz(folder: Path) -> Outcome:
    rng = np.random.default_rng(4)
    truth, X = network(rng, 4, 3, 2), rng.standard_normal((600, 4))
    np.savez_compressed(folder / "samples.npz", X=X, Y=truth(X))
    return of_recovery(nr.recover(folder / "samples.npz", n_hidden=3, random_state=0), truth)


def _stream(n: int, d: int, noise: float, times: int) -> Callable[[Path], Outcome]:
    """A text file, whose length is not known before it is read, and so is read in passes.

    2.2 million numbers are more than one block holds. A second run in the same folder begins from the records of the
    first, and has to end at the same weights.
    """

    def run(folder: Path) -> Outcome:
        import pyarrow
        from pyarrow import csv

        rng = np.random.default_rng(5)
        truth = network(rng, d, 3)
        X = rng.standard_normal((n, d)).round(2)
        Y = with_noise(truth(X), noise, rng)
        columns = [pyarrow.array(column) for column in np.hstack([X, Y]).T]
        csv.write_csv(pyarrow.table(columns, [*(f"x{i}" for i in range(d)), "y"]), folder / "samples.csv")
        options = {"n_hidden": 3, "random_state": 0, "checkpoint": folder / "records"}
        found = [nr.recover(nr.open(folder / "samples.csv"), **options) for _ in range(times)]
        assert all(np.array_equal(again.network.W, found[0].network.W) for again in found)
        return of_recovery(found[-1], truth, FAR if noise else 1e-8)

    return run


CASES: dict[str, Callable[[Path], Outcome]] = {
    "one layer, d = k = 5": _one_layer(0, 5, 5),
    "one layer, d = k = 10": _one_layer(0, 10, 10),
    "one layer, k not told": _one_layer(1, 8, 8, told=False),
    "one layer, more outputs than units": _one_layer(0, 6, 4, 6),
    "one layer, more outputs than units, k not told": _one_layer(1, 6, 4, 6, told=False),
    "one layer, no biases": _one_layer(0, 6, 4, 6, 300, bias=0.0),
    "one layer, no biases, one output": _one_layer(1, 5, 4, bias=0.0),
    "one layer, initialised as He does": _he,
    "one layer, tanh": _one_layer(0, 4, 3, activation="tanh"),
    "one layer, gelu": _one_layer(0, 4, 3, activation="gelu"),
    "one layer, leaky relu": _one_layer(0, 4, 3, activation="leaky_relu"),
    "one layer, activation to be found, relu": _found_activation("relu"),
    "one layer, activation to be found, tanh": _found_activation("tanh"),
    "one layer, one unit too few": _too_few,
    "one layer, noise": _one_layer(0, 5, 3, n=1_000, noise=NOISE),
    "one layer, noise, k not told": _one_layer(0, 5, 3, n=1_000, noise=NOISE, told=False),
    "one layer, noise, three outputs": _one_layer(1, 4, 3, 3, n=800, noise=NOISE),
    "weights of rows, exact": _weighted(0.0),
    "weights of rows, noise": _weighted(NOISE),
    "a Parquet file": _parquet,
    "an npz file": _npz,
    "a stream in passes, with a checkpoint": _stream(105_000, 20, 0.0, 2),
    "a stream in passes, noise": _stream(6_000, 4, NOISE, 1),
    "two layers, 5-4-3-1": _several(1, (5, 4, 3, 1), 1_200),
}
