"""Decide from the outputs at which samples some unit is active."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from neurecover.algorithms.gp18.options import DEFAULTS, ActivityOptions


@dataclass(frozen=True)
class Activity:
    """The criterion of activity: some unit is active if an output differs from `rest` (p,) by more than `tolerance`
    (p,).

    `noise` (p,) is σ, zero for outputs that repeat exactly. `share` is the share of active samples. `mixed` is the
    share of samples on the rarer side of rest, in the output where it is largest, less what noise contributes.
    """

    rest: np.ndarray
    tolerance: np.ndarray
    noise: np.ndarray
    share: float
    mixed: float

    def of(self, Y: np.ndarray) -> np.ndarray:
        """Return whether a unit is active, (n,), for outputs Y (n, p)."""
        return np.any(np.abs(Y - self.rest) > self.tolerance, axis=1)

    @property
    def noisy(self) -> bool:
        return bool(np.any(self.noise > 0.0))


def find_activity(Y: np.ndarray, options: ActivityOptions = DEFAULTS.activity) -> Activity | None:
    """Return the activity behind outputs Y (n, p): exactly if a value is repeated, otherwise by the peak of their
    density; None without either.
    """
    levels = [_exact_level(y, options) or _noisy_level(y, options) for y in Y.T]
    if any(level is None for level in levels):
        return None
    rest, noise = np.array([level for level in levels if level is not None]).T
    tolerance = np.where(noise > 0.0, options.far * noise, 1e-9 * np.maximum(1.0, np.abs(Y).max(axis=0)))
    chance = float(ndtr(-options.far)) if np.any(noise > 0.0) else 0.0
    above, below = np.mean(Y - rest > tolerance, axis=0), np.mean(rest - Y > tolerance, axis=0)
    mixed = float(np.max(np.minimum(above, below) - chance))
    seen = Activity(rest, tolerance, noise, 0.0, max(mixed, 0.0))
    return Activity(rest, tolerance, noise, float(seen.of(Y).mean()), max(mixed, 0.0))


def _exact_level(y: np.ndarray, options: ActivityOptions) -> tuple[float, float] | None:
    """Return (rest, 0) for the value most often taken; None where no value is repeated."""
    rounded = np.round(y, options.digits)
    values, counts = np.unique(rounded, return_counts=True)
    top = int(np.argmax(counts))
    if counts[top] < max(options.fewest, options.smallest_share * len(y)):
        return None
    return float(np.median(y[rounded == values[top]])), 0.0


def _noisy_level(y: np.ndarray, options: ActivityOptions) -> tuple[float, float] | None:
    """Return (rest, σ) of the densest peak; None where it is too wide to be one."""
    ordered = np.sort(y)
    m = int(options.peak * len(y))
    if m < options.fewest:
        return None
    start = int(np.argmin(ordered[m:] - ordered[:-m]))
    rest = float(np.median(ordered[start : start + m]))
    # Half of the peak lies on either side; the median distance of a half Gaussian is Φ⁻¹(3/4) σ.
    sides = [np.median(np.abs(y[side] - rest)) for side in (y < rest, y > rest) if np.any(side)]
    sigma = float(min(sides)) / float(ndtri(0.75)) if sides else 0.0
    return (rest, sigma) if 0.0 < sigma < options.widest * float(y.std()) else None
