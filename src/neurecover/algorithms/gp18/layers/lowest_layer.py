"""The lowest layer of y = upper(u(W x − t)) for high thresholds t, in two steps [GP18, §2].

Step 1 reads the units off Hermite coefficients, up to a small angle (`step_one`). Step 2 needs outputs that tell
whether any unit is active (`activity`). Which samples are active is a union of halfspaces, and its boundary gives the
units to an angle of about d/(n φ(t)) (`step_two`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover import activations
from neurecover.activations import Activation
from neurecover.algorithms.base import BEST, PAPER, Algorithm, Call
from neurecover.algorithms.gp18.common import refuse_unless
from neurecover.algorithms.gp18.landscape.step_one import (
    PATHS,
    Directions,
    directions,
    hermite_coefficients,
    thresholds,
)
from neurecover.algorithms.gp18.layers.activity import Activity, find_activity
from neurecover.algorithms.gp18.layers.step_two import NEVER, SEARCHES, Boundary, boundary
from neurecover.algorithms.gp18.layers.upper import with_linear_upper
from neurecover.algorithms.gp18.options import DEFAULTS, LayerOptions
from neurecover.data import ArraySource, Source, reduce, subsample
from neurecover.exceptions import UnsolvableError
from neurecover.models import Polynomial
from neurecover.results import Estimate
from neurecover.search import Task
from neurecover.solve import Deadline
from neurecover.statistics import Moments

_FORMS = {BEST: ("tensor", "likelihood"), PAPER: ("one_by_one", "paper")}


@dataclass(frozen=True)
class LowestLayer:
    """Units W (k, d) with thresholds (k,): hidden values u(W x − threshold).

    `step_one` are the directions of the moments, `activity` which samples have an active unit (None where the outputs
    do not tell), `step_two` the boundary of the activity (None without it). `tan_alpha` (k,) estimates the tangents of
    the angles that are left, NaN without Step 2. `agreement` is the share of held-out samples whose activity the layer
    predicts. `certain` is whether that is what a correct layer reaches; `notes` are plain sentences with the figures.
    """

    W: np.ndarray
    threshold: np.ndarray
    step_one: Directions
    activity: Activity | None
    step_two: Boundary | None
    tan_alpha: np.ndarray
    agreement: float | None
    certain: bool
    notes: tuple[str, ...]


def two_steps(
    source: Source,
    activation: str | Activation,
    rng: np.random.Generator,
    *,
    n_hidden: int | None = None,
    path: str = "tensor",
    search: str | None = "likelihood",
    max_samples: int = 200_000,
    deadline: Deadline = NEVER,
    options: LayerOptions = DEFAULTS,
) -> LowestLayer:
    """Return W and t of the first layer from samples with whitened Gaussian inputs.

    search is how Step 2 looks: "likelihood", all units at
    once; "paper", one unit at a time by RefineEstimate; None for Step 1 alone. Step 1 is one pass over all
    samples; Step 2 takes at most `max_samples` of them into memory.
    """
    act = activations.get(activation)
    _check(source, path, search)
    d = source.n_inputs
    moments = reduce(source, Moments(d, source.n_outputs))
    if np.all(np.diag(moments.covariance)[d:] <= 1e-26 * np.maximum(moments.mean[d:] ** 2, 1e-300)):
        raise UnsolvableError("All outputs are equal, so no unit is ever seen to be active.")
    tensors, error = hermite_coefficients(source, moments.n, max(3, *PATHS[path]))
    found = directions(tensors, d, rng, n_hidden=n_hidden, standard_error=error, path=path).signed(act)
    if search is None:
        return _first_step_only(found, thresholds(found, act), "Step 1 alone: units up to a small angle.")
    X, Y = subsample(source, max_samples, int(rng.integers(2**31))).collect()
    seen = find_activity(Y, options.activity) if act.name in ("step", "relu", "power") else None
    if seen is None:
        note = (
            "Step 2 needs outputs that are equal, up to a little noise, where no unit is active, as ReLU or step units "
            "give; these are not, so the units are those of Step 1."
        )
        return _first_step_only(found, thresholds(found, act), note)
    end = boundary(
        X,
        seen.of(Y),
        found.W,
        rng,
        search,
        noisy=seen.noisy,
        counted=n_hidden is None,
        deadline=deadline,
        options=options,
    )
    notes = [f"{seen.share:.1%} of the samples have an active unit.", *end.sentences]
    certain = _certain(seen, end, notes, options)
    t = _below_the_noise(end, seen, ArraySource(X, Y), act, options.most_hidden) if seen.noisy else end.threshold
    return LowestLayer(end.W, t, found, seen, end, end.tan_alpha, end.agreement, certain, tuple(notes))


def _below_the_noise(end: Boundary, seen: Activity, source: Source, activation: Activation, most: float) -> np.ndarray:
    """Return thresholds from a boundary at which activity rises above the noise.

    A unit is seen where c u(w·x − t) passes the tolerance τ, which for ReLU units is at w·x = t + τ/c.
    """
    if activation.homogeneity != 1.0:
        return end.threshold
    linear = with_linear_upper(source, end.W, end.threshold, activation).upper
    assert isinstance(linear, Polynomial)
    size = np.maximum(np.abs(linear.linear), 1e-300)
    return end.threshold - np.minimum(np.min(seen.tolerance[:, None] / size, axis=0), most)


def _first_step_only(found: Directions, threshold: np.ndarray, note: str) -> LowestLayer:
    unknown = np.full(len(found.W), np.nan)
    return LowestLayer(found.W, threshold, found, None, None, unknown, None, False, (note,))


def _certain(seen: Activity, end: Boundary, notes: list[str], options: LayerOptions) -> bool:
    if seen.noisy:
        notes.append(
            f"The outputs at rest have noise of standard deviation {float(seen.noise.max()):.2g}, which hides weak "
            "activity; a joint fit of all parameters does better."
        )
    certain = end.agreement >= (options.noisy_agreement if seen.noisy else options.agreement)
    if not certain:
        notes.append("That is less than a correct layer reaches, so the units are not to be relied on.")
    if seen.share > options.crowded:
        notes.append(
            f"The thresholds are too low: above {options.crowded:.0%} activity products of units outweigh the linear "
            "part."
        )
        certain = False
    if seen.mixed > options.mixed * seen.noisy:
        notes.append(
            f"The upper part is not monotone: {seen.mixed:.1%} of the outputs lie on the rarer side of the value "
            "without active units, and Step 2 took both sides as active."
        )
        certain = False
    return certain


def _check(source: Source, path: str, search: str | None) -> None:
    if path not in PATHS:
        raise ValueError(f"path must be one of {', '.join(PATHS)}. Got {path!r} instead.")
    if source.n_outputs != 1 and path != "tensor":
        raise ValueError(f"Landscapes are made of one output. Got {source.n_outputs}; give one at a time.")
    if search is not None and search not in SEARCHES:
        raise ValueError(f"search must be None or one of {', '.join(SEARCHES)}. Got {search!r} instead.")


def _refuse(task: Task) -> str | None:
    return refuse_unless("lowest_layer", task, ("step", "relu", "sigmoid", "power"), several=True)


def _run(call: Call) -> Estimate:
    path, search = _FORMS[call.form]
    if call.form == PAPER and call.task.n_outputs != 1:
        raise UnsolvableError(f"The paper's form reads one output. Got {call.task.n_outputs} outputs instead.")
    layer = two_steps(
        call.source,
        call.task.activation,
        call.rng,
        n_hidden=call.task.n_hidden,
        path=path,
        search=search,
        deadline=call.deadline,
        options=call.options_as(LayerOptions),
    )
    network = with_linear_upper(call.source, layer.W, layer.threshold, call.task.activation)
    return Estimate(network, layer.notes, details=layer)


ALGORITHM = Algorithm(
    name="lowest_layer",
    paper="GP18, the lowest layer",
    assumes="Gaussian inputs; high thresholds; a monotone upper part with linear terms; step, relu, sigmoid; k ≤ d",
    refuse=_refuse,
    run=_run,
    forms=(BEST, PAPER),
    options={BEST: LayerOptions, PAPER: LayerOptions},
    finds="composite",
)
