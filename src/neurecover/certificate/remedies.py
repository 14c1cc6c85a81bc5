"""What a person can do about a verdict below statistical, from the checks that failed.

Errors fall as 1/√n, counts of samples grow as n: what a failed check measured and what it wanted say how many samples
would do, the larger number where several lack them.
"""

from __future__ import annotations

import math

from neurecover.certificate.checks import FEW
from neurecover.certificate.verdict import Certificate, Check

AT_MOST = 1_000  # times the samples there are; beyond, more of them are no advice
NOT_NOISE = ("affine part", "structure", "generalisation")
COUNTED = ("equations", "load")  # the only ones that say how many samples it takes where the network is a wrong one
FIRST = ("time", "probabilities", "box")  # whose sentences are advice themselves

FIND_WIDTH = "Leave the number of units to be found: n_hidden=None."
MORE_TIME = "Give it more time: a larger time_budget, or none."

# What to do about a check that failed, where more samples are not what it takes; the first that apply are said.
REMEDIES = {
    "signal": "See that inputs and outputs are the columns that were meant, and in the same order, row by row: nothing "
    "that was fitted predicts other outputs.",
    "inputs": "Leave out input columns that follow from others, or vary them on their own.",
    "width": FIND_WIDTH,
    "strength": f"{FIND_WIDTH} One of these may not exist.",
    "columns": "Give rows in which every input differs from its usual value, or leave out those that hardly ever do.",
    "information": "Give samples that switch every unit on and off: inputs that spread wider than these.",
    "kinks": "Give samples on both sides of every unit's kink: inputs that spread wider than these.",
    "digits": "Give inputs that spread wider, or were centred before they were rounded: an offset uses up digits.",
    "output digits": "Give outputs with more digits.",
    "tails": "Look at the samples with the largest residuals: a few outliers may decide the fit.",
    "independence": "Give independent samples: rows that follow on from each other say less than their number.",
    "convergence": MORE_TIME,
    "agreement": "Give it more time, or another random_state.",
    "spare unit": "Say how many units there are, if you know it: n_hidden.",
    "signs": "Use it for its predictions, which are the same for every choice of signs that fits: no samples tell such "
    "networks apart.",
    "equations": "Give more samples: some weight rests on a single one of these.",
    "size": "Try fewer units: more parameters than this are certified without noise only, and without an affine term.",
    "derivative": "Take an activation that has a derivative: without one nothing can be certified.",
}
TIED = (
    "Give the outputs as they were before they were clipped or rounded. If they were neither, look for the error in a "
    "few wrong rows or in the inputs."
)
OTHER_OPTIMA = "Give more samples, or more time to compare the fits that these do not tell apart."
OTHER_SIGNS = (
    "Give more samples or less noise. If other signs still fit then, use it for its predictions, which are the same."
)
ELSEWHERE = "Ask where the inputs of the model lie, with like=X: its units may switch there."
ONE_PLANE = (
    "Give more samples, and inputs that spread wider: the former tell apart planes that noise puts together, the "
    "latter show the kink of a unit that is on for all of these."
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
    "Look for what the network lacks: {}another activation, a second hidden layer (depth=2), {}or an input left out."
)
MORE_UNITS = "more units (n_hidden=None finds their number), "
LINEAR_TERM = "a linear term beside the units (affine=True), "
AFFINE = "Try affine=True, which adds a linear term C x to the network: units and an affine part fit these samples."
LIKE_AFFINE = (
    "activation='leaky_relu(0.1)' or 'abs' looks like that too, and so do units that are on for every sample, which "
    "inputs that spread wider would show."
)


