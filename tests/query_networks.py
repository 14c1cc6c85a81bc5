"""Networks that the tests of queries ask: drawn at random, and computed in single precision."""

import itertools
from collections.abc import Callable

import numpy as np

from neurecover.models import DeepNetwork, Network


def a_network(seed: int = 0, d: int = 12, k: int = 9, p: int = 1) -> Network:
    rng = np.random.default_rng(seed)
    return Network(
        rng.standard_normal((k, d)) * np.sqrt(2 / d),
        0.1 * rng.standard_normal(k),
        rng.standard_normal((p, k)) * np.sqrt(2 / k),
        0.1 * rng.standard_normal(p),
    )


def in_float32(network: Network) -> Callable[[np.ndarray], np.ndarray]:
    W, b, A, c = (np.asarray(a, dtype=np.float32) for a in (network.W, network.b, network.A, network.c))
    return lambda X: np.maximum(X.astype(np.float32) @ W.T + b, 0) @ A.T + c


def default_network(widths: tuple[int, ...], seed: int) -> DeepNetwork:
    """PyTorch's default start, in single precision."""
    rng = np.random.default_rng(seed)
    layers = []
    for d, k in itertools.pairwise(widths):
        s = 1.0 / np.sqrt(d)
        layers.append((rng.uniform(-s, s, (k, d)).astype(np.float32), rng.uniform(-s, s, k).astype(np.float32)))
    return DeepNetwork(layers)


def in_single(network: DeepNetwork) -> Callable[[np.ndarray], np.ndarray]:
    """The network computed in single precision."""
    layers = [(W.astype(np.float32), b.astype(np.float32)) for W, b in network.layers]

    def ask(X: np.ndarray) -> np.ndarray:
        h = X.astype(np.float32)
        for W, b in layers[:-1]:
            h = np.maximum(h @ W.T + b, np.float32(0.0))
        return h @ layers[-1][0].T + layers[-1][1]

    return ask
