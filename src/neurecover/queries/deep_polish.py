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
from neurecover.queries.deep_points import random_points
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


def polishing_points(network: DeepNetwork, n: int, rng: np.random.Generator) -> np.ndarray:
    """n points (n, d) among which every unit is on, and off, as often as can be had without asking.

    Of many random points those are kept first that show a unit in the state in which it is seen least.
    """
    known = Known(network.n_inputs, network.layers[:-1])
    X = random_points(known, 8 * n, rng)
    on = known.values(X) > 0.0
    often = on.mean(axis=0)
    rarity = np.where(on, 1.0 / np.maximum(often, 1e-9), 1.0 / np.maximum(1.0 - often, 1e-9)).max(axis=1)
    third = n // 3
    rare = np.argsort(-rarity)[:third]
    return np.vstack([X[rare], np.delete(X, rare, axis=0)[: n - len(rare)]])
