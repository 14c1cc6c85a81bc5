"""Step 1 by itself: the units as the local minima of an objective made of T₂ and T₄ [GP18, §2.1 and B.4]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.algorithms.base import BEST, PAPER, Algorithm, Call
from neurecover.algorithms.gp18.common import refuse_unless
from neurecover.algorithms.gp18.landscape.step_one import Directions, directions, hermite_coefficients, thresholds
from neurecover.algorithms.gp18.layers.upper import with_linear_upper
from neurecover.results import Estimate
from neurecover.search import Task

# One at a time came nearer in 11 of 16 pairs of data sets; all at once is B.4 as printed.
_PATHS = {BEST: "one_by_one", PAPER: "simultaneous"}


@dataclass(frozen=True)
class LandscapeRecord:
    """The directions, packed T₁ … T₄ (1, n_packed) of the output, and the error (1,) of a normalised coefficient."""

    step_one: Directions
    coefficients: dict[int, np.ndarray]
    standard_error: np.ndarray


def _run(call: Call) -> Estimate:
    act = call.task.activation
    tensors, error = hermite_coefficients(call.source, call.task.n_samples, 4)
    found = directions(
        tensors,
        call.source.n_inputs,
        call.rng,
        n_hidden=call.task.n_hidden,
        standard_error=error,
        path=_PATHS[call.form],
    ).signed(act)
    network = with_linear_upper(call.source, found.W, thresholds(found, act), act)
    note = f"{len(found.W)} units from Step 1 alone, up to a small angle."
    return Estimate(network, (note,), details=LandscapeRecord(found, tensors, error))


def _refuse(task: Task) -> str | None:
    return refuse_unless("landscape", task, ("step", "relu", "sigmoid", "power"))


ALGORITHM = Algorithm(
    name="landscape",
    paper="GP18, Section 2.1 (one direction at a time) and B.4 (all at once)",
    assumes="Gaussian inputs; high thresholds; linear terms of one sign above step, relu or sigmoid units; k ≤ d",
    refuse=_refuse,
    run=_run,
    forms=(BEST, PAPER),
    finds="composite",
)
