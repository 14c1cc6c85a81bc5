"""Recover the lowest layer of a deeper network and the part above it, from samples [GP18]."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from neurecover import activations
from neurecover.activations import Activation
from neurecover.algorithms import Call, get_method
from neurecover.algorithms.gp18.layers.upper import all_terms, without_faint_terms
from neurecover.algorithms.gp18.layers.whole import explained_variance, fit_jointly, fit_upper
from neurecover.certificate import Certificate, Check, Evidence, ParameterArrays
from neurecover.data import Prepared, Source, reduce, side_by_side, split, unwhiten
from neurecover.fit.model_fit import ModelFit, can_be_fitted, fit_model
from neurecover.models import Composite, Model, Polynomial
from neurecover.pipeline.progress import Progress
from neurecover.pipeline.running import (
    Run,
    certify_network,
    check_width,
    constant_network,
    estimate_in_input_units,
    read_samples,
    run_algorithm,
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
    """Recover the first layer and the upper part of y = upper(act(W x − t)), with a certificate [GP18].

    Parameters
    ----------
    X : array_like of shape (n, d), path, data source or oracle
        Gaussian inputs; or samples with their outputs.
    Y : array_like of shape (n,) or (n, 1) or None, default=None
        The outputs, if X is an array.
    n_hidden : int or None, default=None
        The number of units of the first layer, at most d; None finds it.
    upper : {"polynomial", "network", "deep"}, default="polynomial"
        A sparse polynomial of degree up to max_degree; one hidden layer of n_upper units (None finds them); or hidden
        layers of the widths n_upper, found one after the other from the lowest up.
    method : str, default="lowest_layer"
        The method for the first layer: a name from `neurecover.methods()` that finds a composite.
    activation, upper_activation : str or Activation, default="relu"
        The function of the first layer and of those above it.
    n_upper : int, tuple of int or None, default=None
        The number of units above the first layer.
    max_degree : int, default=3
        The largest degree of a polynomial.
    random_state, time_budget, progress, n_samples
        As in `recover`.

    Returns
    -------
    Recovery
        Its network is a `Composite`.

    References
    ----------
    .. [GP18] Theorems 1 to 4.

    Examples
    --------
    >>> import neurecover as nr
    >>> truth = nr.simulate.composite_teacher(4, 2, nr.simulate.products(2), random_state=0)
    >>> X, Y = nr.simulate.sample(truth, 10_000, random_state=0)
    >>> nr.recover_lowest_layer(X, Y, n_hidden=2, random_state=0).certificate.verdict
    'exact'
    """
    act = activations.get(activation)
    check_width(n_hidden)
    algorithm = get_method(method, besides="")
    if algorithm.finds != "composite":
        raise ValueError(f"{method} finds a network of one hidden layer: use recover instead.")
    with running("recover_lowest_layer", random_state, time_budget, progress) as run, side_by_side():
        problem = read_samples(run, X, Y, n_samples, algorithm, act, True, n_hidden)
        prepared, task = problem.prepared, problem.task
        if problem.reason is not None:
            return run.recovery(*constant_network(prepared, task, problem.reason), method, None, problem.n_queries)
        run.report(method, float("nan"))
        of_train = task.on(prepared.train.count())
        call = Call(prepared.train, of_train, run.rng, run.deadline, options=run.options.layer)
        found = run_algorithm(algorithm, call)
        run.clock.stage(method, " ".join(found.notes) or "an estimate")
        if not isinstance(found.network, Composite):
            reason = " ".join(found.notes) or f"{method} found no layer."
            return run.recovery(*constant_network(prepared, task, reason), method, found, problem.n_queries)
        run.report("upper part", np.nan)
        fit, chosen = split(prepared.train, 0.2, int(run.rng.integers(2**31)))
        whole = fit_upper(
            fit,
            found.network,
            upper,
            rng=run.rng,
            n_upper=n_upper,
            max_degree=max_degree,
            activation=upper_activation,
            deadline=run.deadline,
            options=run.options.layer.upper,
        )
        whole = fit_jointly(whole, fit, chosen, run.rng, run.options.layer.upper)
        r2 = explained_variance(whole, chosen)
        run.clock.stage("upper part", f"{upper}, R² = {r2:.6f} on samples not used for it")
        network, certificate = _fit_and_certify(prepared, whole, n_hidden, max_degree, run)
    notes = tuple(Check(method, True, None, None, note) for note in found.notes)
    certificate = replace(certificate, checks=(*certificate.checks, *notes))
    return run.recovery(network, certificate, method, estimate_in_input_units(found, prepared), problem.n_queries)


def _fit_and_certify(
    prepared: Prepared, whole: Composite, n_hidden: int | None, max_degree: int, run: Run
) -> tuple[Model, Certificate]:
    """Fit the network to all samples; return it in the units of the inputs, with its certificate.

    A polynomial that fits to rounding is certified among all polynomials of its degree: a missing term is known to be
    zero only if the samples would show it.
    """
    fitted = can_be_fitted(whole)
    if fitted:
        run.report("last fit", np.nan)
        whole = _fit_all_terms(prepared.train, whole, max_degree, run).network
    held_out = Residuals(whole, whole.n_outputs, 4 * whole.n_hidden, prepared.output_mean)
    residuals = reduce(prepared.holdout, held_out)
    converged, certified = False, whole
    if fitted:
        fit = _without_faint_terms(_fit_all_terms(prepared.samples, whole, max_degree, run), prepared, run)
        certified = whole = fit.network
        converged = fit.converged
        residual = f"relative residual {np.sqrt(fit.relative_rss):.2g}"
        run.clock.stage("last fit", f"{residual} on all {prepared.moments.n} samples")
        if isinstance(whole.upper, Polynomial) and fit.relative_rss < run.options.layer.upper.solved:
            certified = all_terms(whole, max_degree)
    evidence = Evidence(n_hidden, converged=converged)
    certificate = certify_network(run, certified, prepared, residuals, evidence)
    network = unwhiten(whole, prepared.whitening).normal_form()
    errors = certificate.standard_errors
    if certified is not whole and errors is not None:
        assert isinstance(certified.upper, Polynomial)
        assert isinstance(whole.upper, Polynomial)
        kept = [np.flatnonzero((certified.upper.exponents == e).all(axis=1))[0] for e in whole.upper.exponents]
        own = ParameterArrays({**errors, "coefficients": errors["coefficients"][:, kept]})
        certificate = replace(certificate, standard_errors=own)
    return network, certificate


def _fit_all_terms(samples: Source, whole: Composite, max_degree: int, run: Run) -> ModelFit[Composite]:
    """Fit the network to the samples; refit with all terms of a polynomial if these then fit to rounding.

    A polynomial that lacks a term which only two samples show has a residual in these two and is far from exact.
    """
    fit, options = fit_model(samples, whole, run.deadline), run.options.layer.upper
    if not isinstance(whole.upper, Polynomial) or not options.solved <= fit.relative_rss < options.nearly:
        return fit
    every = fit_model(samples, all_terms(fit.network, max_degree), run.deadline)
    return every if every.relative_rss < options.solved else fit


def _without_faint_terms(fit: ModelFit[Composite], prepared: Prepared, run: Run) -> ModelFit[Composite]:
    """Remove terms that come from rounding alone, if the fit is as good without them, and return the fit."""
    options = run.options.layer.upper
    if not isinstance(fit.network.upper, Polynomial) or fit.relative_rss >= options.solved:
        return fit
    fewer = without_faint_terms(fit.network, prepared.samples, run.options.certificate.exact)
    if fewer.n_parameters == fit.network.n_parameters:
        return fit
    again = fit_model(prepared.samples, fewer, run.deadline)
    return again if again.relative_rss < options.solved else fit
