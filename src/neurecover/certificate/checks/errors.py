"""Checks that the errors of the weights are small enough."""

from __future__ import annotations

import numpy as np
from scipy.special import chdtri

from neurecover.certificate.checks.facts import Facts, would_do
from neurecover.certificate.checks.network import FIND_WIDTH
from neurecover.certificate.verdict import Check


def digits(case: Facts) -> Check:
    """Check how far rounding may have moved a hidden unit's weight, by the information matrix."""
    largest, limit = case.largest_error, case.options.exact
    if largest <= limit:
        sentence = f"The samples determine every weight; rounding leaves an error of the order of {largest:.0e}."
    else:
        sentence = f"The samples determine some weight so weakly that rounding may have moved it by {largest:.2g}."
    remedy = "Use inputs with a larger spread, or subtract their mean before rounding: an offset wastes digits."
    return Check("digits", largest <= limit, largest, limit, sentence, remedy)


def precision(case: Facts) -> Check:
    """Check the largest standard error of a weight in a row of norm one. Errors fall as 1/√n.

    Errors to first order are trusted up to the limit `wide`. Errors from draws of the posterior hold at any size; they
    fail only if a row may have almost any direction, that is, if each of its r weights has the standard deviation 1/√r
    of a random unit vector.
    """
    widest, limit = case.widest, case.options.wide
    if case.drawn is not None:
        limit = max(limit, 1.0 / np.sqrt(case.rank))
    if widest <= limit:
        sentence = f"The largest standard error of a weight is {widest:.2g} of a unit vector."
        return Check("precision", True, widest, limit, sentence)
    n_wanted = case.n_samples * (widest / limit) ** 2
    sentence = (
        f"A weight's standard error is {widest:.2g} of a unit vector, more than {limit:.2g}: too wide to be an answer."
        f"{would_do(n_wanted)}"
    )
    return Check("precision", False, widest, limit, sentence, n_wanted=n_wanted)


def strength(case: Facts) -> Check:
    """Check that every unit's output weight is clearly different from zero.

    If the error covers all places at which the unit may be, it does not tell whether the unit exists. Then the growth
    of Σr²/σ² without the unit is tested: noise alone lets the best of all possible units gain about χ², with as many
    degrees of freedom as a unit has weights.
    """
    weakest, limit = float(case.strength.min(initial=np.inf)), case.options.weak
    if case.drawn is not None:
        weakest = float(np.sqrt(case.drawn.draws.worth.min(initial=np.inf)))
        limit = float(np.sqrt(chdtri(case.rank + 1, case.options.significance)))
    if weakest >= limit:
        sentence = f"Every unit's output weight is {weakest:.1f} standard errors from zero or more."
        return Check("strength", True, weakest, limit, sentence)
    n_wanted = case.n_samples * (limit / max(weakest, 1e-12)) ** 2
    sentence = (
        f"A unit's output weight is only {weakest:.1f} standard errors from zero: it may not exist."
        f"{would_do(n_wanted) if weakest > 0.0 else ''}"
    )
    return Check("strength", False, weakest, limit, sentence, f"{FIND_WIDTH} One of these may not exist.", n_wanted)
