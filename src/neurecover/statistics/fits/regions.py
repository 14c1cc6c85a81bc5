"""Group rows by the linear region they lie in, that is, by the side of every kink.

If act'(z) is constant on either side of zero, the gates γ of m units are constant on a region π. A sum over rows of
gates times s(x) is then a sum over regions,

    Σ_i γ(x_i) s(x_i) = Σ_π γ(π) Σ_{x_i in π} s(x_i).

This takes one product x̃x̃ᵀ per row instead of one for every pair of units. It pays if a block of rows lies in few
regions, that is for a dozen units or fewer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from neurecover.activations import Activation

MOST_UNITS = 12  # at most 2¹² regions, whose codes fit in 16 bits
CALL = 1.2e5  # overhead of calling a matrix product, in operations (measured)
AT_A_TIME = 2**22  # numbers held at once in the sums over regions


@dataclass(frozen=True)
class Regions:
    """`order` (n,) sorts the rows by region; region u has the rows order[starts[u] : starts[u + 1]]."""

    order: np.ndarray
    starts: np.ndarray

    @property
    def members(self) -> np.ndarray:
        """The index of one row in every region."""
        return self.order[self.starts[:-1]]

    def products(self, left: np.ndarray, right: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield Σ l rᵀ over the rows of each region, (regions, a, b), for several regions at a time."""
        same = left is right
        left = left[self.order]
        right = left if same else right[self.order]
        size, count = left.shape[1] * right.shape[1], len(self.starts) - 1
        some = max(1, AT_A_TIME // max(size, 1))
        for first in range(0, count, some):
            own = slice(first, min(first + some, count))
            sums = np.empty((own.stop - first, left.shape[1], right.shape[1]))
            for u in range(first, own.stop):
                rows = slice(self.starts[u], self.starts[u + 1])
                np.matmul(left[rows].T, right[rows], out=sums[u - first])
            yield own, sums


def can_divide(activation: Activation, n_units: int) -> bool:
    """Return whether sums by regions are possible: act' has two values and the units are few."""
    return activation.homogeneity == 1.0 and n_units <= MOST_UNITS


def divide(Z: np.ndarray, n_inputs: int) -> Regions | None:
    """Group the rows by the signs of their z (n, m); None if the regions are too many for n_inputs.

    Pairs take c = 2·(m + 1)(m + 2)/2·D(D + 1)/2 operations per row. Regions take 2 D² per row, and per region c
    operations and one call.
    """
    (n, m), D = Z.shape, n_inputs
    codes = ((Z > 0.0) @ (2.0 ** np.arange(m))).astype(np.uint16)
    counts = np.bincount(codes, minlength=1)
    counts = counts[counts > 0]
    pairs = (m + 1) * (m + 2) * D * (D + 1) / 2.0
    if n * (pairs - 2.0 * D**2) < len(counts) * (pairs + CALL):
        return None
    return Regions(np.argsort(codes, kind="stable"), np.concatenate([[0], np.cumsum(counts)]))
