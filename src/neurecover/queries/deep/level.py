"""The units of the next layer, from every kink on random lines that the known layers do not explain.

The jump of the gradient at the kink gives a first piece of the boundary θ·φ(x) = 0 (`boundaries.boundary`), tracing it
through the cells of the known layers gives the rest (`boundaries.tracing`), and distant points show whether it holds
everywhere (`boundaries.check`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from neurecover.queries.box.black_box import Box
from neurecover.queries.box.gradients import draw_basis, measure_gradients
from neurecover.queries.box.limits import Limits
from neurecover.queries.deep.boundaries.boundary import Boundary, start_boundary
from neurecover.queries.deep.boundaries.check import correct_boundary
from neurecover.queries.deep.boundaries.points import find_boundary_points
from neurecover.queries.deep.boundaries.tracing import trace
from neurecover.queries.deep.cells import KnownLayers
from neurecover.queries.deep.lines import draw_line
from neurecover.queries.lines.kinks import Kinks, find_kinks
from neurecover.queries.lines.segments import find_normal


@dataclass(frozen=True, eq=False)
class Unit:
    """θ (f,), zero where `unseen` (f,)."""

    theta: np.ndarray
    unseen: np.ndarray


@dataclass(frozen=True, eq=False)
class MissingUnit:
    """A newly found unit `down` layers below, with a point on its boundary."""

    unit: Unit
    point: np.ndarray
    down: int


@dataclass(frozen=True, eq=False)
class Level:
    """The boundaries `theta` (k, f) found so far above `known`, with a point (k, d) on each.

    `unseen` (k, f) marks weights that could not be measured, because the boundary was never met with that unit active.
    `below` is the level underneath, and `missing` a unit of it, or of a lower one, that a line showed. `lines` counts
    the lines searched and `stale` those since the last new unit; `closed` says that the layer was taken to be complete.
    """

    known: KnownLayers
    theta: np.ndarray
    points: np.ndarray
    unseen: np.ndarray
    lines: int = 0
    stale: int = 0
    closed: bool = False
    below: Level | None = None
    missing: MissingUnit | None = None

    @classmethod
    def above(cls, known: KnownLayers) -> Level:
        """Return the empty level above the known layers."""
        shape = (0, known.n_features)
        return cls(known, np.zeros(shape), np.zeros((0, known.n_inputs)), np.zeros(shape, dtype=bool))

    @property
    def n_units(self) -> int:
        """The number of units found."""
        return len(self.theta)


def search_line(
    box: Box,
    level: Level,
    rng: np.random.Generator,
    want: int | None = None,
    ends: tuple[np.ndarray, np.ndarray] | None = None,
) -> Level:
    """Try all kinks of one more line, up to `want` units in all; return the level with the units found.

    The line is random, or the segment between two `ends`.
    """
    options = box.options.deep
    before = level.n_units
    if ends is None:
        x, v = draw_line(level.known, rng)
        # Both ends may lie where the oracle is constant, so a line is searched in parts.
        parts = [(-options.reach, -options.middle), (-options.middle, options.middle), (options.middle, options.reach)]
    else:
        x, v = ends[0], ends[1] - ends[0]
        parts = [(0.0, 1.0)]
    # With t counted from the point nearest to the origin, the rounding of x + t v is relative to its own size.
    shift = float(x @ v) / float(v @ v)
    x = x - shift * v
    if ends is not None:
        parts = [(start + shift, stop + shift) for start, stop in parts]
    elif level.known.limits:
        parts = _split_inside(level.known.limits, x, v, shift)
    for start, stop in parts:
        if level.missing is not None:
            break
        level = _search_part(box, level, x, v, find_kinks(box, x, v, start, stop, most=options.line_queries), rng, want)
    return replace(level, lines=level.lines + 1, stale=0 if level.n_units > before else level.stale + 1)


def _split_inside(limits: Limits, x: np.ndarray, v: np.ndarray, shift: float) -> list[tuple[float, float]]:
    """Split the line x + t v, from edge to edge, into three parts; x + shift·v is inside."""
    back, forth = limits.distances_to_edge((x + shift * v)[None], v[None])
    edges = shift + np.linspace(back[0], forth[0], 4)
    return list(pairwise(edges.tolist()))


def _search_part(
    box: Box, level: Level, x: np.ndarray, v: np.ndarray, kinks: Kinks, rng: np.random.Generator, want: int | None
) -> Level:
    """Try the unexplained kinks of one part of a line; return the level with the units found."""
    options = box.options.deep
    points = x + kinks.positions[:, None] * v
    gaps = np.minimum(kinks.widths[:-1], kinks.widths[1:]) * np.linalg.norm(v)
    clear = kinks.resolved & (gaps > options.narrow * (1.0 + np.linalg.norm(points, axis=1)))
    regions = _LineGradients(box, x, v, kinks, rng)
    tried = np.flatnonzero(clear & ~_is_explained(level, points))
    # Wide regions give better gradients, so they come first.
    for i in tried[np.argsort(-gaps[tried])]:
        if want is not None and level.n_units >= want:
            break
        if _is_explained(level, points[i : i + 1])[0]:
            continue
        jump = regions.jump(int(i))
        unit = _find_unit_at(box, level.known, points[i], jump, rng)
        if unit is not None:
            level = add_unit(level, unit, points[i])
            continue
        missing = _find_missing_below(box, level, points[i], jump, rng)
        if missing is not None:
            return replace(level, missing=missing)
    return level


def _find_missing_below(
    box: Box, level: Level, x: np.ndarray, jump: np.ndarray | None, rng: np.random.Generator
) -> MissingUnit | None:
    """Return the unknown unit of a lower layer whose boundary passes through x; None if there is none."""
    below, down = level.below, 1
    while below is not None:
        unit = _find_unit_at(box, below.known, x, jump, rng)
        if unit is not None:
            return MissingUnit(unit, x, down)
        below, down = below.below, down + 1
    return None


class _LineGradients:
    """Gradients in the linear pieces of a line, measured when first needed."""

    def __init__(self, box: Box, x: np.ndarray, v: np.ndarray, kinks: Kinks, rng: np.random.Generator) -> None:
        self._box, self._x, self._v, self._kinks, self._rng = box, x, v, kinks, rng
        self._basis = draw_basis(rng, len(x))
        self._known: dict[int, np.ndarray | None] = {}

    def jump(self, kink: int) -> np.ndarray | None:
        """Return the gradient's jump (d, p) at a kink; None if a region beside it is too narrow."""
        left, right = self._gradient(kink), self._gradient(kink + 1)
        return None if left is None or right is None else right - left

    def _gradient(self, piece: int) -> np.ndarray | None:
        """Return the gradient (d, p) in a piece; None if the region is too narrow."""
        if piece not in self._known:
            kinks = self._kinks
            point = self._x + kinks.centres[piece] * self._v
            # The region may be narrow to the sides. The digits that a short step costs are restored by distant
            # kinks.
            step = min(
                0.03 * kinks.widths[piece] * float(np.linalg.norm(self._v)), 1e-4 * (1.0 + float(np.linalg.norm(point)))
            )
            measured = measure_gradients(self._box, point[None], self._basis, np.array([step]), rng=self._rng)
            self._known[piece] = measured.full()[0].T if measured.sound[0] else None
        return self._known[piece]


