"""Why the engine for many weights is built as it is: every choice put back, one at a time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from neurecover.activations import get
from neurecover.data import ArraySource
from neurecover.experiments.experiment import Experiment, Row, Track
from neurecover.refine import descent, held, search, single
from neurecover.refine.finisher import finish
from neurecover.refine.task import Task
from neurecover.simulate import sample, teacher
from neurecover.solve import Deadline

SEEDS, SECONDS = 3, 120.0  # wall seconds

# What is changed, one at a time, for many weights: module, name, value.
CHANGES: dict[str, tuple[tuple[Any, str, float], ...]] = {
    "the engine's choice": (),
    "steps solved to 1e-3": ((descent, "LOOSE", 1e-3),),
    "preconditioner without the gates' covariance": ((single, "FLOOR", 1e6),),
    "double precision, gates computed anew, blocks of units": ((held, "MOST_BYTES", 0),),
    "with a first-order start": ((search, "WARM", 0),),
    "units taken away only at rounding": ((search, "NEARLY", descent.EXACT),),
}


def _solve(changes: tuple[tuple[Any, str, float], ...], d: int = 50, k: int = 50, n: int = 13_000) -> Row:
    """Problems solved, and median CPU seconds until the finisher has an exact fit or SECONDS are over."""
    usual = [(module, name, getattr(module, name)) for module, name, _ in changes]
    seconds, solved = [], 0
    try:
        for module, name, value in changes:
            setattr(module, name, value)
        for seed in range(SEEDS):
            truth = teacher(d, k, kind="gaussian", bias=0.7, random_state=seed)
            source, task = ArraySource(*sample(truth, n, random_state=seed)), Task(get("relu"), d, 1, n, True, k)
            began = time.process_time()
            found = finish(source, task, np.random.default_rng(seed), Deadline.after(SECONDS))
            seconds.append(time.process_time() - began)
            solved += found.exact
    finally:
        for module, name, value in usual:
            setattr(module, name, value)
    return {"d": d, "k": k, "n": n, "exact": solved, "of": SEEDS, "CPU seconds": round(float(np.median(seconds)), 1)}


def _run(track: Track) -> list[Row]:
    with threadpool_limits(1):
        return [{"choice": choice} | _solve(changes) for choice, changes in track(list(CHANGES.items()), "choices")]


ENGINE = Experiment("engine", "What the choices for many weights are worth", _run)
