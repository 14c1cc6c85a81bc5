"""Test a fitted union on labels: the evidence from which its certificate is made."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import chdtrc, log_ndtr

from neurecover.algorithms.gp18.options import DEFAULTS as LAYERS
from neurecover.algorithms.gp18.union.curved import curved_rival
from neurecover.algorithms.gp18.union.fit import UnionFit
from neurecover.algorithms.gp18.union.posterior import flip_rates
from neurecover.algorithms.gp18.union.rounded import corners
from neurecover.algorithms.gp18.union.search import UnionFound
from neurecover.certificate import ParameterArrays
from neurecover.certificate.from_labels import Labelled, WrongLabels
from neurecover.certificate.options import DEFAULTS, LabelOptions
from neurecover.data import ArraySource, Source, Whitening, subsample


def split_labels(
    labels: ArraySource, rng: np.random.Generator, held_out: float = LAYERS.union.held_out
) -> tuple[ArraySource, ArraySource]:
    """Split labels into those to fit and those held out, a share of either class; a class's only label is fitted."""
    _, Y = labels.collect()
    inside = Y[:, 0] > 0.5
    chosen = np.zeros(len(Y), dtype=bool)
    for side in (inside, ~inside):
        members = rng.permutation(np.flatnonzero(side))
        chosen[members[: min(int(np.ceil(held_out * len(members))), len(members) - 1)]] = True
    return labels.select(np.flatnonzero(~chosen)), labels.select(np.flatnonzero(chosen))


def label_evidence(
    found: UnionFound,
    judged: UnionFit,
    fit: UnionFit,
    labels: ArraySource,
    held_out: ArraySource,
    errors: ParameterArrays,
    whitening: Whitening,
    rng: np.random.Generator,
    options: LabelOptions = DEFAULTS.labels,
) -> Labelled:
    """Return the results of all tests of a union on labels; `judged` is a fit without the held-out labels."""
    X, Y = held_out.collect()
    inside, k = Y[:, 0] > 0.5, len(fit.W)
    share = float(labels.collect()[1].mean())
    shown = labels if labels.count() <= options.rows else subsample(labels, options.rows, int(rng.integers(2**31)))
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
        flipped=_largest_share_wrong(fit.contains(labels.collect()[0]), labels.collect()[1][:, 0] > 0.5),
        n_halfspaces=k,
        fewer=found.gap(k - 1) if k > 1 else np.nan,
        more=found.gap(k + 1),
        none=found.gap(0),
        explained=found.explained,
        wrong_labels=wrong_labels(shown, fit, options, rng),
        rival=curved_rival(shown, fit, options),
        corners=corners(shown, fit, rng, options),
        worth=worth,
        further=0.5 * (found.price - found.gap(k + 1)) / worth,
        turn=float(fit.tan_alpha.max()),
        shift=float(np.sqrt(fit.covariance[:, -1, -1].max())),
        errors=errors,
    )


def _largest_share_wrong(contained: np.ndarray, inside: np.ndarray) -> float:
    """Return the larger share of wrong labels of the two sides, two standard errors added."""
    rates = flip_rates(contained, inside)
    sizes = np.array([np.count_nonzero(~contained), np.count_nonzero(contained)]) + 1.0
    return float(np.max(rates + 2.0 * np.sqrt(rates * (1.0 - rates) / sizes)))


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


def wrong_labels(labels: Source, fit: UnionFit, options: LabelOptions, rng: np.random.Generator) -> WrongLabels:
    """Return how likely flipped labels are to lie as near to the boundary, and to each other, as the wrong ones do.

    Flipped labels lie on either side like all samples there. The ranks of their distances to the boundary, over the
    number of samples, are then uniform, so that −2 Σ log rank is χ² of twice as many degrees of freedom. And as many
    samples drawn at random on that side have as few of their own as nearest neighbours by their margins, which finds
    patterns among many wrong labels, and are as far from each other, which finds a part of the set that a few labels
    show.
    """
    from scipy.spatial import cKDTree

    X, Y = labels.collect()
    margins = X @ fit.W.T - fit.threshold
    unit, depth = np.argmax(margins, axis=1), np.max(margins, axis=1)
    ones = np.column_stack([X, -np.ones(len(X))])
    assert fit.covariance is not None
    variance = np.zeros(len(X))
    for i, C in enumerate(fit.covariance):
        own = unit == i
        variance[own] = np.einsum("nj,nj->n", ones[own] @ C, ones[own])
    clear = depth**2 > options.beside**2 * variance
    wrong = (depth > 0.0) != (Y[:, 0] > 0.5)
    statistic, count, together, tests = 0.0, 0, 1.0, 0
    for side in (depth > 0.0, depth <= 0.0):
        own = side & clear
        n, mine = int(np.count_nonzero(own)), wrong[own]
        m = int(np.count_nonzero(mine))
        if m == 0 or n < 3:
            continue
        ranks = np.empty(n)
        ranks[np.argsort(np.abs(depth[own]))] = (np.arange(n) + 0.5) / n
        statistic -= 2.0 * float(np.log(ranks[mine]).sum())
        count += m
        # What matters of x are its margins: neighbours among these are neighbours in the span of the normals.
        place = margins[own] if margins.shape[1] > 1 else X[own]
        chosen, nearest = np.flatnonzero(mine), cKDTree(place).query(place, k=2)[1][:, 1]
        compared = chosen if m <= options.compared else rng.choice(chosen, options.compared, replace=False)
        for measure, rows in ((_lone(nearest), chosen), (_spread(X[own]), compared)):
            together = min(together, _by_chance(measure, rows, n, options, rng))
            tests += 1
    return WrongLabels(count, float(chdtrc(2 * count, statistic)) if count else 1.0, min(1.0, max(tests, 1) * together))


def _lone(nearest: np.ndarray) -> Callable[[np.ndarray], float]:
    """Return the function that counts, negative, the rows of a choice whose nearest neighbour is in it too."""

    def lone(rows: np.ndarray) -> float:
        chosen = np.zeros(len(nearest), dtype=bool)
        chosen[rows] = True
        return -float(np.count_nonzero(chosen[nearest[rows]]))

    return lone


def _spread(X: np.ndarray) -> Callable[[np.ndarray], float]:
    """Return the function that gives the sum of the log-distances between some rows of X."""
    from scipy.spatial.distance import pdist

    return lambda rows: float(np.log(np.maximum(pdist(X[rows]), 1e-300)).sum())


def _by_chance(
    measure: Callable[[np.ndarray], float], chosen: np.ndarray, n: int, options: LabelOptions, rng: np.random.Generator
) -> float:
    """Return the probability that as many of n rows, drawn at random, measure as low as the chosen ones.

    Draws end with the tenth that is as low: a p-value of 10 over their number is then valid [Besag, Clifford 1991].
    """
    if len(chosen) < 2:
        return 1.0
    own, lower = measure(chosen), 0
    for drawn in range(1, options.draws + 1):
        lower += measure(rng.choice(n, len(chosen), replace=False)) <= own
        if lower == 10:
            return 10.0 / drawn
    return (1.0 + lower) / (1.0 + options.draws)
