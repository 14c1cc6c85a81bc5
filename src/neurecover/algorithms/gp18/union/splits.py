"""Units of a union that stand for two.

One halfspace between two true ones contains what both contain and cuts off a wedge of either. What it misses lies
beside its boundary on both sides, so that the mean shows nothing and the spread does: with v the direction between the
two, samples just outside the boundary that are labelled inside vary more along v than all samples there do. Flipped
labels vary as all do; the largest eigenvalue of the ratio of both covariances over m of them is then about
(1 + √(d/m))².
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

from neurecover.algorithms.gp18.options import DEFAULTS, UnionOptions
from neurecover.algorithms.gp18.union.fit import UnionFit
from neurecover.data import Source


def splits(labels: Source, fit: UnionFit, options: UnionOptions = DEFAULTS.union) -> list[UnionFit]:
    """Return starts in which one unit is split in two, most likely first; none if flipped labels explain everything."""
    k, d = fit.W.shape
    counts, sums = np.zeros((k, 2)), np.zeros((k, 2, d, d))
    for X, Y in labels.blocks(65_536):
        depth = X @ fit.W.T - fit.threshold
        outside = ~np.any(depth > 0.0, axis=1)
        inside = Y[:, 0] > 0.5
        for i in range(k):
            beside = outside & (depth[:, i] > -options.beside)
            for j, chosen in enumerate((beside, beside & inside)):
                part = X[chosen]
                part = part - np.outer(part @ fit.W[i], fit.W[i])
                counts[i, j] += len(part)
                sums[i, j] += part.T @ part
    found = []
    for i in range(k):
        m = counts[i, 1]
        if d < 2 or m <= d:
            continue
        # The unit's own direction has no spread left; it counts as that of all.
        own = np.outer(fit.W[i], fit.W[i])
        values, vectors = eigh(sums[i, 1] / m + own, sums[i, 0] / counts[i, 0] + own + 1e-9 * np.eye(d))
        excess = float((values[-1] - (1.0 + np.sqrt(d / m)) ** 2) * np.sqrt(0.5 * m))
        if excess > options.excess:
            found.append((excess, i, vectors[:, -1]))
    found.sort(key=lambda item: -item[0])
    return [_split(fit, i, v, options.turn) for _, i, v in found]


def _split(fit: UnionFit, unit: int, v: np.ndarray, turn: float) -> UnionFit:
    w = fit.W[unit]
    v = v - (v @ w) * w
    v /= np.linalg.norm(v)
    halves = np.cos(turn) * w + np.sin(turn) * np.array([[1.0], [-1.0]]) * v
    others = np.delete(np.arange(len(fit.W)), unit)
    return UnionFit(
        np.vstack([fit.W[others], halves]),
        np.append(fit.threshold[others], np.repeat(fit.threshold[unit], 2)),
        np.append(np.maximum(fit.tan_alpha[others], 0.05), [0.3, 0.3]),
        fit.flips,
    )
