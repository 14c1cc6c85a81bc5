"""The units of the next layer, from every kink on lines that the known layers do not explain."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from neurecover.queries.box.black_box import Box
from neurecover.queries.box.limits import Limits
from neurecover.queries.deep.boundaries.ascent import slopes_at
from neurecover.queries.deep.boundaries.check import correct_boundary
from neurecover.queries.deep.boundaries.points import find_boundary_points
from neurecover.queries.deep.cells import KnownLayers
from neurecover.queries.deep.jumps import Jump
from neurecover.queries.deep.lines import draw_line
from neurecover.queries.deep.record import Record
from neurecover.queries.deep.units import Unit, fill_unseen, find_unit_at
from neurecover.queries.lines.kinks import find_kinks
from neurecover.queries.lines.scanned import Scanned


@dataclass(frozen=True, eq=False)
class MissingUnit:
    """A newly found unit that belongs `down` layers below the current one."""

    unit: Unit
    down: int


@dataclass(frozen=True, eq=False)
class Level:
    """The units found so far above `known`; `record` has the lines that were searched, for all levels.

    `below` is the level underneath, and `missing` an unknown unit of that level, or of a lower one, that a line showed.
    `lines` counts the lines searched, `stale` those since the last new unit, and `reused` the recorded lines that were
    searched again. `closed` says that the layer counts as complete.
    """

    known: KnownLayers
    record: Record
    units: tuple[Unit, ...] = ()
    lines: int = 0
    stale: int = 0
    reused: int = 0
    closed: bool = False
    below: Level | None = None
    missing: MissingUnit | None = None

    @property
    def number(self) -> int:
        """The number of the layer, counted from 1."""
        return len(self.known.layers) + (self.known.unsigned is not None) + 1

    @property
    def n_units(self) -> int:
        """The number of units found."""
        return len(self.units)

    @property
    def theta(self) -> np.ndarray:
        """The boundaries (k, f), zero where unseen."""
        return np.array([unit.theta for unit in self.units]).reshape(-1, self.known.n_features)

    @property
    def points(self) -> np.ndarray:
        """A point (k, d) on each boundary."""
        return np.array([unit.point for unit in self.units]).reshape(-1, self.known.n_inputs)

    @property
    def unseen(self) -> np.ndarray:
        """Weights (k, f) that were not measured, because the boundary was never met with that unit active."""
        masks = np.array([unit.unseen for unit in self.units], dtype=bool)
        return masks.reshape(-1, self.known.n_features)

    @property
    def errors(self) -> np.ndarray:
        """The standard errors (k,) of the rows, relative to their lengths."""
        return np.array([unit.error for unit in self.units])

    def keep(self, kept: np.ndarray) -> Level:
        """Return the level with some of its units, by a mask (k,)."""
        return replace(self, units=tuple(unit for unit, stays in zip(self.units, kept) if stays))


def search_line(
    box: Box,
    level: Level,
    rng: np.random.Generator,
    want: int | None = None,
    ends: tuple[np.ndarray, np.ndarray] | None = None,
) -> Level:
    """Try all kinks of one more line, up to `want` units in all; return the level with the units found.

    The line is the segment between two `ends`, or one that was searched for a layer below, or a random one.
    """
    before, lines = level.n_units, level.record.lines
    if ends is None and level.reused < len(lines):
        level = _search_parts(box, replace(level, reused=level.reused + 1), lines[level.reused], rng, want)
        return replace(level, stale=0) if level.n_units > before else level
    level = _search_parts(box, level, scan_parts(box, level.known, level.record, rng, ends), rng, want)
    level = replace(level, reused=len(lines))
    return replace(level, lines=level.lines + 1, stale=0 if level.n_units > before else level.stale + 1)


def scan_parts(
    box: Box,
    known: KnownLayers,
    record: Record,
    rng: np.random.Generator,
    ends: tuple[np.ndarray, np.ndarray] | None = None,
) -> list[Scanned]:
    """Search one more line for kinks, the segment between two `ends` or a random one; record and return its parts."""
    options = box.options.deep
    if ends is None:
        x, v = draw_line(known, rng)
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
    elif known.limits:
        parts = _split_inside(known.limits, x, v, shift)
    found = [Scanned.of(x, v, find_kinks(box, x, v, *part, most=options.line_queries)) for part in parts]
    record.add(found)
    box.record_line(x, v, np.concatenate([part.kinks.positions for part in found]))
    return found


def _split_inside(limits: Limits, x: np.ndarray, v: np.ndarray, shift: float) -> list[tuple[float, float]]:
    """Split the line x + t v, from edge to edge, into three parts; x + shift·v is inside."""
    back, forth = limits.distances_to_edge((x + shift * v)[None], v[None])
    edges = shift + np.linspace(back[0], forth[0], 4)
    return list(pairwise(edges.tolist()))


def _search_parts(box: Box, level: Level, parts: list[Scanned], rng: np.random.Generator, want: int | None) -> Level:
    """Try the unexplained kinks of a line; return the level with the units found."""
    for part in parts:
        if level.missing is None:
            level = _search_part(box, level, part, rng, want)
    return level


def _search_part(box: Box, level: Level, line: Scanned, rng: np.random.Generator, want: int | None) -> Level:
    """Try the unexplained kinks of one part of a line; return the level with the units found."""
    options, kinks = box.options.deep, line.kinks
    points = line.x + kinks.positions[:, None] * line.v
    speed = float(np.linalg.norm(line.v))
    gaps = np.minimum(kinks.widths[:-1], kinks.widths[1:]) * speed
    narrow = 2.0 * box.clear_radius(points) if box.coarse else options.narrow * (1.0 + np.linalg.norm(points, axis=1))
    clear = kinks.resolved & (gaps > narrow)
    jumps, sigma = level.record.jumps(box, line, rng), speed * line.sigma
    tried = np.flatnonzero(clear & ~_is_explained(level, points, sigma))
    # Wide regions give better gradients, so they come first.
    for i in tried[np.argsort(-gaps[tried])]:
        if want is not None and level.n_units >= want:
            break
        if _is_explained(level, points[i : i + 1], sigma[i : i + 1])[0]:
            continue
        jump = jumps.jump(int(i))
        unit = _find_once(box, level, (id(line), int(i)), points[i], jump, rng)
        if unit is not None:
            level = add_unit(level, unit)
            continue
        missing = _find_missing_below(box, level, (id(line), int(i)), points[i], jump, rng)
        if missing is not None:
            return replace(level, missing=missing)
    return level


def _find_once(
    box: Box, level: Level, kink: tuple[int, int], x: np.ndarray, jump: Jump | None, rng: np.random.Generator
) -> Unit | None:
    """Return the unit of this level whose boundary passes through x; None if there is none, or it was looked for before
    with the same layers below.
    """
    key = (*kink, level.number, level.known.n_units)
    if key in level.record.tried:
        return None
    level.record.tried.add(key)
    return find_unit_at(box, level.known, level.record, x, jump, rng)


def _find_missing_below(
    box: Box, level: Level, kink: tuple[int, int], x: np.ndarray, jump: Jump | None, rng: np.random.Generator
) -> MissingUnit | None:
    """Return the unknown unit of a lower layer whose boundary passes through x; None if there is none."""
    below, down = level.below, 1
    while below is not None:
        unit = _find_once(box, below, kink, x, jump, rng)
        if unit is not None:
            return MissingUnit(unit, down)
        below, down = below.below, down + 1
    return None


def _is_explained(level: Level, points: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """Return whether each point, known to sigma (n,), lies on the boundary of a known unit, (n,)."""
    options = level.known.options
    result = np.zeros(len(points), dtype=bool)
    theta = level.theta
    for i, x in enumerate(points):
        size, cell = 1.0 + float(np.linalg.norm(x)), level.known.cell_at(x)
        phi = cell.Phi @ x + cell.phi0
        steep = np.linalg.norm(np.vstack([cell.Q, theta @ cell.Phi]), axis=1)
        values = np.concatenate([cell.Q @ x + cell.q0, theta @ phi])
        own = [float(u.boundary.spread(np.where(u.unseen, 0.0, phi)[None])[0]) for u in level.units]
        spread = np.concatenate([level.known.error * size * steep[: len(cell.Q)], own])
        error = options.sure_same * np.hypot(spread, sigma[i] * steep)
        allowed = options.same * size * steep + np.minimum(error, options.near_same * size * steep)
        result[i] = bool(np.any((np.abs(values) < allowed) & (steep > 0.0)))
    return result


def add_unit(level: Level, unit: Unit) -> Level:
    """Return the level with one more unit, or with its new weights added to the same unit found before."""
    for j, old in enumerate(level.units):
        factor = _same_unit(old, unit)
        if factor is None:
            continue
        if not np.any(old.unseen & ~unit.unseen):
            return level
        both = Unit(old.boundary.merged(unit.boundary, factor), old.unseen & unit.unseen, old.point)
        return replace(level, units=(*level.units[:j], both, *level.units[j + 1 :]))
    if _shares_boundary(level, unit):
        return level
    return replace(level, units=(*level.units, unit))


def _same_unit(old: Unit, new: Unit) -> float | None:
    """Return c with θ_new = c θ_old over the weights that both have, if both are one unit; else None."""
    options = old.boundary.options
    shared = ~old.unseen & ~new.unseen
    ours, other = old.theta[shared], new.theta[shared]
    a, b = float(np.linalg.norm(ours)), float(np.linalg.norm(other))
    if not a * b > 0.0:
        return None
    error = float(np.hypot(old.boundary.error(~shared), new.boundary.error(~shared)))
    apart = min(float(np.linalg.norm(ours / a - sign * other / b)) for sign in (1.0, -1.0))
    alike = options.alike_coarse if error > options.row_error else options.alike
    if apart > max(alike, options.sure_same * error) or error > options.faint:
        return None
    return float(ours @ other) / a**2


def _shares_boundary(level: Level, unit: Unit) -> bool:
    """Return whether much of the unit's boundary is that of a known unit, so that some of its weights must be wrong."""
    options, known = level.known.options, level.known
    if not level.n_units or not known.n_units or unit.error < options.row_error:
        return False
    rng = np.random.default_rng(0)
    X = find_boundary_points(known, unit.theta, options.shared_points, rng, unit.point, unit.unseen).points
    if len(X) < 10:
        return False
    phi, size = known.features(X), 1.0 + np.linalg.norm(X, axis=1)
    own = unit.boundary.spread(np.where(unit.unseen, 0.0, phi))
    for old in level.units:
        steep = np.maximum(slopes_at(known, old.theta, X), 1e-300)
        near = options.same * size + 10.0 * (old.boundary.spread(phi) + own) / steep
        near = np.minimum(near, options.near_same * size)
        if np.mean(np.abs(phi @ old.theta) / steep < near) > options.shared:
            return True
    return False


