"""One unit of the next layer, from a kink on a line: a first piece of its boundary, traced, tested and corrected.

The jump of the gradient at the kink gives a first piece of the boundary θ·φ(x) = 0 (`boundaries.boundary`). If its
error is too large for distant kinks to be foretold, kinks nearby come first (`boundaries.nearby`). Tracing it through
the cells of the known layers gives the other weights (`boundaries.tracing`), the kinks of all lines so far say whether
it can be one of this layer (`record`), and distant points whether it holds everywhere (`boundaries.check`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.queries.box.black_box import Box
from neurecover.queries.deep.boundaries.boundary import Boundary, start_boundary
from neurecover.queries.deep.boundaries.check import Corrected, correct_boundary, find_unconfirmed
from neurecover.queries.deep.boundaries.nearby import holds_in_cell, nearby_reaches, refine_nearby
from neurecover.queries.deep.boundaries.points import find_boundary_points
from neurecover.queries.deep.boundaries.tracing import trace
from neurecover.queries.deep.cells import KnownLayers
from neurecover.queries.deep.jumps import Jump
from neurecover.queries.deep.record import Record
from neurecover.queries.lines.segments import find_normal


@dataclass(frozen=True, eq=False)
class Unit:
    """A unit's boundary, the weights (f,) that are `unseen`, and a `point` (d,) on it."""

    boundary: Boundary
    unseen: np.ndarray
    point: np.ndarray

    @property
    def theta(self) -> np.ndarray:
        """θ (f,), zero where unseen."""
        return np.where(self.unseen, 0.0, self.boundary.theta)

    @property
    def error(self) -> float:
        """The standard error of the weights seen, relative to their length."""
        return self.boundary.error(self.unseen)


def find_unit_at(
    box: Box, known: KnownLayers, record: Record, x: np.ndarray, jump: Jump | None, rng: np.random.Generator
) -> Unit | None:
    """Return the unit whose boundary passes through x, if it belongs to the layer just above the known ones."""
    options = box.options.deep
    boundary = None if jump is None else _begin(box, known, record, x, jump, rng)
    if boundary is None:
        return None
    if not (box.coarse or holds_in_cell(box, known, boundary, x, rng)):
        return None
    if not boundary.complete and known.n_units:
        boundary = trace(box, known, boundary, x, rng)
    unseen = boundary.unseen if known.n_units else np.zeros(known.n_features, dtype=bool)
    if unseen.any() and not _is_nearly_complete(known, unseen):
        return None
    given = record.agree(box, known, boundary, unseen)
    if given is None:
        return None
    better = correct_boundary(box, known, boundary, unseen, x, rng, given)
    rough = options.poor_roundings * float(box.noise_at(x[None])[0]) / boundary.jump
    poor = min(max(options.poor, 100.0 * known.error, rough), options.badly)
    if better is not None and better.boundary.error(unseen) > poor:
        better = correct_boundary(box, known, better.boundary, unseen, x, rng)
    if better is None or better.boundary.error(unseen) > poor:
        return None
    unit = _confirmed(box, known, better, unseen, x, rng)
    return fill_unseen(box, known, unit, rng) if box.coarse else unit


def _confirmed(
    box: Box, known: KnownLayers, found: Corrected, unseen: np.ndarray, x: np.ndarray, rng: np.random.Generator
) -> Unit:
    """Return the unit without the weights that rest on one coarse kink and that other kinks contradict."""
    if not box.coarse or not known.n_units:
        return Unit(found.boundary, unseen, x)
    wrong = find_unconfirmed(box, known, found, unseen, x, rng)
    return Unit(found.boundary.forgetting(wrong) if wrong.any() else found.boundary, unseen | wrong, x)


def _begin(
    box: Box, known: KnownLayers, record: Record, x: np.ndarray, jump: Jump, rng: np.random.Generator
) -> Boundary | None:
    """Return the boundary around x, known well enough to predict distant kinks; None if there is none."""
    options = box.options.deep
    length = float(np.linalg.norm(jump.value, 2))
    if not length > 0.0 or jump.sigma > options.faint * length:
        return None
    sigma = max(2.0 * float(np.hypot(jump.sigma / length, known.error)), options.least_slope)
    normal, place = find_normal(jump.value), jump.place + known.error
    boundary, gap = start_boundary(known.cell_at(x), x, normal, length, sigma, place, options)
    if gap > options.gap and gap * sigma > options.fits_cell:
        return None
    for reach in nearby_reaches(box, x, sigma, length):
        if boundary.complete and record.agree(box, known, boundary, boundary.unseen) is None:
            return None
        nearer = refine_nearby(box, known, boundary, x, reach, rng)
        if nearer is None:
            return None
        boundary = nearer
    return boundary


def fill_unseen(box: Box, known: KnownLayers, unit: Unit, rng: np.random.Generator) -> Unit:
    """Return the unit with unseen weights measured by tracing from many points of the boundary."""
    options, boundary = box.options.deep, unit.boundary
    open_ = unit.unseen & boundary.unseen
    if not open_.any():
        return unit
    for x in find_boundary_points(known, unit.theta, options.restarts, rng, unit.point, unit.unseen).points:
        boundary = trace(box, known, boundary, x, rng, patience=options.restart_patience)
        if not np.any(boundary.unseen & open_):
            break
    filled = open_ & ~boundary.unseen
    if not filled.any():
        return unit
    left = unit.unseen & ~filled
    grown = correct_boundary(box, known, boundary, left, unit.point, rng)
    if grown is None:
        return unit
    return _confirmed(box, known, grown, left, unit.point, rng)


def _is_nearly_complete(known: KnownLayers, unseen: np.ndarray) -> bool:
    """Return whether only a few weights are missing, of units below that are never active together with this one."""
    return known.unsigned is None and int(np.count_nonzero(unseen)) <= max(1, known.n_top // 4)
