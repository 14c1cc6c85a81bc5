"""Training in PyTorch against `recover` on the problems of `bench finisher`, `layers` and `large`, in the same run.

The peer has ten times the wall seconds that `recover` took on the same data: a network of twice the widths in double
precision, Adam on batches of 512 for half of the time, at a rate that falls like half a cosine, then L-BFGS on all
samples. Halfway through L-BFGS every hidden layer is pruned to its true width, the units with the largest product of
incoming and outgoing norm kept. Solved is a weight error of at most 1e-6 in every layer. One thread for everyone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.layers import teacher_and_inputs
from benchmarks.peers.shallow import lbfgs
from neurecover.experiment import Experiment, Row, Track
from neurecover.matching import compare
from neurecover.models import DeepNetwork, Network
from neurecover.pipeline import recover
from neurecover.simulate import teacher

FIRST_SEED = 4_100  # no setting was chosen on these
TIMES = 10.0  # the time of `recover` that the peer has
SOLVED = 1e-6  # weight error
BATCH, RATE = 512, 3e-3  # of Adam
# Widths from the inputs to the outputs, samples, and seeds.
PROBLEMS = (
    ((10, 10, 1), 600, 2),
    ((50, 50, 1), 13_000, 2),
    ((100, 20, 1), 10_500, 2),
    ((10, 8, 6, 1), 2_235, 2),
    ((10, 8, 6, 3), 3_260, 2),
    ((10, 10, 10, 1), 9_240, 2),
    ((20, 10, 10, 1), 6_620, 2),
    ((10, 8, 6, 4, 1), 10_500, 1),
    ((100, 100, 1), 52_000, 1),
    ((784, 32, 10), 30_000, 1),
)


def draw(dims: tuple[int, ...], n: int, seed: int) -> tuple[DeepNetwork, np.ndarray, np.ndarray]:
    """Draw a network and n inputs; return both with its answers."""
    if len(dims) > 3:
        n_parameters = sum(b * (a + 1) for a, b in pairwise(dims))
        truth, X = teacher_and_inputs(dims, -(-n // n_parameters), seed)
        return truth, X[:n], truth(X[:n])
    flat = teacher(*dims, random_state=seed)
    X = np.random.default_rng(seed).standard_normal((n, dims[0]))
    return DeepNetwork([(flat.W, flat.b), (flat.A, flat.c)]), X, flat(X)


def trained(
    dims: tuple[int, ...], X: np.ndarray, Y: np.ndarray, seed: int, seconds: float
) -> tuple[DeepNetwork, float]:
    """Train the peer; return its network and its relative residual √(Σ r² / Σ (y − ȳ)²)."""
    import torch

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    mean, spread = Y.mean(axis=0), Y.std()
    inputs, outputs = torch.from_numpy(X), torch.from_numpy((Y - mean) / spread)
    began = time.monotonic()
    wide = [dims[0], *(2 * width for width in dims[1:-1]), dims[-1]]
    layers = [torch.nn.Linear(a, b).double() for a, b in pairwise(wide)]
    _adam(torch, layers, inputs, outputs, began + 0.5 * seconds)
    _lbfgs(torch, layers, inputs, outputs, began + 0.75 * seconds)
    layers = _pruned(torch, layers, dims)
    loss = _lbfgs(torch, layers, inputs, outputs, began + seconds)
    arrays = [(layer.weight.detach().numpy().copy(), layer.bias.detach().numpy().copy()) for layer in layers]
    A, c = arrays[-1]
    return DeepNetwork([*arrays[:-1], (spread * A, spread * c + mean)]), float(np.sqrt(loss))


def _forward(torch: Any, layers: list[Any], X: Any) -> Any:
    for layer in layers[:-1]:
        X = torch.relu(layer(X))
    return layers[-1](X)


def _adam(torch: Any, layers: list[Any], X: Any, Y: Any, end: float) -> None:
    rule = torch.optim.Adam([p for layer in layers for p in layer.parameters()], lr=RATE)
    began = time.monotonic()
    while (now := time.monotonic()) < end:
        for group in rule.param_groups:
            group["lr"] = RATE * (0.5 + 0.5 * np.cos(np.pi * (now - began) / (end - began)))
        for rows in torch.randperm(len(X)).split(BATCH):
            rule.zero_grad()
            torch.mean((_forward(torch, layers, X[rows]) - Y[rows]) ** 2).backward()
            rule.step()


def _lbfgs(torch: Any, layers: list[Any], X: Any, Y: Any, end: float) -> float:
    """Train until `end`, one round at the least; return the mean squared error."""
    parameters, value = [p for layer in layers for p in layer.parameters()], float("inf")

    def loss() -> Any:
        rule.zero_grad()
        error = torch.mean((_forward(torch, layers, X) - Y) ** 2)
        error.backward()
        return error

    while value == float("inf") or (time.monotonic() < end and value > 1e-30):
        rule = lbfgs(torch, parameters)
        rule.step(loss)
        value = float(loss().detach())
        if not np.isfinite(value):
            break
    return value


def _pruned(torch: Any, layers: list[Any], dims: tuple[int, ...]) -> list[Any]:
    arrays = [(layer.weight.detach().clone(), layer.bias.detach().clone()) for layer in layers]
    for number, width in enumerate(dims[1:-1]):
        (W, b), (A, c) = arrays[number], arrays[number + 1]
        kept = torch.topk(W.norm(dim=1) * A.norm(dim=0), width).indices.sort().values
        arrays[number], arrays[number + 1] = (W[kept], b[kept]), (A[:, kept], c)
    fewer = [torch.nn.Linear(W.shape[1], W.shape[0]).double() for W, _ in arrays]
    with torch.no_grad():
        for layer, (W, b) in zip(fewer, arrays):
            layer.weight.copy_(W)
            layer.bias.copy_(b)
    return fewer


def _error(network: Network | DeepNetwork, truth: DeepNetwork) -> float:
    if isinstance(network, Network):
        network = DeepNetwork([(network.W, network.b), (network.A, network.c)])
    if network.n_hidden != truth.n_hidden:
        return float("inf")
    return compare(network, truth).weight_error


def _measure(dims: tuple[int, ...], n: int, seeds: int, track: Track) -> Row:
    ours, theirs, seconds, residuals = [], [], [], []
    name = "-".join(map(str, dims))
    for seed in track(range(FIRST_SEED, FIRST_SEED + seeds), name):
        truth, X, Y = draw(dims, n, seed)
        with threadpool_limits(1):
            began = time.monotonic()
            widths = dims[1] if len(dims) == 3 else dims[1:-1]
            ours.append(_error(recover(X, Y, widths, random_state=seed, time_budget=300.0).network, truth))
            seconds.append(time.monotonic() - began)
            network, residual = trained(dims, X, Y, seed, TIMES * seconds[-1])
        theirs.append(_error(network, truth))
        residuals.append(residual)
    return {
        "network": name,
        "n": n,
        "seeds": seeds,
        "recover solves": sum(error <= SOLVED for error in ours),
        "wall seconds, median": round(float(np.median(seconds)), 2),
        "PyTorch solves": sum(error <= SOLVED for error in theirs),
        "its wall seconds, median": round(TIMES * float(np.median(seconds)), 1),
        "its relative residual, median": f"{np.median(residuals):.1e}",
    }


def _run(track: Track) -> Iterator[Row]:
    return (_measure(dims, n, seeds, track) for dims, n, seeds in PROBLEMS)


EXPERIMENTS = (Experiment("deep-peers", "Training in PyTorch with ten times the time", _run),)
