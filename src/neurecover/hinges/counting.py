"""How many hinges: up from none while the test of further hinges rejects, then the best by BIC among those reached.

The test keeps its level where the noise is not alike everywhere, which BIC does not; BIC chooses between the numbers
that the test has admitted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.hinges.checks.further import FurtherHinges, Rows, further_hinges
from neurecover.hinges.options import DEFAULTS, HingeOptions
from neurecover.hinges.points import Points
from neurecover.hinges.search import BrokenLine, best_breaks


@dataclass(frozen=True, eq=False)
class Counted:
    """The chosen fit, the test of every number of hinges on the way, and BIC of every number that was fitted."""

    fit: BrokenLine
    tests: tuple[FurtherHinges, ...]
    bic: tuple[float, ...]


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
        if tests[-1].p_value > (options.admitted if k else options.level) or k == most:
            break
        fits.append(best_breaks(points, k + 1, options))
    bic = tuple(fit.bic(floor) for fit in fits)
    first = 1 if len(fits) > 1 else 0
    return Counted(fits[first + int(np.argmin(bic[first:]))], tuple(tests), bic)
