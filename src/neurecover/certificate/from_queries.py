"""The certificate of a network that was read off a black box by chosen questions.

What samples have to show about weights, chosen questions have measured: every unit found has its kink between two
questions, and every weight its expected error from the rounding of the answers it was computed from. What is left to
check is that fresh questions, near and far, are answered as the box answers them, and that no other signs are possible.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from neurecover.certificate import checks
from neurecover.certificate.ambiguity import sign_ambiguities
from neurecover.certificate.certifying import issue
from neurecover.certificate.checks import Evidence
from neurecover.certificate.verdict import Certificate, Check
from neurecover.models import DeepNetwork, Network
from neurecover.statistics import Residuals

COARSE = 1e-11  # relative rounding of the answers beyond which they do not have the digits of double precision


@dataclass(frozen=True)
class Asked:
    """What the questions have shown.

    residual is the largest on fresh questions, relative to the answers, and at_rounding says whether rounding explains
    it. largest_error is that expected of a hidden unit's weight; resolution the relative rounding of an answer.
    unreached has a sentence for what could not be seen.
    """

    n_queries: int
    residual: float
    resolution: float
    at_rounding: bool
    largest_error: float
    unreached: tuple[str, ...]


def certify_queried(
    network: Network | DeepNetwork, asked: Asked, holdout: Residuals, wanted: int | tuple[int, ...] | None
) -> Certificate:
    """The certificate; `holdout` are the residuals on questions that had no part in the extraction."""
    n_parameters, n_units = network.n_parameters, int(np.sum(network.n_hidden))
    n_answers = asked.n_queries * network.n_outputs
    evidence = Evidence(wanted)
    found = checks.held_out(holdout, np.full(network.n_outputs, np.inf))[1]
    made = [
        Check("rounding", asked.at_rounding, asked.residual, asked.resolution, _residual_sentence(asked)),
        found,
        checks.units(n_units),
        checks.inputs(network.n_inputs, network.n_inputs),
        checks.width(evidence, network.n_hidden),
        _signs(network),
        checks.affine_part(1),
        checks.derivative(network.activation.differentiable, str(network.activation)),
        Check("size", True, n_parameters, None, f"There are {n_parameters} parameters, each of them measured."),
        checks.equations(n_answers, n_parameters - n_units),
        _information(asked),
        _kinks(asked, n_units),
        checks.digits(asked.largest_error),
    ]
    if wanted is None:
        made.append(checks.found_width(exact=True))
    return issue(tuple(made), holdout, asked.n_queries)


def _residual_sentence(asked: Asked) -> str:
    level = "which rounding explains" if asked.at_rounding else "more than rounding explains"
    return f"On fresh questions, near and far, the residual is {asked.residual:.1e} of the answers, {level}."


def _information(asked: Asked) -> Check:
    fine = asked.resolution <= COARSE
    sentence = f"The answers are rounded to {asked.resolution:.1e} of their size."
    coarse = f"{sentence} That is too coarse for exact weights; they are right to about {asked.largest_error:.0e}."
    return Check("information", fine, asked.resolution, COARSE, sentence if fine else coarse)


def _kinks(asked: Asked, n_units: int) -> Check:
    if asked.unreached:
        return Check("kinks", False, None, None, " ".join(asked.unreached))
    return Check("kinks", True, n_units, None, f"Each of the {n_units} units was seen from both sides of its kink.")


def _signs(network: Network | DeepNetwork) -> Check:
    """[ATV21, eq. 5], layer by layer."""
    layers = ((network.W, network.b), (network.A, network.c)) if isinstance(network, Network) else network.layers
    choices, complete, widest = 1, True, 0
    for (W, b), (A, c) in pairwise(layers):
        same = sign_ambiguities(Network(W, b, A, c, network.activation), tolerance=1e-7)
        choices, complete, widest = max(choices, len(same.signs)), complete and same.complete, max(widest, len(W))
    return checks.signs(choices, float(choices > 1), complete, widest)
