"""Random points, and points on a known boundary.

Gaussian points at several distances reach most cells. Few of them lie where nearly all units of a layer are active or
nearly all are inactive; if the first layer's W is square, such cells are reached by x = W⁻¹(z − b) with z of chosen
signs. If W is nearly singular such points are far, where neither z nor an answer keeps its digits: a ridge, larger for
rows known less well, keeps them near.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.queries.deep.cells import KnownLayers

_BITS = np.finfo(float).nmant  # bisections between two points


def draw_points(known: KnownLayers, n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw n points (n, d): near, far, and if possible with many or few active units of the first layer."""
    options = known.options
    X = rng.standard_normal((n, known.n_inputs)) * rng.choice([0.4, 1.0, 3.0], (n, 1))
    if known.layers:
        W, b = known.layers[0]
        if W.shape[0] == W.shape[1]:
            chosen = np.flatnonzero(rng.random(n) < 0.5)
            Z = np.abs(rng.standard_normal((len(chosen), len(b)))) * rng.choice([0.5, 2.0, 6.0], (len(chosen), 1))
            off = rng.random(Z.shape) < rng.uniform(0.0, 0.9, (len(chosen), 1))
            U, s, Vt = np.linalg.svd(W)
            ridge = s[0] * min(max(known.error / options.sharp, 1.0 / options.condition), options.ridge_of_points)
            X[chosen] = ((np.where(off, -Z, Z) - b) @ U * (s / (s**2 + ridge**2))) @ Vt
    return known.limits.pull_inside(X)


@dataclass(frozen=True, eq=False)
class BoundaryPoints:
    """Points (n, d) of a boundary, its unit normals there (n, d), and the room along them up to a known unit (n,)."""

    points: np.ndarray
    normals: np.ndarray
    room: np.ndarray

    def take(self, index: np.ndarray) -> BoundaryPoints:
        """Return some of the points."""
        return BoundaryPoints(self.points[index], self.normals[index], self.room[index])


def find_boundary_points(
    known: KnownLayers,
    theta: np.ndarray,
    n: int,
    rng: np.random.Generator,
    near: np.ndarray,
    unseen: np.ndarray | None = None,
) -> BoundaryPoints:
    """Find at most n points with θ·φ(x) = 0 by bisection between points on either side, without queries.

    `near` (d,) is a point of the boundary: if nearly all random points lie on one side, some of those around it do not.
    Points at which a feature `unseen` (f,) is not zero are left out.
    """
    options = known.options
    X = draw_points(known, max(options.candidates, 4 * n), rng)
    side = known.features(X) @ theta > 0.0
    if min(np.count_nonzero(side), np.count_nonzero(~side)) < 0.03 * len(X):
        spread = rng.choice([0.1, 0.5, 2.0], (len(X) // 4, 1)) * (1.0 + np.linalg.norm(near)) / np.sqrt(len(near))
        X = np.vstack([X, known.limits.pull_inside(near + spread * rng.standard_normal((len(spread), len(near))))])
        side = known.features(X) @ theta > 0.0
    if side.all() or not side.any():
        return BoundaryPoints(np.zeros((0, len(near))), np.zeros((0, len(near))), np.zeros(0))
    high, low = X[rng.choice(np.flatnonzero(side), n)], X[rng.choice(np.flatnonzero(~side), n)]
    for _ in range(_BITS):
        middle = 0.5 * (low + high)
        up = (known.features(middle) @ theta > 0.0)[:, None]
        low, high = np.where(up, low, middle), np.where(up, middle, high)
    points = 0.5 * (low + high)
    normals, room = np.zeros_like(points), np.zeros(n)
    for i, x in enumerate(points):
        cell = known.cell_at(x)
        normal = cell.Phi.T @ theta
        size = np.linalg.norm(normal)
        if not size > 0.0:
            continue
        normals[i] = normal / size
        with np.errstate(divide="ignore", invalid="ignore"):
            ways = np.abs((cell.Q @ x + cell.q0) / (cell.Q @ normals[i]))
        room[i] = np.min(ways[~np.isnan(ways)], initial=np.inf)
    room = np.minimum(room, known.limits.room(points))
    usable = room > 0.0
    if unseen is not None and unseen.any():
        usable &= ~np.any(known.features(points)[:, unseen] > 0.0, axis=1)
    return BoundaryPoints(points[usable], normals[usable], room[usable])
