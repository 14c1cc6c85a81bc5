"""The certificate of a network that was extracted from an oracle by chosen queries.

Samples must first show that they determine the weights; chosen queries have measured them directly. Every unit found
has its kink between two queries, and every weight has an expected error from the rounding of the answers it was
computed from. It remains to check that the network reproduces the oracle's answers to fresh queries, near and far, and
that no other signs are possible.

Coarse answers, in single precision or rounded to digits, are treated as noisy samples: a weighted fit to them has
standard errors, and its residuals on fresh answers, divided by their standard deviations, must pass the tests of noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np
from scipy.special import erfc

from neurecover.certificate.certifying import issue
from neurecover.certificate.checks import determined, errors, held_out, network, residual, search, signs
from neurecover.certificate.checks.facts import Row, run_checks
from neurecover.certificate.evidence import Evidence, LeftOut
from neurecover.certificate.information.matrix import Information
from neurecover.certificate.information.normal_form import by_name, hidden_names
from neurecover.certificate.options import DEFAULTS, CertificateOptions
from neurecover.certificate.signs.ambiguity import sign_ambiguities
from neurecover.certificate.signs.rivals import SignChoices, rivals_of_layers
from neurecover.certificate.verdict import Certificate, Check, ParameterArrays
from neurecover.models import DeepNetwork, Network, jacobian
from neurecover.statistics import Residuals

LIKE = "Ask where the inputs of the model lie, with like=X: its units may switch there."


class WeightedFit(Protocol):
    """A fit to rounded answers by `queries.weighted`, with the errors of its weights."""

    @property
    def network(self) -> Network | DeepNetwork: ...
    @property
    def information(self) -> Information: ...
    @property
    def variances(self) -> np.ndarray: ...
    @property
    def variance(self) -> float: ...
    @property
    def n_equations(self) -> int: ...
    @property
    def chi2(self) -> float: ...
    @property
    def converged(self) -> bool: ...
    def deviations(self, X: np.ndarray) -> np.ndarray: ...
    def covariance(self, own: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class Asked:
    """What the queries have shown.

    `residual` is the largest residual on fresh queries, relative to the answers, and `at_rounding` says whether
    rounding explains it. `largest_error` is the largest expected error of a hidden unit's weight, `resolution` the
    relative rounding of an answer. `unreached` has sentences on what could not be seen. For coarse answers `weighted`
    is the fit with standard errors, and `fresh` are queries (n, d) and answers (n, p) for the tests of noise.
    `signs_proved` says that a complete search found no other signs of the units.
    """

    n_queries: int
    residual: float
    resolution: float
    at_rounding: bool
    largest_error: float
    unreached: tuple[str, ...]
    weighted: WeightedFit | None = None
    fresh: tuple[np.ndarray, np.ndarray] | None = None
    signs_proved: bool = False


@dataclass(frozen=True, eq=False)
class QueriedCase:
    """A network and what the queries have shown; `holdout` are residuals on queries not used to extract it."""

    model: Network | DeepNetwork
    asked: Asked
    holdout: Residuals
    evidence: Evidence
    options: CertificateOptions = DEFAULTS

    @property
    def rounding(self) -> np.ndarray:
        """Infinite if the residual is at rounding, else zero, (p,): each answer was compared with its own rounding."""
        return np.full(self.model.n_outputs, np.inf if self.asked.at_rounding else 0.0)

    @property
    def coarse(self) -> bool:
        return self.asked.resolution > self.options.queries.coarse

    @property
    def noisy(self) -> bool:
        return self.coarse or not self.asked.at_rounding

    @property
    def faintest(self) -> float:
        """The relative size of a unit's contribution to the answers at which its kink stands out from rounding."""
        return max(self.options.queries.visible * self.asked.resolution, self.asked.residual)

    @property
    def n_units(self) -> int:
        return int(np.sum(self.model.n_hidden))

    @property
    def n_hidden(self) -> int | tuple[int, ...]:
        return self.model.n_hidden

    @property
    def n_inputs(self) -> int:
        return self.model.n_inputs

    @property
    def rank(self) -> int:
        return self.model.n_inputs

    @property
    def affine_term(self) -> str:
        return "no"

    @property
    def activation(self) -> str:
        return str(self.model.activation)

    @property
    def differentiable(self) -> bool:
        return self.model.activation.differentiable

    @property
    def n_samples(self) -> int:
        return self.asked.n_queries

    @property
    def n_equations(self) -> int:
        return self.asked.n_queries * self.model.n_outputs

    @property
    def n_free(self) -> int:
        return self.model.n_parameters - self.n_units

    @property
    def largest_error(self) -> float:
        return self.asked.largest_error

    @cached_property
    def sign_choices(self) -> SignChoices:
        """The choices of signs that fit [ATV21, eq. 5], layer by layer, within the standard errors if there are any."""
        fit = self.asked.weighted
        if self.asked.signs_proved:
            return SignChoices(1, 0.0, True, self.n_units)
        if fit is not None:
            return SignChoices.of(rivals_of_layers(fit.network, fit.variances, fit.covariance, self.options))
        count, complete, widest = 1, True, 0
        for (W, b), (A, c) in pairwise(self.model.layers):
            layer = Network(W, b, A, c, self.model.activation)
            found = sign_ambiguities(layer, tolerance=self.options.same)
            count, complete, widest = max(count, len(found.signs)), complete and found.complete, max(widest, len(W))
        return SignChoices(count, float(count > 1), complete, widest)


