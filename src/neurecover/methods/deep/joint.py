"""Least squares over all parameters of a deep network at once: W, t and the upper part's.

From a layer that is right to a small angle this is a short way: the residuals y − upper(u(W x − t)) are smooth but
for the few samples at a kink, and without noise they vanish at the truth.
"""

import numpy as np
from scipy.optimize import least_squares

from neurecover.deep import DeepNetwork, Polynomial, monomials
from neurecover.network import Network


def polish_jointly(network: DeepNetwork, X: np.ndarray, Y: np.ndarray, *, max_evaluations: int = 60) -> DeepNetwork:
    """The network after Levenberg–Marquardt on samples X (n, d), Y (n, p); the same network where that does not help.

    The upper part is a Polynomial or a Network; the activation must have a derivative.
    """
    if not isinstance(network.upper, Polynomial | Network) or not network.activation.differentiable:
        return network

    def residuals(v: np.ndarray) -> np.ndarray:
        return (_with(network, v)(X) - Y).ravel()

    def jacobian(v: np.ndarray) -> np.ndarray:
        return _jacobian(_with(network, v), X)

    start = parameters(network)
    if len(start) >= Y.size:
        return network
    scale = np.maximum(np.abs(start), 1e-2)
    end = least_squares(
        residuals,
        start,
        jacobian,
        method="trf",
        x_scale=scale,
        ftol=1e-15,
        xtol=1e-15,
        gtol=1e-15,
        max_nfev=max_evaluations,
    )
    before = float(np.sum(residuals(start) ** 2))
    return _with(network, end.x) if 2.0 * end.cost < before else network


def parameters(network: DeepNetwork) -> np.ndarray:
    """All numbers of the network in one vector: W, t, then the upper part's; W and t alone for others."""
    upper = network.upper
    parts = [network.W.ravel(), network.threshold]
    if isinstance(upper, Polynomial):
        parts.append(upper.coefficients.ravel())
    elif isinstance(upper, Network):
        parts += [upper.W.ravel(), upper.b, upper.A.ravel(), upper.c]
    return np.concatenate(parts)


def _with(network: DeepNetwork, v: np.ndarray) -> DeepNetwork:
    upper, (k, d) = network.upper, network.W.shape
    W, t, rest = v[: k * d].reshape(k, d), v[k * d : k * d + k], v[k * d + k :]
    if isinstance(upper, Polynomial):
        new: Polynomial | Network = Polynomial(upper.exponents, rest.reshape(upper.coefficients.shape))
    else:
        assert isinstance(upper, Network)
        sizes = np.cumsum([upper.W.size, upper.b.size, upper.A.size])
        B, b, A, c = np.split(rest, sizes)
        new = Network(B.reshape(upper.W.shape), b, A.reshape(upper.A.shape), c, upper.activation)
    return DeepNetwork(W, t, new, network.activation)


def _jacobian(network: DeepNetwork, X: np.ndarray) -> np.ndarray:
    """∂ outputs / ∂ parameters, (n·p, number of parameters)."""
    n = len(X)
    Z = X @ network.W.T - network.threshold
    H, slope, upper = network.activation(Z), network.activation.derivative(Z), network.upper
    if isinstance(upper, Polynomial):
        below = upper.derivatives(H)
        p = below.shape[1]
        own = np.einsum("nm,oq->noqm", monomials(H, upper.exponents), np.eye(p)).reshape(n, p, -1)
    else:
        assert isinstance(upper, Network)
        inner = H @ upper.W.T + upper.b
        active = upper.A[None] * upper.activation.derivative(inner)[:, None, :]  # (n, p, m)
        below = active @ upper.W
        p = below.shape[1]
        values = upper.activation(inner)
        of_A = np.einsum("nm,oq->noqm", values, np.eye(p)).reshape(n, p, -1)
        of_B = (active[..., None] * H[:, None, None, :]).reshape(n, p, -1)
        own = np.concatenate([of_B, active, of_A, np.broadcast_to(np.eye(p), (n, p, p))], axis=2)
    through = below * slope[:, None, :]
    of_W = (through[..., None] * X[:, None, None, :]).reshape(n, p, -1)
    return np.concatenate([of_W, -through, own], axis=2).reshape(n * p, -1)
