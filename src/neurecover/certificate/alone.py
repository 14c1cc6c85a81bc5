"""Equations that no other equation could contradict.

Whatever a sample says is fitted where it is the only one to say it: its leverage h = J F⁻¹ Jᵀ is one, and the residual
(1 − h) δ of an answer that is off by δ says nothing. Without noise an invented network passes such an equation as well
as the right one, so what rests on it is not determined. With H = J F⁻¹ Jᵀ over all equations and g standard normal

    E[((I − H) g)ᵢ²] = 1 − hᵢ,

which a few draws of g tell from zero. For one hidden layer Jᵀg and J δ take time n·k·(D + p) and no Jacobian.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from neurecover.data import Source, afford
from neurecover.models import Model, Network, jacobian, with_parameters

DRAWS = 4  # of g: their mean square is below 1e-3 of its expectation twice in 1e6 times
ALONE = 1e-6  # 1 − h: rounding leaves 1e-15 of an output, so that one in 1e9 wrong answers passes
BLOCK = 16 * 2**20  # bytes of what is formed at a time


def alone(model: Model, free: np.ndarray, root: np.ndarray, samples: Source) -> np.ndarray:
    """The rows (m, P) of the Jacobian by the `free` parameters whose equation no other one contradicts.

    root (P, q) is such that root rootᵀ is a generalised inverse of F = Σ JᵀJ over these samples.
    """
    p, d, units = model.n_outputs, model.n_inputs, sum(len(W) for W in model.hidden_weights)
    per_sample = 4 * DRAWS * units * (d + p + 1) if isinstance(model, Network) else 4 * DRAWS * p * len(free)
    rows = max(1, BLOCK // (8 * (p * len(free) if not isinstance(model, Network) else units + d + p)))

    def blocks() -> Iterator[np.ndarray]:
        for X, _ in samples.blocks(rows):
            afford(2.0 * per_sample * len(X))
            yield np.asarray(X, dtype=np.float64)

    rng = np.random.default_rng(0)
    left = [rng.standard_normal((DRAWS, len(X), p)) for X in blocks()]
    for _ in range(2):  # the second time takes out what rounding has left of the first
        gradient = sum(_backward(model, X, g)[:, free] for X, g in zip(blocks(), left))
        steps = np.zeros((DRAWS, model.n_parameters))
        steps[:, free] = (gradient @ root) @ root.T
        left = [g - _forward(model, X, steps) for X, g in zip(blocks(), left)]
    found = [np.zeros((0, len(free)))]
    for X, g in zip(blocks(), left):
        sample, output = np.nonzero(np.mean(g**2, axis=0) < ALONE)
        if len(sample):
            found.append(jacobian(model, X[sample])[np.arange(len(sample)), output][:, free])
    return np.vstack(found)


def _backward(model: Model, X: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Jᵀ g for g (draws, n, p), a row each."""
    if not isinstance(model, Network):
        return np.tensordot(g, jacobian(model, X), axes=2)
    Z = model.preactivations(X)[0]
    gated = model.activation.derivative(Z) * (g @ model.A)
    of_A = g.transpose(0, 2, 1) @ model.activation(Z)
    parts = (gated.transpose(0, 2, 1) @ X, gated.sum(axis=1), of_A, g.sum(axis=1))
    return np.hstack([part.reshape(len(g), -1) for part in parts])


def _forward(model: Model, X: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """J δ for every row δ of `steps`, (draws, n, p)."""
    if not isinstance(model, Network):
        return np.moveaxis(jacobian(model, X) @ steps.T, 2, 0)
    Z = model.preactivations(X)[0]
    slope, H = model.activation.derivative(Z), model.activation(Z)
    moved = [with_parameters(model, step) for step in steps]
    return np.array([(slope * (X @ m.W.T + m.b)) @ model.A.T + H @ m.A.T + m.c for m in moved])
