"""Compare a union of halfspaces with curved boundaries: sets {q(x) > 0} of a polynomial q, by BIC."""

from __future__ import annotations

from itertools import combinations_with_replacement
from math import comb

import numpy as np
from scipy.special import entr

from neurecover.algorithms.gp18.union.deviance import deviance_of
from neurecover.algorithms.gp18.union.fit import UnionFit
from neurecover.certificate.from_labels import Rival
from neurecover.certificate.options import LabelOptions
from neurecover.data import Source, reduce


def curved_rival(labels: Source, fit: UnionFit, options: LabelOptions) -> Rival:
    """Return the polynomial boundary with the lowest BIC, as its difference from that of the union.

    Degrees that cannot come within the limit, however well they fit, are not tried. One input has no curved
    boundaries: two thresholds are a union and a parabola alike.
    """
    X, Y = labels.collect()
    n, d = X.shape
    best = Rival(np.inf, 0)
    if d < 2:
        return best
    inside = Y[:, 0] > 0.5
    soft = float(reduce(labels, fit.likelihood()).sums["log_likelihood"])
    sharp = _sharp(fit.contains(X), inside)
    for degree in options.degrees:
        # A pair of parallel planes is a quadric too, and both are as sharp as labels can be: that is no rival. Others
        # stand against the union as far as its errors leave it known.
        own = -2.0 * (max(soft, sharp) if degree == 2 else soft) + (len(fit.W) * d + 2) * np.log(n)
        terms = comb(d + degree, degree)
        price = (terms + 1) * np.log(n)
        if 2 * terms > n or terms > options.most_terms or price > own + min(options.curved, best.gap):
            continue
        gap = float(price - 2.0 * _log_likelihood(_features(X, degree), inside) - own)
        if gap < best.gap:
            best = Rival(gap, degree)
    return best


def _sharp(contained: np.ndarray, inside: np.ndarray) -> float:
    """Return the log-likelihood of a sharp boundary at the rates of wrong labels on either side of it."""
    sides = [inside[contained], inside[~contained]]
    return -float(sum(len(side) * (entr(side.mean()) + entr(1.0 - side.mean())) for side in sides if len(side)))


def _features(X: np.ndarray, degree: int) -> np.ndarray:
    """Return an orthonormal basis, times √n, of the polynomials of x up to a degree, (n, M)."""
    columns = [np.ones(len(X))]
    for size in range(1, degree + 1):
        columns += [np.prod(X[:, list(c)], axis=1) for c in combinations_with_replacement(range(X.shape[1]), size)]
    return np.linalg.qr(np.column_stack(columns))[0] * np.sqrt(len(X))


def _log_likelihood(F: np.ndarray, inside: np.ndarray) -> float:
    """Return the log-likelihood that a polynomial of the features reaches, from its least-squares fit to the labels."""
    from scipy.optimize import minimize

    sign = np.where(inside, 1.0, -1.0)
    first = F.T @ sign / len(F)
    start = np.concatenate([3.0 * first, [-4.0, -4.0]])  # rates of flipped labels start at 0.8 % = σ(−4) of the most

    def deviance(v: np.ndarray) -> tuple[float, np.ndarray]:
        here = deviance_of(F @ v[:-2], inside, v[-2:])
        return here.value, np.concatenate([F.T @ here.by_odds, here.by_rates])

    # What 300 steps leave undone speaks for the union.
    found = minimize(deviance, start, jac=True, method="L-BFGS-B", options={"maxiter": 300})
    return -0.5 * float(found.fun)
