"""Lines that units of the next layer are looked for on.

A unit that is nearly always on, or off, changes where the values h below it point in an extreme direction. A line
between the points of greatest and least g·h / ‖h‖, for g at random, crosses surfaces that lines between usual points
hardly ever meet; finding the two points takes no queries (`deep_climbing`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from neurecover.queries.deep.cells import Known
from neurecover.queries.deep.surfaces.ascent import climbed
from neurecover.queries.deep.surfaces.points import random_points

Line = tuple[np.ndarray, np.ndarray]
# The part of the lines that join extreme points, and the ascents of which the best is taken.
_EXTREME, _ASCENTS = 0.7, 20


def random_line(known: Known, rng: np.random.Generator) -> Line:
    """A point and a direction of length √d; most lines join extreme points once a layer is known."""
    if known.layers and rng.random() < _EXTREME:
        k = len(known.layers[-1][1])
        g = rng.standard_normal(k) * (rng.random(k) < rng.choice([0.3, 1.0]))
        p, q = _extreme_point(known, g, rng), _extreme_point(known, -g, rng)
    else:
        p, q = random_points(known, 2, rng) if not known.limits else known.limits.ends(rng)
    return p, (q - p) * (np.sqrt(len(p)) / np.linalg.norm(q - p))


def extreme_line(known: Known, g: np.ndarray, rng: np.random.Generator) -> Line:
    """The ends of a line from a usual point to one at which g·h / ‖h‖ is as small as can be found without queries.

    A unit with weights along g that is on at all usual points changes on the way, if it changes anywhere.
    """
    # Far out the bias no longer matters.
    return random_points(known, 1, rng)[0], known.limits.drawn_in(10.0 * _extreme_point(known, -g, rng))


def _extreme_point(known: Known, g: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    below = replace(known, open=None)
    X = climbed(below, np.tile(g, (_ASCENTS, 1)), rng)
    H = below.hidden(X)
    return X[int(np.argmax((H @ g) / (np.linalg.norm(H, axis=1) + 1e-3)))]