@dataclass(frozen=True, eq=False)
class RoundedCase(QueriedCase):
    """Coarse answers as noisy samples: a weighted fit, and fresh residuals divided by their standard deviations."""

    @classmethod
    def of(cls, case: QueriedCase, fit: WeightedFit) -> RoundedCase:
        """Return the case for the tests of noise of a queried network."""
        assert case.asked.fresh is not None
        X, Y = case.asked.fresh
        n_units, expected = int(np.sum(fit.network.n_hidden)), fit.deviations(X)
        fresh = Residuals(lambda X: fit.network(X) / expected, fit.network.n_outputs, n_units)
        fresh.update(X, Y / expected)
        agreed, wanted = int(case.asked.at_rounding), case.evidence.asked
        return cls(case.model, case.asked, fresh, Evidence(wanted, agreements=agreed, converged=fit.converged))

    @property
    def fit(self) -> WeightedFit:
        assert self.asked.weighted is not None
        return self.asked.weighted

    @cached_property
    def left(self) -> np.ndarray:
        """The residuals of fresh answers over their standard deviations, (n, p)."""
        assert self.asked.fresh is not None
        X, Y = self.asked.fresh
        return np.asarray((Y - self.fit.network(X)) / self.fit.deviations(X))

    @property
    def n_samples(self) -> int:
        return self.fit.n_equations // self.model.n_outputs

    @property
    def n_equations(self) -> int:
        return self.fit.n_equations

    @property
    def n_free(self) -> int:
        return self.fit.information.n_determinable

    @cached_property
    def errors(self) -> dict[str, np.ndarray]:
        return by_name(self.fit.network, np.sqrt(self.fit.variances))

    @property
    def widest(self) -> float:
        return max(float(self.errors[name].max(initial=0.0)) for name in hidden_names(self.fit.network)[::2])

    @property
    def largest_error(self) -> float:
        return max(float(self.errors[name].max(initial=0.0)) for name in hidden_names(self.fit.network))

    @property
    def strength(self) -> np.ndarray:
        """The norm of every unit's output weights, in standard errors."""
        above = tuple(self.fit.network.arrays)[2::2]
        arrays = [(self.fit.network.arrays[name], np.maximum(self.errors[name], 1e-300)) for name in above]
        return np.concatenate([np.linalg.norm(W, axis=0) / np.linalg.norm(e, axis=0) for W, e in arrays])

    @property
    def carried_by(self) -> float:
        return np.inf

    @property
    def drawn(self) -> None:
        """None: the errors of extracted weights are small enough for first order, so nothing is drawn."""
        return None

    @property
    def to_others(self) -> float:
        return np.inf

    @property
    def left_out(self) -> LeftOut:
        return LeftOut(self.fit.chi2, self.model.n_outputs, self.n_samples)

    @property
    def serial_z(self) -> np.ndarray:
        pairs = self.left[1:] * self.left[:-1]
        return np.asarray(pairs.sum(axis=0) / np.sqrt(np.maximum(np.sum(pairs**2, axis=0), 1e-300)))

    @property
    def p_constancy(self) -> None:
        """None: the order of the queries has no meaning, so there is nothing to test."""

    @cached_property
    def p_structure(self) -> float:
        """The p-value of the largest correlation between the residuals and many random units.

        An error δ of the weights moves all fresh residuals together, by J δ. With H the values of the random units and
        C the covariance of the weights, this adds gᵀ C g, g = Hᵀ J, to the variance of their scores, which a sum over
        single residuals would miss.
        """
        assert self.asked.fresh is not None
        X, count, rng = self.asked.fresh[0], self.options.probes, np.random.default_rng(0)
        V, b = rng.standard_normal((count, X.shape[1])) / np.sqrt(X.shape[1]), rng.standard_normal(count)
        H = np.maximum(X @ V.T + b, 0.0)
        J = jacobian(self.fit.network, X) / self.fit.deviations(X)[:, :, None]
        C = self.fit.covariance(np.arange(J.shape[2]))
        G = np.einsum("nh,npq->hpq", H, J, optimize=True)
        together = np.sum((G @ C) * G, axis=2) - H.T**2 @ np.sum((J @ C) * J, axis=2)
        variance = H.T**2 @ self.left**2 + np.maximum(together, 0.0)
        score = (H.T @ self.left) / np.sqrt(np.maximum(variance, 1e-300))
        return min(1.0, score.size * float(erfc(np.abs(score).max(initial=0.0) / np.sqrt(2.0))))


