"""All units of one hidden layer up to their signs: line after line, until nothing is left to be explained.

In a range a plane may cut off no more than a corner, where hardly any line passes. But a unit that is on anywhere in
it, or off, is so at a corner, the values w·x + b there being extreme: the box is asked at the corners, and lines are
led to those where it does not answer as the units do.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from neurecover.exceptions import UnsolvableError
from neurecover.queries.box.black_box import Box
from neurecover.queries.box.regions import Regions
from neurecover.queries.lines.scan import scan_line
from neurecover.queries.lines.segments import find_local_kinks
from neurecover.queries.shallow.line_units import find_units_on_line
from neurecover.queries.shallow.planes import Planes
from neurecover.solve import Deadline

_LINES = 4
# Lines through a range, where a plane may be in few places only, and those without news that end the search.
_LINES_INSIDE, _QUIET = 80, 6
# Planes that are looked at away from the line where there may be several layers, how many of them may be gone, and the
# radius, relative to the point, within which a kink is looked for.
_LOOKED_AT, _GONE, _LOCAL = 12, 3, 1e-3
# Corners of a range that are asked at most, and what the planes may be off there before they are fitted together.
CORNERS, _AT_CORNERS = 1024, 1e-6


class SeveralLayersError(UnsolvableError):
    """The units are not those of one hidden layer."""


def find_units(
    box: Box,
    farther: float,
    maybe_deep: bool,
    rng: np.random.Generator,
    deadline: Deadline,
    tell: Callable[[str, float], object],
) -> tuple[Planes, Regions]:
    """Units from one line after the other, until a line has no kink that they do not explain.

    In a range it takes several such lines, and that the box answers at the corners as the units do. maybe_deep says that
    there may be more layers than one: SeveralLayersError is raised where planes do not go on.
    """
    d, p = box.n_inputs, box.n_outputs
    known, regions = Planes.empty(d, p), Regions.empty(d, p)
    quiet, towards = 0, None
    most = _LINES_INSIDE if box.limits else _LINES
    for number in range(most):
        if deadline.passed:
            raise UnsolvableError("The time was over before all units were found: give a larger time_budget.")
        line = scan_line(box, rng, farther, towards)
        units = find_units_on_line(box, line.x, line.v, line.kinks, known, rng=rng)
        known, regions = Planes.join([known, units.planes]), regions + units.regions
        tell("units", float(len(known)))
        if maybe_deep and (number == 0 or (box.limits and len(units.planes))):
            _check_planes_continue(box, units.planes, rng)
        quiet = quiet + 1 if units.explained.all() and not len(units.planes) else 0
        if box.limits and quiet >= _QUIET:
            towards = _find_wrong_corner(box, known, regions, rng)
        if units.explained.all() and (not box.limits or (quiet >= _QUIET and towards is None)):
            return known, regions
    raise UnsolvableError(f"After {most} lines there still are kinks that no plane explains.")


def _find_wrong_corner(box: Box, known: Planes, regions: Regions, rng: np.random.Generator) -> np.ndarray | None:
    """A corner (d,) of the range where the box does not answer as the planes do: a unit is missing on the way there."""
    if not len(regions):
        return None
    X = box.limits.corners(CORNERS, rng)
    Y = box(X)
    left = np.abs(Y - add_affine_part(known, regions)(X)).max(axis=1) / (np.abs(Y).max(axis=1) + box.scale)
    wrong = left > max(_AT_CORNERS, expected_misfit(known))
    return X[rng.choice(np.flatnonzero(wrong))] if wrong.any() else None


def _check_planes_continue(box: Box, planes: Planes, rng: np.random.Generator) -> None:
    """The plane of a unit in a first layer has its kink everywhere; those above bend at every plane below them.

    A few planes are looked at in one place each, as far from the line as usual questions are.
    """
    some = planes.take(np.argsort(planes.error, kind="stable")[:_LOOKED_AT])
    X = rng.standard_normal((len(some), box.n_inputs))
    X = box.limits.move_to_planes(X, some.W, some.b)
    X -= (np.sum(X * some.W, axis=1) + some.b)[:, None] * some.W
    radius = np.maximum(_LOCAL, 10.0 * some.error) * np.linalg.norm(X, axis=1)
    inside = box.limits.room(X) > radius
    some, X, radius = some.take(inside), X[inside], radius[inside]
    found = find_local_kinks(box, X, some.W, radius)
    gone = np.count_nonzero(found.straight)
    if gone >= _GONE and 4 * gone >= len(some):
        raise SeveralLayersError(
            f"{gone} of {len(some)} planes end somewhere, so there is more than one layer of units."
        )


def add_affine_part(known: Planes, regions: Regions) -> Planes:
    best = int(np.argmin(regions.sigma))
    return known.with_affine(regions.points[best], regions.values[best], regions.gradients[best])


def expected_misfit(planes: Planes) -> float:
    """What the errors of the planes come to in the affine part, relative to the jumps."""
    size = np.linalg.norm(planes.J, axis=0)
    error = float(size @ planes.error / max(size.sum(), 1e-300))
    return min(1e-6 + 4.0 * error, 1e-2)
