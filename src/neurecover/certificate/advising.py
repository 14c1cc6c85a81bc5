"""What a person can do about a verdict below statistical, from the checks that failed.

Errors fall as 1/√n, counts of samples grow as n: every failed check says how many samples would do, and the largest
number is said. Where more samples are not what it takes, the remedies of the checks are said, the most useful first.
"""

from __future__ import annotations

from neurecover.certificate.checks.facts import rounded_up
from neurecover.certificate.checks.residual import NO_BIASES
from neurecover.certificate.checks.search import OTHER_OPTIMA
from neurecover.certificate.verdict import Certificate, Check

AT_MOST = 1_000  # times the samples there are; beyond, more of them are no advice
NOT_NOISE = ("affine part", "structure", "generalisation")
COUNTED = ("equations", "load")  # the only ones that say how many samples it takes where the network is a wrong one
FIRST = ("time", "probabilities", "box")  # whose sentences are advice themselves
# The checks whose remedies are said, the most useful first.
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
SEEN_IN_UNITS = ("information", "kinks", "signs", "tails")  # say nothing of samples if units stand for an affine part
# What one sentence says for another check too.
COVERED = {
    "columns": ("information",),
    "information": ("kinks",),
    "affine part": ("width",),  # the units that are too many stand for it, whatever their number
    "convergence": ("agreement",),  # no second descent had the time to agree
    "time": ("convergence", "agreement"),  # the same advice
}
LACKING = (
    "Look for what the network lacks: {}{}another activation, a second hidden layer (depth=2), {}or an input left out."
)
MISSING_BIASES = "biases (bias=True), "
MORE_UNITS = "more units (n_hidden=None finds their number), "
LINEAR_TERM = "a linear term beside the units (affine=True), "
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
    said += [check.sentence for check in checks if check.name == "activation" and check.figure is not None]
    # No number of samples makes up for inputs that follow from others.
    said += [check.remedy for check in failed if check.name == "inputs"]
    wrong, wanted = _is_wrong(checks, names), _n_wanted(checks, names)
    if certificate.n_samples < wanted <= AT_MOST * certificate.n_samples:
        many = f"Give about {rounded_up(wanted):,} samples or more; there are {certificate.n_samples:,}."
        said.insert(0 if names & set(COUNTED) else len(said), many)  # too few samples show no activation either
    elif wanted:
        said.append("Give other samples or less noise: more of the same would have to be thousands of times as many.")
    told = any(check.name == "width" and check.limit is not None for check in checks)
    if not said and wrong:
        said.append(_lacks(checks, names, told))
    aside = _said_by_others(names, told, bool(wanted), any(MORE_UNITS in sentence for sentence in said))
    remedied = [check for name in ORDER if name not in aside for check in failed if check.name == name]
    said += [check.remedy for check in remedied if check.remedy and not (wanted and check.remedy == OTHER_OPTIMA)]
    return tuple(dict.fromkeys(said))[:3]


def _is_wrong(checks: tuple[Check, ...], failed: set[str]) -> bool:
    """Return whether the residual is not noise. A poor prediction alone may be noise, where that was tested."""
    tested = any(check.name == "structure" for check in checks)
    return bool({*NOT_NOISE, *(("signal",) if tested else ("prediction",))} & failed)


def _n_wanted(checks: tuple[Check, ...], failed: set[str]) -> float:
    """Return how many samples would do; 0 if more of them would not help.

    If noise was not tested because the weights are not determined, it is the number that would allow the test.
    """
    wrong, untested = _is_wrong(checks, failed), not any(check.name == "load" for check in checks)
    lacking = [check for check in checks if not check.passed and (check.name in COUNTED or not wrong)]
    if "rounding" in failed and untested:
        lacking += [check for check in checks if check.name == "equations"]
    return max((check.n_wanted for check in lacking), default=0.0)


def _lacks(checks: tuple[Check, ...], failed: set[str], told: bool) -> str:
    """Return what a network that is not the right one may lack."""
    linear = any(check.name == "affine part" and check.limit is not None for check in checks)
    if linear and "rounding" not in failed:
        return f"{AFFINE} {LIKE_AFFINE}"
    if linear and "affine part" in failed and not failed & {"structure", "generalisation", "prediction"}:
        return AFFINE
    biases = any(NO_BIASES in check.sentence for check in checks)
    return LACKING.format(MISSING_BIASES if biases else "", MORE_UNITS if told else "", LINEAR_TERM if linear else "")


def _said_by_others(failed: set[str], told: bool, counted: bool, more_units: bool) -> set[str]:
    """Return the checks whose remedies need not be said beside others."""
    aside = {other for name in failed for other in COVERED.get(name, ())}
    aside |= {"signal", "equations"} if counted else set()
    aside |= set() if told else {"strength"}
    aside |= {"width", "strength"} if more_units else set()
    aside |= set(SEEN_IN_UNITS) if "affine part" in failed else set()
    return aside
