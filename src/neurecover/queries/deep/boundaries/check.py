"""Test whether a boundary holds everywhere, and correct its weights.

A unit of the layer just above the known ones has a boundary θ·φ(x) = 0 that holds everywhere. The boundary of a deeper
unit bends at unknown units, so at distant points of θ·φ(x) = 0 it has no kink. That is the test: at random points of
the boundary the oracle must have a kink. Units above may hide it, but only if all of them are inactive, and then the
oracle is constant: a point where it is linear but not constant is evidence against the boundary.

The kinks found in the test lie at x* with φ(x*)·θ = 0, each with its own standard error, and far apart: they determine
θ better than the gradients it was first computed from. The points are those where θ is still uncertain and the kink is
expected within the radius of a segment, by a pivoted QR factorisation of φ K / σ with K Kᵀ = Cov θ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr

from neurecover.queries.box.black_box import Box
from neurecover.queries.deep.boundaries.ascent import slopes_at
from neurecover.queries.deep.boundaries.boundary import Boundary
from neurecover.queries.deep.boundaries.estimate import estimate
from neurecover.queries.deep.boundaries.points import BoundaryPoints, find_boundary_points
from neurecover.queries.deep.cells import KnownLayers
from neurecover.queries.lines.segments import find_local_kinks


@dataclass(frozen=True, eq=False)
class Evidence:
    """Kinks of a boundary: their features φ (n, f) and the standard errors σ (n,) of φ·θ.

    `against` counts the points without a kink where the oracle is not constant.
    """

    phi: np.ndarray
    sigma: np.ndarray
    against: int = 0

    @classmethod
    def none(cls, f: int) -> Evidence:
        """Return the empty evidence about a boundary of f weights."""
        return cls(np.zeros((0, f)), np.zeros(0))

    def __add__(self, other: Evidence) -> Evidence:
        phi, sigma = np.vstack([self.phi, other.phi]), np.append(self.sigma, other.sigma)
        return Evidence(phi, sigma, self.against + other.against)


@dataclass(frozen=True, eq=False)
class Corrected:
    """A boundary corrected by its kinks, and the effective number of kinks that show each weight, `shown` (f,).

    That number is Σ(φ/σ)² over its largest term. If one kink outweighs the others, the others cannot confirm it.
    """

    boundary: Boundary
    shown: np.ndarray

    @classmethod
    def of(cls, boundary: Boundary, seen: Evidence) -> Corrected:
        """Return the boundary with the number of kinks that agree with it."""
        off = np.abs(seen.phi @ boundary.theta) / seen.sigma
        kept = off <= boundary.options.outlying * max(1.0, 2.0 * float(np.median(off)))
        weight = (seen.phi[kept] / seen.sigma[kept, None]) ** 2
        return cls(boundary, weight.sum(axis=0) / np.maximum(weight.max(axis=0, initial=0.0), 1e-300))


def correct_boundary(
    box: Box,
    known: KnownLayers,
    boundary: Boundary,
    unseen: np.ndarray,
    x: np.ndarray,
    rng: np.random.Generator,
    given: Evidence | None = None,
) -> Corrected | None:
    """Return the boundary corrected by the kinks on it; None if there are too few, or points contradict it.

    x is a point of the boundary. Where features `unseen` (f,) are not zero, θ is not known and not tested. `given` are
    kinks seen before. Kinks are asked for until the row has the error `row_error`, up to `kinks_per_weight` of them for
    a weight.
    """
    options, start = box.options.deep, boundary
    n_seen = len(unseen) - int(np.count_nonzero(unseen))
    least, most = n_seen + 3, int(np.ceil(options.kinks_per_weight * n_seen)) + 4
    seen = given or Evidence.none(len(unseen))
    boundary = estimate(start, seen.phi, seen.sigma)
    for number in range(options.rounds):
        hits = len(seen.sigma)
        if number < len(options.first_kinks):
            take = options.first_kinks[number]
        elif hits >= most or (hits >= options.kinks_least and boundary.error(unseen) <= options.row_error):
            break
        else:
            take = max(8, (least if hits < least else most) - hits + 2)
        new = _observe(box, known, boundary, unseen, x, take, rng)
        if new is None:
            return None
        seen = seen + new
        if len(seen.sigma) + seen.against >= options.kinks_tested and not _is_few(box, seen.against, len(seen.sigma)):
            return None
        boundary = estimate(start, seen.phi, seen.sigma)
    enough = max(options.kinks_least, n_seen // 2 if boundary.error(unseen) > options.row_error else 0)
    if len(seen.sigma) < enough or not _is_few(box, seen.against, len(seen.sigma)):
        return None
    return Corrected.of(boundary, seen)


def find_unconfirmed(
    box: Box, known: KnownLayers, found: Corrected, unseen: np.ndarray, x: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return a mask (f,) of the weights that rest on one kink, which may be another unit's, and that no other kink
    confirms.

    If such a weight is wrong, the kinks of the boundary are elsewhere at the points where its feature is active.
    """
    options = box.options.deep
    few = ~unseen & (found.shown < options.shown_least)
    few[-1] = False
    wrong = np.zeros_like(few)
    if not few.any():
        return wrong
    theta = np.where(unseen, 0.0, found.boundary.theta)
    where = find_boundary_points(known, theta, options.shown_points, rng, x, unseen)
    phi, size = known.features(where.points), 1.0 + np.linalg.norm(where.points, axis=1)
    std = boundary_errors(known, found.boundary, unseen, where.points)
    usable = (options.sure * std / options.near < 0.7 * where.room) & (std < options.certain * size)
    for j in np.flatnonzero(few):
        # Features of other weights in doubt would leave open which of them is wrong.
        others = few.copy()
        others[j] = False
        at = np.flatnonzero(usable & (phi[:, j] > 0.0) & ~np.any(phi[:, others] > 0.0, axis=1))
        at = at[np.argsort(-where.room[at] / size[at])][: options.shown_probes]
        if len(at):
            tested = probe_kinks(box, where.take(at), std[at], found.boundary.jump)
            wrong[j] = 2 * np.count_nonzero(tested.hit) <= np.count_nonzero(tested.hit | tested.none)
    return wrong


