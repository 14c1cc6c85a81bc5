"""What one rounding error of a forward pass is relative to: the size of the terms whose sum an output is.

With a_0 = |x| and, layer by layer,

    a_l = |act(z_l)| + |act′(z_l)| (|W_l| a_{l−1} + |b_l|),        z_l = W_l h_{l−1} + b_l,

rounding leaves about ε·(|A| a_L + |c|) in an output.
"""

from __future__ import annotations

import numpy as np

from neurecover.models.composite import Composite, Polynomial, monomials
from neurecover.models.deep import DeepNetwork
from neurecover.models.network import Network


def term_sizes(model: Network | DeepNetwork | Composite, X: np.ndarray) -> np.ndarray:
    """(n, p); for a composite whose upper part is of unknown form, the size of the outputs."""
    return _sizes(model, X, np.abs(X))


def _sizes(model: Network | DeepNetwork | Composite, H: np.ndarray, a: np.ndarray) -> np.ndarray:
    if isinstance(model, Network):
        H, a = _layer(model, model.W, model.b, H, a)
        return a @ np.abs(model.A.T) + np.abs(model.c)
    if isinstance(model, DeepNetwork):
        for W, b in model.layers[:-1]:
            H, a = _layer(model, W, b, H, a)
        A, c = model.layers[-1]
        return a @ np.abs(A.T) + np.abs(c)
    H, a = _layer(model, model.W, -model.threshold, H, a)
    upper = model.upper
    if isinstance(upper, Polynomial):
        terms = np.abs(monomials(H, upper.exponents)) @ np.abs(upper.coefficients.T)
        return terms + np.einsum("nok,nk->no", np.abs(upper.derivatives(H)), a)
    if isinstance(upper, Network | DeepNetwork):
        return _sizes(upper, H, a)
    return np.abs(upper(H))


def _layer(
    model: Network | DeepNetwork | Composite, W: np.ndarray, b: np.ndarray, H: np.ndarray, a: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    Z = H @ W.T + b
    values = model.activation(Z)
    inside = a @ np.abs(W.T) + np.abs(b)
    return values, np.abs(values) + np.abs(model.activation.derivative(Z)) * inside
