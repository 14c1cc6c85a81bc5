"""Recovery with every smooth activation: the width given, the width found, and the activation found."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from neurecover.experiment import Experiment, Row, Track
from neurecover.matching import compare
from neurecover.pipeline import recover
from neurecover.simulate import sample, teacher

ACTIVATIONS = ("tanh", "softplus", "gelu", "silu", "elu", "selu", "sigmoid")
D = K = 10
N = 600  # five samples a parameter
FIRST_SEED = 1_000  # no setting was chosen on these
SECONDS = 60.0  # wall seconds that a recovery may take
TOLD = {"units and activation": 20, "activation": 10, "units": 5}  # and how many seeds


def _row(activation: str, told: str, track: Track) -> Row:
    exact, lies, named, errors, seconds = 0, 0, 0, [], []
    n_hidden = None if told == "activation" else K
    for seed in track(range(FIRST_SEED, FIRST_SEED + TOLD[told]), f"{activation}, {told} given"):
        truth = teacher(D, K, activation=activation, random_state=seed)
        X, Y = sample(truth, N, random_state=seed)
        began = time.process_time()
        found = recover(
            X, Y, n_hidden, activation="auto" if told == "units" else activation, random_state=seed, time_budget=SECONDS
        )
        seconds.append(time.process_time() - began)
        same = found.network.activation == truth.activation
        named += same
        error = compare(found.network, truth).weight_error if same else np.inf
        said = found.certificate.verdict == "exact"
        exact += said and error <= 1e-10
        lies += said and error > 1e-10
        errors.append(error if said else np.nan)
    return {
        "activation": activation,
        "given": told,
        "seeds": TOLD[told],
        "exact": exact,
        "said exact but wrong": lies,
        "activation named": named,
        "largest weight error": f"{np.nanmax(errors, initial=0.0):.1e}",
        "median CPU seconds": round(float(np.median(seconds)), 2),
        "longest CPU seconds": round(max(seconds), 2),
    }


def _run(track: Track) -> Iterator[Row]:
    # "auto" calls a sigmoid tanh, which is the same function.
    return (_row(act, told, track) for told in TOLD for act in ACTIVATIONS if (act, told) != ("sigmoid", "units"))


EXPERIMENTS = (
    Experiment("activations", "Smooth activations: d = k = 10, one output, biases, 600 samples, no noise", _run),
)
