"""What a hostile problem is, and the ordinary parts that most of them are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from neurecover.models import Network
from neurecover.simulate.teachers import teacher


@dataclass(frozen=True, eq=False)
class Hostile:
    """Samples X (n, d), Y (n, p), the width that a user would give, and the truth.

    `truth` is None where no weights can rightly be claimed: no network of this kind is behind the samples, or they do
    not determine it; `behind` is then the network they were drawn from, if there is one. `unseen` names what is wrong
    and nothing shows, in the words that a certificate has for it, and `plain` (n, p) are the outputs without noise
    where no network is behind them. `bias` and `method` are what `recover` is called with.
    """

    X: np.ndarray
    Y: np.ndarray
    n_hidden: int
    truth: Network | None
    behind: Network | None = None
    unseen: str = ""
    plain: np.ndarray | None = None
    bias: bool = True
    method: str = "auto"


Family = Callable[[np.random.Generator], Hostile]


def network(rng: np.random.Generator, d: int = 0, k: int = 0, p: int = 0) -> Network:
    """Draw unit rows, thresholds within a standard deviation or so and an offset; sizes that are 0 are drawn."""
    d, k, p = d or int(rng.integers(2, 5)), k or int(rng.integers(2, 5)), p or int(rng.integers(1, 3))
    net = teacher(d, k, p, bias=0.5, random_state=rng)
    return Network(net.W, net.b, net.A, rng.standard_normal(p))


def clean(truth: Network, X: np.ndarray, n_hidden: int | None = None, **more: object) -> Hostile:
    """Return the samples without noise."""
    return Hostile(X, truth(X), n_hidden or truth.n_hidden, truth, **more)  # type: ignore[arg-type]


def noisy(rng: np.random.Generator, truth: Network, X: np.ndarray, scale: float = 0.05, **more: object) -> Hostile:
    """Return the samples with Gaussian noise of `scale` times the outputs' spread, each its own."""
    Y = truth(X)
    Y = Y + scale * Y.std(axis=0) * rng.standard_normal(Y.shape)
    return Hostile(X, Y, truth.n_hidden, truth, **more)  # type: ignore[arg-type]


def either(rng: np.random.Generator, truth: Network, X: np.ndarray, scale: float = 0.05, **more: object) -> Hostile:
    """Return the samples with noise or without, as it falls."""
    return noisy(rng, truth, X, scale, **more) if rng.integers(2) else clean(truth, X, **more)  # type: ignore[arg-type]


def rows(rng: np.random.Generator, truth: Network, least: int = 150, most: int = 600) -> np.ndarray:
    """Draw standard Gaussian inputs of the network, from `least` to `most` of them."""
    return rng.standard_normal((int(rng.integers(least, most + 1)), truth.n_inputs))
