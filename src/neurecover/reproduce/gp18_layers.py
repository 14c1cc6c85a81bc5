"""[GP18, Appendix E]: networks of two and three hidden layers, peeled from the lowest up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from neurecover.experiment import Experiment, Row, Track, fresh_seeds
from neurecover.matching import compare
from neurecover.models import Composite, DeepNetwork
from neurecover.pipeline import recover_lowest_layer
from neurecover.random import as_generator
from neurecover.simulate.composites import composite_teacher

SEEN = 0.05  # share of the active samples at which an upper unit has to be on, and off
SIZES = ((6, (4, 3), 10), (6, (4, 3, 2), 4))  # inputs, the units of every hidden layer, seeds


def switching_teacher(d: int, widths: tuple[int, ...], threshold: float, seed: int) -> Composite:
    """Draw a first layer at the threshold below layers whose units are on at rest and are seen to switch.

    Weights have either sign and biases are positive, so that no unit of the first layer is hidden. A unit that never
    switches is no unit but an affine function, and no method can tell it from others.
    """
    rng = as_generator(seed, "gp18-layers")
    while True:
        layers = [(_signed(rng, above, below), rng.uniform(0.05, 0.4, above)) for below, above in pairwise(widths)]
        upper = DeepNetwork([*layers, (_signed(rng, 1, widths[-1]), None)], "relu")
        truth = composite_teacher(d, widths[0], upper, threshold=threshold, random_state=rng)
        H = truth.hidden(rng.standard_normal((20_000, d)))
        on = np.concatenate([np.mean(Z > 0.0, axis=0) for Z in upper.preactivations(H[H.any(axis=1)])])
        if on.min() > SEEN and on.max() < 1.0 - SEEN:
            return truth


def _signed(rng: np.random.Generator, above: int, below: int) -> np.ndarray:
    return rng.uniform(0.5, 1.5, (above, below)) * rng.choice([-1.0, 1.0], (above, below)) / np.sqrt(below)


def run_layers(track: Track) -> Iterator[Row]:
    """Measure thresholds of 1, n = 60,000; exact means the verdict."""
    for d, widths, seeds in SIZES:
        for seed in track(fresh_seeds(seeds), f"{d}-{'-'.join(map(str, widths))}-1"):
            truth = switching_teacher(d, widths, 1.0, seed)
            X = np.random.default_rng([seed, 1]).standard_normal((60_000, d))
            began = time.process_time()
            found = recover_lowest_layer(X, truth(X), widths[0], upper="deep", n_upper=widths[1:], random_state=seed)
            seconds = round(time.process_time() - began, 1)
            row: Row = {"layers": "-".join(map(str, (d, *widths, 1))), "seed": seed}
            angles = [np.nan] * len(widths)
            if isinstance(found.network, Composite):  # whose layers `compare` sees through
                angles = [layer.max_angle for layer in compare(found.network, truth).layers]
            row |= {"first layer, max angle": angles[0], "layers above, max angle": max(angles[1:])}
            yield row | {"verdict": found.certificate.verdict, "CPU seconds": seconds}


EXPERIMENTS = (Experiment("gp18-layers", "[GP18, App. E] Hidden layers peeled from the lowest up", run_layers),)
