"""The parameters of a network as one vector θ, the derivatives of its outputs, and directions that change nothing.

Order of θ: for every hidden layer W row by row, then b; for the last layer A, then C if there is an affine term, then
c. For a `Composite`: W, t, then the parameters of its upper part.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TypeVar

import numpy as np

from neurecover.models.composite import Composite, Polynomial, monomials
from neurecover.models.layered import Layered

Differentiable = Layered | Composite
M = TypeVar("M", bound=Layered | Composite)


def parameters(model: Differentiable) -> np.ndarray:
    """Return θ; for a composite with an upper part of unknown form, only the parameters of the first layer."""
    if not isinstance(model, Composite):
        return np.concatenate([array.ravel() for array in model.arrays.values()])
    upper = model.upper
    above = np.zeros(0)
    if isinstance(upper, Polynomial):
        above = upper.coefficients.ravel()
    elif isinstance(upper, Layered):
        above = parameters(upper)
    return np.concatenate([model.W.ravel(), model.threshold, above])


def with_parameters(model: M, theta: np.ndarray) -> M:
    """Return the network of the same form with the parameters θ."""
    if isinstance(model, Composite):
        upper, (k, d) = model.upper, model.W.shape
        W, t, rest = np.split(theta, [k * d, k * d + k])
        if isinstance(upper, Polynomial):
            upper = Polynomial(upper.exponents, rest.reshape(upper.coefficients.shape))
        elif isinstance(upper, Layered):
            upper = with_parameters(upper, rest)
        return Composite(W.reshape(k, d), t, upper, model.activation)  # type: ignore[return-value]
    arrays, start = [], 0
    for array in model.arrays.values():
        arrays.append(theta[start : start + array.size].reshape(array.shape))
        start += array.size
    C = None if model.C is None else arrays.pop(-2)
    return model.with_layers(list(zip(arrays[::2], arrays[1::2])), C)


def are_biases(model: Differentiable) -> np.ndarray:
    """Return a mask of the entries of θ that are biases, offsets or thresholds."""
    if not isinstance(model, Composite):
        return np.concatenate([np.full(array.size, array.ndim == 1) for array in model.arrays.values()])
    above = model.n_parameters - model.W.size - model.threshold.size
    upper = model.upper
    inner = are_biases(upper) if isinstance(upper, Layered) else np.zeros(above, dtype=bool)
    return np.concatenate([np.zeros(model.W.size, dtype=bool), np.ones(model.threshold.size, dtype=bool), inner])


def free_parameters(model: Differentiable, bias: bool) -> np.ndarray:
    """Return the indices of the fitted entries of θ: all, or without `bias` all except the biases."""
    return np.flatnonzero(np.ones(model.n_parameters, dtype=bool) if bias else ~are_biases(model))


def jacobian(model: Differentiable, X: np.ndarray) -> np.ndarray:
    """Return ∂ outputs / ∂ θ, (n, p, number of parameters)."""
    return _derivatives(model, X)[0]


def free_directions_among(model: Differentiable, free: np.ndarray) -> np.ndarray:
    """Return the free directions, (parameters, g), that move none but the `free` parameters."""
    G = free_directions(model)
    return G[:, ~np.any(np.delete(G, free, axis=0) != 0.0, axis=0)]


def free_directions(model: Differentiable) -> np.ndarray:
    """Return directions of θ along which the function does not change, (parameters, g), one column per hidden unit.

    If act(s z) = s^h act(z), the row (w, b) of a unit may grow while its column above shrinks h times as fast. If
    act = exp, a bias may grow while the column above shrinks. Other activations, and upper parts of unknown form, have
    no such directions. An affine term makes signs free, but no direction.
    """
    h, exponential = model.activation.homogeneity, model.activation.name == "exp"
    size = len(parameters(model))
    if isinstance(model, Composite):
        upper = model.upper
        above = free_directions(upper) if isinstance(upper, Layered) else np.zeros((0, 0))
        own = [] if h is None and not exponential else [_composite_direction(model, j) for j in range(model.n_hidden)]
        columns = [direction for direction in own if direction is not None]
        columns += [np.concatenate([np.zeros(size - len(above)), column]) for column in above.T]
        return np.array(columns).reshape(-1, size).T
    if h is None and not exponential:
        return np.zeros((size, 0))
    directions = np.zeros((size, sum(len(W) for W in model.hidden_weights)))
    start = unit = 0
    for (W, b), (above, _) in pairwise(model.layers):
        k, m = W.shape
        after = start + W.size + k
        for j in range(k):
            if not exponential:
                directions[start + j * m : start + (j + 1) * m, unit + j] = W[j]
            directions[start + W.size + j, unit + j] = 1.0 if exponential else b[j]
            directions[after + j : after + above.size : k, unit + j] = -(1.0 if h is None else h) * above[:, j]
        start, unit = after, unit + k
    return directions


def _composite_direction(model: Composite, j: int) -> np.ndarray | None:
    upper, h = model.upper, model.activation.homogeneity
    W, t = np.zeros_like(model.W), np.zeros_like(model.threshold)
    if h is None:  # e^{z − t}: a threshold grows with the weights above the unit
        t[j], h = 1.0, -1.0
    else:
        W[j], t[j] = model.W[j], model.threshold[j]
    if isinstance(upper, Polynomial):
        above = (-h * upper.exponents[:, j] * upper.coefficients).ravel()
    elif isinstance(upper, Layered):
        names = (next(iter(upper.arrays)), "C")  # the arrays that multiply the hidden values: the first weights, and C
        moved = {name: np.zeros_like(array) for name, array in upper.arrays.items()}
        for name in names:
            if name in moved:
                moved[name][:, j] = -h * upper.arrays[name][:, j]
        above = np.concatenate([array.ravel() for array in moved.values()])
    else:
        return None
    return np.concatenate([W.ravel(), t, above])


def _derivatives(model: Differentiable, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ∂y/∂θ (n, p, parameters) and ∂y/∂x (n, p, d)."""
    if not isinstance(model, Composite):
        return _layered(model, X)
    Z = X @ model.W.T - model.threshold
    H, slope, upper = model.activation(Z), model.activation.derivative(Z), model.upper
    n = len(X)
    if isinstance(upper, Polynomial):
        by_hidden, p = upper.derivatives(H), len(upper.coefficients)
        above = np.einsum("nm,oq->noqm", monomials(H, upper.exponents), np.eye(p)).reshape(n, p, -1)
    elif isinstance(upper, Layered):
        above, by_hidden = _derivatives(upper, H)
    else:
        raise ValueError(f"Derivatives need an upper part of known form. Got {type(upper).__name__} instead.")
    through = by_hidden * slope[:, None, :]
    by_W = (through[..., None] * X[:, None, None, :]).reshape(n, through.shape[1], -1)
    return np.concatenate([by_W, -through, above], axis=2), through @ model.W


def _layered(model: Layered, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Backpropagate: with G = ∂y/∂z_l, ∂y/∂W_l = G ⊗ h_{l−1}, ∂y/∂b_l = G and ∂y/∂C = I ⊗ x."""
    layers, act, n = model.layers, model.activation, len(X)
    values, slopes = [X], []
    for W, b in layers[:-1]:
        Z = values[-1] @ W.T + b
        values.append(act(Z))
        slopes.append(act.derivative(Z))
    p = len(layers[-1][0])
    G = np.broadcast_to(np.eye(p), (n, p, p))
    parts: list[np.ndarray] = []
    for number in range(len(layers) - 1, -1, -1):
        W, _ = layers[number]
        by_W = (G[..., None] * values[number][:, None, None, :]).reshape(n, p, -1)
        parts[:0] = [by_W, G]
        G = G @ W
        if number:
            G = G * slopes[number - 1][:, None, :]
    if model.C is not None:
        parts.insert(len(parts) - 1, (np.eye(p)[:, :, None] * X[:, None, None, :]).reshape(n, p, -1))
        G = G + model.C
    return np.concatenate(parts, axis=2), G
