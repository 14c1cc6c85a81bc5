"""Several hidden layers behind answers in single precision or of few digits: how often their weights come back.

    python -m benchmarks.single_precision [--rows NAME ...] [--families NAME ...] [--seeds N] [--first-seed 74001]

Nothing is told but the number of inputs. A family says where the weights come from:

    default   weights and biases uniform in ±1/√(fan in), as `torch.nn.Linear` draws them
    he        weights N(0, 2/fan in), biases 0.1·N(0, 1)
    sines     Adam on random sums of sines, 2,000 samples of N(0, I), from the default start
    diabetes  scikit-learn's `MLPRegressor` on its standardised diabetes data
    victim    a public network; `NEURECOVER_MODELS` names the folder with its file
    drawn     5 to 8 inputs, one to three layers of 3 to 8 units, one to three outputs; a third with the default start,
              a third he, a third he with every fourth hidden unit on in less than a tenth of the inputs

Right is a `statistical` verdict, true widths and no weight off by more than the row allows, in normal form; a false
claim has other widths or an error above 1e-2. A unit that is off at 200,000 queries, near and far, is not counted.
Covered is the share of weights within 1.96 stated standard errors. A run has a process of its own, which ends after
`cap` CPU seconds and then counts as not claimed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.published import FOLDER, read_network
from neurecover.data import oracle
from neurecover.experiment import Experiment, Row, Track
from neurecover.matching import compare
from neurecover.models import DeepNetwork, Network
from neurecover.models.formats import libraries
from neurecover.pipeline import extract

FIRST_SEED = 74_001  # nothing was chosen on seeds from here on
FALSE = 1e-2  # error of a weight from which a claim is false
Ask = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Problem:
    """Widths from the inputs to the outputs, the arithmetic of the answers, and what must be reached on how many seeds.

    `digits` are decimals, or the name of a floating-point format that every layer is computed in.
    """

    dims: tuple[int, ...]
    digits: int | str
    family: str
    seeds: int
    needed: int
    error: float
    queries: int
    seconds: float
    cap: float

    @property
    def name(self) -> str:
        kind = f"{self.digits} decimals" if isinstance(self.digits, int) else self.digits
        return f"{'-'.join(map(str, self.dims)) or 'small'} {kind}"


PROBLEMS = (
    Problem((10, 10, 10, 1), "float32", "default", 10, 10, 2e-4, 30_000, 15.0, 60.0),
    Problem((10, 8, 6, 3), "float32", "default", 10, 10, 2e-4, 30_000, 15.0, 60.0),
    Problem((20, 16, 8, 5), "float32", "default", 5, 5, 1e-6, 50_000, 25.0, 60.0),
    Problem((10, 15, 15, 1), "float32", "default", 5, 4, 1e-4, 150_000, 90.0, 120.0),
    Problem((20, 20, 20, 1), "float32", "default", 5, 4, 1e-4, 150_000, 90.0, 120.0),
    Problem((10, 10, 10, 1), "float32", "he", 10, 9, 2e-4, 50_000, 15.0, 60.0),
    Problem((10, 10, 10, 1), "float32", "sines", 3, 2, 1e-4, 100_000, 60.0, 80.0),
    Problem((10, 8, 6, 3), "float32", "sines", 3, 2, 1e-4, 100_000, 60.0, 80.0),
    Problem((10, 16, 8, 1), "float32", "diabetes", 3, 2, 1e-4, 100_000, 60.0, 80.0),
    Problem((20, 16, 8, 5), "float32", "sines", 3, 2, 1e-4, 100_000, 60.0, 80.0),
    Problem((784, 16, 16, 1), "float32", "victim", 1, 1, 5e-6, 200_000, 90.0, 200.0),
    Problem((10, 10, 10, 1), 6, "default", 5, 4, 1e-3, 100_000, 40.0, 60.0),
    Problem((10, 8, 6, 3), 6, "default", 5, 4, 1e-3, 100_000, 40.0, 60.0),
    Problem((10, 10, 10, 1), 4, "default", 5, 0, 1e-2, 5_000, 40.0, 60.0),
    Problem((10, 8, 6, 3), 4, "default", 5, 0, 1e-2, 5_000, 40.0, 60.0),
    Problem((10, 10, 10, 1), "float16", "default", 3, 0, 1e-2, 5_000, 40.0, 60.0),
    Problem((10, 10, 10, 1), "bfloat16", "default", 3, 0, 1e-2, 5_000, 40.0, 60.0),
    Problem((20, 16, 12, 8, 1), "float32", "default", 5, 4, 2e-4, 250_000, 120.0, 150.0),
    Problem((20, 16, 12, 8, 1), "float32", "he", 5, 4, 2e-4, 250_000, 120.0, 150.0),
    Problem((10, 10, 10, 1), 4, "he", 5, 3, 1e-2, 100_000, 40.0, 60.0),
    Problem((784, 32, 32, 1), "float32", "victim", 1, 1, 1e-4, 1_000_000, 300.0, 400.0),
    Problem((), "float32", "drawn", 50, 0, 1e-2, 100_000, 40.0, 30.0),
    Problem((), 6, "drawn", 50, 0, 1e-2, 100_000, 40.0, 30.0),
)


def draw_network(dims: tuple[int, ...], family: str, seed: int) -> DeepNetwork:
    """Return a network of a family; its weights are numbers in single precision."""
    if family == "victim":
        inside, width = len(dims) - 2, dims[1]
        found = read_network(Path(os.environ[FOLDER]) / f"mnist{dims[0]}_{width}x{inside}_{dims[-1]}.npz")
        layers = list(found.layers)
    elif family == "sines":
        layers = _trained_on_sines(dims, seed)
    elif family == "diabetes":
        layers = _trained_on_diabetes(dims, seed)
    elif family == "drawn":
        return _drawn(seed)
    else:
        rng, layers = np.random.default_rng(seed), []
        for d, k in pairwise(dims):
            if family == "he":
                layers.append((rng.standard_normal((k, d)) * np.sqrt(2.0 / d), 0.1 * rng.standard_normal(k)))
            else:
                layers.append((rng.uniform(-1.0, 1.0, (k, d)) / np.sqrt(d), rng.uniform(-1.0, 1.0, k) / np.sqrt(d)))
    return DeepNetwork([(W.astype(np.float32).astype(float), b.astype(np.float32).astype(float)) for W, b in layers])


def _drawn(seed: int) -> DeepNetwork:
    """Draw the widths too; of the third family every fourth hidden unit is on in less than a tenth of the inputs."""
    rng = np.random.default_rng([seed, 1])
    inside = rng.integers(3, 9, rng.integers(1, 4))
    dims = (int(rng.integers(5, 9)), *map(int, inside), int(rng.integers(1, 4)))
    family = ("default", "he", "rare")[seed % 3]
    network = draw_network(dims, "default" if family == "default" else "he", seed)
    if family != "rare":
        return network
    X = rng.standard_normal((2_000, dims[0]))
    layers = list(network.layers)
    for i, (W, b) in enumerate(layers[:-1]):
        values = DeepNetwork([*layers[: i + 1], (np.eye(len(b)), np.zeros(len(b)))]).hidden(X)[i - 1] if i else X
        z, b = values @ W.T, b.copy()
        for j in range(0, len(b), 4):
            b[j] = np.float32(-np.quantile(z[:, j], 1.0 - np.exp(rng.uniform(np.log(1e-3), np.log(0.1)))))
        layers[i] = (W, b)
    return DeepNetwork(layers)


def _shown(network: DeepNetwork, seed: int) -> DeepNetwork:
    """Return the network without the units that are off at all of many queries, near and far."""
    rng = np.random.default_rng([seed, 2])
    on = [np.zeros(k, dtype=bool) for k in network.n_hidden]
    for size in (0.3, 1.0, 5.0, 30.0):
        values = network.hidden(size * rng.standard_normal((50_000, network.n_inputs)))
        on = [seen | (h > 0.0).any(axis=0) for seen, h in zip(on, values)]
    return network.take([np.flatnonzero(seen) for seen in on])


def _trained_on_sines(dims: tuple[int, ...], seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    torch = libraries.torch()
    nn = torch.nn
    rng = np.random.default_rng(seed)
    X, V = rng.standard_normal((2_000, dims[0])), rng.standard_normal((dims[0], 2 * dims[-1])) / np.sqrt(dims[0])
    Y = np.sin(2.0 * X @ V + rng.uniform(0.0, 6.0, V.shape[1])).reshape(len(X), dims[-1], 2).sum(axis=2)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        parts = [part for d, k in pairwise(dims) for part in (nn.Linear(d, k), nn.ReLU())][:-1]
        model, x, y = nn.Sequential(*parts), torch.tensor(X, dtype=torch.float32), torch.tensor(Y, dtype=torch.float32)
        descent = torch.optim.Adam(model.parameters(), lr=3e-3)
        for _ in range(2_000):
            rows = torch.randint(len(x), (200,))
            descent.zero_grad()
            ((model(x[rows]) - y[rows]) ** 2).mean().backward()
            descent.step()
    linear = [part for part in parts if isinstance(part, nn.Linear)]
    return [(part.weight.detach().numpy().astype(float), part.bias.detach().numpy().astype(float)) for part in linear]


def _trained_on_diabetes(dims: tuple[int, ...], seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    from benchmarks.extract import trained_network

    return list(trained_network(dims, "diabetes", seed).layers)


def answers_of(network: DeepNetwork, digits: int | str) -> Ask:
    """Return the network as something that answers with as many digits."""
    if isinstance(digits, int):
        return lambda X: np.round(network(X), digits)
    kind: Any = np.float16 if digits == "float16" else np.float32
    rounded = _to_bfloat16 if digits == "bfloat16" else lambda h: h.astype(kind)
    layers = [(rounded(W.astype(kind)), rounded(b.astype(kind))) for W, b in network.layers]

    def ask(X: np.ndarray) -> np.ndarray:
        h = rounded(X.astype(kind))
        for W, b in layers[:-1]:
            h = np.maximum(rounded(rounded(h @ W.T) + b), kind(0.0))
        return np.asarray(rounded(rounded(h @ layers[-1][0].T) + layers[-1][1]))

    return ask


def _to_bfloat16(h: np.ndarray) -> np.ndarray:
    """Round single precision to its upper 16 bits, to nearest."""
    return ((np.ascontiguousarray(h).view(np.uint32) + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32)


@dataclass(frozen=True, eq=False)
class Run:
    """What one extraction gave: `off` are the weights' deviations in their stated errors."""

    verdict: str
    widths: tuple[int, ...] = ()
    error: float = np.inf
    off: np.ndarray | None = None
    queries: int = 0
    seconds: float = 0.0
    reasons: str = ""