def fill_unseen_weights(box: Box, level: Level, rng: np.random.Generator) -> Level:
    """Return the level with unseen weights measured by tracing from many points of the boundaries."""
    return replace(
        level,
        units=tuple(fill_unseen(box, level.known, u, rng) if u.unseen.any() else u for u in level.units),
    )


def refine_rows(box: Box, level: Level, rng: np.random.Generator) -> Level:
    """Return the level after measuring again the rows with the largest errors, each at most once."""
    options, units = box.options.deep, list(level.units)
    for _ in range(options.refinements):
        errors = np.array([unit.error for unit in units])
        usual = float(np.median(errors)) if len(errors) else 0.0
        worse = np.flatnonzero(errors > max(3.0 * usual, 30.0 * box.resolution, options.row_error))
        for j in worse:
            unit = units[j]
            better = correct_boundary(box, level.known, unit.boundary, unit.unseen, unit.point, rng)
            if better is not None and better.boundary.error(unit.unseen) < unit.error:
                units[j] = replace(unit, boundary=better.boundary)
        if not len(worse):
            break
    once = replace(level, units=())
    for unit in sorted(units, key=lambda unit: unit.error):
        once = add_unit(once, unit)
    return replace(level, units=tuple(units)) if once.n_units == level.n_units else once
