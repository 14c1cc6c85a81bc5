"""Test whether the data have more hinge planes than the fit: the test of `further`, with hinges on random planes.

With the fit's tangent columns projected out, h̃ = M h for hinges h on random planes through the rows, the statistic is
the largest share (h̃ᵀr)²/(|h̃|² Σr²) of the residuals r that one hinge explains. The p-value comes from draws in which
every residual, corrected for its leverage, gets a random sign; it holds even if the variance differs between rows [Wu,
1986].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class PlaneTestOptions:
    """The numbers of planes and of draws in the test."""

    planes: int = 300  # random ones: one within 0.2 rad of any direction of three inputs
    draws: int = 999  # of the noise: a p-value of 0.05 has a standard error of 0.007
    margin: float = 0.05  # share of the rows on either side of a plane
    rows: int = 2_048  # at once: 16 MB of signs


def further_plane_p_value(
    X: np.ndarray,
    y: np.ndarray,
    w: np.ndarray,
    columns: np.ndarray,
    rng: np.random.Generator,
    options: PlaneTestOptions | None = None,
) -> float:
    """Return the p-value of a fit against one more hinge on any plane, for rows X (m, d), y (m,) of weights w (m,).

    `columns` (m, q) span the fit's function and its derivatives; a plane without hinges has 1 and x.
    """
    options = options or PlaneTestOptions()
    root = np.sqrt(w)
    U, sizes, _ = np.linalg.svd(root[:, None] * columns, False)
    Q = U[:, sizes > 1e-9 * sizes[0]]
    out = root * y
    residual = out - Q @ (Q.T @ out)
    if float(residual @ residual) <= 1e-24 * float(out @ out):
        return 1.0
    freed = residual / np.sqrt(np.maximum(1.0 - np.square(Q).sum(axis=1), 0.1))
    # Directions that are even on whitened inputs, those without spread left out.
    spread, axes = np.linalg.eigh(np.atleast_2d(np.cov(X.T)))
    seen = spread > 1e-12 * spread[-1]
    directions = rng.standard_normal((options.planes, int(seen.sum()))) @ (axes[:, seen] / np.sqrt(spread[seen])).T
    places = np.quantile(X @ directions.T, np.linspace(options.margin, 1.0 - options.margin, 19), axis=0)
    offsets = places[rng.integers(0, len(places), options.planes), np.arange(options.planes)]
    G, T, q = options.planes, options.draws + 1, Q.shape[1]
    b, along, own, square = np.zeros((G, T)), np.zeros((q, T)), np.zeros((G, q)), np.zeros(G)
    for start in range(0, len(X), options.rows):
        rows = slice(start, start + options.rows)
        H = root[rows, None] * np.maximum(X[rows] @ directions.T - offsets, 0.0)
        signs = 2.0 * rng.integers(0, 2, (len(H), options.draws)) - 1.0
        noise = np.column_stack([residual[rows], freed[rows, None] * signs])  # the first column is the data
        b += H.T @ noise
        along += Q[rows].T @ noise
        own += H.T @ Q[rows]
        square += np.square(H).sum(axis=0)
    left = square - np.square(own).sum(axis=1)
    kept = left > 1e-9 * square
    total = np.append(residual @ residual, np.full(options.draws, freed @ freed)) - np.square(along).sum(axis=0)
    share = np.square(b - own @ along)[kept] / left[kept, None]
    statistic = share.max(axis=0, initial=0.0) / total
    return float((1.0 + np.sum(statistic[1:] >= statistic[0])) / T)
