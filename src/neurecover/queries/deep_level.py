"""The units of the next layer: every kink on random lines that the known layers do not explain is tried.

The jump of the gradient at the kink gives a first piece of the surface θ·φ(x) = 0 (`deep_surface`), following it through
the cells of the known layers the rest (`deep_tracing`), and far points tell whether it holds everywhere (`deep_check`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.queries.box import Box
from neurecover.queries.deep_cells import Known
from neurecover.queries.deep_check import checked
from neurecover.queries.deep_points import random_line
from neurecover.queries.deep_probe import unit_normal
from neurecover.queries.deep_surface import first_surface
from neurecover.queries.deep_tracing import trace
from neurecover.queries.gradients import measure_gradients, orthonormal_basis
from neurecover.queries.kinks import Kinks, find_kinks

_REACH = 20.0
_MIDDLE = 1.2
# A kink within this distance of a known surface, relative to the size of the point, belongs to it.
_SAME = 1e-6
# A kink whose straight pieces are shorter than this, relative to the point, is left for another line.
_NARROW = 1e-5


@dataclass(frozen=True, eq=False)
class Level:
    """`theta` (k, f), the surfaces found so far above `known`, and a point (k, d) of each; what the lines have shown.

    `deeper` counts kinks that belong to no unit of this layer, `stale` the lines since the last new unit; `closed`
    if the layer was taken to be complete.
    """

    known: Known
    theta: np.ndarray
    points: np.ndarray
    lines: int = 0
    stale: int = 0
    deeper: int = 0
    closed: bool = False

    @classmethod
    def above(cls, known: Known) -> Level:
        return cls(known, np.zeros((0, known.n_features)), np.zeros((0, known.n_inputs)))

    @property
    def n_units(self) -> int:
        return len(self.theta)


def search_line(
    box: Box,
    level: Level,
    rng: np.random.Generator,
    want: int | None = None,
    ends: tuple[np.ndarray, np.ndarray] | None = None,
) -> Level:
    """The level after all kinks of one more line were tried, or `want` units are found.

    The line is random, or the segment between two `ends`.
    """
    before = level.n_units
    if ends is None:
        x, v = random_line(level.known, rng)
        # Both ends may lie where the box is flat, so a line is searched in parts.
        parts = [(-_REACH, -_MIDDLE), (-_MIDDLE, _MIDDLE), (_MIDDLE, _REACH)]
    else:
        x, v = ends[0], ends[1] - ends[0]
        parts = [(0.0, 1.0)]
    for start, stop in parts:
        level = _search_part(box, level, x, v, find_kinks(box, x, v, start, stop), rng, want)
    return replace(level, lines=level.lines + 1, stale=0 if level.n_units > before else level.stale + 1)


def _search_part(
    box: Box, level: Level, x: np.ndarray, v: np.ndarray, kinks: Kinks, rng: np.random.Generator, want: int | None
) -> Level:
    points = x + kinks.positions[:, None] * v
    gaps = np.minimum(kinks.widths[:-1], kinks.widths[1:]) * np.linalg.norm(v)
    clear = kinks.resolved & (gaps > _NARROW * (1.0 + np.linalg.norm(points, axis=1)))
    regions = _Regions(box, x, v, kinks, rng)
    tried = np.flatnonzero(clear & ~_explained(level, points))
    # Wide regions give better gradients, so they come first.
    for i in tried[np.argsort(-gaps[tried])]:
        if want is not None and level.n_units >= want:
            break
        if _explained(level, points[i : i + 1])[0]:
            continue
        theta = _unit_at(box, level.known, points[i], regions.jump(int(i)), rng)
        if theta is None or _among(level.theta, theta):
            level = replace(level, deeper=level.deeper + 1)
        else:
            level = replace(
                level, theta=np.vstack([level.theta, theta]), points=np.vstack([level.points, points[i]])
            )
    return level


class _Regions:
    """Gradients of the straight pieces of a line, asked when they are first needed."""

    def __init__(self, box: Box, x: np.ndarray, v: np.ndarray, kinks: Kinks, rng: np.random.Generator) -> None:
        self._box, self._x, self._v, self._kinks, self._rng = box, x, v, kinks, rng
        self._basis = orthonormal_basis(rng, len(x))
        self._known: dict[int, np.ndarray | None] = {}

    def jump(self, kink: int) -> np.ndarray | None:
        """The gradient's jump (d, p) at a kink; None if one of the regions beside it is too narrow."""
        left, right = self._gradient(kink), self._gradient(kink + 1)
        return None if left is None or right is None else right - left

    def _gradient(self, piece: int) -> np.ndarray | None:
        if piece not in self._known:
            kinks = self._kinks
            point = self._x + kinks.centres[piece] * self._v
            # Other surfaces may cut the region short to the sides; what a short step costs in digits, far kinks restore.
            step = min(0.03 * kinks.widths[piece] * float(np.linalg.norm(self._v)), 1e-4 * (1.0 + float(np.linalg.norm(point))))
            asked = measure_gradients(self._box, point[None], self._basis, np.array([step]), rng=self._rng)
            self._known[piece] = asked.full()[0].T if asked.sound[0] else None
        return self._known[piece]


def _explained(level: Level, points: np.ndarray) -> np.ndarray:
    """Whether a point lies on the surface of a unit that is known or found."""
    size = _SAME * (1.0 + np.linalg.norm(points, axis=1))
    result = np.zeros(len(points), dtype=bool)
    for i, x in enumerate(points):
        cell = level.known.cell_at(x)
        slopes = np.vstack([cell.Q, level.theta @ cell.Phi])
        values = np.concatenate([cell.Q @ x + cell.q0, level.theta @ (cell.Phi @ x + cell.phi0)])
        steep = np.linalg.norm(slopes, axis=1)
        result[i] = bool(np.any((np.abs(values) < size[i] * steep) & (steep > 0.0)))
    return result


def _among(rows: np.ndarray, theta: np.ndarray) -> bool:
    """Whether theta is one of the rows, up to a factor."""
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(theta)
    return bool(np.any(np.abs(rows @ theta) > (1.0 - 1e-9) * lengths))


def _unit_at(
    box: Box, known: Known, x: np.ndarray, jump: np.ndarray | None, rng: np.random.Generator
) -> np.ndarray | None:
    """θ of the unit whose surface passes through x, if it is one of the layer right above the known ones."""
    if jump is None or not np.any(jump):
        return None
    surface, gap = first_surface(known.cell_at(x), x, unit_normal(jump))
    if gap > 1e-4:
        return None
    if not surface.complete:
        surface = trace(box, known, surface, x, rng)
    return checked(box, known, surface.theta, x, rng) if surface.complete else None

