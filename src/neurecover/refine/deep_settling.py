"""From a fitted student with skips to a network without: signs, then a fit of all weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.data import Source
from neurecover.refine.deep_descent import DeepDescent
from neurecover.refine.deep_problem import EXACT
from neurecover.refine.deep_search import Samples
from neurecover.refine.deep_signs import count_signs, likely_networks, without_skips
from neurecover.refine.model_fit import ModelFit, fit_model, model_rss
from neurecover.solve import Deadline

FITTED = 4  # choices of signs
BEGUN = 10  # steps after which the hopeless ones are given up
HOPELESS = 2.0  # times the least Σ r² among them
NEAR = 1.1  # the same once one of them is as good as the student with skips: a rival ends next to it
PROBES = 256  # inputs on which two networks are compared unit by unit
REVERSED = 0.5  # distance from which on two units are not the same
DOUBT = 10.0  # degrees of freedom: odds of e⁵ between two choices of signs under Gaussian noise


@dataclass(frozen=True)
class Settled:
    """The fit without skips, those of other signs that do as well as far as the samples tell, and how many choices
    of signs there are (0: not counted).
    """

    fit: ModelFit
    rivals: tuple[ModelFit, ...]
    sign_choices: int


def settle_deep(samples: Samples, candidate: DeepDescent, deadline: Deadline) -> Settled:
    """Without noise the equations of the signs decide; with noise the likeliest signs are tried on the samples."""
    source, bias = samples.source, samples.bias
    if candidate.relative_rss < EXACT:
        networks = without_skips(candidate.student)
        networks = sorted(networks, key=lambda network: model_rss(source, network))[:FITTED]
    else:
        networks = likely_networks(source, candidate.student)
    begun = [fit_model(source, network.normal_form(), deadline, BEGUN, bias=bias) for network in networks]
    least = min(fit.rss for fit in begun)
    near = NEAR if least <= NEAR * candidate.rss else HOPELESS
    fits = [
        fit if fit.converged else fit_model(source, fit.network, deadline, bias=bias)
        for fit in begun
        if fit.rss <= near * least
    ]
    return best_of(fits, samples.total, samples.Y.size)


def settled_on(source: Source, settled: Settled, total: float, bias: bool, deadline: Deadline) -> Settled:
    """The same on more samples: those of `source`, whose Σ (y − ȳ)² is `total`."""
    fits = [fit_model(source, fit.network, deadline, bias=bias) for fit in (settled.fit, *settled.rivals)]
    n_samples = source.n_samples
    assert n_samples is not None
    return best_of(fits, total, n_samples * source.n_outputs)


def best_of(fits: list[ModelFit], total: float, n_equations: int) -> Settled:
    """The least Σ r² among fits, and those of other units that are as good as far as noise tells."""
    best = min(fits, key=lambda fit: fit.rss)
    if best.rss < EXACT * total:
        return Settled(best, (), count_signs(best.network))
    doubt = best.rss * (1.0 + DOUBT / n_equations)
    rivals = tuple(fit for fit in fits if fit.rss <= doubt and not _same(fit, best))
    return Settled(best, rivals, 1 + len(rivals))


def _same(a: ModelFit, b: ModelFit) -> bool:
    """Whether two fits are one network but for the order of units: what each of them adds up, on whitened inputs.

    A unit reversed is at a distance of 2 from itself when preactivations have unit norm.
    """
    X = np.random.default_rng(0).standard_normal((PROBES, a.network.n_inputs))
    for first, second in zip(a.network.preactivations(X), b.network.preactivations(X)):
        one, other = (Z / np.maximum(np.linalg.norm(Z, axis=0), 1e-300) for Z in (first, second))
        apart = np.linalg.norm(one[:, :, None] - other[:, None, :], axis=0)
        if apart.min(axis=1).max() > REVERSED or len(set(apart.argmin(axis=1))) < len(apart):
            return False
    return True
