"""Standard errors of units fitted to Hermite coefficients, from the errors of the coefficients themselves.

With v(θ) the coordinates √(m/j!) T_j(θ)/σ_j of all orders, each with error one, χ² = ‖v(θ) − v̂‖² and to first order
Cov(θ̂) = (JᵀJ)⁺, J = ∂v/∂θ. Scales that (w, b) and a share are no errors: a unit row moves by (I − wwᵀ) δw/‖w‖.
Errors of the coefficients lie along the units, where the residual of the regression is, so that χ² per degree of
freedom exceeds one; the errors are multiplied by its root where it does.
"""

from __future__ import annotations

from math import factorial

import numpy as np

from neurecover.activations import Activation
from neurecover.algorithms.atv21.coefficients import Coefficients
from neurecover.algorithms.atv21.units import HermiteFit
from neurecover.tensors import multiplicities, network_moments

STEP = float(np.cbrt(np.finfo(np.float64).eps))  # of a central difference: its error and rounding are equal


def direction_errors(fit: HermiteFit, c: Coefficients, activation: Activation, bias: bool = True) -> np.ndarray:
    """Return the expected error √E‖δw‖² (k,) of every direction, in the coefficients' coordinates; 0 if those are
    exact.
    """
    (k, r), p = fit.W.shape, len(fit.A)
    if c.known_exactly or k == 0:
        return np.zeros(k)
    A = fit.A / c.scale[:, None]
    roots = {j: np.sqrt(multiplicities(r, j) / factorial(j)) / c.errors[j] for j in fit.orders}

    def values(theta: np.ndarray) -> np.ndarray:
        W, b, out = np.split(theta, [k * r, k * r + k])
        T = network_moments(W.reshape(k, r), b, out.reshape(p, k), activation, fit.orders)
        return np.concatenate([(T[j] * roots[j]).ravel() for j in fit.orders])

    theta = np.concatenate([fit.W.ravel(), fit.b, A.ravel()])
    free = np.ones(len(theta), dtype=bool)
    free[k * r : k * r + k] = bias
    steps = STEP * np.eye(len(theta))[free]
    J = np.array([(values(theta + step) - values(theta - step)) / (2.0 * STEP) for step in steps]).T
    covariance = np.linalg.pinv(J.T @ J, rcond=1e-10, hermitian=True) * max(1.0, fit.misfit)
    errors = np.empty(k)
    for i, w in enumerate(fit.W):
        size = float(np.linalg.norm(w))
        P = np.eye(r) - np.outer(w, w) / size**2
        block = covariance[i * r : (i + 1) * r, i * r : (i + 1) * r]
        errors[i] = np.sqrt(max(float(np.trace(P @ block @ P)), 0.0)) / size
    return errors
