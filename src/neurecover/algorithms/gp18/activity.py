"""Which samples have an active unit, read off one output.

With ReLU or step units f(x) = P(0) exactly where no unit is active [GP18, §2.2], so that without noise the output
repeats a value `rest` there and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_DIGITS = 12
_FEWEST, _SMALLEST_SHARE = 20, 0.01  # samples at rest, and their share, for the value to be one


@dataclass(frozen=True)
class Activity:
    """Samples whose output differs from `rest` by more than `tolerance` have an active unit.

    `share` is the share of them, and `below` the share of outputs that lie below rest.
    """

    rest: float
    tolerance: float
    share: float
    below: float

    def of(self, y: np.ndarray) -> np.ndarray:
        """Whether a unit is active, (n,)."""
        return np.abs(y - self.rest) > self.tolerance


def seen_activity(y: np.ndarray) -> Activity | None:
    """The output P(0) without active units, as the value most often taken; None where no value is repeated."""
    values, counts = np.unique(np.round(y, _DIGITS), return_counts=True)
    top = int(np.argmax(counts))
    if counts[top] < max(_FEWEST, _SMALLEST_SHARE * len(y)):
        return None
    rest = float(np.median(y[np.round(y, _DIGITS) == values[top]]))
    tolerance = 1e-9 * max(1.0, float(np.abs(y).max()))
    moved = y - rest
    active = np.abs(moved) > tolerance
    return Activity(rest, tolerance, float(active.mean()), float(np.mean(moved < -tolerance)))
