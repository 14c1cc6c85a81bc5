"""The search of [GP18, §3] beyond the paper: more inputs, in the span of the units, and other units than step and ReLU.

The outputs are products of units alone, so that nothing is linear or monotone in a unit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from neurecover.algorithms.gp18.steep import gradient_search
from neurecover.data import ArraySource
from neurecover.exceptions import UnsolvableError
from neurecover.experiment import Experiment, Row, Track, fresh_seeds, picture
from neurecover.simulate.composites import composite_teacher, products

N, THRESHOLD, SEEDS = 100_000, 0.5, 2
SIZES = ((4, 3), (8, 3), (16, 3), (50, 3), (8, 5))  # inputs, units
UNITS = ("step", "relu", "abs")
FOUND = 0.1  # angle of a unit that counts as found


def run(track: Track) -> Iterator[Callable[[], Row]]:
    """Search for orthonormal units at thresholds of 0.5 below the sum of their products."""
    for activation in UNITS:
        for d, k in track(SIZES, f"steep directions, {activation}"):
            yield partial(_measure, d, k, activation)


def _measure(d: int, k: int, activation: str) -> Row:
    began = time.process_time()
    angles = [_angles(d, k, activation, seed) for seed in fresh_seeds(SEEDS)]
    row: Row = {"units": activation, "d": d, "k": k, "n": N, "seeds": SEEDS}
    row |= {"units found": int(np.sum(np.array(angles) < FOUND)), "of": SEEDS * k}
    row |= {"median angle": f"{np.median(angles):.1e}"}
    return row | {"CPU seconds": round((time.process_time() - began) / SEEDS, 1)}


def _angles(d: int, k: int, activation: str, seed: int) -> list[float]:
    upper = products(k, linear=0.0)
    truth = composite_teacher(
        d, k, upper, threshold=THRESHOLD, kind="orthonormal", activation=activation, random_state=seed
    )
    rng = np.random.default_rng([seed, 1])
    X = rng.standard_normal((N, d))
    try:
        W = gradient_search(ArraySource(X, truth(X)), activation, k, rng).W
    except UnsolvableError:
        return [np.pi / 2] * k
    return [float(a) for a in np.arccos(np.minimum(np.abs(truth.W @ W.T).max(axis=1), 1.0))]


def draw(rows: list[dict[str, str]], path: Path) -> None:
    """Draw the share of units found against the number of inputs, a line per kind of unit."""
    with picture(path, size=(6, 4)) as (_, axes):
        for activation in UNITS:
            own = [row for row in rows if row["units"] == activation and row["k"] == "3"]
            share = [int(row["units found"]) / int(row["of"]) for row in own]
            axes.plot([int(row["d"]) for row in own], share, marker="o", label=activation)
        axes.set(xlabel="inputs", ylabel="share of the units found", ylim=(-0.05, 1.05))
        axes.legend()


EXPERIMENTS = (Experiment("gp18-steep", "[GP18, §3] The search along δ′ and δ″: more inputs, other units", run, draw),)
