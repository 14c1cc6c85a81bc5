"""Units admitted by mistake: their boundary bends, so they belong to a deeper layer.

In a layer with few units the cells are large, and the boundary of a deeper unit may look straight at most points. But
it bends wherever a unit of this layer changes. So once the layer is found, its boundaries are tested again, at more
points and on both sides of each other.
"""

from __future__ import annotations

import numpy as np

from neurecover.queries.box.black_box import Box
from neurecover.queries.deep.boundaries.check import boundary_errors, boundary_holds
from neurecover.queries.deep.boundaries.points import find_boundary_points
from neurecover.queries.deep.level import Level


def find_straight_units(box: Box, level: Level, rng: np.random.Generator, times: int = 1) -> np.ndarray:
    """Return a mask (k,) of the units whose boundaries are where the level says; `times` multiplies the points."""
    return np.array([is_straight(box, level, unit, rng, times) for unit in range(level.n_units)], dtype=bool)


def is_straight(box: Box, level: Level, unit: int, rng: np.random.Generator, times: int = 1) -> bool:
    """Return whether the boundary of one unit is where the level says, tested all over it."""
    options = box.options.deep
    n = times * (options.bend_points_inside if box.limits else options.bend_points)
    boundary, unseen = level.units[unit].boundary, level.units[unit].unseen
    where = find_boundary_points(level.known, level.units[unit].theta, n, rng, level.units[unit].point, unseen)
    return boundary_holds(box, where, boundary_errors(level.known, boundary, unseen, where.points), boundary.jump)
