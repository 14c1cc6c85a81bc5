"""All weights at once, fitted to answers of the box by Gauss–Newton.

For y_n = f(x_n; θ) and residuals r_n = y_n − f(x_n; θ), each weighted by the size of its answer,

    (JᵀJ + λ D) δ = Jᵀr,    D = diag(JᵀJ).

Near the truth, with every sample in the right cell, f is smooth in θ and one step takes an error e to about e². A tiny λ
holds still what no answer sees: the scale that may move from a unit's row to the column above it.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from neurecover.models import DeepNetwork
from neurecover.models.derivatives import jacobian, parameters, with_parameters
from neurecover.queries.deep_cells import Known
from neurecover.queries.deep_points import points_on, random_points
from neurecover.solve.deadline import Deadline

_STEPS = 8
# Numbers of a Jacobian held at a time.
_BLOCK = 2**22


def polish(network: DeepNetwork, X: np.ndarray, Y: np.ndarray, deadline: Deadline) -> DeepNetwork:
    """The best network met on the way of at most eight Gauss–Newton steps from `network`."""
    weight = 1.0 / (np.median(np.abs(Y)) + np.abs(Y).max(axis=1))
    best, least, network = network, np.inf, network.normal_form()
    ridge, idle = 1e-13, 0
    for _ in range(_STEPS):
        residual = weight[:, None] * (Y - network(X))
        error = float(np.sqrt(np.mean(residual**2)))
        idle = idle + 1 if error > 0.5 * least else 0
        if error < least:
            best, least = network, error
        if idle >= 2 or deadline.passed:
            break
        network = _step(network, X, residual, weight, ridge)
        if not all(np.isfinite(W).all() and np.isfinite(b).all() for W, b in network.layers):
            break
    return best


def _step(network: DeepNetwork, X: np.ndarray, residual: np.ndarray, weight: np.ndarray, ridge: float) -> DeepNetwork:
    p = network.n_parameters
    normal, right = np.zeros((p, p)), np.zeros(p)
    rows = max(1, _BLOCK // (p * network.n_outputs))
    for first in range(0, len(X), rows):
        part = slice(first, first + rows)
        J = (weight[part, None, None] * jacobian(network, X[part])).reshape(-1, p)
        normal += J.T @ J
        right += J.T @ residual[part].ravel()
    scale = np.sqrt(np.diag(normal))
    scale[scale == 0.0] = 1.0
    normal /= scale[:, None] * scale
    while True:
        try:
            factor = cho_factor(normal + ridge * np.eye(p))
            break
        except np.linalg.LinAlgError:
            ridge *= 100.0
    return with_parameters(network, parameters(network) + cho_solve(factor, right / scale) / scale).normal_form()


def polishing_points(
    network: DeepNetwork, anchors: tuple[np.ndarray, ...], n: int, rng: np.random.Generator
) -> np.ndarray:
    """At least n points (·, d) among which every unit is on, and off, at more points than it has weights.

    anchors are points (k_l, d) of the units' surfaces, layer by layer. Random points come first; where a unit is hardly
    ever on, or hardly ever off, points beside its surface are added.
    """
    X = random_points(Known(network.n_inputs, network.layers[:1]), n, rng)
    added = [X]
    for number, points in enumerate(anchors):
        known = Known(network.n_inputs, network.layers[:number])
        W, b = network.layers[number]
        on = known.hidden(X) @ W.T + b > 0.0
        needed = 2 * (W.shape[1] + 1)
        for unit, x in enumerate(points):
            rare = min(np.count_nonzero(on[:, unit]), np.count_nonzero(~on[:, unit]))
            if rare < needed:
                added.append(_beside(known, np.append(W[unit], b[unit]), needed - rare, rng, x))
    return np.vstack(added)


def _beside(known: Known, theta: np.ndarray, n: int, rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """n points on either side of a surface, as far from it as the cell allows."""
    where = points_on(known, theta, n, rng, x)
    way = np.minimum(0.5 * where.room, 0.3 * (1.0 + np.linalg.norm(where.points, axis=1)))
    shift = way[:, None] * where.normals
    return np.vstack([where.points - shift, where.points + shift])
