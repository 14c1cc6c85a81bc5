"""Kinks around one point of a boundary, for a normal that is known too roughly to find distant ones.

A normal with the error σ puts the boundary at a distance s off by σ s. Kinks are looked for at distances where that is
within the radius of a segment, and each that is found lowers σ, so that the next ones lie farther away.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.queries.box.black_box import Box
from neurecover.queries.deep.boundaries.boundary import Boundary
from neurecover.queries.deep.boundaries.check import boundary_holds
from neurecover.queries.deep.boundaries.estimate import estimate
from neurecover.queries.deep.boundaries.points import BoundaryPoints
from neurecover.queries.deep.cells import KnownLayers
from neurecover.queries.lines.segments import find_local_kinks


def nearby_reaches(box: Box, x: np.ndarray, sigma: float, jump: float) -> tuple[float, ...]:
    """Return the distances, relative to the point, at which kinks are looked for first; none if σ is small enough."""
    options = box.options.deep
    size, radius = 1.0 + float(np.linalg.norm(x)), float(box.clear_radius(x[None], jump)[0])
    first = options.predicted * radius / (sigma * size)
    if first >= 1.0:
        return ()
    first = min(max(first, 4.0 * radius / size), options.nearby[0])
    return (first, *(reach for reach in options.nearby[1:] if reach > 2.0 * first))


def refine_nearby(
    box: Box, known: KnownLayers, boundary: Boundary, x: np.ndarray, reach: float, rng: np.random.Generator
) -> Boundary | None:
    """Refine the boundary by kinks at a distance of about `reach` from x, in all directions along it.

    Returns None if most of the kinks are missing.
    """
    options = box.options.deep
    where = _spread_in_cell(known, boundary, x, reach, len(x) - 1, rng)
    if where is None:
        return None
    X, way, std = where.around.points, where.way, where.std
    radius = np.maximum(box.clear_radius(X, boundary.jump), options.sure * std / options.near)
    ok = (radius < 0.7 * where.around.room) & (way > 0.2 * radius)
    if not ok.any():
        return boundary
    X, normals, radius, way = X[ok], where.around.normals[ok], radius[ok], way[ok]
    found = find_local_kinks(box, X, normals, radius)
    hit = found.visible & found.clean & (np.abs(found.position) < options.near * radius)
    if len(X) >= options.kinks_tested and np.count_nonzero(hit) < options.kinks_nearby * len(X):
        return None
    kinks = X[hit] + found.position[hit, None] * normals[hit]
    # What the known layers are off by is nearly the same at x, and cancels but for the way between.
    sigma = where.steep * np.hypot(found.sigma[hit], known.error * way[hit])
    return estimate(boundary, known.features(kinks), sigma)


def holds_in_cell(box: Box, known: KnownLayers, boundary: Boundary, x: np.ndarray, rng: np.random.Generator) -> bool:
    """Return whether the boundary around x goes on up to the known units around it, where exact answers tell.

    That of a deeper unit bends at unknown units, of which there are more than known ones while few layers are known.
    """
    options = box.options.deep
    where = _spread_in_cell(known, boundary, x, options.across, options.kinks_tested, rng)
    if where is None or not len(where.way):
        return where is not None
    return boundary_holds(box, where.around, where.std, boundary.jump)


@dataclass(frozen=True, eq=False)
class _Spread:
    """Points of a boundary `around` one of its points, their distances `way` (n,) from it, and how far they may be off
    the boundary, `std` (n,); `steep` is the length of the gradient of θ·φ.
    """

    around: BoundaryPoints
    way: np.ndarray
    std: np.ndarray
    steep: float


def _spread_in_cell(
    known: KnownLayers, boundary: Boundary, x: np.ndarray, reach: float, most: int, rng: np.random.Generator
) -> _Spread | None:
    """Return up to `most` points of the boundary in the cell of x, at a distance of about `reach` (1 + ‖x‖) from it."""
    cell = known.cell_at(x)
    J = boundary.normal(cell)
    steep = float(np.linalg.norm(J))
    if not steep > 0.0:
        return None
    n = J / steep
    U = np.linalg.qr(np.column_stack([n, rng.standard_normal((len(x), min(len(x) - 1, most)))]))[0][:, 1:].T
    ways = _free_ways(cell.Q @ x + cell.q0, U @ cell.Q.T)
    way = np.minimum(reach * (1.0 + float(np.linalg.norm(x))), 0.6 * ways)
    X = known.limits.pull_inside(x + (way * rng.choice([-1.0, 1.0], len(U)))[:, None] * U)
    # Back onto the boundary as it is known now.
    X = X - ((known.features(X) @ boundary.theta) / steep)[:, None] * n
    std = np.hypot(boundary.spread(known.features(X)), known.spread(boundary.theta, X)) / steep
    ways = _free_ways(X @ cell.Q.T + cell.q0, np.broadcast_to(cell.Q @ n, (len(X), len(cell.Q))))
    room = np.minimum(ways, known.limits.room(X))
    inside = room > 0.0  # a step back onto the boundary may end beyond the edge
    around = BoundaryPoints(X, np.tile(n, (len(X), 1)), room).take(inside)
    return _Spread(around, way[inside], std[inside], steep)


def _free_ways(values: np.ndarray, speeds: np.ndarray) -> np.ndarray:
    """Return the distance (n,) to the first change of a known unit, from its values (K,) or (n, K) at speeds (n, K)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ways = np.abs(values / speeds)
    return np.asarray(np.min(np.where(np.isnan(ways), np.inf, ways), axis=1, initial=np.inf))
