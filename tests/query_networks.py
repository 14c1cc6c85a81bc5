"""Networks that the tests of queries ask: drawn at random, and computed in single precision."""

from collections.abc import Callable

import numpy as np

from neurecover.models import Network


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
