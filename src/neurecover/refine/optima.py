"""When two fits to noisy samples are one optimum.

Σ r² is smooth only between the kinks, so that one optimum has many shallow pits, and with many weights two descents
seldom end in the same. Fits whose Σ r² differ by much less than one degree of freedom's share σ² are one; so are fits
that differ by no more than that share and whose outputs are much closer to one another than any fit of P parameters is
to the truth,

    Σ |f_a − f_b|² ≪ P σ².
"""

from __future__ import annotations

import numpy as np

from neurecover.data import Source
from neurecover.models import DeepNetwork, Network

SAME, NEAR = 0.1, 1.0  # of a share: Σ r² of one optimum, and of what may be one by its outputs
CLOSE = 0.01  # of P σ²
ROWS = 8_192  # looked at at a time


def one_optimum(
    source: Source, a: Network | DeepNetwork, b: Network | DeepNetwork, rss_a: float, rss_b: float, n_equations: int
) -> bool:
    """Whether two networks with these Σ r² on samples of so many equations are."""
    share = rss_b / n_equations
    apart = abs(rss_a - rss_b)
    if apart <= SAME * share:
        return True
    return apart <= NEAR * share and _apart(source, a, b) <= CLOSE * b.n_parameters * share


def _apart(source: Source, a: Network | DeepNetwork, b: Network | DeepNetwork) -> float:
    """Σ w |f_a − f_b|²."""
    total = 0.0
    for X, _, weight in source.weighted_blocks(ROWS):
        squares = np.sum((a(X) - b(X)) ** 2, axis=1)
        total += float(squares.sum() if weight is None else weight @ squares)
    return total
