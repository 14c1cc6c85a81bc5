"""The scale of the rounding errors of a forward pass: the size of the terms that are summed to an output.

With a_0 = |x| and, layer by layer,

    a_l = |act(z_l)| + |act′(z_l)| (|W_l| a_{l−1} + |b_l|),        z_l = W_l h_{l−1} + b_l,

the rounding error of an output is about ε·(|A| a_L + |C| a_0 + |c|).
"""

from __future__ import annotations

import numpy as np

from neurecover.models.composite import Composite, Polynomial, monomials
from neurecover.models.layered import Layered


def term_sizes(model: Layered | Composite, X: np.ndarray) -> np.ndarray:
    """Return |A| a_L + |C| a_0 + |c|, (n, p); for a composite with an upper part of unknown form, the outputs' size."""
    return _sizes(model, X, np.abs(X))


def _sizes(model: Layered | Composite, H: np.ndarray, a: np.ndarray) -> np.ndarray:
    if not isinstance(model, Composite):
        below = a
        for W, b in model.layers[:-1]:
            H, a = _layer(model, W, b, H, a)
        A, c = model.layers[-1]
        sizes = a @ np.abs(A.T) + np.abs(c)
        return sizes if model.C is None else sizes + below @ np.abs(model.C.T)
    H, a = _layer(model, model.W, -model.threshold, H, a)
    upper = model.upper
    if isinstance(upper, Polynomial):
        terms = np.abs(monomials(H, upper.exponents)) @ np.abs(upper.coefficients.T)
        return terms + np.einsum("nok,nk->no", np.abs(upper.derivatives(H)), a)
    if isinstance(upper, Layered):
        return _sizes(upper, H, a)
    return np.abs(upper(H))


def _layer(
    model: Layered | Composite, W: np.ndarray, b: np.ndarray, H: np.ndarray, a: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    Z = H @ W.T + b
    values = model.activation(Z)
    inside = a @ np.abs(W.T) + np.abs(b)
    return values, np.abs(values) + np.abs(model.activation.derivative(Z)) * inside
