"""Checks against named larger models. They share the name `structure` with other checks, and all must pass."""

from __future__ import annotations

import numpy as np

from neurecover.certificate.case import Case
from neurecover.certificate.residuals.alternatives import ACTIVATION, CURVED, LINEAR
from neurecover.certificate.verdict import Check

WITH_LINE = "Recover with affine='auto', which adds a linear term where the samples call for one."
WITH_CURVES = "Add the squares of the inputs as columns."
WITH_UNITS = "Add the squares of the inputs as columns, or let more units follow the curve: n_hidden=None."
WITH_BREAKS = "For one input, neurecover.HingeRegression fits a line with breaks."
WITH_OTHERS = "Try another activation, or activation='auto'."


def linear_term(case: Case) -> Check | None:
    """Check that a linear term in addition to the units would explain nothing but noise."""
    return _nested(case, LINEAR, "a linear term", WITH_LINE)


def curvature(case: Case) -> Check | None:
    """Check that squares and products of the inputs would explain nothing but noise."""
    remedy = WITH_CURVES if case.evidence.asked is None else WITH_UNITS
    return _nested(case, CURVED, "a square or product of the inputs", remedy)


def other_activation(case: Case) -> Check | None:
    """Check that leaky units, or units with rounded kinks, would explain nothing but noise."""
    return _nested(case, ACTIVATION, "a leaky or smoothed activation", WITH_OTHERS)


def _nested(case: Case, name: str, words: str, remedy: str) -> Check | None:
    """Return the check against one alternative; its sentence says how large an effect it would have detected."""
    test = next((test for test in case.nested if test.name == name and test.n_columns), None)
    if test is None:
        return None
    good = test.p_value >= test.level
    size = float(np.sqrt(case.variance * test.seen / case.n_equations))
    sentence = (
        f"Beside the network {words} explains no more than noise (p = {test.p_value:.2g}); one of root mean "
        f"square {size:.1g} would be seen nine times in ten."
    )
    if not good:
        sentence = f"The residual is not noise alone: beside the network it follows {words} (p = {test.p_value:.2g})."
    if case.n_inputs == 1:
        remedy = WITH_BREAKS
    return Check("structure", good, test.p_value, test.level, sentence, remedy)
