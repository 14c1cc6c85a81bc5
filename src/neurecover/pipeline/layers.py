"""Several hidden layers from samples: the same steps as for one, with a finisher of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from neurecover import activations
from neurecover.activations import Activation
from neurecover.algorithms import get_method
from neurecover.certificate import Evidence
from neurecover.data import reduce, side_by_side
from neurecover.data.weights import unweighted
from neurecover.exceptions import UnsolvableError
from neurecover.pipeline.running import Progress, begun, certified, nothing, running, shown
from neurecover.random import RandomStateLike
from neurecover.refine.deep_finisher import finish_deep
from neurecover.refine.descent import EXACT
from neurecover.refine.model_fit import fit_model
from neurecover.results import Recovery
from neurecover.statistics import Residuals

METHOD = "least_squares"


def recover_deep_network(
    X: Any,
    Y: Any,
    n_hidden: int | tuple[int, ...] | None,
    depth: int,
    method: str,
    activation: str | Activation,
    bias: bool,
    random_state: RandomStateLike,
    time_budget: float | None,
    progress: bool | Progress,
    n_samples: int | None,
    sample_weight: ArrayLike | None = None,
) -> Recovery:
    """The `DeepNetwork` behind the samples, with a certificate; the parameters are those of `recover`."""
    widths, depth = _architecture(n_hidden, depth)
    if method not in ("auto", METHOD):
        raise ValueError(f"Several hidden layers are found by {METHOD} alone. Got method={method!r} instead.")
    if activation == "auto":
        raise ValueError("activation='auto' needs one hidden layer. Give the activation of several by name.")
    act = activations.get(activation)
    with running("recover", random_state, time_budget, progress) as run, side_by_side():
        begin = begun(run, X, Y, n_samples, get_method(METHOD), act, bias, None, sample_weight=sample_weight)
        given, clock = begin.given, run.clock
        if begin.hopeless is not None:
            return run.recovery(*nothing(given, begin.task, begin.hopeless), METHOD, None, begin.n_queries)

        def report(stage: str, rss: float) -> None:
            run.report(stage, float(np.sqrt(rss)))

        run.report("search", np.nan)
        try:
            with run.overtime():
                found = finish_deep(
                    unweighted(given.train), widths, act, run.rng, run.deadline, depth=depth, bias=bias, progress=report
                )
        except UnsolvableError as reason:
            return run.recovery(*nothing(given, begin.task, str(reason)), METHOD, None, begin.n_queries)
        size = "-".join(map(str, found.network.n_hidden))
        residual = f"relative residual {np.sqrt(found.relative_rss):.2g}"
        clock.stage("search", f"{size} units, {residual} after {found.runs} runs. {' '.join(found.notes)}".strip())
        network, samples = found.network, given.samples
        if samples.weighted and found.relative_rss < EXACT:
            samples = unweighted(samples)
        elif samples.weighted:  # the search looks at rows as if all counted alike
            network = fit_model(given.train, network, run.deadline, bias=bias).network
        held_out = Residuals(network, network.n_outputs, sum(network.n_hidden), given.output_mean)
        residuals = reduce(given.holdout, held_out)
        run.report("last fit", np.nan)
        final = fit_model(samples, network, run.deadline, bias=bias)
        residual = f"relative residual {np.sqrt(final.relative_rss):.2g}"
        clock.stage("last fit", f"{residual} on all {given.moments.n} samples")
        evidence = Evidence(widths, found.sign_choices, found.agreements, final.converged, unrivalled=found.unrivalled)
        certificate = certified(run, final.network, given, residuals, evidence, bias)
    return run.recovery(shown(final.network, given, certificate), certificate, METHOD, None, begin.n_queries)


def _architecture(n_hidden: int | tuple[int, ...] | None, depth: int) -> tuple[tuple[int, ...] | None, int]:
    if not isinstance(depth, int | np.integer) or isinstance(depth, bool) or depth < 1:
        raise ValueError(f"depth needs to be a whole number from 1. Got {depth!r} instead.")
    if n_hidden is None:
        return None, int(depth)
    widths = tuple(n_hidden) if isinstance(n_hidden, tuple | list) else (n_hidden,)
    whole = all(isinstance(k, int | np.integer) and not isinstance(k, bool) and k >= 1 for k in widths)
    if not widths or not whole:
        raise ValueError(f"n_hidden needs whole numbers from 1, one per hidden layer. Got {n_hidden!r} instead.")
    if depth not in (1, len(widths)):
        raise ValueError(f"n_hidden={n_hidden!r} has {len(widths)} hidden layers. Got depth={depth} instead.")
    return tuple(int(k) for k in widths), len(widths)
