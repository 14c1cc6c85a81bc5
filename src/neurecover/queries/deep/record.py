"""The kinks that lines have shown, against which a boundary is tested without further queries.

A boundary of the layer above the known ones crosses a searched line where θ·φ(x + t v) = 0, and there the line has a
kink. One that is found confirms the boundary and is an equation for θ; one that is missing, where it would have stood
out from rounding, speaks against it. The boundary of a deeper unit bends, and misses its kinks on other lines.
"""

from __future__ import annotations

from itertools import chain

import numpy as np

from neurecover.queries.box.black_box import Box
from neurecover.queries.deep.boundaries.ascent import slopes_at
from neurecover.queries.deep.boundaries.boundary import Boundary
from neurecover.queries.deep.boundaries.check import Evidence
from neurecover.queries.deep.boundaries.estimate import estimate
from neurecover.queries.deep.cells import KnownLayers
from neurecover.queries.deep.jumps import LineJumps
from neurecover.queries.lines.scanned import Scanned

_HALVINGS = 16  # of an interval between two points of a line, until θ·φ is linear in it


class Record:
    """The lines that were searched, each as a list of its parts.

    `tried` are the kinks behind which a unit was looked for: their part and number, and the layers known then.
    """

    def __init__(self) -> None:
        self.lines: list[list[Scanned]] = []
        self.tried: set[tuple[int, int, int, int]] = set()
        self._jumps: dict[int, LineJumps] = {}

    def add(self, parts: list[Scanned]) -> None:
        """Add the parts of one line."""
        self.lines.append(parts)

    def jumps(self, box: Box, part: Scanned, rng: np.random.Generator) -> LineJumps:
        """Return the jumps of the gradient along a part of a recorded line, with those that were measured before."""
        return self._jumps.setdefault(id(part), LineJumps(box, part, rng))

    def agree(self, box: Box, known: KnownLayers, boundary: Boundary, unseen: np.ndarray) -> Evidence | None:
        """Return the recorded kinks that lie on the boundary; None if too many of those it predicts are missing."""
        options, start = box.options.deep, boundary
        found = Evidence.none(len(unseen))
        for _ in range(options.agree_rounds):
            before, found = len(found.sigma), self._compare(box, known, boundary, unseen)
            if found.against > 1 + options.recorded_misses * len(found.sigma):
                return None
            if len(found.sigma) == before:
                break
            boundary = estimate(start, found.phi, found.sigma)
        return Evidence(found.phi, found.sigma)

    def _compare(self, box: Box, known: KnownLayers, boundary: Boundary, unseen: np.ndarray) -> Evidence:
        """Return the kinks that lie where the boundary crosses the lines, and how many are missing."""
        total = Evidence.none(len(unseen))
        for part in chain.from_iterable(self.lines[: box.options.deep.recorded]):
            total = total + _compare_part(box, known, boundary, unseen, part)
        return total


def _compare_part(box: Box, known: KnownLayers, boundary: Boundary, unseen: np.ndarray, part: Scanned) -> Evidence:
    """Return the kinks of one part of a line that lie on the boundary, and how many are missing."""
    options, theta, kinks = box.options.deep, np.where(unseen, 0.0, boundary.theta), part.kinks
    none = Evidence.none(len(unseen))
    t = _crossings(known, theta, part, options.record_grid)
    if not len(t):
        return none
    X = part.x + t[:, None] * part.v
    phi = known.features(X)
    step = 1e-6 * (1.0 + np.abs(t))
    rise = known.features(X + step[:, None] * part.v) - known.features(X - step[:, None] * part.v)
    speed = np.abs(rise @ theta) / (2.0 * step)
    usable = (speed > 0.0) & ~np.any(phi[:, unseen] != 0.0, axis=1)
    t, X, phi, speed = t[usable], X[usable], phi[usable], speed[usable]
    std = np.hypot(boundary.spread(np.where(unseen, 0.0, phi)), known.spread(theta, X)) / speed
    rows, sigmas, misses = [], [], 0
    noise = _interval_noise(box, part, t)
    for i in range(len(t)):
        allowed = options.sure * np.hypot(std[i], part.sigma) + 1e-7 * (1.0 + abs(t[i]))
        near = np.flatnonzero(np.abs(kinks.positions - t[i]) < allowed)
        if len(near) == 1 and kinks.resolved[near[0]]:
            j = int(near[0])
            rows.append(part.x + kinks.positions[j] * part.v)
            sigmas.append(speed[i] * max(float(part.sigma[j]), 1e-9 * (1.0 + abs(t[i]))))
        elif not len(near) and kinks.complete:
            piece = int(np.clip(np.searchsorted(kinks.edges, t[i]) - 1, 0, len(kinks.slopes) - 1))
            room = min(t[i] - kinks.edges[piece], kinks.edges[piece + 1] - t[i])
            bend = boundary.jump * (speed[i] / max(_steepness(known, theta, X[i]), 1e-300)) * room
            flat = np.abs(kinks.slopes[piece]).max() < 10.0 * kinks.slope_noise[piece]
            misses += bool(bend > options.missed * noise[i] and not flat and room > 6.0 * std[i])
    if not rows:
        return Evidence(none.phi, none.sigma, misses)
    X = np.array(rows)
    features = np.where(unseen, 0.0, known.features(X))
    return Evidence(features, np.hypot(np.array(sigmas), known.spread(theta, X)), misses)


def _interval_noise(box: Box, part: Scanned, t: np.ndarray) -> np.ndarray:
    """Return how large a kink at t (n,) must be to stand out in f, whatever interval of the search it lies in.

    An interval is straight up to 2 safety/η roundings at its farther end, and when answers are coarse no farther from
    the origin than `ratio` times the nearer one.
    """
    lines = box.options.lines
    farthest = np.maximum(abs(part.kinks.edges[0]), abs(part.kinks.edges[-1]))
    if box.coarse:
        reach = float(np.linalg.norm(part.x) / np.linalg.norm(part.v))
        farthest = np.minimum(lines.ratio * np.maximum(np.abs(t), reach), farthest)
    noise = box.noise_at(part.x + np.broadcast_to(farthest, t.shape)[:, None] * part.v)
    return 2.0 * lines.safety / (lines.arm_coarse if box.coarse else lines.arm) * noise


def _steepness(known: KnownLayers, theta: np.ndarray, x: np.ndarray) -> float:
    """Return the length of the gradient of θ·φ at x."""
    return float(slopes_at(known, theta, x[None])[0])


def _crossings(known: KnownLayers, theta: np.ndarray, part: Scanned, grid: int) -> np.ndarray:
    """Return the t (n,) at which θ·φ(x + t v) changes its sign within the part."""

    def height(t: np.ndarray) -> np.ndarray:
        return np.asarray(known.features(part.x + t[:, None] * part.v) @ theta)

    start, stop = float(part.kinks.edges[0]), float(part.kinks.edges[-1])
    if not known.n_units:
        g0, g1 = height(np.array([0.0, 1.0]))
        t = np.array([-g0 / (g1 - g0)]) if g1 != g0 else np.zeros(0)
        return t[(t > start) & (t < stop)]
    places = np.linspace(start, stop, grid)
    side = height(places) > 0.0
    at = np.flatnonzero(side[1:] != side[:-1])
    low, high, up = places[at], places[at + 1], side[at + 1]
    for _ in range(_HALVINGS if len(at) else 0):
        middle = 0.5 * (low + high)
        above = (height(middle) > 0.0) == up
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    below, beyond = np.abs(height(low)), np.abs(height(high))
    return np.asarray(low + (high - low) * below / np.maximum(below + beyond, 1e-300))
