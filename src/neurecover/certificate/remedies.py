"""What a person can do about a verdict below statistical, from the checks that failed.

Errors fall as 1/√n, counts of samples grow as n: what a failed check measured and what it wanted say how many samples
would do, the larger number where several lack them.
"""

from __future__ import annotations

import math

from neurecover.certificate.checks import FEW
from neurecover.certificate.verdict import Certificate, Check

AT_MOST = 1_000  # times the samples there are; beyond, more of them are no advice
NOT_NOISE = ("affine part", "structure", "generalisation", "prediction")
COUNTED = ("equations", "load")  # the only ones that say how many samples it takes where the network is a wrong one

# What to do about a check that failed, where more samples are not what it takes; the first that apply are said.
REMEDIES = {
    "inputs": "Leave out input columns that follow from others, or vary them on their own.",
    "width": "Leave the number of units to be found: n_hidden=None.",
    "information": "Give samples that switch every unit on and off: inputs that spread wider than these.",
    "kinks": "Give samples on both sides of every unit's kink: inputs that spread wider than these.",
    "columns": "Give rows in which every input differs from its usual value, or leave out those that hardly ever do.",
    "output digits": "Give outputs with more digits.",
    "tails": "Look at the samples with the largest residuals: a few outliers may decide the fit.",
    "independence": "Give independent samples: rows that follow on from each other say less than their number.",
    "convergence": "Give it more time: a larger time_budget, or none.",
    "agreement": "Give it more time, or another random_state.",
    "spare unit": "Say how many units there are, if you know it: n_hidden.",
    "derivative": "Take an activation that has a derivative: without one nothing can be certified.",
}
SEEN_IN_UNITS = ("information", "kinks")  # say nothing of samples where units stand for an affine part
LACKING = (
    "Look for what the network lacks: more units (n_hidden=None finds their number), another activation, a second "
    "hidden layer (depth=2), or an input that was left out."
)
AFFINE = (
    "Try activation='leaky_relu(0.1)' or 'abs', or inputs that spread wider: units and an affine part fit these "
    "samples, which is what such units look like, and units that are on for every sample."
)


def advice(certificate: Certificate) -> tuple[str, ...]:
    """At most three sentences, the most useful first; none for the verdicts exact and statistical."""
    if certificate.verdict in ("exact", "statistical"):
        return ()
    failed = {check.name: check for check in certificate.checks if not check.passed}
    if "units" in failed:
        return ()  # no network was found, and the reason says what to do
    said = [check.sentence for check in certificate.checks if check.name == "probabilities"]
    said += [check.sentence for check in certificate.checks if check.name == "activation" and check.figure is not None]
    wrong = bool(set(NOT_NOISE) & set(failed))
    lacking = [check for name, check in failed.items() if name in COUNTED or not wrong]
    wanted = max((_samples(check, certificate.n_samples) for check in lacking), default=0.0)
    if "rounding" in failed and not any(check.name == "load" for check in certificate.checks):
        wanted = max(wanted, *(_to_tell_noise(check, certificate.n_samples) for check in certificate.checks))
    if certificate.n_samples < wanted <= AT_MOST * certificate.n_samples:
        said.append(f"Give about {_rounded(wanted):,} samples or more; there are {certificate.n_samples:,}.")
    elif wanted:
        said.append("Give other samples or less noise: more of the same would have to be thousands of times as many.")
    if "affine part" in failed:
        failed = {name: check for name, check in failed.items() if name not in SEEN_IN_UNITS}
    if not said and wrong:
        said.append(LACKING if "rounding" in failed else AFFINE)
    if "convergence" in failed:
        failed.pop("agreement", None)  # no second descent had the time to agree
    said += [sentence for name, sentence in REMEDIES.items() if name in failed]
    return tuple(said[:3])


def _samples(check: Check, n: int) -> float:
    """How many samples would have met the limit; 0 where their number is not what was lacking."""
    if check.figure is None or check.limit is None or check.limit <= 0:
        return 0.0
    short = check.limit / max(check.figure, 1e-12) if check.figure >= 0 else 0.0
    if check.name in COUNTED:
        return short * n
    if check.name == "precision":
        return n / max(short, 1e-12) ** 2
    return short**2 * n if check.name == "strength" else 0.0


def _to_tell_noise(check: Check, n: int) -> float:
    """How many samples the check `load` would want, where none was made because weights are not determined."""
    if check.name != "equations" or not check.figure or not check.limit or check.figure >= FEW * check.limit:
        return 0.0
    return FEW * check.limit / check.figure * n


def _rounded(n: float) -> int:
    """Up to two digits."""
    unit = 10 ** max(int(math.log10(n)) - 1, 0)
    return math.ceil(n / unit) * unit
