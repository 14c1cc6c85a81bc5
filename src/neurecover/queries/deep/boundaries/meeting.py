"""Points where a partly known boundary meets a given unit below it, found without queries.

On q_i = 0 the feature of unit i vanishes, so θ·φ is known there even while the weight θ_i is not. Between a point of
q_i = 0 with θ·φ > 0 and one with θ·φ < 0 there is one with θ·φ = 0. The path between the two is the straight segment,
projected onto q_i = 0 by Newton steps, and bisected.

If all random points of q_i = 0 lie on one side, they climb along q_i = 0, by steepest ascent or descent of θ·φ, to the
other.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from neurecover.queries.deep.boundaries.ascent import feature_gradients
from neurecover.queries.deep.boundaries.boundary import Boundary
from neurecover.queries.deep.boundaries.points import draw_points, find_boundary_points
from neurecover.queries.deep.cells import KnownLayers

_STEPS = np.geomspace(0.5, 0.01, 40)  # of an ascent, relative to the size of the point


def find_meeting_points(
    known: KnownLayers, boundary: Boundary, unit: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """Find a few points with q = 0 for one unit of the highest known layer, and θ·φ = 0.

    The layer must have its signs: `known.unsigned` is None.
    """
    options = known.options
    W, b = known.layers[-1]
    row = np.append(W[unit], b[unit])
    below = replace(known, layers=known.layers[:-1])
    X = draw_points(known, 10 * options.meeting_points, rng)
    near = X[int(np.argmax(below.features(X) @ row))]
    where = find_boundary_points(below, row, options.meeting_points, rng, near).points
    heights = known.features(where) @ boundary.theta
    # θ·φ is meaningful only where no other feature is unknown.
    unseen = boundary.unseen.copy()
    unseen[unit] = False
    usable = ~np.any(known.features(where)[:, unseen] > 0.0, axis=1)
    above, under = where[usable & (heights > 0.0)], where[usable & (heights < 0.0)]
    if len(above) and len(under):
        lows, highs = (
            under[rng.integers(len(under), size=options.meetings)],
            above[rng.integers(len(above), size=options.meetings)],
        )
    else:
        lows, highs = _climb(known, boundary.theta, below, row, unseen, where)
    found = []
    for low, high in zip(lows[: options.meetings], highs[: options.meetings]):
        point = _bisect(known, boundary.theta, known.n_units - known.n_top + unit, low, high)
        if point is not None:
            found.append(point)
    return found


def _climb(
    known: KnownLayers, theta: np.ndarray, below: KnownLayers, row: np.ndarray, unseen: np.ndarray, X: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Find points (·, d) on row·φ = 0 where θ·φ < 0, and as many where θ·φ > 0, with all `unseen` features inactive."""
    sign = -np.sign(known.features(X) @ theta)
    low, high = [X[:0]], [X[:0]]
    for step in _STEPS:
        m, up = feature_gradients(below, row, X), feature_gradients(known, theta, X) * sign[:, None]
        up -= m * (np.sum(up * m, axis=1) / np.maximum(np.sum(m * m, axis=1), 1e-300))[:, None]
        length = np.maximum(np.linalg.norm(up, axis=1), 1e-300)
        moved = X + (step * (1.0 + np.linalg.norm(X, axis=1)) / length)[:, None] * up
        for _ in range(3):
            m = feature_gradients(below, row, moved)
            moved -= m * ((below.features(moved) @ row) / np.maximum(np.sum(m * m, axis=1), 1e-300))[:, None]
        phi, size = known.features(moved), 1.0 + np.linalg.norm(moved, axis=1)
        over = (phi @ theta) * sign > 0.0
        over &= ~np.any(phi[:, unseen] > 0.0, axis=1) & ~np.any(known.features(X)[:, unseen] > 0.0, axis=1)
        over &= known.limits.contains(moved)
        over &= np.abs(below.features(moved) @ row) < 1e-9 * size
        ends = np.where((sign > 0.0)[:, None], X, moved), np.where((sign > 0.0)[:, None], moved, X)
        low.append(ends[0][over])
        high.append(ends[1][over])
        X, sign = moved[~over], sign[~over]
    return np.vstack(low), np.vstack(high)


def _bisect(known: KnownLayers, theta: np.ndarray, index: int, low: np.ndarray, high: np.ndarray) -> np.ndarray | None:
    """Return a point of q = 0 with θ·φ = 0 between two others; None if the path is lost."""
    options = known.options
    for _ in range(options.meeting_halvings):
        middle = _project(known, index, 0.5 * (low + high))
        if middle is None:
            return None
        if known.features(middle[None])[0] @ theta > 0.0:
            high = middle
        else:
            low = middle
    size = 1.0 + float(np.linalg.norm(low))
    return low if np.linalg.norm(high - low) < 1e-6 * size else None


def _project(known: KnownLayers, index: int, x: np.ndarray) -> np.ndarray | None:
    """Return x moved by Newton steps onto the boundary q = 0 of unit `index`; None if they do not converge."""
    for _ in range(8):
        cell = known.cell_at(x)
        q, m = float(cell.Q[index] @ x + cell.q0[index]), cell.Q[index]
        square = float(m @ m)
        if not square > 0.0:
            return None
        if abs(q) < 1e-12 * np.sqrt(square) * (1.0 + float(np.linalg.norm(x))):
            return x
        x = x - m * (q / square)
    return None
