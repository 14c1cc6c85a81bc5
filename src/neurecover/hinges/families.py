"""Shares and counts: binomial and Poisson outputs, with a broken line for the logit or the logarithm of the mean.

With η the line, μ(η) the mean and V = μ'(η) the variance of one row, the log-likelihood of rows of weight w is to
second order that of

    z = η + (y − μ)/V   of weight   W = w V,   with noise of variance one.

So the search, posterior, tests and intervals are those of least squares with known noise, at the z and W of the fit
itself, which are recomputed until they no longer change [iteratively reweighted least squares; McCullagh and Nelder,
1989, 2.5].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import betainc, expit, gammainc, gammaincc, logit, xlogy

from neurecover.hinges.checks.further import Rows
from neurecover.hinges.options import HingeOptions
from neurecover.hinges.points import Points
from neurecover.hinges.search import BrokenLine, best_breaks, refine

_REACH = 25.0  # of η about its middle: beyond, a mean is at its bound up to rounding
_ANEW = 4  # rounds that search all places; later ones refine, so that they cannot go in a circle
_ROUNDS = 60  # a round gains two digits or more, unless the likelihood has no maximum
_EVENTS = 5.0  # expected in a bin, for Pearson's sum to be χ²


@dataclass(frozen=True)
class Family:
    """A distribution with its canonical link: the functions η(mean), mean(η), the derivative V, the deviance and tail
    probabilities.

    `tail(y, mean, w)` is the smaller of P(Y ≤ y) and P(Y ≥ y) for the mean Y of w rows. `first` moves outputs inside
    the bounds, as a first guess of the mean.
    """

    name: str
    bounds: tuple[float, float]
    link: Callable[[np.ndarray], np.ndarray]
    mean: Callable[[np.ndarray], np.ndarray]
    slope: Callable[[np.ndarray], np.ndarray]
    first: Callable[[np.ndarray, np.ndarray], np.ndarray]
    deviance: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    tail: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]

    def check(self, y: np.ndarray) -> None:
        """Raise ValueError for outputs that are impossible in the family."""
        low, high = self.bounds
        if y.min() < low or y.max() > high:
            hint = "give shares in y, and in sample_weight of how many" if self.name == "binomial" else "give counts"
            raise ValueError(
                f"family='{self.name}' needs outputs from {low:g} to {high:g}. Got {y.min():g} to {y.max():g} instead: "
                f"{hint}."
            )


def _binomial_tail(y: np.ndarray, mean: np.ndarray, w: np.ndarray) -> np.ndarray:
    k = w * y
    above = np.where(k > 0.0, betainc(np.maximum(k, 1e-9), w - k + 1.0, mean), 1.0)
    below = np.where(k < w, betainc(np.maximum(w - k, 1e-9), k + 1.0, 1.0 - mean), 1.0)
    return np.minimum(above, below)


def _poisson_tail(y: np.ndarray, mean: np.ndarray, w: np.ndarray) -> np.ndarray:
    k = w * y
    above = np.where(k > 0.0, gammainc(np.maximum(k, 1e-9), w * mean), 1.0)
    return np.minimum(above, gammaincc(k + 1.0, w * mean))


FAMILIES = {
    "binomial": Family(
        "binomial",
        (0.0, 1.0),
        logit,
        expit,
        lambda eta: expit(eta) * expit(-eta),
        lambda y, w: (w * y + 0.5) / (w + 1.0),
        lambda y, mean, w: 2.0 * w * (xlogy(y, y / mean) + xlogy(1.0 - y, (1.0 - y) / (1.0 - mean))),
        _binomial_tail,
    ),
    "poisson": Family(
        "poisson",
        (0.0, np.inf),
        np.log,
        np.exp,
        np.exp,
        lambda y, w: y + 0.1 * max(float(np.average(y, weights=w)), 1e-300),
        lambda y, mean, w: 2.0 * w * (xlogy(y, y / mean) - (y - mean)),
        _poisson_tail,
    ),
}


@dataclass(frozen=True)
class Dispersion:
    """Pearson's Σ w (y − μ)²/V over bins of enough expected events, its degrees of freedom, and its upper p-value.

    `least` is the smallest information Σ w V in a segment: with less than two, its line runs off to a bound.
    """

    square: float
    dof: float
    p_value: float
    least: float


@dataclass(frozen=True, eq=False)
class Likelihood:
    """Rows of a family, gathered at the distinct inputs `x` (m,) with mean outputs `y` and weights `w`.

    `rows` are the given ones: inputs, outputs and weights.
    """

    family: Family
    x: np.ndarray
    y: np.ndarray
    w: np.ndarray
    rows: tuple[np.ndarray, np.ndarray, np.ndarray]
    options: HingeOptions
    floor: float = 0.0

    @classmethod
    def of(
        cls, family: Family, x: np.ndarray, y: np.ndarray, weight: np.ndarray | None, options: HingeOptions
    ) -> Likelihood:
        """Gather the rows x (n,), y (n,) of positive weight."""
        family.check(y)
        weight = np.ones(len(x)) if weight is None else weight
        kept = weight > 0.0
        places, group = np.unique(x[kept], return_inverse=True)
        w = np.bincount(group, weight[kept])
        return cls(family, places, np.bincount(group, (weight * y)[kept]) / w, w, (x, y, weight), options)

    def fit(self, K: int) -> BrokenLine:
        """Return the fit with K breaks, by reweighting, in points whose noise is known to have variance one."""
        eta = self.family.link(self.family.first(self.y, self.w))
        found = best_breaks(self._points(eta), K, self.options)
        deviance = np.inf
        for round_ in range(_ROUNDS):
            before, eta = deviance, self._eta(found)
            deviance, points = self._deviance(eta), self._points(eta)
            anew = round_ < _ANEW
            if anew:
                found = best_breaks(points, K, self.options)
            else:
                found = refine(replace(points, loose=found.points.loose), found.breaks, self.options)
            if not anew and abs(before - deviance) <= 1e-10 * (1.0 + abs(deviance)):
                break
        return BrokenLine.at(found.points.with_known_noise(found.rss, found.n_parameters), found.breaks)

    def rows_of(self, fit: BrokenLine) -> Rows:
        """Return every distinct input as a row of the fit's working outputs."""
        return Rows(np.arange(len(fit.points)), fit.points.y, fit.points.w)

    def deviance(self, fit: BrokenLine) -> float:
        """Return the deviance: −2 log L minus that of a model with its own mean for every input."""
        return self._deviance(self._eta(fit))

    def bic(self, fit: BrokenLine) -> float:
        """Return the deviance and log(information) for every parameter."""
        return self.deviance(fit) + float(np.log(fit.points.n)) * fit.n_parameters

    def beyond_squares(self, fit: BrokenLine, straight: BrokenLine) -> float:
        """Return what the likelihood gains over a straight line beyond the gain of the fit's own working squares."""
        own = BrokenLine.at(fit.points, np.zeros(0)).rss - fit.rss
        return 0.5 * (self.deviance(straight) - self.deviance(fit) - own)

    def outliers(self, fit: BrokenLine) -> np.ndarray:
        """Return the rows in whose tail a value lies in one data set of a hundred."""
        x, y, weight = self.rows
        mean = self.family.mean(self._at(fit, x))
        tail = np.where(weight > 0.0, self.family.tail(y, mean, np.where(weight > 0.0, weight, 1.0)), 1.0)
        return np.flatnonzero(tail < 0.5 * self.options.outlier / len(x))

    def dispersion(self, fit: BrokenLine) -> Dispersion:
        """Test whether the rows scatter about the fit as the family says."""
        mean = self.family.mean(self._eta(fit))
        high = self.family.bounds[1]
        events = self.w * np.minimum(mean, high - mean)
        bins, held = np.zeros(len(self.x), dtype=int), 0.0
        for i in range(len(self.x)):
            bins[i] = bins[i - 1] + (held >= _EVENTS) if i else 0
            held = events[i] + (0.0 if i and bins[i] != bins[i - 1] else held)
        if held < _EVENTS:  # what is left over joins the bin before
            bins[bins == bins[-1]] = max(bins[-1] - 1, 0)
        off, expected = self.w * (self.y - mean), self.w * self.family.slope(self._eta(fit))
        square = float(np.sum(np.bincount(bins, off) ** 2 / np.bincount(bins, expected)))
        # A fit to the rows themselves takes less than its parameters off a sum over bins of several.
        dof = bins[-1] + 1.0 - (fit.n_parameters if bins[-1] + 1 == len(self.x) else 0)
        segment = np.searchsorted(fit.points.x(fit.breaks), self.x)
        least = float(np.bincount(segment, expected, minlength=len(fit.breaks) + 1).min())
        return Dispersion(square, dof, float(gammaincc(0.5 * dof, 0.5 * square)) if dof >= 1.0 else 1.0, least)

    def _points(self, eta: np.ndarray) -> Points:
        slope = self.family.slope(eta)
        return Points.of(self.x, eta + (self.y - self.family.mean(eta)) / slope, self.w * slope)

    def _at(self, fit: BrokenLine, x: np.ndarray) -> np.ndarray:
        middle = float(self.family.link(np.average(self.family.first(self.y, self.w), weights=self.w)))
        eta = fit.points.level + fit((x - fit.points.centre) / fit.points.size)
        return np.clip(eta, middle - _REACH, middle + _REACH)

    def _eta(self, fit: BrokenLine) -> np.ndarray:
        return self._at(fit, self.x)

    def _deviance(self, eta: np.ndarray) -> float:
        return float(self.family.deviance(self.y, self.family.mean(eta), self.w).sum())
