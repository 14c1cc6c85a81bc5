"""Points that random draws hardly ever reach, found by steepest ascent without queries.

A unit that is hardly ever active, or inactive, is so where the values h below it point in an extreme direction: such
points maximise g·h(x) / ‖h(x)‖ for random g.

Some pairs of units, one above the other, are active together only in a small part of the inputs that random points do
not reach. Both values, z = θ·φ(x) and q_i(x), are piecewise linear with gradients known from the layers, so the smaller
one is increased step by step until both are positive.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from neurecover.queries.deep.boundaries.points import draw_points
from neurecover.queries.deep.cells import KnownLayers

_STEPS = np.geomspace(0.5, 0.005, 60)  # of an ascent, relative to the size of the point


def find_jointly_active(
    known: KnownLayers, theta: np.ndarray, feature: int, near: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Find up to twenty points (·, d) where the unit θ and a feature are both positive, θ·φ(x) > 0 and φ_feature(x) >
    0, clearest first.

    `near` is a point of the boundary θ·φ(x) = 0, and the known layers have their signs.
    """
    options = known.options
    W, b = known.layers[-1]
    below = replace(known, layers=known.layers[:-1])
    theta, row = theta / np.linalg.norm(theta), np.append(W[feature], b[feature]) / np.linalg.norm(W[feature])
    spread = rng.choice([0.1, 0.5, 2.0], (options.ascent_starts, 1)) * (1.0 + np.linalg.norm(near)) / np.sqrt(len(near))
    around = known.limits.pull_inside(near + spread * rng.standard_normal((options.ascent_starts, len(near))))
    X = np.vstack(
        [
            draw_points(known, options.ascent_starts, rng),
            around,
            climb(known, np.tile(theta[:-1], (options.ascent_starts, 1)), rng),
        ]
    )
    farthest = options.ascent_reach * max(np.sqrt(len(near)), float(np.linalg.norm(near)))
    best, height = X, np.full(len(X), -np.inf)
    for step in _STEPS:
        z, q = known.features(X) @ theta, below.features(X) @ row
        size = 1.0 + np.linalg.norm(X, axis=1)
        reached = np.minimum(z, q) / size
        higher = reached > height
        best, height = np.where(higher[:, None], X, best), np.where(higher, reached, height)
        # Raise both if both are negative, else the smaller one.
        up = np.where(((z < 0.0) | (z < q))[:, None], _unit_rows(feature_gradients(known, theta, X)), 0.0)
        up += np.where(((q < 0.0) | (q < z))[:, None], _unit_rows(feature_gradients(below, row, X)), 0.0)
        X = X + (step * size)[:, None] * _unit_rows(up)
        X *= np.minimum(1.0, farthest / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-300))
        X = known.limits.pull_inside(X)
    order = np.argsort(-height)[:20]
    return best[order[height[order] > options.ascent_clear]]


def _unit_rows(G: np.ndarray) -> np.ndarray:
    """Scale the rows to length one."""
    return G / np.maximum(np.linalg.norm(G, axis=1, keepdims=True), 1e-300)


def find_extreme_points(known: KnownLayers, n: int, rng: np.random.Generator) -> np.ndarray:
    """Find points (n, d) where the highest known values h point in extreme directions, far from each other.

    Of ten times as many points, climbed to for random g, the one farthest from those taken comes next.
    """
    g = rng.standard_normal((10 * n, known.n_features - 1))
    # Sparse g let a few values of h dominate, dense ones do not.
    X = climb(known, g * (rng.random(g.shape) < rng.choice([0.3, 1.0], (len(g), 1))), rng)
    H = known.hidden(X)
    U = H / np.maximum(np.linalg.norm(H, axis=1, keepdims=True), 1e-300)
    chosen = [0]
    apart = np.linalg.norm(U - U[0], axis=1)
    while len(chosen) < n:
        chosen.append(int(apart.argmax()))
        apart = np.minimum(apart, np.linalg.norm(U - U[chosen[-1]], axis=1))
    return X[chosen]


def climb(known: KnownLayers, g: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return, for every row of g (n, f − 1), a point with g·h / ‖h‖ as large as steepest ascent gets."""
    X = draw_points(known, len(g), rng)
    size = np.linalg.norm(X, axis=1, keepdims=True)
    theta = np.zeros((len(g), known.n_features))
    for step in _STEPS:
        H = known.hidden(X)
        U = H / np.maximum(np.linalg.norm(H, axis=1, keepdims=True), 1e-3 * size)
        theta[:, :-1] = g - np.sum(g * U, axis=1, keepdims=True) * U
        X = X + step * size * _unit_rows(feature_gradients(known, theta, X))
        X = known.limits.pull_inside(X * (size / np.linalg.norm(X, axis=1, keepdims=True)))
    return X


def feature_gradients(known: KnownLayers, theta: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return the gradients (n, d) of θ·φ(x), θ (f,) or (n, f), by backpropagation through the active units."""
    on, H = [], X
    for W, b in known.layers:
        H = np.maximum(H @ W.T + b, 0.0)
        on.append(H > 0.0)
    G = np.broadcast_to(theta[..., :-1], (len(X), theta.shape[-1] - 1))
    for (W, _), mask in zip(reversed(known.layers), reversed(on)):
        G = (G * mask) @ W
    return G


def slopes_at(known: KnownLayers, theta: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return the lengths (n,) of the gradients of θ·φ at X (n, d)."""
    if known.unsigned is None:
        return np.asarray(np.linalg.norm(feature_gradients(known, theta, X), axis=1))
    return np.array([np.linalg.norm(known.cell_at(x).Phi.T @ theta) for x in X])
