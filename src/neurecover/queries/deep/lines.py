"""Lines on which to look for units of the next layer.

A unit that is nearly always active, or inactive, changes where the values h below it point in an extreme direction. A
line between the points of greatest and least g·h / ‖h‖, for random g, crosses boundaries that lines between typical
points hardly ever meet; finding the two points needs no queries (`boundaries.ascent`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from neurecover.queries.deep.boundaries.ascent import climb
from neurecover.queries.deep.boundaries.points import draw_points
from neurecover.queries.deep.cells import KnownLayers

Line = tuple[np.ndarray, np.ndarray]


def draw_line(known: KnownLayers, rng: np.random.Generator) -> Line:
    """Draw a point and a direction of length √d; most lines join extreme points once a layer is known."""
    options = known.options
    if known.layers and rng.random() < options.extreme:
        k = len(known.layers[-1][1])
        g = rng.standard_normal(k) * (rng.random(k) < rng.choice([0.3, 1.0]))
        p, q = _find_extreme_point(known, g, rng), _find_extreme_point(known, -g, rng)
    else:
        p, q = draw_points(known, 2, rng) if not known.limits else known.limits.draw_ends(rng)
    return p, (q - p) * (np.sqrt(len(p)) / np.linalg.norm(q - p))


def draw_extreme_line(known: KnownLayers, g: np.ndarray, rng: np.random.Generator) -> Line:
    """Return the ends of a line from a typical point to one with very small g·h / ‖h‖, found without queries.

    A unit with weights along g that is active at all typical points changes on the way, if it changes anywhere.
    """
    # Far out, the bias no longer matters.
    return draw_points(known, 1, rng)[0], known.limits.pull_inside(10.0 * _find_extreme_point(known, -g, rng))


def _find_extreme_point(known: KnownLayers, g: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the point (d,) of largest g·h / ‖h‖ among several ascents."""
    options = known.options
    below = replace(known, unsigned=None)
    X = climb(below, np.tile(g, (options.ascents, 1)), rng)
    H = below.hidden(X)
    return X[int(np.argmax((H @ g) / (np.linalg.norm(H, axis=1) + 1e-3)))]