def run_once(problem: Problem, seed: int) -> Run:
    """Draw the network of a seed and extract it, in this process; the timer ends it after the row's cap."""
    truth = draw_network(problem.dims, problem.family, seed)
    box = oracle(answers_of(truth, problem.digits), truth.n_inputs)
    signal.setitimer(signal.ITIMER_PROF, problem.cap)
    began = time.process_time()
    found = extract(box, random_state=seed)
    seconds = time.process_time() - began
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    ours, error, off = found.network, np.inf, None
    widths = tuple(len(b) for _, b in ours.layers[:-1]) if ours is not None else ()
    truth = _shown(truth, seed)
    if isinstance(ours, (Network, DeepNetwork)) and widths == tuple(truth.n_hidden):
        ours = ours if isinstance(ours, DeepNetwork) else DeepNetwork(ours.layers)
        apart = compare(ours, truth)
        error = max(apart.weight_error, apart.bias_error, apart.output_weight_error, apart.offset_error)
        off = _in_standard_errors(found, ours, truth)
    certificate = found.certificate
    said = " ".join(certificate.reasons)
    return Run(certificate.verdict, widths, float(error), off, found.n_queries or 0, seconds, said)


def _in_standard_errors(found: Any, ours: DeepNetwork, truth: DeepNetwork) -> np.ndarray | None:
    bars = found.certificate.standard_errors
    if bars is None:
        return None
    pairs = compare(ours, truth)
    units = [*(layer.permutation for layer in pairs.layers), np.arange(truth.n_outputs)]
    below, off = np.arange(truth.n_inputs), []
    known = [np.maximum(np.asarray(bars[name]), 1e-300) for name in found.network.arrays]
    layers = zip(ours.normal_form().layers, truth.normal_form().layers, units, known[::2], known[1::2])
    for (V, c), (W, b), own, of_V, of_c in layers:
        square = np.ix_(own, below)
        off += [((V[square] - W) / of_V[square]).ravel(), (c[own] - b) / of_c[own]]
        below = own
    return np.concatenate(off)


