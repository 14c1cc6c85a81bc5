"""A test whether a boundary holds everywhere, and a correction of its weights.

A unit of the layer just above the known ones has a boundary θ·φ(x) = 0 that holds everywhere. The boundary of a deeper
unit bends at unknown units, so at distant points of θ·φ(x) = 0 its kink is gone. That is the test: at random points of
the boundary the oracle must have a kink. Units above may hide it, but only if all of them are inactive, and then the
oracle is constant: a point where it is linear but not constant is evidence against the boundary.

The kinks found on the way lie at x* with φ(x*)·θ = 0, exact to rounding and far apart: f of them determine θ better
than the gradients it was first computed from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.queries.box.black_box import Box
from neurecover.queries.deep.boundaries.points import BoundaryPoints, find_boundary_points
from neurecover.queries.deep.cells import KnownLayers
from neurecover.queries.lines.segments import find_local_kinks


@dataclass(frozen=True, eq=False)
class _Evidence:
    """φ (n, f) at the kinks found, of length one, and their offsets relative to the size of the point.

    `against` counts the points without a kink where the oracle is not constant.
    """

    phi: np.ndarray
    offsets: np.ndarray
    against: int

    def take(self, index: np.ndarray) -> _Evidence:
        """Return the evidence of some kinks."""
        return _Evidence(self.phi[index], self.offsets[index], self.against)


def correct_boundary(
    box: Box, known: KnownLayers, theta: np.ndarray, unseen: np.ndarray, x: np.ndarray, rng: np.random.Generator
) -> np.ndarray | None:
    """Return θ corrected by the kinks on its boundary; None if there are too few, or points contradict it.

    x is a point of the boundary. Where features `unseen` (f,) are not zero, θ is not known and not tested.
    """
    options = known.options
    theta = theta / np.linalg.norm(theta)
    seen = _Evidence(np.zeros((0, known.n_features)), np.zeros(0), 0)
    for count in (4, 8, 16):
        seen = _join(seen, _observe(box, known, find_boundary_points(known, theta, count, rng, x, unseen)))
        if seen.against:
            return None
        if count > 4 and len(seen.phi) >= options.kinks_least:
            break
    if len(seen.phi) < options.kinks_least:
        return None
    if not known.n_units and np.median(seen.offsets) < options.accurate:
        return theta
    choice = find_boundary_points(known, theta, 4 * known.n_features + 20, rng, x, unseen)
    corrected = _correct_throughout(box, known, theta, seen, choice)
    if corrected is None:
        return None
    corrected = np.where(unseen, 0.0, corrected)
    # A few kinks that agree by chance may have moved the boundary to a wrong place.
    again = _observe(box, known, find_boundary_points(known, corrected, options.looks_again, rng, x, unseen))
    return corrected if len(again.phi) and not again.against else None


def _correct_throughout(
    box: Box, known: KnownLayers, theta: np.ndarray, seen: _Evidence, choice: BoundaryPoints
) -> np.ndarray | None:
    """Return θ from kinks that determine it as far as any point of the boundary does; None if they are not there.

    A wrong weight shows only where the unit it belongs to is active, so points are chosen for what the kinks so far do
    not determine: the first columns of a pivoted QR factorisation of the rest of φ.
    """
    options = known.options
    from scipy.linalg import qr

    phi = _unit_rows(known.features(choice.points))
    left = np.arange(len(phi))
    for _ in range(options.rounds):
        # A second kink nearby falsifies a position by far more than the error of θ.
        seen = seen.take(seen.offsets <= options.outlying * max(float(np.median(seen.offsets)), options.accurate))
        basis, triangle, _ = qr(seen.phi.T, mode="economic", pivoting=True)
        covered = basis[:, np.abs(np.diag(triangle)) > options.informative]
        rest = phi[left] - (phi[left] @ covered) @ covered.T
        triangle, order = qr(rest.T, mode="r", pivoting=True) if len(left) else (np.zeros((0, 0)), left)
        missing = int(np.count_nonzero(np.abs(np.diag(triangle)) > options.informative))
        if not _is_few(box, seen.against, len(seen.phi)):
            return None
        if not missing and len(seen.phi) >= covered.shape[1] + 3:
            return _correct(theta, seen.phi, options.agree)
        if not len(left):
            return None
        seen = _join(seen, _observe(box, known, choice.take(left[order[: missing + 4]])))
        left = np.delete(left, order[: missing + 4])
    return None


@dataclass(frozen=True, eq=False)
class KinkTest:
    """Whether the oracle has the predicted kink at each point or clearly none, and its position along the normal."""

    hit: np.ndarray
    none: np.ndarray
    position: np.ndarray


def probe_kinks(box: Box, where: BoundaryPoints) -> KinkTest:
    """Test points of a boundary for the predicted kink, with four queries per point."""
    options = box.options.deep
    size = 1.0 + np.linalg.norm(where.points, axis=1)
    radius = np.minimum(options.radius * size, 0.7 * where.room)
    found = find_local_kinks(box, where.points, where.normals, radius)
    hit = found.visible & (np.abs(found.position) < options.near * radius)
    return KinkTest(hit, found.straight & ~found.flat, found.position)


def boundary_holds(box: Box, where: BoundaryPoints) -> bool:
    """Return whether nearly all points of a boundary have the predicted kink."""
    found = probe_kinks(box, where)
    return _is_few(box, int(np.count_nonzero(found.none)), int(np.count_nonzero(found.hit)))


def _is_few(box: Box, against: int, hits: int) -> bool:
    """Return whether the points without a kink are few enough to be ignored."""
    options = box.options.deep
    return (options.kinks_per_miss_inside if box.limits else options.kinks_per_miss) * against <= hits


def _observe(box: Box, known: KnownLayers, where: BoundaryPoints) -> _Evidence:
    """Look for kinks at points of a boundary; return the evidence."""
    found = probe_kinks(box, where)
    points, offsets = where.points[found.hit], found.position[found.hit]
    kinks = points + offsets[:, None] * where.normals[found.hit]
    size = 1.0 + np.linalg.norm(points, axis=1)
    return _Evidence(_unit_rows(known.features(kinks)), np.abs(offsets) / size, int(np.count_nonzero(found.none)))


def _join(a: _Evidence, b: _Evidence) -> _Evidence:
    """Return the evidence of both."""
    return _Evidence(np.vstack([a.phi, b.phi]), np.append(a.offsets, b.offsets), a.against + b.against)


def _unit_rows(phi: np.ndarray) -> np.ndarray:
    """Scale the rows to length one."""
    return phi / np.linalg.norm(phi, axis=1, keepdims=True)


def _correct(theta: np.ndarray, phi: np.ndarray, agree: float) -> np.ndarray | None:
    """Return θ + δ with the smallest δ ⟂ θ such that φ·(θ + δ) = 0, as far as the kinks determine it.

    A second kink near a point falsifies its position. Such points are dropped one by one until the others agree; None
    if they never do while there are more of them than unknowns.
    """
    determined = np.linalg.matrix_rank(phi - np.outer(phi @ theta, theta), tol=1e-6)
    while True:
        across = phi - np.outer(phi @ theta, theta)
        change = np.linalg.lstsq(across, -(phi @ theta), rcond=1e-9)[0]
        left = np.abs(phi @ (theta + change))
        if len(phi) <= determined:
            return None
        if left.max() < agree:
            break
        phi = np.delete(phi, _worst_equation(across, left), axis=0)
    theta = theta + change
    return theta / np.linalg.norm(theta)


def _worst_equation(rows: np.ndarray, left: np.ndarray) -> int:
    """Return the equation with the largest residual, relative to what its leverage in the fit lets through."""
    Q = np.linalg.qr(rows)[0]
    share = np.sum(Q * Q, axis=1)
    return int(np.argmax(left / np.sqrt(np.maximum(1.0 - share, 1e-6))))
