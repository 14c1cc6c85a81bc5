"""A rough start by stochastic gradients: Adam on the mean of |y − Θᵀ c_L|² over small batches, in single precision.

    m ← β₁ m + (1 − β₁) g,   v ← β₂ v + (1 − β₂) g²,   θ ← θ − η_t m̂ / (√v̂ + ε),        [Kingma & Ba 2015]

with η_t falling along a cosine from η to η/100. A few thousand such steps leave a wide student with skips in a basin
from which Gauss–Newton steps find the planes of the first layer; from a random start they often do not.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from neurecover.models.deep_student import DeepStudent
from neurecover.solve import Deadline

RATE, BATCH = 1e-2, 256
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


def warm_up(
    X: np.ndarray, Y: np.ndarray, student: DeepStudent, steps: int, rng: np.random.Generator, deadline: Deadline
) -> DeepStudent:
    """The student after so many steps on samples X (n, d), Y (n, p) of zero mean and unit size."""
    n = len(X)
    batch = min(BATCH, n)
    X, Y = X.astype(np.float32), Y.astype(np.float32)
    shapes = [V.shape for V in student.hidden] + [student.readout.shape]
    theta = np.concatenate([V.ravel() for V in (*student.hidden, student.readout)]).astype(np.float32)
    first, second, gradient = np.zeros_like(theta), np.zeros_like(theta), np.empty_like(theta)
    current = replace(student, hidden=tuple(_split(theta, shapes)[:-1]), readout=_split(theta, shapes)[-1])
    views = _split(gradient, shapes)
    order, at = rng.permutation(n), 0
    for t in range(1, steps + 1):
        if at + batch > n:
            order, at = rng.permutation(n), 0
        rows = order[at : at + batch]
        at += batch
        _gradient(current, X[rows], Y[rows], views)
        first += (1 - BETA1) * (gradient - first)
        gradient *= gradient
        second += (1 - BETA2) * (gradient - second)
        rate = RATE * (0.01 + 0.99 * 0.5 * (1.0 + np.cos(np.pi * (t - 1) / steps)))
        size = np.sqrt(second / np.float32(1 - BETA2**t))
        size += np.float32(EPSILON)
        theta -= np.float32(rate / (1 - BETA1**t)) * first / size
        if t % 20 == 0 and deadline.passed:
            break
    final = [part.astype(np.float64) for part in _split(theta, shapes)]
    return replace(student, hidden=tuple(final[:-1]), readout=final[-1])


def _split(theta: np.ndarray, shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
    """Views of θ, one per array."""
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(np.split(theta, ends[:-1]), shapes)]


def _gradient(student: DeepStudent, X: np.ndarray, Y: np.ndarray, out: list[np.ndarray]) -> None:
    """∂/∂θ of the mean of |Θᵀ c − y|²/2, backwards through the layers, written into `out`."""
    values = student.forward(X, np.float32)
    C = values.features
    R = C @ student.readout
    R -= Y
    R /= np.float32(len(X))
    np.matmul(C.T, R, out=out[-1])
    G = R @ student.readout.T
    for layer in range(student.depth - 1, -1, -1):
        U = G[:, student.own(layer)] * values.gates[layer]
        below = student.below(layer)
        np.matmul(U.T, C[:, below], out=out[layer])
        if layer:
            G[:, below] += U @ student.hidden[layer]
