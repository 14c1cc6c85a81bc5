"""The signs of the units: on which side of its boundary a unit is active.

If the gradients of q_1 … q_k at a point of q_i = 0 are independent, there is a direction u that changes q_i only. On
the side where unit i is inactive the oracle is constant along u, because nothing else above the known layers changes. A
missing or a spurious row makes both sides change, so the test also shows whether the layer is complete. Units of
another activation with two straight pieces make both sides change in one ratio, that of their slopes.

If a layer has more units than there are inputs, no such u exists. The boundaries above it then give the signs: 2
relu(q) = |q| + q makes a unit above, v·2relu(S q) + b, equal to Σ v_i |q_i| + r·h + β with

    r = Σ_i s_i v_i W_i,    β = b + Σ_i s_i v_i b_i,

and v, r are known from tracing: linear in the signs s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.queries.box.black_box import Box
from neurecover.queries.deep.boundaries.points import BoundaryPoints, find_boundary_points
from neurecover.queries.deep.cells import KnownLayers


@dataclass(frozen=True, eq=False)
class Signs:
    """`signs` (k,) are +1, −1, or 0 without a majority; `against` (k,) counts the points that contradict the sign.

    A point at which both sides change contradicts either sign, because an unknown unit changes there. `ratios` (m,) are
    the ratios of the changes on the two sides of such points.
    """

    signs: np.ndarray
    against: np.ndarray
    ratios: np.ndarray

    @property
    def decided(self) -> bool:
        """Whether every unit has a sign."""
        return bool(np.all(self.signs != 0.0))

    def find_slope(self, alike: float, least: int) -> float | None:
        """Return the ratio that most of at least `least` points agree on, to `alike`; None if there is none."""
        if len(self.ratios) < least or 2 * len(self.ratios) < len(self.signs):
            return None
        middle = float(np.median(self.ratios))
        return middle if np.mean(np.abs(self.ratios - middle) < alike) > 0.5 else None

    @property
    def unanimous(self) -> bool:
        """Whether every unit has a sign that no point contradicts."""
        return self.decided and not self.against.any()


def find_signs_by_moving(
    box: Box, known: KnownLayers, rows: np.ndarray, points: np.ndarray, rng: np.random.Generator
) -> Signs:
    """Find the signs of the units with boundaries rows (k, f)·φ = 0 above `known`, by moving one of them at a time.

    points (k, d) is one point of each boundary.
    """
    options = known.options
    k = len(rows)
    votes = np.zeros((k, 3), dtype=int)
    todo, ratios = np.arange(k), []
    for _ in range(options.sign_rounds):
        for i in todo:
            counted, sloped = _count_votes(box, known, rows, int(i), points[i], rng)
            votes[i] += counted
            ratios.append(sloped)
        todo = np.flatnonzero(votes.max(axis=1) < options.votes)
        if not todo.size:
            break
    plus, minus, neither = votes.T
    majority = 2 * np.maximum(plus, minus) > votes.sum(axis=1)
    signs = np.where(majority, np.where(plus > minus, 1.0, -1.0), 0.0)
    return Signs(signs, neither + np.minimum(plus, minus), np.concatenate([*ratios, np.zeros(0)]))


def _count_votes(
    box: Box, known: KnownLayers, rows: np.ndarray, unit: int, x: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Count the points that vote for +1, for −1, and those where both sides change; return also the ratios for the
    last.
    """
    options = known.options
    where = find_boundary_points(known, rows[unit], 24, rng, x)
    X, U, room = _find_lone_directions(known, rows, unit, where)
    X, U, room = X[:6], U[:6], room[:6]
    if not len(X):
        return np.zeros(3, dtype=int), np.zeros(0)
    radius = options.sign_radius * (1.0 + np.linalg.norm(X, axis=1))
    part, most, still = options.sign_part, options.sign_clear, options.sign_still
    if box.coarse:
        radius = np.maximum(radius, options.sign_radius_coarse * box.clear_radius(X))
        part, most, still = options.sign_part_coarse, options.sign_clear_coarse, options.sign_still_coarse
    radius = np.minimum(radius, 0.7 * room)
    steps = np.array([-1.0, -0.5, 0.5, 1.0])
    points = (X[:, None, :] + (radius[:, None] * steps)[:, :, None] * U[:, None, :]).reshape(-1, X.shape[1])
    Y = box(points)
    noise = box.noise(points, Y).reshape(len(X), 4).max(axis=1)
    f = Y.reshape(len(X), 4, Y.shape[1])
    below, above = f[:, 1] - f[:, 0], f[:, 3] - f[:, 2]
    minus, plus = np.abs(below).max(axis=1), np.abs(above).max(axis=1)
    larger = np.maximum(minus, plus)
    clear = larger > most * noise
    off_below = clear & (minus < part * larger + still * noise)
    off_above = clear & (plus < part * larger + still * noise)
    neither = clear & ~off_below & ~off_above
    squares = np.maximum(np.sum(below**2, axis=1), np.sum(above**2, axis=1))
    ratios = np.sum(below * above, axis=1)[neither] / squares[neither]
    return np.array([off_below.sum(), off_above.sum(), neither.sum()]), ratios


