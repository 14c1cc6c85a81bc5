"""The posterior of every halfspace of a union, given all labels, under a flat prior."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.algorithms.gp18.options import DEFAULTS, UnionOptions
from neurecover.algorithms.gp18.union.fit import UnionFit
from neurecover.data import Source


def at_posterior_means(
    labels: Source, fit: UnionFit, rng: np.random.Generator, options: UnionOptions = DEFAULTS.union
) -> UnionFit:
    """Return the fit with every unit at its posterior mean, and the posterior covariance of its (wᵢ, tᵢ)."""
    X, Y = labels.collect()
    inside = Y[:, 0] > 0.5
    k, d = fit.W.shape
    W, t, covariance = fit.W.copy(), fit.threshold.copy(), np.zeros((k, d + 1, d + 1))
    for _ in range(options.rounds):
        above = t < X @ W.T
        flips = flip_rates(above.any(axis=1), inside)
        for i in range(k):
            own = ~np.delete(above, i, axis=1).any(axis=1)
            centre, spread = _posterior(X[own], inside[own], W[i], float(t[i]), flips, rng, options)
            size = np.linalg.norm(centre[:d])
            W[i], t[i] = centre[:d] / size, centre[d] / size
            covariance[i] = spread
            above[:, i] = t[i] < X @ W[i]
    contained = (t < X @ W.T).any(axis=1)
    turns = slice(0, d) if d > 1 else slice(None)
    tan = np.sqrt(np.array([np.trace(block[turns, turns]) for block in covariance]))
    return replace(
        fit,
        W=W,
        threshold=t,
        tan_alpha=tan,
        flips=flip_rates(contained, inside),
        covariance=covariance,
        error=float(np.mean(contained != inside)),
    )


def flip_rates(contained: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Return (η₀, η₁), the shares of wrong labels outside and inside, with half a label added to both sides."""
    wrong = contained != inside
    return np.array([(np.sum(wrong[side]) + 0.5) / (np.sum(side) + 1.0) for side in (~contained, contained)])


@dataclass(frozen=True)
class _Near:
    """Samples next to a boundary: margins (m,), their derivatives (m, D) in the chart, and what each is worth (m,)."""

    margin: np.ndarray
    slope: np.ndarray
    worth: np.ndarray
    reach: float


def _posterior(
    X: np.ndarray,
    inside: np.ndarray,
    w: np.ndarray,
    t: float,
    flips: np.ndarray,
    rng: np.random.Generator,
    options: UnionOptions,
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean (d + 1,) and covariance of (w, t) of one unit, with the others fixed."""
    d = len(w)
    B = np.linalg.svd(w[None])[2][1:].T
    near = _near(X, inside, w, t, B, flips, options)
    D, chains = d, options.chains
    place = np.zeros((chains, D))
    margin = np.tile(near.margin, (chains, 1))
    kept, total = [], options.chain_steps * D
    for step in range(total):
        u = rng.standard_normal((chains, D))
        u /= np.linalg.norm(u, axis=1, keepdims=True)
        change = u @ near.slope.T
        s = _drawn(margin, change, near.worth, place, u, near.reach, rng)
        place += s[:, None] * u
        margin += s[:, None] * change
        if 3 * step >= total:
            kept.append(place.copy())
    drawn = np.vstack(kept)
    mean = drawn.mean(axis=0)
    J = np.zeros((d + 1, D))
    J[:d, : d - 1], J[d, d - 1] = B, 1.0
    spread = J @ (np.cov(drawn.T).reshape(D, D)) @ J.T
    return np.append(w, t) + J @ mean, spread


def _near(
    X: np.ndarray,
    inside: np.ndarray,
    w: np.ndarray,
    t: float,
    B: np.ndarray,
    flips: np.ndarray,
    options: UnionOptions,
) -> _Near:
    worth = np.where(inside, np.log((1.0 - flips[1]) / flips[0]), np.log(flips[1] / (1.0 - flips[0])))
    slope = np.column_stack([X @ B, -np.ones(len(X))])
    margin = X @ w - t
    # How far the chart's point has to move until the sample crosses.
    distance = np.abs(margin) / np.linalg.norm(slope, axis=1)
    # Nats that a displacement costs per sample that it takes to the wrong side.
    cost = float(np.clip(1.0 - flips.sum(), 0.05, 1.0) * np.min(np.abs(np.unique(worth)), initial=np.inf))
    wanted = max(options.fewest, int(options.nats * len(w) / max(min(cost, 10.0), 0.01)))
    if len(X) <= wanted:
        return _Near(margin, slope, worth, options.largest)
    order = np.argpartition(distance, wanted)[: wanted + 1]
    reach = float(min(distance[order].max(), options.largest))
    return _Near(margin[order], slope[order], worth[order], reach)


def _drawn(
    margin: np.ndarray,
    change: np.ndarray,
    worth: np.ndarray,
    place: np.ndarray,
    u: np.ndarray,
    reach: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw for every chain a point s (C,) on its line, by the likelihood along it, in the ball of radius `reach`."""
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = -margin / change
    along = np.einsum("ij,ij->i", place, u)
    root = np.sqrt(np.maximum(along**2 + reach**2 - np.einsum("ij,ij->i", place, place), 0.0))
    low, high = -along - root, -along + root
    crossing = np.where(np.isfinite(crossing), np.clip(crossing, low[:, None], high[:, None]), high[:, None])
    order = np.argsort(crossing, axis=1)
    ends = np.column_stack([low, np.take_along_axis(crossing, order, axis=1), high])
    # From left to right a sample enters where its margin grows and leaves where it falls.
    jumps = np.take_along_axis(np.sign(change) * worth, order, axis=1)
    level = np.cumsum(np.column_stack([np.zeros(len(u)), jumps]), axis=1)
    lengths = np.diff(ends, axis=1)
    level = np.where(lengths > 0.0, level, -np.inf)
    density = lengths * np.exp(level - level.max(axis=1, keepdims=True))
    cumulated = np.cumsum(density, axis=1)
    target = rng.random(len(u)) * cumulated[:, -1]
    piece = np.minimum((cumulated <= target[:, None]).sum(axis=1), lengths.shape[1] - 1)
    rows = np.arange(len(u))
    before = cumulated[rows, piece] - density[rows, piece]
    share = (target - before) / np.maximum(density[rows, piece], 1e-300)
    return ends[rows, piece] + np.clip(share, 0.0, 1.0) * lengths[rows, piece]
