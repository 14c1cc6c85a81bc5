"""Count the samples on either side of every unit's kink."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.models import Model
from neurecover.statistics import UnitsOn, weights_per_unit


@dataclass(frozen=True)
class Sides:
    """The numbers of distinct inputs for which every hidden unit is on and off, and the numbers that are required.

    `laid` is the number of inputs that a wrong unit can always fit, and `needed` is `laid` plus a margin. `at_kink`
    counts inputs at the kink of some unit. It is set to 0 if all inputs are: a unit without weights is at its kink
    everywhere.
    """

    on: np.ndarray
    off: np.ndarray
    laid: np.ndarray
    margin: int
    at_kink: int = 0
    bent: np.ndarray | None = None  # Σ z² on the side where it is smaller, times the squared change of slope

    @classmethod
    def of(cls, white: Model, seen: UnitsOn, bias: bool, margin: int) -> Sides:
        """Build the counts from the sums; if the activation has no kink, every side counts as seen."""
        # A unit with D weights and p output weights, its scale being free, can fit (D + p − 1)/p samples. With several
        # outputs that is fewer than D, but D samples are required all the same.
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
            off[own] = needed[own]  # a rectified power is zero where it is off, so those samples are not needed
            if not (act.rectified and act.homogeneity != 1.0):
                on[own] = np.maximum(on[own], needed[own])  # there is no kink
        at_kink = int(seen.sums["at_kink"]) if kinked else 0
        return cls(on, off, laid, margin, at_kink if at_kink < seen.n else 0, bent if kinked else None)

    @property
    def needed(self) -> np.ndarray:
        return self.laid + self.margin

    @property
    def fewest(self) -> np.ndarray:
        """The number of inputs on the side with fewer of them."""
        return np.minimum(self.on, self.off)

    @property
    def few(self) -> np.ndarray:
        """A mask of the units with too few inputs on one side."""
        return self.fewest < self.needed

    @property
    def one_seldom_off(self) -> bool:
        """Whether exactly one unit has too few inputs, on the side where it is off.

        Without noise its weights follow from the inputs where it is on. Because relu(z) = relu(−z) + z, its sign could
        be wrong unless two of the few inputs contradict it, which c cannot both absorb. The unit is accepted if the
        other units cannot change signs together with it.
        """
        few = self.few
        return np.count_nonzero(few) == 1 and bool(np.all((self.on >= self.needed) & (self.off >= 2), where=few))

    def unseen(self, either: bool) -> int:
        """Return the number of units that are never on or, with `either`, never on or never off."""
        never = (self.on == 0) | (self.off == 0) if either else self.on == 0
        return int(np.count_nonzero(never))
