"""Checks that no other network has the same function. They share the name `signs`, and all must pass."""

from __future__ import annotations

import numpy as np

from neurecover.certificate.case import Case
from neurecover.certificate.checks.facts import Facts
from neurecover.certificate.verdict import Check

PREDICTIONS = (
    "Use it for its predictions, which are the same for every choice of signs that fits: no samples tell such networks "
    "apart."
)
LESS_NOISE = (
    "Give more samples or less noise. If other signs still fit then, use it for its predictions, which are the same."
)
WIDER = (
    "Give more samples, and inputs that spread wider: the former tell apart planes that noise puts together, the "
    "latter show the kink of a unit that is on for all of these."
)
THIRD_VALUE = (
    "Give samples in which the columns of two values take a third one, if they can: on two values alone these units "
    "cannot be told apart."
)


def signs(case: Facts) -> Check:
    """Check that only one choice of the units' signs fits."""
    choices = case.sign_choices
    several = choices.count > 1
    if choices.convention:
        sentence = (
            "Beside an affine term the sign of a unit is a convention: each has a row with a positive largest entry, "
            "and the affine term is the one that goes with it."
        )
    elif several:
        p_value = choices.p_value
        sure = "" if p_value in (0.0, 1.0) else f" as far as these samples tell (p = {p_value:.2g})"
        sentence = f"{choices.count} choices of the units' signs give the same function{sure}."
    elif not choices.complete:
        sentence = f"The signs of {choices.n_units} units are too many to be searched for a second choice."
    else:
        sentence = "No other choice of the units' signs gives the same function."
    remedy = LESS_NOISE if several and case.noisy else PREDICTIONS
    return Check("signs", not several and choices.complete, choices.count, 1, sentence, remedy)


def planes(case: Case) -> Check:
    """Check that no two units share a plane.

    relu(z) and relu(−z) together can make a linear function, which might as well come from a unit that is always on.
    """
    (apart, pair), limit = (case.nearest_planes.apart, case.nearest_planes.pair), case.options.apart
    sentence = "No two units share a plane."
    if apart <= limit:
        sentence = (
            f"Units {pair[0]} and {pair[1]} switch on one plane, {apart:.1f} standard errors apart: together they may "
            "be one unit and a straight function, which a unit that is always on would give as well."
        )
    return Check("signs", apart > limit, apart, limit, sentence, WIDER)


def exchange(case: Case) -> Check | None:
    """Check that no two units are so similar that they could have exchanged weights."""
    apart, limit = case.exchange, case.options.apart
    if apart == np.inf:
        return None
    sentence = "No two units can exchange their weights on columns of two values."
    if apart <= limit:
        sentence = (
            f"Two units have the same slopes on all columns of more than two values, to {apart:.1f} standard errors: "
            "on the other columns they may have exchanged their weights."
        )
    return Check("signs", apart > limit, apart, limit, sentence, THIRD_VALUE)
