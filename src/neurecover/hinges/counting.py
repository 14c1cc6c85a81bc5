"""How many hinges: a test says whether there is any, and the posterior of their number how many.

The test of no hinge keeps its level where the noise is not alike everywhere, which no posterior of normal noise does.
Beyond that, the most probable number is taken of those up to the first that the test of further hinges has nothing
against. Beforehand one break is expected, with the odds of a Poisson distribution for more of them [Green, 1995].
Where the residuals' squares depend on x, the posterior makes hinges of loud stretches, and that test is asked for more.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lgamma
from typing import Protocol

import numpy as np

from neurecover.hinges.checks.further import FurtherHinges, Rows, further_hinges
from neurecover.hinges.checks.spread import unequal_noise
from neurecover.hinges.options import DEFAULTS, HingeOptions
from neurecover.hinges.points import Points
from neurecover.hinges.posterior import log_evidence
from neurecover.hinges.search import BrokenLine


@dataclass(frozen=True, eq=False)
class Counted:
    """The chosen fit, the test of every number of hinges on the way, and of every number that was fitted BIC and the
    log of its posterior probability over that of none.
    """

    fit: BrokenLine
    tests: tuple[FurtherHinges, ...]
    bic: tuple[float, ...]
    log_odds: tuple[float, ...]


class Problem(Protocol):
    """What is fitted: rows with noise of their own size (`Squares`), or shares and counts (`families.Likelihood`)."""

    @property
    def floor(self) -> float:
        """The sum of squares below which a residual is rounding."""

    def fit(self, K: int) -> BrokenLine:
        """Return the best fit with K breaks."""

    def rows_of(self, fit: BrokenLine) -> Rows:
        """Return the rows by themselves, in the units of the fit's points."""

    def bic(self, fit: BrokenLine) -> float:
        """Return BIC of a fit."""

    def beyond_squares(self, fit: BrokenLine, straight: BrokenLine) -> float:
        """Return by how much log L gains more over a straight line than the sums of squares of the fit's points say."""

    def outliers(self, fit: BrokenLine) -> np.ndarray:
        """Return the rows far off the fit."""


def rounding_floor(points: Points) -> float:
    """Return the sum of squares that rounding alone leaves: a last digit of the outputs, and a few of their spread."""
    size = 8.0 * float(np.abs(points.y).max(initial=0.0)) + 2.0 * abs(points.level)
    return points.n * (np.finfo(float).eps * max(size, 1e-100)) ** 2


def count_hinges(problem: Problem, rng: np.random.Generator, options: HingeOptions = DEFAULTS) -> Counted:
    """Choose the number of hinges."""
    fits, tests = [problem.fit(0)], []
    points, floor = fits[0].points, problem.floor
    # A hinge costs two parameters, and the noise wants a degree of freedom per parameter at least.
    most = min(options.most, points.room_for(options), max(int(points.total - 4) // 4, 0))
    for k in range(most + 1):
        if fits[k].rss <= floor:
            break
        rows = problem.rows_of(fits[k])
        tests.append(further_hinges(fits[k].points, rows, fits[k].breaks, rng, options))
        if tests[-1].p_value > _limit(rows, fits[k], options) or k == most:
            break
        fits.append(problem.fit(k + 1))
    bic = tuple(problem.bic(fit) for fit in fits)
    log_odds = _log_odds(problem, fits, bic, options)
    first = 1 if len(fits) > 1 else 0
    return Counted(fits[first + int(np.argmax(log_odds[first:]))], tuple(tests), bic, log_odds)


def _limit(rows: Rows, fit: BrokenLine, options: HingeOptions) -> float:
    """Return the p-value of the test of further hinges up to which one more is fitted."""
    if len(fit.breaks) == 0:
        return options.level
    z = fit.points.z[rows.group]
    unequal = unequal_noise(z, rows.y - fit(z), rows.weight) <= options.unequal
    return options.admitted_unequal if unequal else options.admitted


def _log_odds(
    problem: Problem, fits: list[BrokenLine], bic: tuple[float, ...], options: HingeOptions
) -> tuple[float, ...]:
    """Return the log of every number's probability over that of none, by BIC where breaks are too many to integrate.

    Beforehand that of K breaks is λᴷ/K! with λ = `options.expected`.
    """
    found: list[float] = []
    for k, fit in enumerate(fits):
        if k <= len(options.evidence_nodes):
            found.append(log_evidence(fit, options) + problem.beyond_squares(fit, fits[0]))
        else:
            found.append(found[-1] - 0.5 * (bic[k] - bic[k - 1]))
    prior = (k * np.log(options.expected) - lgamma(k + 1.0) for k in range(len(fits)))
    return tuple(float(own + beforehand) for own, beforehand in zip(found, prior))
