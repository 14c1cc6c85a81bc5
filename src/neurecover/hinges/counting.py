"""How many hinges: a test says whether there is any, and the posterior of their number how many.

The test of no hinge keeps its level where the noise is not alike everywhere, which no posterior of normal noise does.
Beyond that, numbers of hinges are equally likely beforehand, and the most probable one is taken of those up to the
first that the test of further hinges has nothing against. Where the residuals' squares depend on x, the posterior makes
hinges of loud stretches, and that test is asked for more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.hinges.checks.further import FurtherHinges, Rows, further_hinges
from neurecover.hinges.checks.spread import unequal_noise
from neurecover.hinges.options import DEFAULTS, HingeOptions
from neurecover.hinges.points import Points
from neurecover.hinges.posterior import log_evidence
from neurecover.hinges.search import BrokenLine, best_breaks


@dataclass(frozen=True, eq=False)
class Counted:
    """The chosen fit, the test of every number of hinges on the way, and of every number that was fitted BIC and the
    log of its probability over that of none.
    """

    fit: BrokenLine
    tests: tuple[FurtherHinges, ...]
    bic: tuple[float, ...]
    evidence: tuple[float, ...]


def rounding_floor(points: Points) -> float:
    """Return the sum of squares that rounding alone leaves: a few last digits of outputs of their own size."""
    largest = float(np.abs(points.y).max(initial=0.0)) + abs(points.level)
    return points.n * (8.0 * np.finfo(float).eps * max(largest, np.finfo(float).tiny)) ** 2


def count_hinges(points: Points, rows: Rows, rng: np.random.Generator, options: HingeOptions = DEFAULTS) -> Counted:
    """Choose the number of hinges."""
    floor = rounding_floor(points)
    # A hinge costs two parameters, and the noise wants a degree of freedom per parameter at least.
    most = min(options.most, points.room_for(options), max(int(points.n - 4) // 4, 0))
    fits, tests = [best_breaks(points, 0, options)], []
    for k in range(most + 1):
        if fits[k].rss <= floor:
            break
        tests.append(further_hinges(points, rows, fits[k].breaks, rng, options))
        if tests[-1].p_value > _limit(points, rows, fits[k], options) or k == most:
            break
        fits.append(best_breaks(points, k + 1, options))
    bic = tuple(fit.bic(floor) for fit in fits)
    evidence = _evidence(fits, bic, options)
    first = 1 if len(fits) > 1 else 0
    return Counted(fits[first + int(np.argmax(evidence[first:]))], tuple(tests), bic, evidence)


def _limit(points: Points, rows: Rows, fit: BrokenLine, options: HingeOptions) -> float:
    """Return the p-value of the test of further hinges up to which one more is fitted."""
    if len(fit.breaks) == 0:
        return options.level
    z = points.z[rows.group]
    unequal = unequal_noise(z, rows.y - fit(z), rows.weight) <= options.unequal
    return options.admitted_unequal if unequal else options.admitted


def _evidence(fits: list[BrokenLine], bic: tuple[float, ...], options: HingeOptions) -> tuple[float, ...]:
    """Return the log of every number's probability over that of none, by BIC where breaks are too many to integrate."""
    found: list[float] = []
    for k, fit in enumerate(fits):
        if k <= len(options.evidence_nodes):
            found.append(log_evidence(fit, options))
        else:
            found.append(found[-1] - 0.5 * (bic[k] - bic[k - 1]))
    return tuple(found)