def _observe(
    box: Box,
    known: KnownLayers,
    boundary: Boundary,
    unseen: np.ndarray,
    x: np.ndarray,
    take: int,
    rng: np.random.Generator,
) -> Evidence | None:
    """Look for kinks at `take` well-chosen points of the boundary; return the evidence, None if it has no points."""
    options = box.options.deep
    theta = np.where(unseen, 0.0, boundary.theta)
    choice = find_boundary_points(known, theta, 4 * take + 20, rng, x, unseen)
    if not len(choice.points):
        return None
    phi = np.where(unseen, 0.0, known.features(choice.points))
    steep = np.maximum(slopes_at(known, theta, choice.points), 1e-300)
    std = boundary_errors(known, boundary, unseen, choice.points)
    radius, size = box.clear_radius(choice.points, boundary.jump), 1.0 + np.linalg.norm(choice.points, axis=1)
    need = np.maximum(radius, options.sure * std / options.near)
    # Kinks of other units are met by chance where the place of this one is not well known: near ones come first.
    widest = np.maximum(options.certain * size, 2.0 * radius)
    usable = np.flatnonzero((need < 0.7 * choice.room) & (need < widest))
    if len(usable) < options.kinks_tested:
        usable = np.argsort(need / np.minimum(0.7 * choice.room, widest))[: options.kinks_tested]
    noise = 1e-3 * steep[usable] * radius[usable]
    order = qr(((phi[usable] @ boundary.root) / noise[:, None]).T, mode="r", pivoting=True)[1]
    pick = usable[order[:take]]
    where = choice.take(pick)
    found = probe_kinks(box, where, std[pick], boundary.jump)
    kinks = where.points[found.hit] + found.position[found.hit, None] * where.normals[found.hit]
    rows = np.where(unseen, 0.0, known.features(kinks))
    sigma = np.hypot(steep[pick][found.hit] * found.sigma[found.hit], known.spread(theta, kinks))
    sigma = np.maximum(sigma, options.least_sigma * np.linalg.norm(rows, axis=1))
    return Evidence(rows, sigma, int(np.count_nonzero(found.none)))


def boundary_errors(known: KnownLayers, boundary: Boundary, unseen: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return the standard errors (n,) of the boundary's place at points X (n, d), along its normal."""
    theta = np.where(unseen, 0.0, boundary.theta)
    phi = np.where(unseen, 0.0, known.features(X))
    steep = np.maximum(slopes_at(known, theta, X), 1e-300)
    return np.hypot(boundary.spread(phi), known.spread(theta, X)) / steep


@dataclass(frozen=True, eq=False)
class KinkTest:
    """For every point: whether the oracle has the predicted kink, or clearly none, and its position along the normal
    with σ.
    """

    hit: np.ndarray
    none: np.ndarray
    position: np.ndarray
    sigma: np.ndarray


def probe_kinks(box: Box, where: BoundaryPoints, std: np.ndarray, jump: float | None = None) -> KinkTest:
    """Test points of a boundary for the predicted kink, within a few standard errors `std` (n,) of its place.

    A faint kink shows on a longer segment, and one that has another beside it on a shorter one.
    """
    options = box.options.deep
    needed = options.sure * std / options.near
    clear = box.clear_radius(where.points, jump)
    radius = np.minimum(np.maximum(clear, needed), 0.7 * where.room)
    allowed = np.maximum(options.near * radius, options.sure * std)
    found = find_local_kinks(box, where.points, where.normals, radius)
    hit = found.visible & found.clean & (np.abs(found.position) < options.near * radius)
    none = found.straight & ~found.flat & (radius > 0.99 * needed) & (radius > 0.5 * clear)
    position, sigma = found.position.copy(), found.sigma.copy()
    for factor in options.other_radii if box.coarse else ():
        other = factor * radius
        open_ = ~hit & (other < 0.7 * where.room) & (other > 0.99 * needed)
        pick = np.flatnonzero(open_ & ~found.straight if factor < 1.0 else open_)
        if not len(pick):
            continue
        again = find_local_kinks(box, where.points[pick], where.normals[pick], other[pick])
        away = np.abs(again.position) > allowed[pick]
        good = again.visible & again.clean & ~away
        hit[pick[good]] = True
        position[pick[good]], sigma[pick[good]] = again.position[good], again.sigma[good]
        if factor > 1.0:
            none[pick] &= again.straight | away
    return KinkTest(hit, none & ~hit, position, sigma)


def boundary_holds(box: Box, where: BoundaryPoints, std: np.ndarray, jump: float | None = None) -> bool:
    """Return whether nearly all points of a boundary have the predicted kink."""
    found = probe_kinks(box, where, std, jump)
    return _is_few(box, int(np.count_nonzero(found.none)), int(np.count_nonzero(found.hit)))


def _is_few(box: Box, against: int, hits: int) -> bool:
    """Return whether the points without a kink are few enough to be ignored."""
    options = box.options.deep
    if box.coarse:
        return options.kinks_per_miss_coarse * (against - 1) <= hits
    return options.kinks_per_miss * against <= hits
