"""Points far from every hyperplane of a roughly known network, and steps from them that cross none.

Let z = W x + b. If the rows of W are independent, every pattern of signs can be reached: x = W⁺(±ζ − b) has distance ζ
from all hyperplanes at once, whereas a random x is as near as ζ/k to one of them. With more rows, x is moved away from
hyperplanes that are too near, one small projection at a time [Agmon 1954], and the pattern follows from that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.models import Network
from neurecover.queries.box.black_box import Box


@dataclass(frozen=True, eq=False)
class Centres:
    """A source of points far from every hyperplane of `network` (in normal form).

    `inverse` (d, k) is W⁺ if every pattern of signs is possible; otherwise it is None and `pool` holds points.
    """

    network: Network
    inverse: np.ndarray | None
    pool: np.ndarray

    @classmethod
    def around(cls, box: Box, network: Network, rng: np.random.Generator) -> Centres:
        """Return the centres of a network; within limits they are a pool whose patterns cannot be chosen."""
        options = box.options.shallow
        network = network.normal_form()
        if box.limits:
            return cls(network, None, _spread_out_inside(box, network, rng))
        k, d = network.W.shape
        nowhere = np.zeros((0, d))
        if 0 < k <= d:
            U, S, Vt = np.linalg.svd(network.W, full_matrices=False)
            if S[-1] > options.independent * S[0]:
                return cls(network, (Vt.T / S) @ U.T, nowhere)
        return cls(network, None, _spread_out(box, network, rng) if k else rng.standard_normal((options.pool, d)))

    @property
    def radius(self) -> float:
        """The distance of the points from the origin: there the terms of the answers have outgrown the biases."""
        return 2.0 * np.sqrt(self.network.n_inputs)

    def at(self, active: np.ndarray) -> np.ndarray:
        """Return the points (n, d) where exactly the units `active` (n, k) are active, if patterns can be chosen."""
        assert self.inverse is not None
        signs = np.where(active, 1.0, -1.0)
        zeta = self.radius / np.linalg.norm(signs @ self.inverse.T, axis=1)
        return (zeta[:, None] * signs - self.network.b) @ self.inverse.T

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Draw points (count, d) with random patterns."""
        if self.inverse is not None:
            return self.at(rng.random((count, self.network.n_hidden)) < 0.5)
        return self.pool[rng.integers(len(self.pool), size=count)]


def _spread_out(box: Box, network: Network, rng: np.random.Generator) -> np.ndarray:
    """Draw points and move them away from the hyperplanes; return those with the largest margin."""
    options = box.options.shallow
    W, b = network.W, network.b
    k, d = W.shape
    wanted, radius = 1.0, 2.0 * np.sqrt(d)
    X = 2.0 * rng.standard_normal((4 * options.pool, d))
    for _ in range(options.sweeps):
        z = X @ W.T + b
        X = X + np.sign(z) * np.maximum(wanted - np.abs(z), 0.0) @ W / max(1.0, k / d)
        X *= radius / np.linalg.norm(X, axis=1, keepdims=True)
    margin = np.abs(X @ W.T + b).min(axis=1)
    return X[np.argsort(-margin, kind="stable")[: options.pool]]


def _spread_out_inside(box: Box, network: Network, rng: np.random.Generator) -> np.ndarray:
    """Draw points away from hyperplanes and from the edge of the range; return those with the largest margin."""
    limits, options, inside = box.limits, box.options.shallow, box.options.box.inside
    W, b = network.W, network.b
    X = limits.pull_inside(2.0 * rng.standard_normal((4 * options.pool, network.n_inputs)), inside)
    wanted = 0.3 * np.linalg.norm(X, axis=1).mean() / np.sqrt(network.n_inputs)
    for _ in range(options.sweeps):
        z = X @ W.T + b
        X = X + np.sign(z) * np.maximum(wanted - np.abs(z), 0.0) @ W / max(1.0, len(W) / network.n_inputs)
        X = limits.pull_inside(X, inside)
    margin = np.minimum(np.abs(X @ W.T + b).min(axis=1, initial=np.inf), limits.room(X))
    return X[np.argsort(-margin, kind="stable")[: options.pool]]


def choose_clear_steps(box: Box, network: Network, points: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Choose signed steps (R, m) along the columns of the basis (d, m), the longer way that crosses no hyperplane.

    No step is longer than the distance of its point from the origin: beyond that the answers grow as fast as the step.
    """
    limits = box.limits
    z = points @ network.W.T + network.b
    speed = network.W @ basis
    steps = np.empty((len(points), basis.shape[1]))
    with np.errstate(divide="ignore"):
        for r, row in enumerate(z):
            ratio = speed / row[:, None]
            forward = 1.0 / (-ratio).max(axis=0, initial=0.0)
            backward = 1.0 / ratio.max(axis=0, initial=0.0)
            if limits:
                back, forth = limits.distances_to_edge(np.broadcast_to(points[r], basis.T.shape), basis.T)
                forward, backward = np.minimum(forward, forth), np.minimum(backward, -back)
            steps[r] = np.where(forward >= backward, forward, -backward)
    longest = np.linalg.norm(points, axis=1, keepdims=True) + 1.0
    return np.sign(steps) * np.minimum(box.options.shallow.clear * np.abs(steps), longest)
