"""Random queries with their answers, made once and used by every fit, and the error that a network may have at each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from neurecover.queries.box.black_box import Box
from neurecover.queries.deep.boundaries.ascent import find_extreme_points
from neurecover.queries.deep.boundaries.points import draw_points
from neurecover.queries.deep.cells import KnownLayers
from neurecover.queries.deep.fits.output import answer_sizes
from neurecover.queries.deep.fits.polish import find_points_beside
from neurecover.queries.deep.units import Unit


class Answers:
    """Queries `X` (n, d), as the oracle sees them, and their answers `Y` (n, p)."""

    def __init__(self, box: Box, rng: np.random.Generator) -> None:
        self.box, self._rng = box, rng
        self.X, self.Y = np.zeros((0, box.n_inputs)), np.zeros((0, box.n_outputs))
        self._extremes: set[int] = set()

    def ensure(self, n: int, known: KnownLayers) -> None:
        """Query random points until there are at least n answers."""
        missing = n - len(self.X)
        if missing > 0:
            self._add(draw_points(known, missing, self._rng))

    def ensure_extremes(self, n: int, known: KnownLayers) -> None:
        """Query n points where the values of the highest known layer are extreme, once for every such layer."""
        if known.layers and len(known.layers) not in self._extremes:
            self._extremes.add(len(known.layers))
            self._add(find_extreme_points(known, n, self._rng))

    def ensure_sides(self, n: int, known: KnownLayers, units: tuple[Unit, ...]) -> None:
        """Query points next to the boundaries of units that fewer than n answers show active, or inactive."""
        for unit in units:
            side = known.features(self.X) @ unit.theta > 0.0
            missing = n - min(int(np.count_nonzero(side)), int(np.count_nonzero(~side)))
            if missing > 0:
                self._add(find_points_beside(known, unit.theta, missing, self._rng, unit.point))

    def ensure_around(self, n: int, known: KnownLayers, wrong: Callable[[], np.ndarray]) -> None:
        """Query points around the few answers that are `wrong` (m,) until there are n of them, or after a few rounds.

        A unit that is on in a small part of the inputs is on around any of its points, and mostly beyond them.
        """
        options = self.box.options.deep
        for _ in range(options.around_rounds):
            at = self.X[wrong()]
            if not 0 < len(at) < n:
                return
            at = at[self._rng.integers(len(at), size=2 * (n - len(at)))]
            spread = self._rng.choice(options.around, (len(at), 1)) * np.linalg.norm(at, axis=1, keepdims=True)
            longer = 1.0 + spread / np.linalg.norm(at, axis=1, keepdims=True)
            at = longer * at + spread / np.sqrt(at.shape[1]) * self._rng.standard_normal(at.shape)
            self._add(known.limits.pull_inside(at))

    def _add(self, X: np.ndarray) -> None:
        X = self.box.round_queries(X)
        with self.box.counting("output layer"):
            self.X, self.Y = np.vstack([self.X, X]), np.vstack([self.Y, self.box(X)])

    @property
    def noise(self) -> np.ndarray:
        """The expected rounding (n,) of the answers."""
        return self.box.noise(self.X, self.Y)

    @property
    def sizes(self) -> np.ndarray:
        """The scale (n,) by which a fit divides each residual: the rounding of coarse answers, otherwise the size of
        the answer.
        """
        return self.noise if self.box.coarse else answer_sizes(self.Y)

    @property
    def allowed(self) -> np.ndarray:
        """The largest error (n,) that a network with all its units may leave at each query."""
        options = self.box.options.deep
        return np.maximum(options.wrong * self.noise, options.exact * answer_sizes(self.Y))

    @property
    def exact(self) -> float:
        """The largest residual, relative to the answers, that a fit on top of measured rows may leave."""
        options = self.box.options.deep
        return min(max(options.exact, options.rough * self.box.resolution), options.roughest)
