"""Advise what to do about a verdict below statistical, from the checks that failed.

Errors fall as 1/√n, and counts of samples grow as n. So a failed check can say how many samples would suffice, and the
advice gives the largest of these numbers. If more samples would not help, it gives the remedies of the checks instead,
the most useful first.
"""

from __future__ import annotations

from neurecover.certificate.checks.alternatives import WITH_LINE
from neurecover.certificate.checks.facts import rounded_up
from neurecover.certificate.checks.residual import NO_BIASES
from neurecover.certificate.checks.search import OTHER_OPTIMA
from neurecover.certificate.verdict import Certificate, Check

AT_MOST = 1_000  # largest factor by which the advice asks for more samples
NOT_NOISE = ("affine part", "structure", "generalisation")
COUNTED = ("equations", "load")  # checks whose number of samples is meaningful even if the network is wrong
FIRST = ("time", "probabilities", "box")  # checks whose sentences are themselves advice
# The checks whose remedies are given, the most useful first.
ORDER = (
    "independence",
    "structure",
    "signal",
    "inputs",
    "width",
    "strength",
    "columns",
    "information",
    "kinks",
    "digits",
    "output digits",
    "tails",
    "convergence",
    "agreement",
    "spare unit",
    "signs",
    "equations",
    "size",
    "derivative",
)
SEEN_IN_UNITS = ("information", "kinks", "signs", "tails")  # ask for no samples if units imitate an affine part
# Checks whose sentence makes those of other checks unnecessary.
COVERED = {
    "columns": ("information",),
    "information": ("kinks",),
    "affine part": ("width",),  # the surplus units imitate the affine part, whatever their number
    "convergence": ("agreement",),  # without convergence no second descent could agree
    "time": ("convergence", "agreement"),  # the same advice
}
LACKING = (
    "Look for what the network lacks: {}{}another activation, a second hidden layer (depth=2), {}or an input left out."
)
MISSING_BIASES = "biases (bias=True), "
MORE_UNITS = "more units (n_hidden=None finds their number), "
LINEAR_TERM = "a linear term beside the units (affine=True), "
LACKING_SET = "Try another number of halfspaces, or the intersection in place of the union: these labels do not fit."
AFFINE = "Try affine=True, which adds a linear term C x to the network: units and an affine part fit these samples."
LIKE_AFFINE = (
    "activation='leaky_relu(0.1)' or 'abs' looks like that too, and so do units that are on for every sample, which "
    "inputs that spread wider would show."
)


def advice(certificate: Certificate) -> tuple[str, ...]:
    """Return at most three sentences, the most useful first; none for the verdicts exact and statistical."""
    if certificate.verdict in ("exact", "statistical"):
        return ()
    checks = certificate.checks
    failed = [check for check in checks if not check.passed]
    names = {check.name for check in failed}
    if "units" in names:
        return ()  # no network was found, and the reason says what to do
    said = list({check.name: check.sentence for check in checks if check.name in FIRST}.values())
    hints = [check.sentence for check in checks if check.name == "activation" and check.figure is not None]
    if any("to rounding" in hint for hint in hints):
        return tuple(hints)  # what explains every digit leaves nothing else to try
    said += hints
    # No number of samples helps if some inputs are linear functions of others.
    said += [check.remedy for check in failed if check.name == "inputs"]
    wrong, wanted = _is_wrong(checks, names), _n_wanted(checks, names)
    if certificate.n_samples < wanted <= AT_MOST * certificate.n_samples:
        many = f"Give about {rounded_up(wanted):,} samples or more; there are {certificate.n_samples:,}."
        said.insert(0 if names & set(COUNTED) else len(said), many)  # too few samples hide the activation too
    elif wanted:
        said.append("Give other samples or less noise: more of the same would have to be thousands of times as many.")
    told = any(check.name == "width" and check.limit is not None for check in checks)
    lacks = [_lacks(checks, failed, told)] if not said and wrong else []
    said += lacks if told else []
    aside = _said_by_others(names, told, bool(wanted), any(MORE_UNITS in sentence for sentence in lacks))
    remedied = [check for name in ORDER if name not in aside for check in failed if check.name == name]
    said += [check.remedy for check in remedied if check.remedy and not (wanted and check.remedy == OTHER_OPTIMA)]
    return tuple(dict.fromkeys([*said, *lacks]))[:3]


def _is_wrong(checks: tuple[Check, ...], failed: set[str]) -> bool:
    """Return whether the residual is not noise. If noise was tested, a poor prediction alone may be due to it."""
    tested = any(check.name == "structure" for check in checks)
    return bool({*NOT_NOISE, *(("signal",) if tested else ("prediction",))} & failed)


def _n_wanted(checks: tuple[Check, ...], failed: set[str]) -> float:
    """Return the number of samples that would suffice; 0 if more samples would not help.

    If noise was not tested because the weights are not determined, return the number that would allow the test.
    """
    wrong, untested = _is_wrong(checks, failed), not any(check.name == "load" for check in checks)
    lacking = [check for check in checks if not check.passed and (check.name in COUNTED or not wrong)]
    if "rounding" in failed and untested:
        lacking += [check for check in checks if check.name == "equations"]
    return max((check.n_wanted for check in lacking), default=0.0)


def _lacks(checks: tuple[Check, ...], lacking: list[Check], told: bool) -> str:
    """Return a phrase on what a wrong network may lack."""
    if any(check.name == "labels" for check in checks):
        return LACKING_SET
    failed, tested = {check.name for check in lacking}, any(WITH_LINE in check.remedy for check in lacking)
    linear = any(check.name == "affine part" and check.limit is not None for check in checks)
    if linear and "rounding" not in failed:
        return f"{AFFINE} {LIKE_AFFINE}"
    if linear and "affine part" in failed and not failed & {"structure", "generalisation", "prediction"}:
        return AFFINE
    biases = any(NO_BIASES in check.sentence for check in checks)
    line = LINEAR_TERM if linear and not tested else ""
    return LACKING.format(MISSING_BIASES if biases else "", MORE_UNITS if told else "", line)


def _said_by_others(failed: set[str], told: bool, counted: bool, more_units: bool) -> set[str]:
    """Return the checks whose remedies are unnecessary because others cover them."""
    aside = {other for name in failed for other in COVERED.get(name, ())}
    aside |= {"signal", "equations"} if counted else set()
    aside |= set() if told else {"strength"}
    aside |= {"width", "strength"} if more_units else set()
    aside |= set(SEEN_IN_UNITS) if "affine part" in failed else set()
    return aside
