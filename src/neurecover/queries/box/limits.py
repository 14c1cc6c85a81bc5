"""Where an oracle may be queried: everywhere, or inside a range around the origin.

    { z : r_i·z ≤ 1 for every i },        r_i the rows (m, d); no rows if it may be queried everywhere.

With queries sent as x = mean + z·spread and low ≤ x ≤ high there are d rows for the upper ends and d for the lower
ones, r_{d+i} = −r_i/β_i, so that −β_i ≤ r_i·z ≤ 1. A query is either moved towards the origin until it is inside, or
lies on the part of a line that is inside.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from neurecover.data.oracles.frame import Frame
from neurecover.queries.box.options import BoxOptions


@dataclass(frozen=True, eq=False)
class Limits:
    """The range of permitted queries: `rows` (2 d, d), or (0, 0) if there is no limit."""

    rows: np.ndarray
    options: BoxOptions = field(default_factory=BoxOptions)

    @classmethod
    def of(cls, low: np.ndarray, high: np.ndarray, frame: Frame, options: BoxOptions) -> Limits:
        """Return the limits for low ≤ x ≤ high with x = mean + z·spread, the mean inside."""
        above, below = frame.spread / (high - frame.mean), frame.spread / (frame.mean - low)
        return cls(np.vstack([above.T, -below.T]), options)

    @classmethod
    def cube(cls, d: int, size: float, options: BoxOptions) -> Limits:
        """Return the limits |z_i| ≤ size."""
        return cls(np.vstack([np.eye(d), -np.eye(d)]) / size, options)

    def __bool__(self) -> bool:
        return len(self.rows) > 0

    def gauge(self, X: np.ndarray) -> np.ndarray:
        """Return how far out the points (n, d) are, as a fraction of the way to the edge, (n,)."""
        return np.asarray((X @ self.rows.T).max(axis=1, initial=0.0)) if self else np.zeros(len(X))

    def contains(self, X: np.ndarray) -> np.ndarray:
        """Return which of the points (n, d) are inside, (n,)."""
        options = self.options
        return np.asarray(self.gauge(X) <= options.lines)

    def pull_inside(self, X: np.ndarray, part: float | None = None) -> np.ndarray:
        """Return the points (…, d), moved towards the origin where they are farther out than `part` of the way to the
        edge.
        """
        if not self:
            return X
        part = self.options.points if part is None else part
        flat = X.reshape(-1, X.shape[-1])
        return (flat * np.minimum(1.0, part / np.maximum(self.gauge(flat), 1e-300))[:, None]).reshape(X.shape)

    def room(self, X: np.ndarray) -> np.ndarray:
        """Return the distance (n,) of the points to the edge."""
        options = self.options
        if not self:
            return np.full(len(X), np.inf)
        return np.asarray(((options.lines - X @ self.rows.T) / np.linalg.norm(self.rows, axis=1)).min(axis=1))

    def distances_to_edge(self, X: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return how far x + t v stays inside, backwards and forwards: t (n,) ≤ 0 and t (n,) ≥ 0."""
        options = self.options
        if not self:
            return np.full(len(X), -np.inf), np.full(len(X), np.inf)
        left, speed = np.maximum(options.lines - X @ self.rows.T, 0.0), V @ self.rows.T
        with np.errstate(divide="ignore", invalid="ignore"):
            times = left / np.abs(speed)
        forward = np.where(speed > 0.0, times, np.inf).min(axis=1, initial=np.inf)
        backward = np.where(speed < 0.0, times, np.inf).min(axis=1, initial=np.inf)
        return -backward, forward

    def minimum(self, V: np.ndarray) -> np.ndarray:
        """Return the smallest v·z (n,) inside: v = Σ c_i r_i over the upper ends, and −β_i ≤ r_i·z ≤ 1."""
        upper, beta = self._pairs()
        C = np.linalg.solve(upper.T, V.T).T
        return np.asarray(np.where(C > 0.0, -beta * C, C).sum(axis=1))

    def corners(self, most: int, rng: np.random.Generator) -> np.ndarray:
        """Return all corners (2^d, d), or `most` random ones if there are more.

        A unit that is active, or inactive, anywhere inside is so at a corner.
        """
        options = self.options
        upper, beta = self._pairs()
        d = len(upper)
        all_of_them = d < 60 and 2**d <= most
        high = (np.arange(2**d)[:, None] >> np.arange(d)) % 2 == 1 if all_of_them else rng.random((most, d)) < 0.5
        return np.asarray(options.lines * np.linalg.solve(upper, np.where(high, 1.0, -beta).T).T)

    def _pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows r_i (d, d) of the upper ends, and β_i (d,)."""
        upper, lower = np.split(self.rows, 2)
        return upper, np.linalg.norm(upper, axis=1) / np.linalg.norm(lower, axis=1)

    def move_to_planes(self, X: np.ndarray, W: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Move each point (k, d) to where its own hyperplane w_j·x + b_j = 0 lies inside, if it does anywhere.

        Alternating projections onto the hyperplane and into the range end where the two meet.
        """
        options = self.options
        for _ in range(options.turns if self else 0):
            X = self.pull_inside(X - (np.sum(X * W, axis=1) + b)[:, None] * W, options.inside)
        return X

    def shorten(self, X: np.ndarray, V: np.ndarray, times: float) -> np.ndarray:
        """Return the directions V (…, d), shortened where x + times·v would leave the range."""
        if not self:
            return V
        flat, start = V.reshape(-1, V.shape[-1]), np.broadcast_to(X, V.shape).reshape(-1, V.shape[-1])
        forward = self.distances_to_edge(start, flat)[1]
        return (flat * np.minimum(1.0, forward / times)[:, None]).reshape(V.shape)

    def draw_ends(self, rng: np.random.Generator) -> np.ndarray:
        """Draw two points (2, d), one near the edge and one at it; half of the time near corners."""
        options = self.options
        ends = rng.standard_normal((2, self.rows.shape[1]))
        if rng.random() < 0.5:
            ends = np.sign(ends) * rng.uniform(0.7, 1.0, ends.shape)
        # One end is a little inside, so that no line runs along the edge, where there is no room for sideways steps.
        ends *= (np.array([options.inside, options.lines]) / self.gauge(ends))[:, None]
        return np.asarray(ends)


EVERYWHERE = Limits(np.zeros((0, 0)))  # no rows: no limit


def choose_frame(low: np.ndarray, high: np.ndarray, frame: Frame | None, options: BoxOptions) -> Frame:
    """Return the given frame if its mean lies within low ≤ x ≤ high, otherwise one centred in the range."""
    if frame is not None and np.all((low < frame.mean) & (frame.mean < high)):
        return frame
    return Frame.of_columns(0.5 * (low + high), 0.5 * (high - low) / options.edge)
