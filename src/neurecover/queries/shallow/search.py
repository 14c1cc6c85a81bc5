"""All units of one hidden layer up to their signs: line after line, until every kink is explained.

Within limits a hyperplane may cut off only a corner, where hardly any line passes. But a unit that is active, or
inactive, anywhere inside is so at a corner, because w·x + b is extreme there. So the oracle is queried at the corners,
and lines are drawn to those where it disagrees with the units found.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from neurecover.exceptions import UnsolvableError
from neurecover.queries.box.black_box import Box
from neurecover.queries.box.regions import Regions
from neurecover.queries.lines.scan import Scan, scan_line
from neurecover.queries.lines.segments import find_local_kinks
from neurecover.queries.shallow.line_units import find_units_on_line
from neurecover.queries.shallow.planes import Planes
from neurecover.solve import Deadline


class SeveralLayersError(UnsolvableError):
    """The units do not belong to a single hidden layer; `regions` have the gradients that were measured so far."""

    regions: Regions | None = None


def find_units(
    box: Box,
    farther: float,
    maybe_deep: bool,
    rng: np.random.Generator,
    deadline: Deadline,
    tell: Callable[[str, float], object],
) -> tuple[Planes, Regions]:
    """Find units on one line after another, until a line has no unexplained kink; return them and the regions measured.

    Within limits this takes several such lines, and agreement with the oracle at the corners. With `maybe_deep` there
    may be several layers: raise SeveralLayersError if hyperplanes do not continue.
    """
    options = box.options.shallow
    d, p = box.n_inputs, box.n_outputs
    known, regions = Planes.empty(d, p), Regions.empty(d, p)
    quiet, towards = 0, None
    most = options.lines_inside if box.limits else options.lines
    for number in range(most):
        if deadline.passed:
            raise UnsolvableError("Time ran out before all units were found: give a larger time_budget.")
        line = scan_line(box, rng, farther, towards)
        if maybe_deep and number == 0:
            known, regions = _look_ahead(box, line, rng)
        units = find_units_on_line(box, line.x, line.v, line.kinks, known, rng=rng)
        known, regions = Planes.join([known, units.planes]), regions + units.regions
        tell("units", float(len(known)))
        if maybe_deep and (number == 0 or (box.limits and len(units.planes))):
            _refuse_several_layers(box, *_count_ended(box, units.planes, rng))
        quiet = quiet + 1 if units.explained.all() and not len(units.planes) else 0
        if box.limits and quiet >= options.quiet:
            towards = _find_wrong_corner(box, known, regions, rng)
        if units.explained.all() and (not box.limits or (quiet >= options.quiet and towards is None)):
            return known, regions
    raise UnsolvableError(f"After {most} lines some kinks are still not explained by any hyperplane.")


def _find_wrong_corner(box: Box, known: Planes, regions: Regions, rng: np.random.Generator) -> np.ndarray | None:
    """Return a corner (d,) of the range where the oracle disagrees with the units found; None if it agrees.

    A unit is missing on the way there.
    """
    options = box.options.shallow
    if not len(regions):
        return None
    X = box.limits.corners(options.corners, rng)
    Y = box(X)
    left = np.abs(Y - add_affine_part(known, regions)(X)).max(axis=1) / (np.abs(Y).max(axis=1) + box.scale)
    wrong = left > max(options.corner_misfit, expected_misfit(known))
    return X[rng.choice(np.flatnonzero(wrong))] if wrong.any() else None


def _look_ahead(box: Box, line: Scan, rng: np.random.Generator) -> tuple[Planes, Regions]:
    """Find the units behind the last few kinks of a line and, while some of their hyperplanes end, behind earlier ones.

    Raise SeveralLayersError as soon as enough of them do: with many inputs a whole line costs most of the queries.
    """
    few, d, p = box.options.shallow.continued, box.n_inputs, box.n_outputs
    known, regions = Planes.empty(d, p), Regions.empty(d, p)
    ended = looked = 0
    for stop in range(len(line.kinks.positions), 2 * few, -few):
        some = slice(stop - few, stop)
        units = find_units_on_line(box, line.x, line.v, line.kinks, known, rng=rng, only=some)
        known, regions = Planes.join([known, units.planes]), regions + units.regions
        gone, seen = _count_ended(box, units.planes, rng)
        ended, looked = ended + gone, looked + seen
        try:
            _refuse_several_layers(box, ended, looked)
        except SeveralLayersError as error:
            error.regions = regions
            raise
        if not ended:
            break
    return known, regions


def _count_ended(box: Box, planes: Planes, rng: np.random.Generator) -> tuple[int, int]:
    """Return how many hyperplanes end, and how many were tested; those of a first layer have a kink everywhere.

    A few hyperplanes are tested, at one place each, as far from the line as usual queries are.
    """
    options = box.options.shallow
    some = planes.take(np.argsort(planes.error, kind="stable")[: options.continued])
    X = rng.standard_normal((len(some), box.n_inputs))
    X = box.limits.move_to_planes(X, some.W, some.b)
    X -= (np.sum(X * some.W, axis=1) + some.b)[:, None] * some.W
    radius = np.maximum(options.local, 10.0 * some.error) * np.linalg.norm(X, axis=1)
    inside = box.limits.room(X) > radius
    some, X, radius = some.take(inside), X[inside], radius[inside]
    return int(np.count_nonzero(find_local_kinks(box, X, some.W, radius).straight)), len(some)


def _refuse_several_layers(box: Box, ended: int, looked: int) -> None:
    """Raise SeveralLayersError if too many hyperplanes end somewhere."""
    if ended >= box.options.shallow.ended and 4 * ended >= looked:
        raise SeveralLayersError(
            f"{ended} of {looked} hyperplanes end somewhere, so there is more than one hidden layer."
        )


def add_affine_part(known: Planes, regions: Regions) -> Planes:
    """Return the units with the affine part of the most accurate region."""
    best = int(np.argmin(regions.sigma))
    return known.with_affine(regions.points[best], regions.values[best], regions.gradients[best])


def expected_misfit(planes: Planes) -> float:
    """Return what the errors of the hyperplanes add to the affine part, relative to the jumps."""
    size = np.linalg.norm(planes.J, axis=0)
    error = float(size @ planes.error / max(size.sum(), 1e-300))
    return min(1e-6 + 4.0 * error, 1e-2)
