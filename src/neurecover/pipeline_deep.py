"""Recover y = upper(u(W x − t)): the first layer by [GP18], the upper part on its hidden values, then both."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from neurecover.activations import Activation
from neurecover.algorithms.gp18.joint import parameters, polish_jointly
from neurecover.algorithms.gp18.layer import LowestLayer, recover_lowest_layer
from neurecover.algorithms.gp18.upper import Hidden, fit_polynomial
from neurecover.data import ArraySource, Source, as_source, reduce, split, subsample
from neurecover.models import Composite, Network, Or, Upper
from neurecover.pipeline import recover
from neurecover.random import RandomStateLike, as_generator
from neurecover.statistics import Residuals

UPPERS = ("polynomial", "network")
_HOLDOUT = 0.1
_UPPER_SAMPLES = 5_000  # for the upper network
_JOINT_LOAD = 20  # samples with an active unit per parameter of the joint fit
_GOOD = 0.99


@dataclass(frozen=True)
class DeepRecovery:
    """What `recover_deep` found.

    network is None where no first layer was found. r2 is the share of the held-out outputs' variance that the network
    explains, NaN without one. certain says whether the layer's own check and the fit both held; notes say why, in plain
    sentences.
    """

    network: Composite | None
    layer: LowestLayer
    r2: float
    certain: bool
    notes: tuple[str, ...]
    seconds: float


def recover_deep(
    X: Any,
    Y: Any = None,
    n_hidden: int | None = None,
    *,
    upper: str = "polynomial",
    n_upper: int | None = None,
    max_degree: int = 3,
    activation: str | Activation = "relu",
    upper_activation: str | Activation = "relu",
    threshold: float | np.ndarray | None = None,
    random_state: RandomStateLike = None,
    time_budget: float | None = None,
) -> DeepRecovery:
    """The first layer and the upper part of a deeper network, from samples with Gaussian inputs and one output.

    Parameters
    ----------
    X, Y : arrays (n, d) and (n,) or (n, 1); or X alone as a path or a data source.
    n_hidden : the units of the first layer, at most d; None finds them.
    upper : "polynomial" fits a sparse polynomial of degree up to max_degree; "network" a one-hidden-layer network of
        n_upper units (None finds them) by `recover`.
    threshold : known thresholds of the first layer, one number or one per unit; None estimates them.
    random_state : int, numpy Generator or RandomState, or None. Same seed, same answer (unless time runs out).
    time_budget : seconds for the search of an upper network; None for a fixed number of descents.
    """
    began = time.monotonic()
    if upper not in UPPERS:
        raise ValueError(f"upper must be one of {', '.join(UPPERS)}. Got {upper!r} instead.")
    rng = as_generator(random_state, "recover_deep")
    train, holdout = split(as_source(X, Y), _HOLDOUT, int(rng.integers(2**31)))
    layer = recover_lowest_layer(train, activation, rng, n_hidden=n_hidden, threshold=threshold)
    if len(layer.W) == 0:
        return DeepRecovery(None, layer, float("nan"), False, layer.notes, time.monotonic() - began)
    lower = Composite(layer.W, layer.threshold, Or(), activation)
    if upper == "polynomial":
        fitted = fit_polynomial(Hidden(train, lower), int(rng.integers(2**31)), max_degree=max_degree)
        top: Upper = fitted.polynomial
    else:
        top = _upper_network(train, lower, n_upper, upper_activation, rng, time_budget)
    network = Composite(lower.W, lower.threshold, top, activation)
    network = _best(network, train, holdout, rng)
    r2 = _r2(network, holdout)
    notes = (*layer.notes, f"The whole network explains {r2:.4%} of the variance of the held-out outputs.")
    if r2 < _GOOD:
        notes = (*notes, f"That is below {_GOOD:.0%}, so the upper part is not to be relied on.")
    return DeepRecovery(network, layer, r2, layer.certain and r2 >= _GOOD, notes, time.monotonic() - began)


def _upper_network(
    train: Source,
    lower: Composite,
    n_upper: int | None,
    activation: str | Activation,
    rng: np.random.Generator,
    time_budget: float | None,
) -> Network:
    H, Y = subsample(Hidden(train, lower), 10 * _UPPER_SAMPLES, int(rng.integers(2**31))).collect()
    kept = _awake(H, _UPPER_SAMPLES)
    samples = ArraySource(H[kept], Y[kept])
    return recover(samples, n_hidden=n_upper, activation=activation, random_state=rng, time_budget=time_budget).network


def _best(network: Composite, train: Source, holdout: Source, rng: np.random.Generator) -> Composite:
    """The network after the joint fit, if that does better on samples it has not seen."""
    wanted = _JOINT_LOAD * parameters(network).size
    X, Y = subsample(train, 10 * wanted, int(rng.integers(2**31))).collect()
    kept = _awake(network.hidden(X), wanted)
    polished = polish_jointly(network, X[kept], Y[kept])
    return polished if _r2(polished, holdout) >= _r2(network, holdout) else network


def _awake(H: np.ndarray, wanted: int) -> np.ndarray:
    """Rows of hidden values to fit on: samples at rest all say the same, so that a few of them are enough."""
    idle = np.flatnonzero(~np.any(H > 0.0, axis=1))
    return np.setdiff1d(np.arange(len(H)), idle[200:])[:wanted]


def _r2(network: Composite, samples: Source) -> float:
    residuals = reduce(samples, Residuals(network, samples.n_outputs, 4 * network.n_hidden))
    return float(1.0 - residuals.mse / max(float(residuals.output_variance.mean()), 1e-300))