def _find_lone_directions(
    known: KnownLayers, rows: np.ndarray, unit: int, where: BoundaryPoints
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find unit directions that move q_unit only; return their points, the directions, and the room along them."""
    points, directions, rooms = [], [], []
    target = np.zeros(len(rows))
    target[unit] = 1.0
    for x in where.points:
        cell = known.cell_at(x)
        slopes = rows @ cell.Phi
        u = np.linalg.lstsq(slopes, target, rcond=1e-10)[0]
        if np.linalg.norm(slopes @ u - target) > 1e-6 or not np.any(u):
            continue
        u /= np.linalg.norm(u)
        values, speeds = np.concatenate([cell.Q @ x + cell.q0]), cell.Q @ u
        with np.errstate(divide="ignore", invalid="ignore"):
            ways = np.abs(values / speeds)
        points.append(x)
        directions.append(u)
        back, forth = known.limits.distances_to_edge(x[None], u[None])
        rooms.append(min(np.min(ways[~np.isnan(ways)], initial=np.inf), -back[0], forth[0]))
    if not points:
        return np.zeros((0, known.n_inputs)), np.zeros((0, known.n_inputs)), np.zeros(0)
    order = np.argsort(-np.array(rooms))
    return np.array(points)[order], np.array(directions)[order], np.array(rooms)[order]


def find_signs_from_above(known: KnownLayers, theta: np.ndarray) -> np.ndarray | None:
    """Return the signs of the unsigned layer from boundaries theta (u, f) above it; None if they are not determined."""
    assert known.unsigned is not None
    W, _ = known.unsigned
    k, d = W.shape
    V, r = theta[:, :k], theta[:, k : k + d]
    equations = (V[:, None, :] * W.T[None, :, :]).reshape(-1, k)
    if len(equations) < k:
        return None
    scale = np.linalg.norm(equations, axis=0)
    if not np.all(scale > 0.0):
        return None
    solution, _, rank, _ = np.linalg.lstsq(equations / scale, r.ravel(), rcond=1e-7)
    solution = solution / scale
    if rank < k or np.abs(np.abs(solution) - 1.0).max() > 1e-2:
        return None
    return np.sign(solution)


def apply_signs(known: KnownLayers, signs: np.ndarray) -> tuple[KnownLayers, np.ndarray]:
    """Give the unsigned layer its signs; return the known layers and the map T (k + 1, f) of the boundaries above them.

    In terms of the signed layer's values, T θ = (2v, β − Σ s_i v_i b_i).
    """
    assert known.unsigned is not None
    W, b = known.unsigned
    k = len(b)
    T = np.zeros((k + 1, known.n_features))
    T[:k, :k] = 2.0 * np.eye(k)
    T[k, :k], T[k, -1] = -signs * b, 1.0
    return replace(known, layers=(*known.layers, (signs[:, None] * W, signs * b)), unsigned=None), T
