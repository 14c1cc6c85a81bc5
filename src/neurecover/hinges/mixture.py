"""Moments, quantiles and profile limits of linear functions of the coefficients, over the posterior's mixture.

A function has for every set of breaks S a row ℓ_S with value ℓ_S·θ, θ = (α, β, δ₁, …): a slope, an intercept, the
value at an input. Given S it is t about ℓ_S·θ̂_S with the scale (ℓ_S C_S ℓ_S)^½.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, stdtr, stdtrit

from neurecover.hinges.posterior import Posterior


@dataclass(frozen=True, eq=False)
class Mixture:
    """A mixture of t distributions: `centre` (T,), `scale` (T,), weights (T,), degrees of freedom; `rss` (T,)."""

    centre: np.ndarray
    scale: np.ndarray
    weight: np.ndarray
    dof: float
    rss: np.ndarray

    @property
    def mean(self) -> float:
        return float(self.weight @ self.centre)

    @property
    def variance(self) -> float:
        """The variance; that of a t with two degrees of freedom or fewer is taken as if it had three."""
        own = self.scale**2 * self.dof / max(self.dof - 2.0, 1.0)
        return float(self.weight @ (own + (self.centre - self.mean) ** 2))

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        """Return the quantiles at the levels: Newton steps on the distribution function, halving where they leave.

        Steps end at 1e-7 of the spread, far below what any data tell.
        """
        self, spread = self.gathered(), float(np.sqrt(self.variance))
        if spread <= 0.0:
            return np.full(len(levels), self.mean)
        wide = np.abs(stdtrit(self.dof, 0.5 * min(levels.min(), 1.0 - levels.max())))
        low = np.full(len(levels), float((self.centre - wide * self.scale).min()))
        high = np.full(len(levels), float((self.centre + wide * self.scale).max()))
        scale = np.where(self.scale > 0.0, self.scale, 1e-9 * spread)
        # Density of t: Γ((ν + 1)/2)/(√(νπ) Γ(ν/2)) (1 + t²/ν)^(−(ν + 1)/2).
        height = np.exp(gammaln(0.5 * self.dof + 0.5) - gammaln(0.5 * self.dof)) / np.sqrt(np.pi * self.dof)
        q = np.clip(self.mean + spread * stdtrit(self.dof, levels), low, high)
        for _ in range(100):
            t = (q[:, None] - self.centre) / scale
            missing = levels - stdtr(self.dof, t) @ self.weight
            low, high = np.where(missing > 0.0, q, low), np.where(missing > 0.0, high, q)
            slope = height * np.exp(-0.5 * (self.dof + 1.0) * np.log1p(t * t / self.dof)) @ (self.weight / scale)
            ahead = q + missing / np.maximum(slope, np.finfo(float).tiny)
            ahead = np.where((ahead > low) & (ahead < high), ahead, 0.5 * (low + high))
            q, moved = ahead, float(np.abs(ahead - q).max())
            if moved <= 1e-7 * spread:
                break
        return q

    def gathered(self, parts: int = 64, scales: int = 4) -> Mixture:
        """Return a mixture with fewer components: components of similar centre and scale are merged, keeping mean and
        variance.

        Merged centres lie within a fifth of the spread, and scales within a factor of two. Probabilities of quantiles
        change by less than 0.004.
        """
        if len(self.centre) <= parts * scales:
            return self
        middle, reach = self.mean, 6.0 * float(np.sqrt(self.variance))
        if reach <= 0.0:
            return self
        group = np.clip(((self.centre - middle) / reach + 1.0) * 0.5 * parts, 0, parts - 1).astype(int)
        typical = float(self.weight @ self.scale)
        with np.errstate(divide="ignore"):
            octave = np.log2(self.scale / typical) + 0.5 * scales if typical > 0.0 else np.zeros(len(group))
        group = scales * group + np.clip(octave, 0, scales - 1).astype(int)
        size = parts * scales
        total = np.bincount(group, self.weight, minlength=size)
        held = total > 0.0
        total = np.where(held, total, 1.0)
        mean = np.bincount(group, self.weight * self.centre, minlength=size) / total
        spread = self.scale**2 + (self.centre - mean[group]) ** 2
        variance = np.bincount(group, self.weight * spread, minlength=size) / total
        return Mixture(mean[held], np.sqrt(variance[held]), total[held], self.dof, np.zeros(int(held.sum())))

    def interval(self, level: float) -> np.ndarray:
        """Return the equal-tailed interval of a level."""
        return self.quantiles(np.array([0.5 - 0.5 * level, 0.5 + 0.5 * level]))

    def profile(self, limit: float) -> np.ndarray:
        """Return the smallest interval that contains all values whose least sum of squares is at most `limit`.

        The sum of squares is minimised over breaks and all other parameters. Given the breaks S it is RSS_S + (v −
        v̂_S)²/u_S, with u_S the variance over the noise's, RSS_S/dof.
        """
        limit = max(limit, float(self.rss.min()))
        unit = self.scale**2 * self.dof / np.where(self.rss > 0.0, self.rss, 1.0)
        reach = np.sqrt(unit * np.maximum(limit - self.rss, 0.0))
        inside = self.rss <= limit
        return np.array([(self.centre - reach)[inside].min(), (self.centre + reach)[inside].max()])


def linear(posterior: Posterior, rows: np.ndarray) -> Mixture:
    """Return the distribution of ℓ·θ for rows (K + 2,), or (T, K + 2) where they depend on the breaks."""
    if rows.ndim == 1:
        centre = posterior.mean @ rows
        variance = posterior.scale.reshape(len(centre), -1) @ np.outer(rows, rows).ravel()
    else:
        centre = np.einsum("tk,tk->t", rows, posterior.mean)
        variance = np.einsum("tk,tkl,tl->t", rows, posterior.scale, rows)
    return Mixture(centre, np.sqrt(np.maximum(variance, 0.0)), posterior.weight, posterior.dof, posterior.rss)


def break_interval(posterior: Posterior, j: int, level: float) -> np.ndarray:
    """Return the equal-tailed interval of break j, in z, its distribution function interpolated between the nodes."""
    places, group = np.unique(posterior.breaks[:, j], return_inverse=True)
    if len(places) == 1:
        return np.repeat(places, 2)
    mass = np.bincount(group, posterior.weight)
    # Half of a node's mass lies on either side of it.
    cumulative = np.cumsum(mass) - 0.5 * mass
    return np.interp([0.5 - 0.5 * level, 0.5 + 0.5 * level], cumulative, places)


def break_profile(posterior: Posterior, j: int, limit: float) -> np.ndarray:
    """Return the smallest interval, in z, of the places of break j whose least sum of squares is at most `limit`."""
    places, group = np.unique(posterior.breaks[:, j], return_inverse=True)
    least = np.full(len(places), np.inf)
    np.minimum.at(least, group, posterior.rss)
    inside = np.flatnonzero(least <= max(limit, least.min()))
    ends = []
    for last, beyond in ((inside[0], inside[0] - 1), (inside[-1], inside[-1] + 1)):
        end = places[last]
        if 0 <= beyond < len(places):
            share = (limit - least[last]) / (least[beyond] - least[last])
            end = end + share * (places[beyond] - end)
        ends.append(end)
    return np.array(ends)
