"""Several hidden layers from fixed samples: how often every weight comes back, and in what time.

The networks are random with rows of unit norm, and the inputs Gaussian; every unit switches half a standard deviation,
times N(0, 1), from the middle of what it adds up; output weights are N(0, 1). With noise the share of all true weights
within 1.96 standard errors is given too, and a claim is wrong if one is FAR off. Networks with a weight whose standard
error is more than 0.1 at the truth itself, as those below a small output weight have, are counted: no method can claim
them. No setting was chosen on these seeds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from neurecover.certificate import CertificateOptions
from neurecover.certificate.information.matrix import Information
from neurecover.certificate.information.normal_form import ToNormalForm, array_names, by_name
from neurecover.data import ArraySource, Whitening, reduce
from neurecover.experiment import Experiment, Row, Track
from neurecover.matching import compare
from neurecover.models import DeepNetwork, Model
from neurecover.pipeline import recover
from neurecover.results import Recovery
from neurecover.statistics import InformationSums

FIRST_SEED = 6_000
EXACT = 1e-10  # error of a weight or bias of a solved network: rounding, times what the equations magnify it by
FAR = 6.0  # standard errors, beyond which no weight of a network that counts as solved lies


@dataclass(frozen=True)
class Problem:
    """Widths from the inputs to the outputs, samples per parameter, and what is asked of `recover` on them.

    `noise` is a share of the spread of the outputs; `seconds` is the median allowed, and `recover` is given three times
    as many.
    """

    dims: tuple[int, ...]
    load: int
    seeds: int
    needed: int
    seconds: float
    told: bool = True
    noise: float = 0.0


PROBLEMS = (
    Problem((10, 8, 6, 1), 15, 10, 9, 20.0),
    Problem((10, 8, 6, 3), 20, 10, 9, 20.0),
    Problem((10, 10, 10, 1), 40, 10, 9, 60.0),
    Problem((10, 10, 10, 1), 20, 10, 6, 120.0),
    Problem((20, 10, 10, 1), 20, 10, 9, 60.0),
    Problem((10, 8, 6, 1), 200, 10, 9, 120.0, noise=0.05),
    Problem((10, 8, 6, 1), 40, 10, 7, 120.0, told=False),
    Problem((10, 8, 6, 4, 1), 60, 5, 3, 300.0),
)


def teacher_and_inputs(dims: tuple[int, ...], load: int, seed: int) -> tuple[DeepNetwork, np.ndarray]:
    """Draw a network, and `load` inputs for every parameter of it."""
    rng = np.random.default_rng(seed)
    H = X = rng.standard_normal((load * sum(b * (a + 1) for a, b in pairwise(dims)), dims[0]))
    layers = []
    for fan_in, width in pairwise(dims[:-1]):
        W = rng.standard_normal((width, fan_in))
        W /= np.linalg.norm(W, axis=1, keepdims=True)
        Z = H @ W.T
        b = 0.5 * Z.std(axis=0) * rng.standard_normal(width) - Z.mean(axis=0)
        layers.append((W, b))
        H = np.maximum(Z + b, 0.0)
    return DeepNetwork([*layers, (rng.standard_normal((dims[-1], dims[-2])), None)]), X


def _measure(problem: Problem, track: Track) -> Row:
    wanted = "statistical" if problem.noise else "exact"
    solved, lies, faint, errors, seconds, every, n = 0, 0, 0, [], [], np.zeros(0), 0
    name = "-".join(map(str, problem.dims))
    for seed in track(range(FIRST_SEED, FIRST_SEED + problem.seeds), f"{name} at {problem.load} ×"):
        truth, X = teacher_and_inputs(problem.dims, problem.load, seed)
        n, clean, rng = len(X), truth(X), np.random.default_rng([seed, 1])
        Y = clean + problem.noise * clean.std(axis=0) * rng.standard_normal(clean.shape)
        depth, told = len(problem.dims) - 2, problem.dims[1:-1] if problem.told else None
        began = time.process_time()
        found = recover(X, Y, told, depth=depth, random_state=seed, time_budget=3.0 * problem.seconds)
        seconds.append(time.process_time() - began)
        errors.append(_error(found, truth))
        apart = _deviations(found, truth, errors[-1])
        every = np.append(every, apart)
        right = np.abs(apart).max() <= FAR if problem.noise and len(apart) else errors[-1] <= EXACT
        solved += right and found.certificate.verdict == wanted
        faint += problem.noise > 0.0 and _too_faint(truth, X, np.var(Y - clean, axis=0))
        lies += found.certificate.verdict in ("exact", "statistical") and not right
    return {
        "network": name,
        "widths": "given" if problem.told else "found",
        "noise": problem.noise,
        "n": n,
        "seeds": problem.seeds,
        "solved": solved,
        "needed": problem.needed,
        "weights that noise hides": faint,
        "claimed but wrong": lies,
        "median error": f"{np.median(errors):.1e}",
        "within 1.96 standard errors": f"{np.mean(np.abs(every) < 1.96):.3f}" if len(every) else "",
        "median CPU seconds": round(float(np.median(seconds)), 2),
        "allowed": problem.seconds,
    }


def _error(found: Recovery[Model], truth: DeepNetwork) -> float:
    network = found.network
    if not isinstance(network, DeepNetwork) or network.n_hidden != truth.n_hidden:
        return np.inf
    comparison = compare(network, truth)
    return max(comparison.weight_error, comparison.bias_error)


def _deviations(found: Recovery[Model], truth: DeepNetwork, error: float) -> np.ndarray:
    """Return (ŵ − w)/error for all weights; none where no error is claimed."""
    errors, network = found.certificate.standard_errors, found.network
    if errors is None or found.certificate.verdict != "statistical" or not isinstance(network, DeepNetwork):
        return np.zeros(0)
    if not np.isfinite(error):
        return np.full(1, np.inf)
    below, apart = np.arange(truth.n_inputs), []
    units = [layer.permutation for layer in compare(network, truth).layers] + [np.arange(truth.n_outputs)]
    arrays = [errors[name] for name in errors]
    for (W, b), (V, a), (dW, db), own in zip(
        network.layers, truth.normal_form().layers, zip(arrays[::2], arrays[1::2]), units
    ):
        pairs = np.ix_(own, below)
        apart += [((W[pairs] - V) / dW[pairs]).ravel(), (b[own] - a) / db[own]]
        below = own
    return np.concatenate(apart)


def _too_faint(truth: DeepNetwork, X: np.ndarray, variances: np.ndarray) -> bool:
    """Tell whether some hidden weight has, at the truth itself, a larger standard error than a certificate allows."""
    normal, whitening = truth.normal_form(), Whitening.of(np.zeros(truth.n_inputs), np.eye(truth.n_inputs))
    information = Information.of(reduce(ArraySource(X, truth(X)), InformationSums.of(normal)))
    half = ToNormalForm(information.model, information.free, normal, whitening)(information.root)
    spread = np.sqrt(float(variances.mean()) * np.einsum("ij,ij->i", half, half))
    return any(by_name(normal, spread)[name].max() > CertificateOptions().wide for name in array_names(normal)[:-2:2])


def _run(track: Track) -> Iterator[Row]:
    return (_measure(problem, track) for problem in PROBLEMS)


EXPERIMENTS = (Experiment("layers", "Several hidden layers from samples", _run),)
