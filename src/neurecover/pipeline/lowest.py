"""The lowest layer of a deeper network and what is above it, from samples [GP18]."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from neurecover import activations
from neurecover.activations import Activation
from neurecover.algorithms import Call, get_method
from neurecover.algorithms.gp18.layers.whole import explained_variance, fit_jointly, fit_upper
from neurecover.certificate import Certificate, Check, Evidence
from neurecover.data import Prepared, reduce, side_by_side, split, unwhiten
from neurecover.fit.model_fit import can_be_fitted, fit_model
from neurecover.models import Composite, Model
from neurecover.pipeline.progress import Progress
from neurecover.pipeline.running import (
    Run,
    begun,
    certified,
    check_width,
    estimated,
    in_inputs,
    nothing,
    running,
)
from neurecover.random import RandomStateLike
from neurecover.results import Recovery
from neurecover.statistics import Residuals


def recover_lowest_layer(
    X: Any,
    Y: Any = None,
    n_hidden: int | None = None,
    upper: str = "polynomial",
    method: str = "lowest_layer",
    activation: str | Activation = "relu",
    n_upper: int | tuple[int, ...] | None = None,
    upper_activation: str | Activation = "relu",
    max_degree: int = 3,
    random_state: RandomStateLike = None,
    time_budget: float | None = None,
    progress: bool | Progress = False,
    n_samples: int | None = None,
) -> Recovery[Model]:
    """The first layer and the upper part of y = upper(act(W x − t)) [GP18], as a `Composite`, with a certificate.

    Parameters
    ----------
    X, Y : Gaussian inputs (n, d) and outputs (n,) or (n, 1); or X alone as a path, a data source or an oracle.
    n_hidden : the units of the first layer, at most d; None finds them.
    upper : "polynomial", sparse and of degree up to max_degree; "network", one hidden layer of n_upper units (None
        finds them); or "deep", hidden layers of the widths n_upper, peeled one after the other from the lowest up.
    method : how the first layer is found, a name from `neurecover.methods()` that finds a composite.

    The other parameters are those of `recover`.
    """
    act = activations.get(activation)
    check_width(n_hidden)
    algorithm = get_method(method)
    if algorithm.finds != "composite":
        raise ValueError(f"{method} finds a network of one hidden layer: use recover instead.")
    with running("recover_lowest_layer", random_state, time_budget, progress) as run, side_by_side():
        begin = begun(run, X, Y, n_samples, algorithm, act, True, n_hidden)
        given, task = begin.given, begin.task
        if begin.hopeless is not None:
            return run.recovery(*nothing(given, task, begin.hopeless), method, None, begin.n_queries)
        run.report(method, float("nan"))
        found = estimated(algorithm, Call(given.train, task.on(given.train.count()), run.rng, run.deadline))
        run.clock.stage(method, " ".join(found.notes) or "an estimate")
        if not isinstance(found.network, Composite):
            reason = " ".join(found.notes) or f"{method} found no layer."
            return run.recovery(*nothing(given, task, reason), method, found, begin.n_queries)
        run.report("upper part", np.nan)
        fit, chosen = split(given.train, 0.2, int(run.rng.integers(2**31)))
        whole = fit_upper(
            fit,
            found.network,
            upper,
            rng=run.rng,
            n_upper=n_upper,
            max_degree=max_degree,
            activation=upper_activation,
            deadline=run.deadline,
        )
        whole = fit_jointly(whole, fit, chosen, run.rng)
        r2 = explained_variance(whole, chosen)
        run.clock.stage("upper part", f"{upper}, R² = {r2:.6f} on samples not used for it")
        network, certificate = _certified(given, whole, n_hidden, run)
    notes = tuple(Check(method, True, None, None, note) for note in found.notes)
    certificate = replace(certificate, checks=(*certificate.checks, *notes))
    return run.recovery(network, certificate, method, in_inputs(found, given), begin.n_queries)


def _certified(given: Prepared, whole: Composite, n_hidden: int | None, run: Run) -> tuple[Model, Certificate]:
    """The network fitted to all samples once more, in the coordinates of the inputs, and its certificate."""
    held_out = Residuals(whole, whole.n_outputs, 4 * whole.n_hidden, given.output_mean)
    residuals = reduce(given.holdout, held_out)
    converged = False
    if can_be_fitted(whole):
        run.report("last fit", np.nan)
        fit = fit_model(given.samples, whole, run.deadline)
        whole, converged = fit.network, fit.converged
        residual = f"relative residual {np.sqrt(fit.relative_rss):.2g}"
        run.clock.stage("last fit", f"{residual} on all {given.moments.n} samples")
    evidence = Evidence(n_hidden, converged=converged)
    certificate = certified(run, whole, given, residuals, evidence)
    return unwhiten(whole, given.whitening).normal_form(), certificate
