"""Least squares over all parameters of a composite network at once: W, t and the upper part's.

From a layer that is right to a small angle this is a short way: the residuals y − upper(u(W x − t)) are smooth but
for the few samples at a kink, and without noise they vanish at the truth.
"""

import numpy as np

from neurecover.models import Composite, DeepNetwork, Network, Polynomial, jacobian, parameters, with_parameters


def polish_jointly(network: Composite, X: np.ndarray, Y: np.ndarray, *, max_evaluations: int = 60) -> Composite:
    """The network after Levenberg–Marquardt on samples X (n, d), Y (n, p); the same network where that does not help.

    The upper part is a Polynomial, a Network or a DeepNetwork; the activation must have a derivative.
    """
    from scipy.optimize import least_squares

    if not isinstance(network.upper, Polynomial | Network | DeepNetwork) or not network.activation.differentiable:
        return network

    def residuals(theta: np.ndarray) -> np.ndarray:
        return (with_parameters(network, theta)(X) - Y).ravel()

    def derivatives(theta: np.ndarray) -> np.ndarray:
        return jacobian(with_parameters(network, theta), X).reshape(Y.size, -1)

    start = parameters(network)
    if len(start) >= Y.size:
        return network
    end = least_squares(
        residuals,
        start,
        derivatives,
        method="trf",
        x_scale=np.maximum(np.abs(start), 1e-2),
        ftol=1e-15,
        xtol=1e-15,
        gtol=1e-15,
        max_nfev=max_evaluations,
    )
    before = float(np.sum(residuals(start) ** 2))
    return with_parameters(network, end.x) if 2.0 * end.cost < before else network
