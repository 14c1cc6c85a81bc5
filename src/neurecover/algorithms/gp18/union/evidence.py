"""What labels show of a fitted union beyond its boundaries: the evidence that its certificate is made from."""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr

from neurecover.algorithms.gp18.union.fit import UnionFit
from neurecover.algorithms.gp18.union.search import UnionFound
from neurecover.certificate import ParameterArrays
from neurecover.certificate.from_labels import Labelled
from neurecover.data import ArraySource, Whitening

_HELD_OUT = 0.1  # of either class


def split_labels(labels: ArraySource, rng: np.random.Generator) -> tuple[ArraySource, ArraySource]:
    """Return labels to fit and labels held out, a tenth of either class; the only one of a class is fitted."""
    _, Y = labels.collect()
    inside = Y[:, 0] > 0.5
    chosen = np.zeros(len(Y), dtype=bool)
    for side in (inside, ~inside):
        members = rng.permutation(np.flatnonzero(side))
        chosen[members[: min(int(np.ceil(_HELD_OUT * len(members))), len(members) - 1)]] = True
    return labels.select(np.flatnonzero(~chosen)), labels.select(np.flatnonzero(chosen))


def label_evidence(
    found: UnionFound,
    judged: UnionFit,
    fit: UnionFit,
    labels: ArraySource,
    held_out: ArraySource,
    errors: ParameterArrays,
    whitening: Whitening,
) -> Labelled:
    """Return what the labels have shown; `judged` had no part of those held out."""
    X, Y = held_out.collect()
    inside, k = Y[:, 0] > 0.5, len(fit.W)
    share = float(labels.collect()[1].mean())
    assert fit.covariance is not None
    assert fit.flips is not None
    worth = max(float(np.log((1.0 - fit.flips[1]) / fit.flips[0])), 0.01)
    return Labelled(
        n_samples=labels.count(),
        share=share,
        rank=whitening.rank,
        n_inputs=len(whitening.matrix),
        n_holdout=len(X),
        wrong=int(np.count_nonzero(judged.contains(X) != inside)),
        expected=_expected_errors(judged, X),
        n_rarer=int(min(inside.sum(), (~inside).sum())),
        n_halfspaces=k,
        fewer=found.gap(k - 1) if k > 1 else np.nan,
        more=found.gap(k + 1),
        none=found.gap(0),
        explained=found.explained,
        gathered=_gathered(labels, fit),
        worth=worth,
        further=0.5 * (found.price - found.gap(k + 1)) / worth,
        turn=float(fit.tan_alpha.max()),
        shift=float(np.sqrt(fit.covariance[:, -1, -1].max())),
        errors=errors,
    )


def _expected_errors(fit: UnionFit, X: np.ndarray) -> float:
    """Return the mean probability that a label is wrong: flipped, or beyond a boundary that is slightly off."""
    assert fit.flips is not None
    assert fit.covariance is not None
    outside = log_outside(X, fit.W, fit.threshold, fit.covariance)
    contained = fit.contains(X)
    across = np.where(contained, np.exp(outside), -np.expm1(outside))
    own, other = np.where(contained, *fit.flips[::-1]), np.where(contained, *fit.flips)
    return float(np.mean((1.0 - across) * own + across * (1.0 - other)))


def log_outside(X: np.ndarray, normals: np.ndarray, thresholds: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Return log Pr[x outside all], (n,), for normals (k, d) with errors.

    The distance from a boundary whose normal and threshold have errors has those of (x, −1)·(n, t).
    """
    ones = np.column_stack([X, -np.ones(len(X))])
    spread = np.sqrt(np.maximum(np.einsum("nj,kjl,nl->nk", ones, covariance, ones), 1e-24))
    return log_ndtr((thresholds - X @ normals.T) / spread).sum(axis=1)


def _gathered(labels: ArraySource, fit: UnionFit) -> float:
    """Return by how many standard errors wrong labels are more frequent near the boundary than far from it.

    Flipped labels are as frequent everywhere; a set of another shape is contradicted near the boundary.
    """
    X, Y = labels.collect()
    depth = np.max(X @ fit.W.T - fit.threshold, axis=1)
    # Within its own error the boundary has wrong labels whatever the shape.
    clear = np.abs(depth) > 4.0 * fit.tan_alpha.max()
    depth, Y = depth[clear], Y[clear]
    wrong = (depth > 0.0) != (Y[:, 0] > 0.5)
    worst = 0.0
    for side in (depth > 0.0, depth <= 0.0):
        near = np.abs(depth[side]) < np.median(np.abs(depth[side])) if side.any() else np.zeros(0, dtype=bool)
        if not near.any() or near.all():
            continue
        rate, far = wrong[side][near].mean(), wrong[side][~near].mean()
        pooled = wrong[side].mean()
        error = np.sqrt(max(pooled * (1.0 - pooled), 1.0 / len(wrong)) * (1.0 / near.sum() + 1.0 / (~near).sum()))
        worst = max(worst, float((rate - far) / error))
    return worst
