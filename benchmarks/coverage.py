"""Whether the 95 % intervals of a certificate cover: noise of many kinds, rows that are not independent, rounding.

A weight is covered when it lies within 1.96 standard errors. Only networks with the verdict statistical have any; for
the others the certificate makes no claim. The deviations of one network hang together, so that the error of a coverage
is that of a mean over networks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from neurecover.experiment import Experiment, Row, Track
from neurecover.matching import compare
from neurecover.models import Model, Network
from neurecover.pipeline import recover
from neurecover.results import Recovery
from neurecover.simulate import teacher

D, K, N = 5, 4, 3_000
SEEDS = 40  # of each kind of noise; the table gives the error of each coverage
LEVEL = 0.1  # standard deviation of the noise
FAR = 6.0  # standard errors; a weight further off makes the verdict false
FIRST = 1_000  # seed; limits were chosen on others
SECONDS = 10.0  # a search without two descents that agree would go on for minutes
Samples = tuple[np.ndarray, np.ndarray]
Family = Callable[[Network, np.random.Generator], Samples]


def _noise(draw: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]) -> Family:
    """Return samples with independent noise of standard deviation LEVEL, drawn from a law of variance one."""

    def sample(truth: Network, rng: np.random.Generator) -> Samples:
        X = rng.standard_normal((N, D))
        clean = truth(X)
        return X, clean + LEVEL * draw(rng, clean.shape)

    return sample


def _heteroscedastic(truth: Network, rng: np.random.Generator) -> Samples:
    X = rng.standard_normal((N, D))
    clean = truth(X)
    return X, clean + LEVEL * np.abs(X[:, :1]) * rng.standard_normal(clean.shape)


def _by_output(truth: Network, rng: np.random.Generator) -> Samples:
    X = rng.standard_normal((N, D))
    clean = truth(X)
    return X, clean + LEVEL * 3.0 ** -np.arange(clean.shape[1]) * rng.standard_normal(clean.shape)


def _with_output(truth: Network, rng: np.random.Generator) -> Samples:
    X = rng.standard_normal((N, D))
    clean = truth(X)
    return X, clean + LEVEL * np.abs(clean) * rng.standard_normal(clean.shape)


def _autoregressive(rho: float) -> Family:
    def sample(truth: Network, rng: np.random.Generator) -> Samples:
        X, E = rng.standard_normal((N, D)), rng.standard_normal((N, truth.n_outputs))
        for i in range(1, N):
            X[i] = rho * X[i - 1] + np.sqrt(1 - rho**2) * X[i]
            E[i] = rho * E[i - 1] + np.sqrt(1 - rho**2) * E[i]
        return X, truth(X) + LEVEL * E

    return sample


def _repeated(truth: Network, rng: np.random.Generator) -> Samples:
    X = rng.standard_normal((N // 2, D))
    Y = truth(X) + LEVEL * rng.standard_normal((N // 2, truth.n_outputs))
    return np.vstack([X, X]), np.vstack([Y, Y])


def _asked_twice(truth: Network, rng: np.random.Generator) -> Samples:
    X = np.repeat(rng.standard_normal((N // 2, D)), 2, axis=0)
    return X, truth(X) + LEVEL * rng.standard_normal((len(X), truth.n_outputs))


def _rounded(rounding: Callable[[np.ndarray], np.ndarray]) -> Family:
    def sample(truth: Network, rng: np.random.Generator) -> Samples:
        X = rng.standard_normal((N, D))
        return X, rounding(truth(X))

    return sample


def _figures(digits: int) -> Family:
    return _rounded(np.vectorize(lambda y: float(f"{y:.{digits}g}")))


def _single(truth: Network, rng: np.random.Generator) -> Samples:
    """Compute every number and every sum in single precision."""
    X = rng.standard_normal((N, D)).astype(np.float32)
    W, b, A, c = (array.astype(np.float32) for array in (truth.W, truth.b, truth.A, truth.c))
    return X, np.maximum(X @ W.T + b, np.float32(0)) @ A.T + c


def _shortened(truth: Network) -> Network:
    """Round the weights to single precision, so that the network can be computed in it."""
    W, b, A, c = (array.astype(np.float32).astype(np.float64) for array in (truth.W, truth.b, truth.A, truth.c))
    return Network(W, b, A, c, truth.activation)


# By name: the outputs, a constant added to each, and what draws the samples.
FAMILIES: dict[str, tuple[int, float, Family]] = {
    "Gaussian": (1, 0.0, _noise(lambda rng, shape: rng.standard_normal(shape))),
    "uniform": (1, 0.0, _noise(lambda rng, shape: rng.uniform(-(3**0.5), 3**0.5, shape))),
    "Laplace": (1, 0.0, _noise(lambda rng, shape: rng.laplace(scale=0.5**0.5, size=shape))),
    "t with 3 degrees of freedom": (1, 0.0, _noise(lambda rng, shape: rng.standard_t(3, shape) / 3**0.5)),
    "skewed (exponential)": (1, 0.0, _noise(lambda rng, shape: rng.exponential(size=shape) - 1.0)),
    "in proportion to an input": (1, 0.0, _heteroscedastic),
    "in proportion to the output": (1, 0.0, _with_output),
    "in proportion to the output, plus 0.7": (1, 0.7, _with_output),
    "three outputs, each three times less": (3, 0.0, _by_output),
    "AR(0.9) in inputs and noise": (1, 0.0, _autoregressive(0.9)),
    "AR(0.3) in inputs and noise": (1, 0.0, _autoregressive(0.3)),
    "every row twice": (1, 0.0, _repeated),
    "every input asked twice": (1, 0.0, _asked_twice),
    "single precision": (1, 0.0, _single),
    "half precision": (1, 0.0, _rounded(lambda Y: Y.astype(np.float16))),
    "rounded to 4 decimals": (1, 0.0, _rounded(lambda Y: np.round(Y, 4))),
    "rounded to 1 decimal": (1, 0.0, _rounded(lambda Y: np.round(Y, 1))),
    "rounded to whole numbers": (1, 0.0, _rounded(np.round)),
    "2 significant digits": (1, 0.0, _figures(2)),
}


def deviations(recovery: Recovery[Model], truth: Network) -> np.ndarray | None:
    """Return (ŵ − w)/error for every weight, in normal form; None without errors or with other units."""
    truth = truth.normal_form()
    net, bars, errors = recovery.network, recovery.certificate.standard_errors, compare(recovery.network, truth)
    if bars is None or any(errors.unmatched) or not isinstance(net, Network):
        return None
    order = errors.permutation
    off = [net.W[order] - truth.W, net.b[order] - truth.b, net.A[:, order] - truth.A, net.c - truth.c]
    spread = [bars.W[order], bars.b[order], bars.A[:, order], bars.c]
    return np.concatenate([(o / np.maximum(s, 1e-300)).ravel() for o, s in zip(off, spread)])


def measure(family: str, seeds: range, track: Track) -> Row:
    """Count the verdicts of statistical, and how many weights are covered then; every second run is told k."""
    p, constant, draw = FAMILIES[family]
    z, claims, false = [], 0, 0
    for seed in track(seeds, family):
        truth = teacher(D, K, p, bias=0.5, random_state=seed)
        truth = _shortened(replace(truth, c=truth.c + constant))
        X, Y = draw(truth, np.random.default_rng([seed, 1]))
        found = recover(X, Y, K if seed % 2 else None, random_state=seed, time_budget=SECONDS)
        if found.certificate.verdict != "statistical":
            continue
        claims += 1
        values = deviations(found, truth)
        if values is None:
            false += 1
        else:
            false += bool(np.abs(values).max() > FAR)
            z.append(values)
    covered = 100.0 * np.array([np.mean(np.abs(values) <= 1.96) for values in z])
    return {
        "noise": family,
        "seeds": len(seeds),
        "statistical": claims,
        "false": false,
        "covered in %": round(float(covered.mean()), 1) if z else "",
        "±": round(float(covered.std(ddof=1) / len(z) ** 0.5), 1) if len(z) > 1 else "",
        "largest deviation": round(max((float(np.abs(values).max()) for values in z), default=0.0), 1),
    }


def _run(track: Track) -> Iterator[Row]:
    return (measure(family, range(FIRST, FIRST + SEEDS), track) for family in FAMILIES)


EXPERIMENTS = (Experiment("coverage", "Coverage of 95 % intervals by the kind of noise", _run),)
