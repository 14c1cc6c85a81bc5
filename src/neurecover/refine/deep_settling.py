"""From a fitted student with skips to a network without: signs, then a fit of all weights on all samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.refine.deep_descent import DeepDescent
from neurecover.refine.deep_problem import EXACT, Problem
from neurecover.refine.deep_signs import count_signs, without_skips
from neurecover.refine.model_fit import ModelFit, fit_model, model_rss
from neurecover.solve import Deadline

FITTED, BEGUN = 4, 10  # choices of signs that are fitted, and the steps after which the hopeless ones are given up
HOPELESS = 2.0  # times the least Σ r² among them
DOUBT = 10.0  # degrees of freedom: odds of e⁵ between two choices of signs under Gaussian noise


@dataclass(frozen=True)
class Settled:
    """The fit without skips, and how many choices of signs do as well, as far as the samples tell (0: not counted)."""

    fit: ModelFit
    sign_choices: int


def settle_deep(problem: Problem, candidate: DeepDescent, deadline: Deadline) -> Settled:
    """Without noise the equations of the signs decide; with noise the likeliest signs are tried on the samples."""
    source, total = problem.source, problem.total
    networks = without_skips(candidate.student, exact=candidate.relative_rss < EXACT)
    if len(networks) > FITTED:
        networks = sorted(networks, key=lambda network: model_rss(source, network))[:FITTED]
    begun = [fit_model(source, network.normal_form(), deadline, BEGUN, bias=problem.bias) for network in networks]
    least = min(fit.rss for fit in begun)
    fits = [
        fit if fit.converged else fit_model(source, fit.network, deadline, bias=problem.bias)
        for fit in begun
        if fit.rss <= HOPELESS * least
    ]
    best = min(fits, key=lambda fit: fit.rss)
    if best.rss < EXACT * total:
        return Settled(best, count_signs(best.network))
    doubt = best.rss * (1.0 + DOUBT / problem.n_equations)
    rivals = [fit for fit in fits if fit.rss <= doubt and not _same_signs(fit, best)]
    return Settled(best, 1 + len(rivals))


def _same_signs(a: ModelFit, b: ModelFit) -> bool:
    """Whether all units look the same way in two fits of one student, whose units are in the same order."""
    pairs = zip(a.network.layers[:-1], b.network.layers[:-1])
    return all(bool(np.all(np.einsum("ij,ij->i", W, V) > 0)) for (W, _), (V, _) in pairs)
