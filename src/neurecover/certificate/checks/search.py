"""Checks that the search was completed and found the right optimum."""

from __future__ import annotations

import numpy as np

from neurecover.certificate.checks.facts import Facts
from neurecover.certificate.verdict import Check

MORE_TIME = "Give a larger time_budget if you gave one; else try another random_state."
SAY_WIDTH = "Say how many units there are, if you know it: n_hidden."
OTHER_OPTIMA = "Use more samples, or a larger time_budget if you gave one."


def spare_unit(case: Facts) -> Check:
    """Check that one more unit would explain nothing but noise, if the number of units was to be found."""
    evidence, marginal = case.evidence, case.options.marginal
    limit = marginal if evidence.asked is None and not evidence.at_rounding else None
    drop = evidence.last_drop
    if limit is None or drop <= limit:
        return Check("spare unit", True, drop, limit, "No unit more is called for.")
    worth = "there was no time to see what it is worth"
    if np.isfinite(drop):
        worth = f"it would lower N·log Σr² by {drop:.1f} per parameter, and noise explains {marginal:g}"
    sentence = f"Whether there is one unit more is not clear: {worth}."
    return Check("spare unit", False, drop, limit, sentence, SAY_WIDTH if np.isfinite(drop) else MORE_TIME)


def convergence(case: Facts) -> Check:
    """Check that the last fit converged."""
    converged = case.evidence.converged
    sentence = "The last fit has converged." if converged else "The last fit was stopped before it had converged."
    return Check("convergence", converged, None, None, sentence, MORE_TIME)


def stopped(case: Facts) -> Check | None:
    """State that the fit was stopped before convergence, if it was; used if the weights are not determined."""
    return None if case.evidence.converged else convergence(case)


def agreement(case: Facts) -> Check:
    """Check that a second descent ended at the same optimum."""
    evidence = case.evidence
    held = case.to_others <= case.options.held
    agreed = evidence.agreements > 0 or evidence.at_rounding or held
    sentence = "No second descent from another start ended at this optimum, so a better one may exist."
    if evidence.at_rounding:
        sentence = "No optimum is better by more than the rounding of the outputs."
    elif held and not evidence.agreements:
        sentence = "Other descents ended at optima as good, and the errors of the weights hold them."
    elif agreed:
        sentence = "A second descent from another start ended at this optimum."
    remedy = "Give it more time, or another random_state."
    return Check("agreement", agreed, evidence.agreements, 1, sentence, remedy)


def rivals(case: Facts) -> Check:
    """Check that fits from nearby starts end at the same optimum. Shares the name `agreement`; both must pass."""
    alone = case.evidence.unrivalled
    if not alone and case.to_others <= case.options.held:
        sentence = "Fits that begin nearby end at other optima as good, and the errors of the weights hold them."
        return Check("agreement", True, case.to_others, case.options.held, sentence)
    sentence = "Fits that begin a few standard errors away end at this optimum, or the errors are too small to ask."
    if not alone:
        sentence = "Fits that begin nearby end at different optima that these samples cannot tell apart."
    return Check("agreement", alone, None, None, sentence, OTHER_OPTIMA)


def search_ended(interrupted: bool = False) -> Check:
    """Return the check that says that time, or the user, ended the search."""
    sentence = "Time ended the search before it was through: give a larger time_budget, or none."
    if interrupted:
        sentence = "The search was interrupted before it was through: run it again for a complete one."
    return Check("time", False, None, None, sentence)


def time_ended() -> Check:
    """Return the check that says that there was no time for the other checks."""
    sentence = "The time budget ended before the weights were tested: give a larger time_budget."
    return Check("time", False, None, None, sentence)
