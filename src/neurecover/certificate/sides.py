"""On which side of their kinks the samples see the units."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.models import Model
from neurecover.statistics import UnitsOn, weights_per_unit


@dataclass(frozen=True)
class Sides:
    """How many different inputs every hidden unit is on and off for, and how many a unit has to have on either side.

    `laid` is how many inputs any unit can be laid through, and `needed` as many and a margin. `at_kink` inputs are at
    the kink of some unit, 0 where all are: a unit without weights is at its kink everywhere.
    """

    on: np.ndarray
    off: np.ndarray
    laid: np.ndarray
    margin: int
    at_kink: int = 0
    bent: np.ndarray | None = None  # Σ z² on the side with less of it, times the square of the change of slope

    @classmethod
    def of(cls, white: Model, seen: UnitsOn, bias: bool, margin: int) -> Sides:
        """Return what was counted, where the activation has a kink for it to matter."""
        # A unit of D weights and p output weights, its scale free, passes through (D + p − 1)/p samples. Several
        # outputs would do with fewer than D; as many as the unit has weights are asked for all the same.
        D, p = weights_per_unit(white) - (not bias), white.n_outputs
        laid = np.maximum((D + p - 1) // p, D - margin)
        on, off, needed = seen.sums["on"].copy(), seen.sums["off"].copy(), laid + margin
        bent = np.minimum(seen.sums["on_squared"], seen.sums["off_squared"])
        start, kinked = 0, False
        for W, act in zip(white.hidden_weights, white.hidden_activations):
            own = slice(start, start + len(W))
            start += len(W)
            if act.homogeneity == 1.0 and act.odd_slope:
                kinked = True
                bent[own] *= (2.0 - act.odd_slope) ** 2
                continue
            off[own] = needed[own]  # a rectified power says nothing where it is off
            if not (act.rectified and act.homogeneity != 1.0):
                on[own] = np.maximum(on[own], needed[own])  # no kink to be seen
        at_kink = int(seen.sums["at_kink"]) if kinked else 0
        return cls(on, off, laid, margin, at_kink if at_kink < seen.n else 0, bent if kinked else None)

    @property
    def needed(self) -> np.ndarray:
        return self.laid + self.margin

    @property
    def fewest(self) -> np.ndarray:
        """The inputs on the side with fewer of them."""
        return np.minimum(self.on, self.off)

    @property
    def few(self) -> np.ndarray:
        """Which units have too few inputs on one side."""
        return self.fewest < self.needed

    @property
    def one_seldom_off(self) -> bool:
        """Whether one unit alone has few inputs, on the side where it is off.

        Without noise it has its weights from the others: relu(z) = relu(−z) + z makes it one of another sign unless two
        of the few, which c cannot both take up, contradict. It is let pass if the others cannot turn beside it.
        """
        few = self.few
        return np.count_nonzero(few) == 1 and bool(np.all((self.on >= self.needed) & (self.off >= 2), where=few))

    def unseen(self, either: bool) -> int:
        """Return how many units are never on or, with `either`, never on or never off."""
        never = (self.on == 0) | (self.off == 0) if either else self.on == 0
        return int(np.count_nonzero(never))
