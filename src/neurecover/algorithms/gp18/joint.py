"""Least squares over all parameters θ of a network at once: damped Gauss–Newton on ‖y − f_θ(x)‖².

From a layer that is right to a small angle this is a short way: the residuals are smooth but for the few samples at a
kink, and without noise they vanish at the truth. A step solves (JᵀJ + μ diag JᵀJ) δ = Jᵀr; the scales that units can
hand to the layer above are directions in which JᵀJ vanishes, and the damping leaves them where they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from neurecover.algorithms.gp18.damping import damped_step
from neurecover.models import Composite, DeepNetwork, Network, Polynomial, jacobian, parameters, with_parameters

M = TypeVar("M", Network, DeepNetwork, Composite)
_BLOCK = 4 * 2**20  # numbers of the Jacobian at a time
_EXACT = 1e-29  # Σ r² / Σ y² at the level of rounding
_STILL = 1e-10  # relative gain of a step below which there is no more to gain


@dataclass(frozen=True)
class JointFit(Generic[M]):
    """The network, its Σ r² on the samples, the information JᵀJ there, and whether the last step gained nothing."""

    network: M
    rss: float
    information: np.ndarray
    converged: bool


def can_be_fitted(network: Composite) -> bool:
    """Whether all its parts have parameters and derivatives."""
    return isinstance(network.upper, Polynomial | Network | DeepNetwork) and network.activation.differentiable


def fit_all(network: M, X: np.ndarray, Y: np.ndarray, *, max_steps: int = 60) -> JointFit[M]:
    """The network after damped Gauss–Newton on samples X (n, d), Y (n, p)."""
    rss, A, g = _normal_equations(network, X, Y)
    floor = _EXACT * float(np.vdot(Y, Y))
    damping, converged = 1e-3, False
    for _ in range(max_steps):
        trial, trial_rss = _step(network, A, g, damping), np.inf
        while damping < 1e8:
            trial_rss = _rss(trial, X, Y)
            if trial_rss < rss:
                break
            damping *= 8.0
            trial = _step(network, A, g, damping)
        if not trial_rss < rss:
            converged = True
            break
        gain = rss - trial_rss
        network, damping = trial, max(damping / 8.0, 1e-12)
        rss, A, g = _normal_equations(network, X, Y)
        if rss <= floor or gain <= _STILL * rss:
            converged = True
            break
    return JointFit(network, rss, A, converged)


def _step(network: M, A: np.ndarray, g: np.ndarray, damping: float) -> M:
    return with_parameters(network, parameters(network) + damped_step(A, g, damping))


def _rss(network: M, X: np.ndarray, Y: np.ndarray) -> float:
    residual = Y - network(X)
    value = float(np.vdot(residual, residual))
    return value if np.isfinite(value) else np.inf


def _normal_equations(network: M, X: np.ndarray, Y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Σ r², JᵀJ and Jᵀr, block by block."""
    size = len(parameters(network))
    rows = max(1, _BLOCK // (size * Y.shape[1]))
    rss, A, g = 0.0, np.zeros((size, size)), np.zeros(size)
    for start in range(0, len(X), rows):
        part = slice(start, start + rows)
        r = (Y[part] - network(X[part])).ravel()
        J = jacobian(network, X[part]).reshape(len(r), size)
        rss += float(r @ r)
        A += J.T @ J
        g += J.T @ r
    return rss, A, g
