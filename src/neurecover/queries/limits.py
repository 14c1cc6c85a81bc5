"""Where a box may be asked: everywhere, or inside a range around the origin.

    { z : r_i·z ≤ 1 for every i },        r_i the rows (m, d), none of them for a box that may be asked everywhere.

With questions put as x = mean + z·spread and low ≤ x ≤ high there are d rows for the upper ends and d for the lower
ones, r_{d+i} = −r_i/β_i, so that −β_i ≤ r_i·z ≤ 1. All that is asked is either
drawn towards the origin until it is inside, or a part of a line that lies inside.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.data.oracles.frame import Frame

# The part of the way to the edge that points are drawn in to, and that lines go to: questions are rounded.
_POINTS, _LINES = 0.98, 0.999
# How deep inside, and in how many turns, a plane is looked for.
_MIDST, _TURNS = 0.9, 40
# The edge of the range in units of the questions' deviation, where no data say what that is.
_EDGE = 2.0


@dataclass(frozen=True, eq=False)
class Limits:
    """The rows (2 d, d), or none."""

    rows: np.ndarray

    @classmethod
    def of(cls, low: np.ndarray, high: np.ndarray, frame: Frame) -> Limits:
        """From low ≤ x ≤ high with x = mean + z·spread, the mean inside."""
        above, below = frame.spread / (high - frame.mean), frame.spread / (frame.mean - low)
        return cls(np.vstack([above.T, -below.T]))

    @classmethod
    def cube(cls, d: int, size: float) -> Limits:
        """|z_i| ≤ size."""
        return cls(np.vstack([np.eye(d), -np.eye(d)]) / size)

    def __bool__(self) -> bool:
        return len(self.rows) > 0

    def gauge(self, X: np.ndarray) -> np.ndarray:
        """How far out the points (n, d) are, as a part of the way to the edge, (n,)."""
        return np.asarray((X @ self.rows.T).max(axis=1, initial=0.0)) if self else np.zeros(len(X))

    def inside(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.gauge(X) <= _LINES)

    def drawn_in(self, X: np.ndarray, part: float = _POINTS) -> np.ndarray:
        """The points (…, d), those beyond this part of the way to the edge moved towards the origin."""
        if not self:
            return X
        flat = X.reshape(-1, X.shape[-1])
        return (flat * np.minimum(1.0, part / np.maximum(self.gauge(flat), 1e-300))[:, None]).reshape(X.shape)

    def room(self, X: np.ndarray) -> np.ndarray:
        """The distance (n,) to the edge."""
        if not self:
            return np.full(len(X), np.inf)
        return np.asarray(((_LINES - X @ self.rows.T) / np.linalg.norm(self.rows, axis=1)).min(axis=1))

    def ways(self, X: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How far x + t v goes inside, backwards and forwards: t (n,) ≤ 0 and t (n,) ≥ 0."""
        if not self:
            return np.full(len(X), -np.inf), np.full(len(X), np.inf)
        left, speed = np.maximum(_LINES - X @ self.rows.T, 0.0), V @ self.rows.T
        with np.errstate(divide="ignore", invalid="ignore"):
            times = left / np.abs(speed)
        forward = np.where(speed > 0.0, times, np.inf).min(axis=1, initial=np.inf)
        backward = np.where(speed < 0.0, times, np.inf).min(axis=1, initial=np.inf)
        return -backward, forward

    def least(self, V: np.ndarray) -> np.ndarray:
        """The least v·z (n,) inside: v = Σ c_i r_i over the upper ends, and −β_i ≤ r_i·z ≤ 1."""
        upper, beta = self._pairs()
        C = np.linalg.solve(upper.T, V.T).T
        return np.asarray(np.where(C > 0.0, -beta * C, C).sum(axis=1))

    def corners(self, most: int, rng: np.random.Generator) -> np.ndarray:
        """All corners (2^d, d), or some where they are more than `most`.

        A unit that is on, or off, anywhere inside is so at a corner.
        """
        upper, beta = self._pairs()
        d = len(upper)
        all_of_them = d < 60 and 2**d <= most
        high = (np.arange(2**d)[:, None] >> np.arange(d)) % 2 == 1 if all_of_them else rng.random((most, d)) < 0.5
        return np.asarray(_LINES * np.linalg.solve(upper, np.where(high, 1.0, -beta).T).T)

    def _pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """r_i (d, d) of the upper ends, and β_i (d,)."""
        upper, lower = np.split(self.rows, 2)
        return upper, np.linalg.norm(upper, axis=1) / np.linalg.norm(lower, axis=1)

    def beside_planes(self, X: np.ndarray, W: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The points (k, d) moved to where the planes w_j·x + b_j = 0, each its own, are inside if they are anywhere.

        Onto the plane and into the range by turns ends where the two meet.
        """
        for _ in range(_TURNS if self else 0):
            X = self.drawn_in(X - (np.sum(X * W, axis=1) + b)[:, None] * W, _MIDST)
        return X

    def shorter(self, X: np.ndarray, V: np.ndarray, times: float) -> np.ndarray:
        """The directions V (…, d), those shortened with which x + times·v would leave the range."""
        if not self:
            return V
        flat, start = V.reshape(-1, V.shape[-1]), np.broadcast_to(X, V.shape).reshape(-1, V.shape[-1])
        forward = self.ways(start, flat)[1]
        return (flat * np.minimum(1.0, forward / times)[:, None]).reshape(V.shape)

    def ends(self, rng: np.random.Generator) -> np.ndarray:
        """Two points (2, d) anywhere near the edge and at it, every other time near corners."""
        ends = rng.standard_normal((2, self.rows.shape[1]))
        if rng.random() < 0.5:
            ends = np.sign(ends) * rng.uniform(0.7, 1.0, ends.shape)
        # With one end a little inside no line runs along the edge, where there is no room for steps to its sides.
        ends *= (np.array([_MIDST, _LINES]) / self.gauge(ends))[:, None]
        return np.asarray(ends)


EVERYWHERE = Limits(np.zeros((0, 0)))


def range_frame(low: np.ndarray, high: np.ndarray, frame: Frame | None) -> Frame:
    """The frame to ask in within low ≤ x ≤ high: the one there is if its middle is inside, or that of the range."""
    if frame is not None and np.all((low < frame.mean) & (frame.mean < high)):
        return frame
    return Frame.of_columns(0.5 * (low + high), 0.5 * (high - low) / _EDGE)