def _is_explained(level: Level, points: np.ndarray) -> np.ndarray:
    """Return whether each point lies on the boundary of a known unit, (n,)."""
    options = level.known.options
    size = options.same * (1.0 + np.linalg.norm(points, axis=1))
    result = np.zeros(len(points), dtype=bool)
    for i, x in enumerate(points):
        cell = level.known.cell_at(x)
        slopes = np.vstack([cell.Q, level.theta @ cell.Phi])
        values = np.concatenate([cell.Q @ x + cell.q0, level.theta @ (cell.Phi @ x + cell.phi0)])
        steep = np.linalg.norm(slopes, axis=1)
        result[i] = bool(np.any((np.abs(values) < size[i] * steep) & (steep > 0.0)))
    return result


def add_unit(level: Level, unit: Unit, x: np.ndarray) -> Level:
    """Return the level with one more unit, or with its new weights added to the same unit found before."""
    for j, theta in enumerate(level.theta):
        shared = ~level.unseen[j] & ~unit.unseen
        ours, other = theta[shared], unit.theta[shared]
        lengths = np.linalg.norm(ours) * np.linalg.norm(other)
        if not lengths > 0.0 or not abs(ours @ other) > (1.0 - 1e-9) * lengths:
            continue
        new = level.unseen[j] & ~unit.unseen
        if not new.any():
            return level
        merged, unseen = level.theta.copy(), level.unseen.copy()
        merged[j, new] = unit.theta[new] * ((ours @ other) / (other @ other))
        unseen[j] &= unit.unseen
        return replace(level, theta=merged, unseen=unseen)
    return replace(
        level,
        theta=np.vstack([level.theta, unit.theta]),
        points=np.vstack([level.points, x]),
        unseen=np.vstack([level.unseen, unit.unseen]),
    )


def _find_unit_at(
    box: Box, known: KnownLayers, x: np.ndarray, jump: np.ndarray | None, rng: np.random.Generator
) -> Unit | None:
    """Return the unit whose boundary passes through x, if it belongs to the layer just above the known ones."""
    if jump is None or not np.any(jump):
        return None
    boundary, gap = start_boundary(known.cell_at(x), x, find_normal(jump))
    if gap > known.options.fits_cell:
        return None
    if not boundary.complete:
        boundary = trace(box, known, boundary, x, rng)
    unseen = boundary.unseen(known.options.unseen)
    if not boundary.complete and not _is_nearly_complete(known, boundary, unseen):
        return None
    theta = correct_boundary(box, known, np.where(unseen, 0.0, boundary.theta), unseen, x, rng)
    return None if theta is None else Unit(theta, unseen)


def fill_unseen_weights(box: Box, level: Level, rng: np.random.Generator) -> Level:
    """Return the level with unseen weights measured by tracing from many points of the boundaries."""
    options = box.options.deep
    theta, unseen = level.theta.copy(), level.unseen.copy()
    for j in np.flatnonzero(unseen.any(axis=1)):
        boundary = Boundary(theta[j], np.eye(theta.shape[1])[:, unseen[j]])
        for x in find_boundary_points(level.known, theta[j], options.restarts, rng, level.points[j], unseen[j]).points:
            boundary = trace(box, level.known, boundary, x, rng, patience=10)
            if boundary.complete:
                break
        left = boundary.unseen(options.unseen)
        grown = correct_boundary(box, level.known, np.where(left, 0.0, boundary.theta), left, level.points[j], rng)
        if grown is not None:
            theta[j], unseen[j] = grown, left
    return replace(level, theta=theta, unseen=unseen)


def _is_nearly_complete(known: KnownLayers, boundary: Boundary, unseen: np.ndarray) -> bool:
    """Return whether only a few weights are missing, of units below that are never active together with this one."""
    count = int(np.count_nonzero(unseen))
    return known.unsigned is None and count <= max(1, known.n_top // 4) and count == boundary.free.shape[1]