def advice(certificate: Certificate) -> tuple[str, ...]:
    """At most three sentences, the most useful first; none for the verdicts exact and statistical."""
    if certificate.verdict in ("exact", "statistical"):
        return ()
    failed = [check for check in certificate.checks if not check.passed]
    names = {check.name for check in failed}
    if "units" in names:
        return ()  # no network was found, and the reason says what to do
    said = list({check.name: check.sentence for check in certificate.checks if check.name in FIRST}.values())
    said += [check.sentence for check in certificate.checks if check.name == "activation" and check.figure is not None]
    said += [REMEDIES["inputs"]] if "inputs" in names else []  # which no number of samples makes up for
    told = any(check.name == "width" and check.limit is not None for check in certificate.checks)
    wrong = _is_wrong(certificate, names)
    lacking = [check for check in failed if check.name in COUNTED or not wrong]
    wanted = max((_samples(check, certificate.n_samples) for check in lacking), default=0.0)
    if "rounding" in names and not any(check.name == "load" for check in certificate.checks):
        wanted = max(wanted, *(_to_tell_noise(check, certificate.n_samples) for check in certificate.checks))
    if certificate.n_samples < wanted <= AT_MOST * certificate.n_samples:
        many = f"Give about {_rounded(wanted):,} samples or more; there are {certificate.n_samples:,}."
        said.insert(0 if names & set(COUNTED) else len(said), many)  # too few samples show no activation either
    elif wanted:
        said.append("Give other samples or less noise: more of the same would have to be thousands of times as many.")
    if not said and wrong:
        linear = any(check.name == "affine part" and check.limit is not None for check in certificate.checks)
        lacks = LACKING.format(MORE_UNITS if told else "", LINEAR_TERM if linear else "")
        affine = "affine part" in names and not names & {"structure", "generalisation", "prediction"}
        if linear and "rounding" not in names:
            lacks = f"{AFFINE} {LIKE_AFFINE}"
        elif linear and affine:
            lacks = AFFINE
        said.append(lacks)
    aside = {other for name in names for other in COVERED.get(name, ())}
    aside |= {"signal", "equations"} if wanted else set()
    aside |= set() if told else {"strength"}
    aside |= {"width", "strength"} if any(MORE_UNITS in sentence for sentence in said) else set()
    aside |= set(SEEN_IN_UNITS) if "affine part" in names else set()
    order = list(REMEDIES)
    remedied = sorted((c for c in failed if c.name in order and c.name not in aside), key=lambda c: order.index(c.name))
    more = [_remedy(check, "rounding" in names) for check in remedied]
    said += [sentence for sentence in more if not (wanted and sentence == OTHER_OPTIMA)]
    return tuple(dict.fromkeys(said))[:3]


def _is_wrong(certificate: Certificate, failed: set[str]) -> bool:
    """Is the residual something else than noise? A poor prediction alone may be noise, where that was tested."""
    tested = any(check.name == "structure" for check in certificate.checks)
    return bool({*NOT_NOISE, *(("signal",) if tested else ("prediction",))} & failed)


def _remedy(check: Check, noisy: bool) -> str:
    """The sentence for a check, which for those of one name depends on what was measured."""
    if check.name == "agreement" and check.figure is None:
        return OTHER_OPTIMA
    if check.name == "kinks" and check.figure is None:
        return ELSEWHERE  # questions were asked, and met no kink
    if check.figure is None or check.limit is None:
        return REMEDIES[check.name]
    if check.name == "output digits" and check.figure > check.limit:
        return TIED  # so many samples with one value, where the other figure is of steps that are too few
    if check.name == "spare unit" and not math.isfinite(check.figure):
        return MORE_TIME
    if check.name == "signs" and noisy and check.figure > check.limit:
        return OTHER_SIGNS
    if check.name == "signs" and check.limit > 1:
        return ONE_PLANE  # standard errors between two planes, where the other figure is of choices of signs
    return REMEDIES[check.name]


def _samples(check: Check, n: int) -> float:
    """How many samples would have met the limit; 0 where their number is not what was lacking."""
    if check.figure is None or check.limit is None or check.limit <= 0:
        return 0.0
    short = check.limit / max(check.figure, 1e-12) if check.figure >= 0 else 0.0
    if check.name in COUNTED:
        return short * n
    if check.name == "kinks":
        # Of samples at a kink, which are whole numbers; a side without any may have none at all.
        whole = check.figure > 0 and float(check.figure).is_integer() and float(check.limit).is_integer()
        return short * n if whole else 0.0
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