def run_in_process(problem: Problem, seed: int) -> Run:
    """Run one seed in a process of its own."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_send, args=(there, problem, seed))
    child.start()
    there.close()
    try:
        return here.recv()
    except EOFError:
        child.join()
        ended = "cap" if child.exitcode == -signal.SIGPROF else f"died: status {child.exitcode}"
        return Run(ended, seconds=problem.cap)
    finally:
        child.join()


def _send(to: Any, problem: Problem, seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        to.send(run_once(problem, seed))


def summarise(problem: Problem, runs: list[Run]) -> Row:
    """Return the row of the table."""
    claimed = [run for run in runs if run.verdict in ("statistical", "exact")]
    wrong = [run for run in claimed if run.error > FALSE]
    off = np.concatenate([np.zeros(0), *(run.off for run in claimed if run.off is not None)])
    answered = [run for run in runs if run.queries] or [Run("none")]
    return {
        "network": problem.name,
        "family": problem.family,
        "seeds": len(runs),
        "claimed": len(claimed),
        "right": sum(run.error <= problem.error for run in claimed),
        "needed": problem.needed,
        "false claims": len(wrong),
        "right, not claimed": sum(run.error <= problem.error for run in runs if run not in claimed),
        "ended by the cap": sum(run.verdict == "cap" for run in runs),
        "median queries": int(np.median([run.queries for run in answered])),
        "largest queries": max(run.queries for run in answered),
        "allowed queries": problem.queries,
        "median CPU seconds": round(float(np.median([run.seconds for run in runs])), 1),
        "largest error": f"{max((run.error for run in claimed), default=np.nan):.1e}",
        "allowed error": problem.error,
        "covered": f"{np.mean(np.abs(off) < 1.96):.3f}" if len(off) else "",
        "largest deviation": f"{np.abs(off).max():.1f}" if len(off) else "",
    }


def _measure(problem: Problem, track: Track) -> Row:
    seeds = range(FIRST_SEED, FIRST_SEED + problem.seeds)
    return summarise(problem, [run_in_process(problem, seed) for seed in track(seeds, problem.name)])


def _rows(track: Track) -> Iterator[Callable[[], Row]]:
    for problem in PROBLEMS:
        if problem.family != "victim" or FOLDER in os.environ:
            yield partial(_measure, problem, track)


def _told(problem: Problem, seeds: Iterable[int]) -> Row:
    """Run the seeds of a row and write a line for each."""
    runs = []
    for seed in seeds:
        run = run_in_process(problem, seed)
        runs.append(run)
        sys.stdout.write(
            f"  {problem.name} {problem.family} {seed}: {run.verdict} {run.widths} error {run.error:.1e} "
            f"{run.queries} queries {run.seconds:.1f} s {run.reasons[:300]}\n"
        )
        sys.stdout.flush()
    return summarise(problem, runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=[""], help="names of rows or their beginnings; all without it")
    parser.add_argument("--families", nargs="+", help="families of the rows; all without it")
    parser.add_argument("--seeds", type=int, help="of a row; as many as its entry says without it")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    chosen = parser.parse_args()
    for problem in PROBLEMS:
        if not any(problem.name.startswith(name) for name in chosen.rows):
            continue
        if chosen.families and problem.family not in chosen.families:
            continue
        row = _told(problem, range(chosen.first_seed, chosen.first_seed + (chosen.seeds or problem.seeds)))
        sys.stdout.write(", ".join(f"{name} {value}" for name, value in row.items()) + "\n")
        sys.stdout.flush()


EXPERIMENTS = (Experiment("single-precision", "Several hidden layers from answers of few digits", _rows),)

if __name__ == "__main__":
    main()
