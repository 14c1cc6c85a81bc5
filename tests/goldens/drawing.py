"""Networks and samples that the golden cases are about, drawn with numpy alone: no room of the library has a part."""

from itertools import pairwise

import numpy as np

import neurecover as nr

Layers = list[tuple[np.ndarray, np.ndarray]]


def unit_rows(rng: np.random.Generator, k: int, d: int) -> np.ndarray:
    """Draw k directions (k, d) uniformly on the unit sphere."""
    W = rng.standard_normal((k, d))
    return W / np.linalg.norm(W, axis=1, keepdims=True)


def network(
    rng: np.random.Generator, d: int, k: int, p: int = 1, bias: float = 0.5, activation: str = "relu"
) -> nr.Network:
    """Draw one hidden layer of unit rows, biases N(0, bias²), and output weights of size 0.5 to 1.5 or unit columns."""
    W, b = unit_rows(rng, k, d), bias * rng.standard_normal(k)
    A = rng.uniform(0.5, 1.5, (1, k)) * rng.choice([-1.0, 1.0], (1, k)) if p == 1 else unit_rows(rng, k, p).T
    return nr.Network(W, b, A, None if bias == 0.0 else 0.3 * rng.standard_normal(p), activation)


def he_network(rng: np.random.Generator, d: int, k: int, p: int) -> nr.Network:
    """Draw weights N(0, 2/fan in) as He does, with hidden biases of zero and a small constant in the outputs."""
    W, A = rng.standard_normal((k, d)) * np.sqrt(2.0 / d), rng.standard_normal((p, k)) * np.sqrt(2.0 / k)
    return nr.Network(W, np.zeros(k), A, 0.1 * rng.standard_normal(p))


def deep_network(rng: np.random.Generator, dims: tuple[int, ...], spread: float = 0.5) -> nr.DeepNetwork:
    """Draw unit rows in every hidden layer; a unit switches spread·N(0, 1) deviations from the mean of what it adds."""
    H = rng.standard_normal((2_000, dims[0]))
    layers: Layers = []
    for fan_in, width in pairwise(dims[:-1]):
        Z = H @ (W := unit_rows(rng, width, fan_in)).T
        b = spread * Z.std(axis=0) * rng.standard_normal(width) - Z.mean(axis=0)
        layers.append((W, b))
        H = np.maximum(Z + b, 0.0)
    A = rng.uniform(0.5, 1.5, (dims[-1], dims[-2])) * rng.choice([-1.0, 1.0], (dims[-1], dims[-2]))
    return nr.DeepNetwork([*layers, (A, 0.3 * rng.standard_normal(dims[-1]))])


def standardised(X: np.ndarray) -> np.ndarray:
    """Scale columns to mean zero and variance one, without those that are constant."""
    X = X[:, X.std(axis=0) > 0]
    return (X - X.mean(axis=0)) / X.std(axis=0)


def with_noise(Y: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Add Gaussian noise whose standard deviation is a share of every output's."""
    return Y + share * Y.std(axis=0) * rng.standard_normal(Y.shape)
