"""Gauss–Newton on all samples, where a pass over them is what costs: one pass per step and none to try it.

A search on a sample of m rows ends about √(P/m) standard errors of one row from the optimum on all n. There the sums of
one pass give the step on all rows, and on those that are not held out, at once:

    θ' = θ + F⁻¹ g,        θ'_t = θ + F_t⁻¹ g_t,        F = Σ JᵀJ,    g = Σ Jᵀr  over all weights of the network.

The next pass sees whether Σr² fell, what θ'_t, which no held-out row had a part in, leaves on these, and the next
step. A step's promise e = gᵀF⁻¹g / (σ² P) is 1 where it moves the weights by their standard errors. Promises fall as
e₁, e₂, e₃ ≈ e₂·(e₂/e₁): once the next is to be small, a step is taken without a further look. From 100 P rows the
second step is the last (measured at n = 3,000,000, P = 133: 194, 0.06, 0.0003).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.data import Prepared, Whitened, reduce
from neurecover.fit import EXACT
from neurecover.fit.model_fit import normal_equations, stepped
from neurecover.models import DeepNetwork, Network, away_from_samples
from neurecover.statistics import Divided, InformationSums, PreactivationRange, Residuals

LARGEST = 6_000  # parameters whose curvature is formed: 288 MB


@dataclass(frozen=True)
class PassOptions:
    """When passes end."""

    most: int = 8  # passes; two are usual
    small: float = 0.01  # the promise of a step that need not be taken: a tenth of the standard errors
    free: float = 1e-12  # damping that changes nothing but keeps a singular curvature from being factorised


@dataclass(frozen=True)
class Streamed:
    """The network fitted to all samples, its Σr² and Σr²/Σy², and the residuals on rows that had no part in the fit."""

    network: Network | DeepNetwork
    rss: float
    relative_rss: float
    converged: bool
    holdout: Residuals
    passes: int


@dataclass(frozen=True, eq=False)
class _Point:
    """A network and its sums over the rows that are not held out and over all."""

    network: Network | DeepNetwork
    train: InformationSums
    whole: InformationSums
    holdout: Residuals
    extremes: PreactivationRange

    @property
    def rss(self) -> float:
        return float(np.sum(self.whole.sums["rr"]))


def fit_in_passes(
    given: Prepared, network: Network | DeepNetwork, bias: bool, options: PassOptions | None = None
) -> Streamed:
    """Fit a network that was found on some samples of a stream to all of them."""
    options = options or PassOptions()
    point, passes, damping, before = _look(given, network, network, bias), 1, options.free, 0.0
    total = _squares(given)
    while True:
        if point.rss <= EXACT * total:
            return _ended(point, point.network, total, True, passes)
        system = normal_equations(point.whole)
        step, promise = system.solve(damping), 0.0
        if step is not None:
            trial = stepped(point.network, bias, step)
            variance = point.rss / max(point.whole.n * network.n_outputs - len(step), 1)
            promise = system.predicted_decrease(step, damping) / (variance * len(step))
            rate = min(promise / before, 1.0) if before > 0.0 else 1.0
            if damping == options.free and promise * rate <= options.small:
                return _ended(point, trial, total, True, passes)
        if passes == options.most:
            return _ended(point, point.network, total, False, passes)
        if step is not None:
            other = normal_equations(point.train).solve(damping)
            unseen = point.network if other is None else stepped(point.network, bias, other)
            seen, passes = _look(given, trial, unseen, bias), passes + 1
            if seen.rss < point.rss:
                point, damping, before = seen, max(options.free, 0.01 * damping), promise
                continue
        damping = max(10.0 * damping, 1e-3)


def _squares(given: Prepared) -> float:
    """Return Σ y²."""
    moments, d = given.fitted_moments, given.source.n_inputs
    return moments.n * float(np.diag(moments.covariance)[d:].sum() + np.square(given.output_mean).sum())


def _look(given: Prepared, network: Network | DeepNetwork, apart: Network | DeepNetwork, bias: bool) -> _Point:
    """Make one pass: the sums at a network, and the residuals of `apart` on the rows that are held out."""
    assert given.stream is not None
    division, whitening = given.stream.division, given.whitening
    width = sum(len(W) for W in apart.hidden_weights)
    left = Residuals(apart, apart.n_outputs, width, given.output_mean)
    sums, ends = InformationSums.of(network, bias), PreactivationRange(network)
    train = Whitened(whitening, sums=sums, ends=ends)
    held = Whitened(whitening, sums=sums.blank(), ends=ends.blank(), left=left)
    both = reduce(given.source, Divided(division, train=train, held=held))
    train, held = both.part("train", Whitened), both.part("held", Whitened)
    sums, ends = train.part("sums", InformationSums), train.part("ends", PreactivationRange)
    whole = sums.from_arrays(sums.to_arrays())
    whole.merge(held.part("sums", InformationSums))
    ends.merge(held.part("ends", PreactivationRange))
    return _Point(network, sums, whole, held.part("left", Residuals), ends)


def _ended(point: _Point, network: Network | DeepNetwork, total: float, converged: bool, passes: int) -> Streamed:
    ends = point.extremes.sums
    network = away_from_samples(network, -ends["lowest"], ends["highest"])
    relative = point.rss / total if total > 0.0 else 0.0
    return Streamed(network, point.rss, relative, converged, point.holdout, passes)
