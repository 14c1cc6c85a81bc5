"""Where a surface that is partly known meets a given unit below it, found without queries.

On q_i = 0 the feature of unit i vanishes, so θ·φ is known there even while the weight θ_i is not. Between a point of
q_i = 0 with θ·φ > 0 and one with θ·φ < 0 there is one with θ·φ = 0. The path between the two is the straight segment,
put back onto q_i = 0 by Newton steps, halved again and again.
"""

from __future__ import annotations

import numpy as np

from neurecover.queries.deep_cells import Known
from neurecover.queries.deep_points import points_on, random_points
from neurecover.queries.deep_surface import Surface

_POINTS = 40
_PAIRS = 4
_HALVINGS = 40


def meeting_points(known: Known, surface: Surface, unit: int, rng: np.random.Generator) -> list[np.ndarray]:
    """A few points with q = 0 for one unit of the highest known layer, and θ·φ = 0; none if none is found.

    The layer must be signed: `known.open` is None.
    """
    W, b = known.layers[-1]
    row = np.append(W[unit], b[unit])
    below = Known(known.n_inputs, known.layers[:-1])
    X = random_points(known, 10 * _POINTS, rng)
    near = X[int(np.argmax(below.features(X) @ row))]
    where = points_on(below, row, _POINTS, rng, near).points
    heights = known.features(where) @ surface.theta
    # Only where no other feature is unknown does θ·φ mean anything.
    unseen = np.linalg.norm(surface.free, axis=1) > 1e-6
    unseen[unit] = False
    usable = ~np.any(known.features(where)[:, unseen] > 0.0, axis=1)
    above, under = where[usable & (heights > 0.0)], where[usable & (heights < 0.0)]
    if not len(above) or not len(under):
        return []
    found = []
    for _ in range(_PAIRS):
        high, low = above[int(rng.integers(len(above)))], under[int(rng.integers(len(under)))]
        point = _met(known, surface.theta, known.n_units - known.n_top + unit, low, high)
        if point is not None:
            found.append(point)
    return found


def _met(known: Known, theta: np.ndarray, index: int, low: np.ndarray, high: np.ndarray) -> np.ndarray | None:
    for _ in range(_HALVINGS):
        middle = _onto(known, index, 0.5 * (low + high))
        if middle is None:
            return None
        if known.features(middle[None])[0] @ theta > 0.0:
            high = middle
        else:
            low = middle
    size = 1.0 + float(np.linalg.norm(low))
    return low if np.linalg.norm(high - low) < 1e-6 * size else None


def _onto(known: Known, index: int, x: np.ndarray) -> np.ndarray | None:
    """x moved onto q = 0 of one unit."""
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
