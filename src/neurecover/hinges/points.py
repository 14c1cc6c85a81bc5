"""Samples of one input, gathered at the distinct inputs.

With w the weight and ȳ the mean of the rows at each distinct x,

    Σ_rows (y − f(x))² = Σ_rows (y − ȳ)² + Σ_x w (ȳ − f(x))²,

so breaks are placed by distinct inputs, and every row still counts as an observation. The input is
z = (x − centre)/size, in [−1, 1]; the mean is subtracted from the output.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.hinges.options import HingeOptions


@dataclass(frozen=True, eq=False)
class Points:
    """Distinct inputs `z` (m,) in ascending order, with the total weight `w` and the mean output `y` of their rows.

    `within` is Σ (y − ȳ)² inside the groups and `n` the sum of all weights. x = centre + size z; y + level is the
    output itself. `prior` is the number of degrees of freedom that prior knowledge of the noise is worth. `loose` lets
    breaks come closer to the ends and to each other than `margin`.
    """

    z: np.ndarray
    w: np.ndarray
    y: np.ndarray
    within: float
    n: float
    centre: float
    size: float
    level: float
    prior: float = 0.0
    loose: bool = False

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None) -> Points:
        """Gather the rows x (n,), y (n,) of positive weight."""
        weight = np.ones(len(x)) if weight is None else weight
        x, y, weight = x[weight > 0.0], y[weight > 0.0], weight[weight > 0.0]
        places, group = np.unique(x, return_inverse=True)
        w = np.bincount(group, weight)
        level = float(np.average(y, weights=weight))
        means = np.bincount(group, weight * (y - level)) / w
        within = float(weight @ (y - level - means[group]) ** 2) if len(places) < len(x) else 0.0
        centre = 0.5 * (places[0] + places[-1])
        size = float(0.5 * (places[-1] - places[0])) or 1.0
        return cls((places - centre) / size, w, means, within, float(weight.sum()), float(centre), size, level)

    def with_known_noise(self, rss: float, n_parameters: int) -> Points:
        """Return points whose noise is known to have variance one; `rss` is what a fit leaves.

        Knowing the variance is like having seen a million further rows that say nothing else.
        """
        total = self.n + 1e6
        return replace(self, within=total - n_parameters - rss, prior=1e6)

    @property
    def total(self) -> float:
        """The weight of all rows, plus the degrees of freedom of prior knowledge of the noise."""
        return self.n + self.prior

    def __len__(self) -> int:
        return len(self.z)

    def gap(self, options: HingeOptions) -> int:
        """Return the number of distinct inputs that must lie between a break and the ends, or another break."""
        return options.fewest if self.loose else max(options.fewest, int(np.ceil(options.margin * len(self))))

    def rank(self, places: np.ndarray) -> np.ndarray:
        """Return the rank of places among the distinct inputs, interpolated between them."""
        return np.interp(places, self.z, np.arange(len(self), dtype=float))

    def place(self, rank: np.ndarray) -> np.ndarray:
        """Return the place of a rank: the inverse of `rank`."""
        return np.interp(rank, np.arange(len(self), dtype=float), self.z)

    def apart(self, breaks: np.ndarray, options: HingeOptions) -> np.ndarray:
        """Return a mask of the sets of breaks (..., K) that are in order and keep their distance."""
        gap = self.gap(options)
        ranks = self.rank(breaks)
        within = (ranks >= gap - 1.0 - 1e-9).all(axis=-1) & (ranks <= len(self) - gap + 1e-9).all(axis=-1)
        return np.asarray(within & (np.diff(ranks, axis=-1) >= gap - 1e-9).all(axis=-1))

    def at_limit(self, breaks: np.ndarray, options: HingeOptions) -> np.ndarray:
        """Return a mask of the sets of breaks (..., K) in which one is within a distinct input of where none may be."""
        gap, ranks = self.gap(options), self.rank(breaks)
        ends = ranks[..., :1] - (gap - 1.0), len(self) - gap - ranks[..., -1:]
        room = np.concatenate([*ends, np.diff(ranks, axis=-1) - gap], axis=-1)
        return np.asarray((room < 1.0 - 1e-9).any(axis=-1))

    def room_for(self, options: HingeOptions) -> int:
        """Return the largest number of breaks that can keep their distance."""
        gap = self.gap(options)
        return max(0, (len(self) - 2 * gap + 1) // gap + 1) if len(self) >= 2 * gap else 0

    def x(self, z: np.ndarray) -> np.ndarray:
        """Return the inputs x in the user's units, for places z."""
        return self.centre + self.size * z
