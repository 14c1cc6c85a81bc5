"""Networks with products, thresholds and upper layers of five kinds: what `recover_lowest_layer` says of them.

Two to four units in four to seven inputs, thresholds from 1 to 2.5, 3,000 to 30,000 samples; the units above are known
in number and kind, and those of the first layer in half of the networks. An `exact` is false where a unit is missing
or off by more than 1e-6 rad, or where inputs three times as wide as the samples show an error of more than 1e-6.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from neurecover.experiment import Experiment, Row, Track, fresh_seeds
from neurecover.matching import compare
from neurecover.models import Composite, DeepNetwork, Model, Polynomial
from neurecover.pipeline import recover_lowest_layer
from neurecover.random import as_generator
from neurecover.results import Recovery
from neurecover.simulate.composites import KINDS, composite_teacher, powers, products, tower

SEEDS = 20
TOPS = ("polynomial", "relu", "sigmoid", "tanh", "softplus")
LIMIT = 30.0  # seconds of a run, for what does not converge ends late
RIGHT = 1e-6  # rad, and relative error far out: exact weights are off by rounding, magnified by at most 1e8


def draw(top: str, seed: int) -> tuple[Composite, np.ndarray, dict[str, object]]:
    """Draw a network with the given units above, its inputs, and what is told of it."""
    rng = as_generator(seed, f"gp18-lowest {top}")
    d, k = int(rng.integers(4, 8)), int(rng.integers(2, 5))
    told: dict[str, object] = {"n_hidden": k if rng.random() < 0.5 else None}
    if top == "polynomial":
        degree = int(rng.integers(2, 4))
        kind = products if rng.random() < 0.5 else powers
        upper: Polynomial | DeepNetwork = kind(k, degree, product=rng.choice([0.3, 1.0, -0.5]))
        told["max_degree"] = degree if rng.random() < 0.5 else 3
    else:
        width = int(rng.integers(1, 4))
        # A ReLU unit of positive weights and bias above ReLU units is never off: it is no unit.
        signs = "mixed" if top == "relu" else rng.choice(["positive", "mixed"])
        upper = tower(k, (width,), activation=top, signs=signs, random_state=rng)
        told |= {"upper": "network", "n_upper": width, "upper_activation": top}
    threshold = rng.uniform(1.0, 2.5) if rng.random() < 0.5 else rng.uniform(1.0, 2.5, k)
    truth = composite_teacher(d, k, upper, threshold=threshold, kind=rng.choice(KINDS), random_state=rng)
    return truth, rng.standard_normal((int(np.exp(rng.uniform(np.log(3_000), np.log(30_000)))), d)), told


def is_right(found: Recovery[Model], truth: Composite, seed: int) -> bool:
    """Return whether all units are there and the function is right far beyond the samples."""
    comparison = compare(found.network, truth)
    if comparison.unmatched != ((), ()) or comparison.max_angle > RIGHT:
        return False
    far = 3.0 * np.random.default_rng([seed, 2]).standard_normal((10_000, truth.n_inputs))
    values = truth(far)
    return float(np.linalg.norm(found.network(far) - values)) < RIGHT * float(np.linalg.norm(values))


def run(track: Track) -> Iterator[Callable[[], Row]]:
    """Count the verdicts, and the false ones."""
    for top in track(TOPS, "upper layers"):
        yield partial(_measure, top)


def _measure(top: str) -> Row:
    verdicts, false, right, began = [], 0, 0, time.process_time()
    for seed in fresh_seeds(SEEDS):
        truth, X, told = draw(top, seed)
        found = recover_lowest_layer(X, truth(X), random_state=seed, time_budget=LIMIT, **told)  # type: ignore[arg-type]
        verdicts.append(found.certificate.verdict)
        good = isinstance(found.network, Composite) and is_right(found, truth, seed)
        right += good
        false += verdicts[-1] in ("exact", "statistical") and not good
    row: Row = {"above": top, "networks": SEEDS, "exact": verdicts.count("exact"), "exact but wrong": false}
    row |= {"right": right, "failed": verdicts.count("failed"), "required": "0 exact but wrong"}
    return row | {"CPU seconds": round((time.process_time() - began) / SEEDS, 1)}


EXPERIMENTS = (Experiment("gp18-lowest", "What is claimed of the lowest layer below five kinds of upper layers", run),)
