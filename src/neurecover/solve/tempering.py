"""Draw from a density p that is known up to a factor, from draws of a wider density q [Del Moral, Doucet & Jasra,
2006].

The draws pass through the densities q^(1−β) p^β with β rising from 0 to 1. Each β is the largest at which a given share
of the draws still counts, when they are weighted by the ratio to the previous density. Then they are resampled by these
weights, and moved by a random walk with their own covariance, whose steps are accepted by the ratio of densities
[Metropolis 1953].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Log = Callable[[np.ndarray], np.ndarray]  # of a density, at points (N, D)


@dataclass(frozen=True)
class TemperingOptions:
    """How points are moved."""

    points: int = 1_000  # the ends of a 95 % interval are known to 0.1 standard errors
    share: float = 0.5  # of the points that count after a change of the density
    moves: int = 4  # of every point after each change
    last: int = 12  # after the last one: a random walk forgets where it was in about as many steps as dimensions
    accepted: float = 0.25  # of the steps, near 0.234, at which a random walk goes farthest [Roberts et al., 1997]
    bisections: int = 30  # for β
    least: float = 1e-3  # step of β, so that an end is reached


def tempered(
    at: np.ndarray, q: Log, p: Log, rng: np.random.Generator, options: TemperingOptions | None = None
) -> np.ndarray | None:
    """Return draws (N, D) of p from draws `at` of q; p is −inf where it is zero. None if it is zero at all of them."""
    options = options or TemperingOptions()
    N, D = at.shape
    log_q, log_p, beta = q(at), p(at), 0.0
    if np.count_nonzero(np.isfinite(log_p)) < 2:
        return None
    while beta < 1.0:
        gain = np.where(np.isfinite(log_p), log_p - log_q, -np.inf)
        step = _step(gain, 1.0 - beta, options)
        weight = _weights(step * gain, gain)
        beta = 1.0 if step >= 1.0 - beta else beta + step
        root = _root(np.cov(at.T, aweights=weight).reshape(D, D))
        # One draw in every N-th part of the sum of the weights.
        drawn = np.searchsorted(np.cumsum(weight), (rng.random() + np.arange(N)) / N).clip(0, N - 1)
        at, log_q, log_p, size = at[drawn], log_q[drawn], log_p[drawn], 2.38 / np.sqrt(D)
        for _ in range(options.moves if beta < 1.0 else options.last):
            new = at + size * rng.standard_normal((N, D)) @ root.T
            new_q, new_p = q(new), p(new)
            ratio = np.where(np.isfinite(new_p), (1.0 - beta) * (new_q - log_q) + beta * (new_p - log_p), -np.inf)
            taken = np.log(rng.random(N)) < ratio
            at[taken], log_q[taken], log_p[taken] = new[taken], new_q[taken], new_p[taken]
            size *= np.exp(taken.mean() - options.accepted)
    return at


def _step(gain: np.ndarray, largest: float, options: TemperingOptions) -> float:
    """Return the largest step of β after which a given share of the finite points counts, but a thousandth at least."""
    wanted = options.share * np.count_nonzero(np.isfinite(gain))
    if _counting(largest * gain, gain) >= wanted:
        return largest
    low, high = 0.0, largest
    for _ in range(options.bisections):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _counting(middle * gain, gain) >= wanted else (low, middle)
    return min(max(low, options.least), largest)


def _weights(logs: np.ndarray, gain: np.ndarray) -> np.ndarray:
    logs = np.where(np.isfinite(gain), logs, -np.inf)
    weight = np.exp(logs - logs.max())
    return np.asarray(weight / weight.sum())


def _counting(logs: np.ndarray, gain: np.ndarray) -> float:
    return 1.0 / float(np.sum(_weights(logs, gain) ** 2))


def _root(covariance: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
