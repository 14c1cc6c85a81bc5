"""Which surfaces of a layer bend at others, and so belong to a deeper one.

In a layer with few units the cells are large, and the surface of a deeper unit may look straight at most points. But
it bends wherever a unit of this layer changes, while two units of the same layer cross each other straight. So at
points of the flat continuation of surface u, spread over both sides of surface j, the box has kinks on both sides if
u is of the layer, and on one side only if u bends at j.
"""

from __future__ import annotations

import numpy as np

from neurecover.queries.box import Box
from neurecover.queries.deep_check import kinks_at
from neurecover.queries.deep_level import Level
from neurecover.queries.deep_points import points_on

_POINTS = 24
# Kinks that must be there on one side, and points without any on the other, for a bend.
_CLEAR = 4


def straight_units(box: Box, level: Level, rng: np.random.Generator) -> np.ndarray:
    """A mask (k,) of the units whose surfaces bend at no other one of the level."""
    return np.array([is_straight(box, level, unit, rng) for unit in range(level.n_units)], dtype=bool)


def is_straight(box: Box, level: Level, unit: int, rng: np.random.Generator) -> bool:
    """Whether the surface of one unit bends at no other one of the level."""
    where = points_on(level.known, level.theta[unit], _POINTS, rng, level.points[unit], level.unseen[unit])
    if not len(where.points):
        return True
    hit = kinks_at(box, where).hit
    above = level.known.features(where.points) @ level.theta.T > 0.0
    return not any(_one_sided(hit, above[:, j]) for j in range(level.n_units) if j != unit)


def _one_sided(hit: np.ndarray, above: np.ndarray) -> bool:
    with_kink = np.count_nonzero(hit & above), np.count_nonzero(hit & ~above)
    without = np.count_nonzero(~hit & above), np.count_nonzero(~hit & ~above)
    return any(
        with_kink[side] >= _CLEAR and with_kink[1 - side] == 0 and without[1 - side] >= _CLEAR for side in (0, 1)
    )
