"""The certificate of a network that was read off a black box by chosen questions.

What samples have to show about weights, chosen questions have measured: every unit found has its kink between two
questions, and every weight its expected error from the rounding of the answers it was computed from. What is left to
check is that fresh questions, near and far, are answered as the box answers them, and that no other signs are possible.

Coarse answers, in single precision or rounded to digits, are samples with noise: a weighted fit through them has error
bars, and on fresh answers the residuals over their standard deviations are put to the tests of noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import erfc

from neurecover.certificate import checks
from neurecover.certificate.ambiguity import sign_ambiguities
from neurecover.certificate.certifying import issue
from neurecover.certificate.checks import Evidence
from neurecover.certificate.normal_form import by_name
from neurecover.certificate.rivals import sign_rivals
from neurecover.certificate.verdict import Certificate, Check, ParameterArrays
from neurecover.certificate.weighted import Weighted
from neurecover.models import DeepNetwork, Network
from neurecover.statistics import Residuals

PROBES = 40  # random units that the residuals of fresh answers must not correlate with
# A slope over 1/64 of an interval, extrapolated over all of it, and eight roundings: what a kink is told from.
VISIBLE = 8 * 64
COARSE = 1e-11  # relative rounding of the answers beyond which they do not have the digits of double precision


@dataclass(frozen=True)
class Asked:
    """What the questions have shown.

    residual is the largest on fresh questions, relative to the answers, and at_rounding says whether rounding explains
    it. largest_error is that expected of a hidden unit's weight; resolution the relative rounding of an answer.
    unreached has a sentence for what could not be seen. For coarse answers `weighted` is the fit with error bars, and
    `fresh` are questions (n, d) and answers (n, p) for the tests of noise.
    """

    n_queries: int
    residual: float
    resolution: float
    at_rounding: bool
    largest_error: float
    unreached: tuple[str, ...]
    weighted: Weighted | None = None
    fresh: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def faintest(self) -> float:
        """The part of the answers that a unit must add for its kink to stand out from their rounding."""
        return max(VISIBLE * self.resolution, self.residual)

    @property
    def coarse(self) -> bool:
        return self.resolution > COARSE


def certify_queried(
    network: Network | DeepNetwork, asked: Asked, holdout: Residuals, wanted: int | tuple[int, ...] | None
) -> Certificate:
    """The certificate; `holdout` are the residuals on questions that had no part in the extraction."""
    n_parameters, n_units = network.n_parameters, int(np.sum(network.n_hidden))
    n_answers = asked.n_queries * network.n_outputs
    evidence = Evidence(wanted)
    found = checks.held_out(holdout, np.full(network.n_outputs, np.inf))[1]
    made = [
        Check(
            "rounding",
            asked.at_rounding and not asked.coarse,
            asked.residual,
            None,  # every answer is held against its own rounding
            _residual_sentence(asked),
        ),
        found,
        checks.units(n_units),
        checks.inputs(network.n_inputs, network.n_inputs),
        checks.width(evidence, network.n_hidden),
        _signs(network, asked.weighted),
        checks.affine_part(1, "no"),
        checks.derivative(network.activation.differentiable, str(network.activation)),
        Check("size", True, n_parameters, None, f"There are {n_parameters} parameters, each of them measured."),
        checks.equations(n_answers, n_parameters - n_units, asked.n_queries),
        _information(asked),
        Check("columns", True, None, None, "Every input was varied on its own."),
        _kinks(asked, n_units),
    ]
    variance, errors = None, None
    if asked.weighted is not None and isinstance(network, Network):
        made += _noise(asked, asked.weighted, wanted)
        variance = asked.weighted.variance
        errors = ParameterArrays(by_name(network, np.sqrt(asked.weighted.variances)))
    else:
        made.append(checks.digits(asked.largest_error))
    if wanted is None:
        made.append(Check("found width", True, asked.faintest, None, _width_sentence(asked)))
    return issue(tuple(made), holdout, asked.n_queries, variance, errors)


def _noise(asked: Asked, fit: Weighted, wanted: int | tuple[int, ...] | None) -> list[Check]:
    """The tests of noise on fresh answers, each over its standard deviation."""
    assert asked.fresh is not None
    X, Y = asked.fresh
    network, sigma = fit.network, fit.noise(X)
    fresh = Residuals(lambda X: network(X) / fit.noise(X), network.n_outputs, network.n_hidden)
    fresh.update(X, Y / sigma)
    Z = (Y - network(X)) / sigma
    evidence = Evidence(wanted, agreements=int(asked.at_rounding), converged=fit.converged)
    pairs = Z[1:] * Z[:-1]
    serial = pairs.sum(axis=0) / np.sqrt(np.maximum(np.sum(pairs**2, axis=0), 1e-300))
    errors = by_name(network, np.sqrt(fit.variances))
    strength = np.linalg.norm(network.A, axis=0) / np.maximum(np.linalg.norm(errors["A"], axis=0), 1e-300)
    left_out = checks.LeftOut(fit.chi2, network.n_outputs, fit.n_equations // network.n_outputs)
    made = checks.noise(fresh, left_out, fit.n_equations, fit.freedom, _structure(X, Z), evidence)
    made.append(checks.independence(serial))
    made.append(Check("output digits", True, None, None, "Every answer has the digits of its rounding."))
    made += checks.precision(float(errors["W"].max(initial=0.0)), strength, fit.n_equations // network.n_outputs)
    largest = float(max(errors["W"].max(initial=0.0), errors["b"].max(initial=0.0)))
    sentence = (
        f"The answers are rounded, by {np.sqrt(fit.variance):.2g} for inputs of size one, and a fit weighted by the "
        f"rounding of each leaves standard errors of {largest:.2g} at most."
    )
    return [*made, Check("noise", True, fit.variance, None, sentence)]


def _structure(X: np.ndarray, Z: np.ndarray) -> float:
    """The probability of a correlation of noise Z (n, p) with one of many random units as large as the largest."""
    rng = np.random.default_rng(0)
    V, b = rng.standard_normal((PROBES, X.shape[1])) / np.sqrt(X.shape[1]), rng.standard_normal(PROBES)
    H = np.maximum(X @ V.T + b, 0.0)
    score = (H.T @ Z) / np.sqrt(np.maximum(H.T**2 @ Z**2, 1e-300))
    return min(1.0, score.size * float(erfc(np.abs(score).max(initial=0.0) / np.sqrt(2.0))))


def _residual_sentence(asked: Asked) -> str:
    level = "which rounding explains" if asked.at_rounding else "more than rounding explains"
    return f"On fresh questions, near and far, the residual is {asked.residual:.2g} of the answers, {level}."


def _width_sentence(asked: Asked) -> str:
    return (
        f"The number of units was found: one that adds less than about {asked.faintest:.1g} of the answers, or that is "
        "on or off wherever the box was asked, is not seen."
    )


def _information(asked: Asked) -> Check:
    if asked.weighted is not None:
        return checks.information(asked.weighted.information.weakest, 0)
    fine = asked.resolution <= COARSE
    sentence = f"The answers are rounded to {asked.resolution:.2g} of their size."
    coarse = f"{sentence} That is too coarse for exact weights; they are right to about {asked.largest_error:.1g}."
    return Check("information", fine, asked.resolution, COARSE, sentence if fine else coarse)


def _kinks(asked: Asked, n_units: int) -> Check:
    if asked.unreached:
        return Check("kinks", False, None, None, " ".join(asked.unreached))
    return Check("kinks", True, n_units, None, f"Each of the {n_units} units was seen from both sides of its kink.")


def _signs(network: Network | DeepNetwork, fit: Weighted | None) -> Check:
    """[ATV21, eq. 5], layer by layer; with error bars, against these."""
    if fit is not None:
        k, d = fit.network.W.shape
        own = np.r_[: k * d, k * d + k : k * d + k + fit.network.A.size]
        rivals = sign_rivals(fit.network, fit.variances[own], lambda: fit.covariance(own))
        return checks.signs(len(rivals.flips), rivals.p_value, rivals.complete, k)
    layers = ((network.W, network.b), (network.A, network.c)) if isinstance(network, Network) else network.layers
    choices, complete, widest = 1, True, 0
    for (W, b), (A, c) in pairwise(layers):
        same = sign_ambiguities(Network(W, b, A, c, network.activation), tolerance=1e-7)
        choices, complete, widest = max(choices, len(same.signs)), complete and same.complete, max(widest, len(W))
    return checks.signs(choices, float(choices > 1), complete, widest)
