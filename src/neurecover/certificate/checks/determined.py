"""Checks that the samples determine every weight."""

from __future__ import annotations

import numpy as np

from neurecover.certificate.case import Case
from neurecover.certificate.checks.facts import Facts, would_do
from neurecover.certificate.determined.sentence import open_weights as open_sentence
from neurecover.certificate.verdict import Check

SPREAD = "Give samples that switch every unit on and off: inputs that spread wider than these."
BOTH_SIDES = "Give samples on both sides of every unit's kink: inputs that spread wider than these."
ONE_SAMPLE = "Give more samples: some weight rests on a single one of these."
TOGETHER = (
    "Give more samples, or inputs that spread wider, so that the units of every term are on together; or a smaller "
    "max_degree, if there are no such terms."
)
VARY = "Give rows in which every input differs from its usual value, or leave out those that hardly ever do."


def equations(case: Facts) -> Check:
    """Check that there are more equations than parameters; with noise, several per parameter are needed."""
    n, P, samples = case.n_equations, case.n_free, case.n_samples
    short = P / max(n, 1) * samples
    wanted = short if n <= P else 0.0
    if case.noisy and n < case.options.few * P:
        wanted = case.options.few * short
    if n > P:
        return Check("equations", True, n, P, f"{n} equations for {P} free parameters.", n_wanted=wanted)
    sentence = f"{n} equations cannot determine {P} parameters.{would_do((1 + P) / max(n, 1) * samples)}"
    return Check("equations", False, n, P, sentence, ONE_SAMPLE, wanted)


def contradicted(case: Case) -> Check | None:
    """Check that other equations could contradict each one. It shares the name `equations`; both must pass."""
    if case.raw is None:
        return None
    n = case.n_alone
    sentence = "Every equation is one of several that determine the same weights."
    if n:
        sentence = f"{n} weights are each fixed by a single sample, so nothing confirms them."
    return Check("equations", n == 0, n, 0, sentence, ONE_SAMPLE)


def information(case: Case) -> Check:
    """Check that every direction of the weights changes an output."""
    weakest, limit = case.weakest, case.options.singular
    if weakest >= limit:
        sentence = f"The smallest eigenvalue of the information is {weakest:.2g}: every weight is seen."
        return Check("information", True, weakest, limit, sentence)
    unseen = case.sides.unseen(case.convention)
    never = f" {unseen} of its units never switch{'' if case.convention else ' on'}." if unseen else ""
    sentence = (
        "The samples do not determine every weight: "
        f"the smallest eigenvalue of the information is about {weakest:.1g}.{never}"
    )
    return Check("information", False, weakest, limit, sentence, SPREAD)


def terms(case: Case) -> Check | None:
    """Check that enough samples show every term of an upper polynomial. It shares the name `information`."""
    unseen = case.unseen_terms
    if unseen is None:
        return None
    if not unseen:
        return Check("information", True, 0, 0, "Every term of the upper polynomial would have shown in these samples.")
    listed = ", ".join(f"{name} in {count}" for name, count in list(unseen.items())[:6])
    more = f" and {len(unseen) - 6} more" if len(unseen) > 6 else ""
    sentence = f"The coefficients of some terms are not known: too few samples show {listed}{more}."
    return Check("information", False, len(unseen), 0, sentence, TOGETHER)


def columns(case: Case) -> Check:
    """Check that every input differs from its usual value in enough rows."""
    if case.rare is None:
        return Check("columns", True, None, None, "The samples are too many to count what is usual in every column.")
    rare = np.flatnonzero(case.rare.any(axis=0))
    if len(rare) == 0:
        return Check("columns", True, 0, 0, "Every input differs from its usual value in enough samples.")
    listed = ", ".join(map(str, rare[:6])) + (f" and {len(rare) - 6} more" if len(rare) > 6 else "")
    sentence = f"Of the samples in which some unit is on, too few show inputs {listed} vary: other weights fit as well."
    return Check("columns", False, int(np.count_nonzero(case.rare)), 0, sentence, VARY)


def kinks(case: Case) -> Check:
    """Check that every unit has more distinct samples on each side of its kink than it has weights.

    A wrong unit can fit as many samples as it has weights. It fits each further sample only by chance, which without
    noise means agreement to the last digits, with probability about 1e-12.
    """
    sides, few = case.sides, case.few
    fewest, needed = sides.fewest, sides.needed
    worst = int(np.argmin(fewest - needed)) if len(fewest) else 0
    least, limit = (int(fewest[worst]), int(needed[worst])) if len(fewest) else (0, 0)
    if not few.any():
        sentence = f"Every unit has {least} different samples or more on either side of its kink."
        return Check("kinks", True, least, min(limit, least), sentence)
    n_wanted = case.n_samples * limit / least if least else np.inf
    sentence = (
        f"{np.count_nonzero(few)} of {len(few)} units have too few samples on one side of their kink ({least}, where "
        f"{limit} are needed): other networks may fit these samples as well.{would_do(n_wanted)}"
    )
    # If no sample is on one side, more samples may not help, so no number is asked for.
    return Check("kinks", False, least, limit, sentence, BOTH_SIDES, n_wanted if least else 0.0)


def open_weights(case: Case) -> Check | None:
    """State which weights are exact although not all are; this does not affect the verdict."""
    seen = case.open
    if seen is None:
        return None
    return Check("open weights", True, seen.n_open, 0, open_sentence(seen.errors, seen.unseen))


def found_width(case: Case) -> Check | None:
    """State which further unit would go unnoticed; this does not affect the verdict.

    An affine term absorbs units that are always on.
    """
    if case.evidence.asked is not None or case.straight:
        return None
    visible = case.visible
    sentence = (
        "The number of units was found. A further unit would go unnoticed only if it adds less than "
        f"{visible.size:.1g} to every output, lies within {visible.angle:.1g} rad of another unit, or has fewer than "
        f"{visible.samples} samples on one side of its kink."
    )
    if case.convention:
        sentence += " One that is on for all of them is a part of the affine term."
    return Check("found width", True, visible.size, None, sentence)
