"""The halfspaces of a union from labels, by Fisher scoring on the likelihood of `UnionScore`.

Maximum likelihood finds what EstimateTanAlpha and the search over z find [GP18, Alg. 1], all units together and with
the others' share accounted for. At fixed angles αᵢ a step solves for tangents to zᵢ, for tᵢ, and for the logarithms of
the rates η₀, η₁ at which labels are flipped outside and inside. The inverse information Cᵢ of (zᵢ, tᵢ) then says which
angle is left, and the fit is repeated there until both agree:

    tan² αᵢ = tr C_{zᵢ}(α).

Left to itself the likelihood would sharpen the boundary without end, since labels jump there; at the angle that is
really left its model is right on average over the unknown error, and its information gives errors that cover (measured:
95 % within two standard errors with 5 % of the labels flipped, more without noise; tails are heavier than Gaussian
ones). The angle comes to the order of d / (n φ(t)), as in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.algorithms.gp18.options import DEFAULTS, UnionOptions
from neurecover.algorithms.gp18.union.ascent import ascend, tangents
from neurecover.data import Source
from neurecover.statistics.fits.union_score import UnionScore


@dataclass(frozen=True)
class UnionFit:
    """Normals W (k, d), unit rows, thresholds t (k,), and tan α (k,), the angle to be expected to the true normals.

    `flips` (η₀, η₁) are the rates of flipped labels outside and inside, None where labels were taken as they are.
    `covariance` (k, d + 1, d + 1) is that of the errors of (wᵢ, tᵢ); `error` is the share of samples on the wrong side.
    """

    W: np.ndarray
    threshold: np.ndarray
    tan_alpha: np.ndarray
    flips: np.ndarray | None = None
    covariance: np.ndarray | None = None
    error: float = 1.0
    log_likelihood: float = -np.inf
    iterations: int = 0

    def contains(self, X: np.ndarray) -> np.ndarray:
        """Return whether any halfspace contains x, (n,)."""
        return np.any(self.threshold < X @ self.W.T, axis=1)

    def likelihood(self) -> UnionScore:
        """Return the likelihood at this fit, with nothing added yet."""
        return UnionScore(self.W / self.tan_alpha[:, None], self.threshold / self.tan_alpha, flips=self.flips)


def fit_union(
    labels: Source,
    W: np.ndarray,
    threshold: np.ndarray,
    tan_alpha: float | np.ndarray = 0.3,
    *,
    flips: np.ndarray | None = None,
    repairs: int = 4,
    options: UnionOptions = DEFAULTS.union,
) -> UnionFit:
    """Maximise the likelihood of labels y ∈ {0, 1} from directions W (k, d) and thresholds (k,).

    `flips` are the first rates of flipped labels; None if no label is flipped. Where samples inside the union
    stay unexplained, the unit that does least is sent to their mean, up to `repairs` times.
    """
    start = UnionFit(
        W / np.linalg.norm(W, axis=1, keepdims=True),
        np.asarray(threshold, dtype=float),
        np.array(np.broadcast_to(tan_alpha, len(W)), dtype=float),
        flips,
    )
    best = sharpen(labels, start, options)
    for _ in range(repairs):
        if best.flips is None and best.error <= options.enough:
            break
        lost = missed_samples(labels, best)
        if lost.by_chance:
            break
        again = sharpen(labels, with_unit(best, lost, int(np.argmin(lost.alone))), options)
        if again.log_likelihood <= best.log_likelihood:
            break
        best = again
    return best


def sharpen(labels: Source, fit: UnionFit, options: UnionOptions = DEFAULTS.union) -> UnionFit:
    """Return the fit at the angles that its own information leaves, reached from wider ones."""
    steps = 0
    for _ in range(options.stages):
        loop = ascend(labels, fit.likelihood(), fit.tan_alpha, options)
        here = loop.point.score
        covariance = _covariance(here)
        # One input has no angle; what is left there is the error of the threshold.
        turns = slice(0, -1) if fit.W.shape[1] > 1 else slice(None)
        left = np.sqrt(np.array([np.trace(block[turns, turns]) for block in covariance]))
        tan = np.clip(left, np.maximum(0.5 * fit.tan_alpha, options.finest), 1.0)
        steps += loop.iterations
        settled = bool(np.all(np.abs(tan - fit.tan_alpha) <= options.settled * fit.tan_alpha))
        fit = _as_fit(here, fit.tan_alpha, covariance, steps)
        if settled:
            break
        fit = replace(fit, tan_alpha=tan)
    return fit


def _as_fit(score: UnionScore, tan: np.ndarray, covariance: np.ndarray, steps: int) -> UnionFit:
    return UnionFit(
        score.V * tan[:, None],
        score.tau * tan,
        tan,
        score.flips,
        covariance,
        float(score.sums["errors"] / score.n),
        float(score.sums["log_likelihood"]),
        steps,
    )


def _covariance(here: UnionScore) -> np.ndarray:
    """Return the covariance of (zᵢ, tᵢ) of every unit, (k, d + 1, d + 1): blocks of the inverse Fisher information.

    A prior with standard deviation 1 bounds the errors of what no sample determines: a unit vector cannot be off by
    more.
    """
    k, d = here.V.shape
    B = tangents(here)
    tan = 1.0 / np.linalg.norm(here.V, axis=1)
    prior = np.concatenate([np.repeat(tan**2, d), np.ones(B.shape[1] - k * d)])  # v = z / tan α
    inverse = B @ np.linalg.inv(B.T @ here.information @ B + np.diag(prior)) @ B.T
    blocks = [slice(i * (d + 1), (i + 1) * (d + 1)) for i in range(k)]
    return np.array([inverse[block, block] * a**2 for block, a in zip(blocks, tan)])


@dataclass(frozen=True)
class Missed:
    """The samples labelled inside that no unit contains: their number, their mean, and how far the mean is from chance.

    Flipped labels outside the union lie there like all samples do. `excess` is m‖Σ^{−1/2}(mean − μ)‖² for the m
    samples, with μ and Σ those of all samples outside, which for flipped labels is χ² with d degrees of freedom.
    `alone` (k,) counts, for every unit, the samples that only it contains: those labelled inside minus those labelled
    outside.
    """

    count: int
    mean: np.ndarray
    excess: float
    alone: np.ndarray

    @property
    def by_chance(self) -> bool:
        """Whether flipped labels explain the mean: χ² within five of its standard deviations."""
        d = len(self.mean)
        return self.count < d or self.excess < d + 5.0 * np.sqrt(2.0 * d)


def missed_samples(labels: Source, fit: UnionFit) -> Missed:
    """Return the samples inside that no unit of the fit contains."""
    k, d = fit.W.shape
    lost_sum, lost_count, alone = np.zeros(d), 0, np.zeros(k)
    outside_sum, outside_squares, outside_count = np.zeros(d), np.zeros((d, d)), 0
    for X, Y in labels.blocks(65_536):
        inside = Y[:, 0] > 0.5
        above = fit.threshold < X @ fit.W.T
        outside = X[~above.any(axis=1)]
        outside_sum += outside.sum(axis=0)
        outside_squares += outside.T @ outside
        outside_count += len(outside)
        lost = inside & ~above.any(axis=1)
        lost_sum += X[lost].sum(axis=0)
        lost_count += int(lost.sum())
        only = above & (above.sum(axis=1) == 1)[:, None]
        alone += only[inside].sum(axis=0) - only[~inside].sum(axis=0)
    mean, centre = lost_sum / max(lost_count, 1), outside_sum / max(outside_count, 1)
    spread = outside_squares / max(outside_count, 1) - np.outer(centre, centre)
    off = mean - centre
    excess = lost_count * float(off @ np.linalg.lstsq(spread, off, rcond=None)[0])
    return Missed(lost_count, mean, excess, alone)


def with_unit(fit: UnionFit, lost: Missed, place: int | None = None) -> UnionFit:
    """Return the fit with one unit more, placed where samples are missed; `place` names a unit to move instead."""
    size = float(np.linalg.norm(lost.mean))
    tan = np.clip(fit.tan_alpha, 0.05, 1.0)
    # Flipped labels lie all around and dilute the mean, whose length then says nothing of the threshold.
    others = fit.threshold if place is None else np.delete(fit.threshold, place)
    t = size if fit.flips is None or len(others) == 0 else float(np.median(others))
    new = UnionFit(
        np.vstack([fit.W, lost.mean / max(size, 1e-300)]), np.append(fit.threshold, t), np.append(tan, 0.5), fit.flips
    )
    return new if place is None else without_unit(new, place)


def without_unit(fit: UnionFit, unit: int) -> UnionFit:
    """Return the fit as a start without one of its units."""
    return UnionFit(
        np.delete(fit.W, unit, axis=0), np.delete(fit.threshold, unit), np.delete(fit.tan_alpha, unit), fit.flips
    )