def certify_queried(
    model: Network | DeepNetwork,
    asked: Asked,
    holdout: Residuals,
    wanted: int | tuple[int, ...] | None,
    options: CertificateOptions = DEFAULTS,
) -> Certificate:
    """Return the certificate; `holdout` are the residuals on queries that were not used in the extraction."""
    case = QueriedCase(model, asked, holdout, Evidence(wanted), options)
    made, variance, bars = run_checks(CHECKS, case), None, None
    if asked.weighted is None:
        made = (*made, *run_checks((Row(errors.digits),), case))
    else:
        rounded = RoundedCase.of(case, asked.weighted)
        made = (*made, *run_checks(CHECKS_OF_NOISE, rounded))
        variance, bars = asked.weighted.variance, ParameterArrays(rounded.errors)
    made = (*made, *filter(None, [_found_width(case)]))
    certificate = issue(made, holdout, asked.n_queries, variance, bars)
    if certificate.verdict in ("exact", "statistical"):
        return certificate
    return issue(made, holdout, asked.n_queries)


def _rounding(case: QueriedCase) -> Check:
    asked = case.asked
    level = "which rounding explains" if asked.at_rounding else "more than rounding explains"
    sentence = f"On held-out queries, near and far, the residual is {asked.residual:.2g} of the answers, {level}."
    # No single limit: every answer is compared with its own rounding.
    return Check("rounding", asked.at_rounding and not case.coarse, asked.residual, None, sentence)


def _size(case: QueriedCase) -> Check:
    n = case.model.n_parameters
    return Check("size", True, n, None, f"There are {n} parameters, each of them measured.")


def _information(case: QueriedCase) -> Check:
    asked, limit = case.asked, case.options.queries.coarse
    if asked.weighted is not None:
        weakest, singular = asked.weighted.information.weakest, case.options.singular
        sentence = f"The smallest eigenvalue of the information is {weakest:.2g}: every weight is seen."
        if weakest < singular:
            sentence = f"The answers do not determine every weight: that eigenvalue is about {weakest:.1g}."
        return Check("information", weakest >= singular, weakest, singular, sentence, determined.SPREAD)
    sentence = f"The answers are rounded to {asked.resolution:.2g} of their size."
    if case.coarse:
        sentence += f" That is too coarse for exact weights; they are right to about {asked.largest_error:.1g}."
    return Check("information", not case.coarse, asked.resolution, limit, sentence, determined.SPREAD)


def _columns(case: QueriedCase) -> Check:
    return Check("columns", True, None, None, "Every input was varied on its own.")


def _kinks(case: QueriedCase) -> Check:
    if case.asked.unreached:
        return Check("kinks", False, None, None, " ".join(case.asked.unreached), LIKE)
    n = case.n_units
    return Check("kinks", True, n, None, f"Each of the {n} units was seen from both sides of its kink.")


def _found_width(case: QueriedCase) -> Check | None:
    if case.evidence.asked is not None:
        return None
    sentence = (
        f"The number of units was found: one that adds less than about {case.faintest:.1g} of the answers, or that is "
        "on or off wherever the oracle was queried, is not seen."
    )
    return Check("found width", True, case.faintest, None, sentence)


def _output_digits(case: RoundedCase) -> Check:
    return Check("output digits", True, None, None, "Every answer has the digits of its rounding.")


def _noise_level(case: RoundedCase) -> Check:
    variance = case.fit.variance
    sentence = (
        f"The answers are rounded, by {np.sqrt(variance):.2g} for inputs of size one, and a fit weighted by the "
        f"rounding of each leaves standard errors of {case.largest_error:.2g} at most."
    )
    return Check("noise", True, variance, None, sentence)


CHECKS = (
    Row(_rounding),
    Row(held_out.prediction),
    Row(network.units),
    Row(network.inputs),
    Row(network.width),
    Row(signs.signs),
    Row(network.affine_part),
    Row(network.derivative),
    Row(_size),
    Row(determined.equations),
    Row(_information),
    Row(_columns),
    Row(_kinks),
)
CHECKS_OF_NOISE = (
    Row(held_out.signal_of_answers),
    Row(residual.tails),
    Row(residual.load),
    Row(search.spare_unit),
    Row(search.convergence),
    Row(search.agreement),
    Row(search.rivals),
    Row(residual.structure),
    Row(held_out.generalisation),
    Row(residual.independence),
    Row(_output_digits),
    Row(errors.precision),
    Row(errors.strength),
    Row(_noise_level),
)
