"""The one loop over data: feed every block of a source to a statistic.

A statistic is a sum over samples whose size does not depend on n, so the value of the loop is the
same, up to rounding, for every block size.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np

from neurecover.data.source import Source

Progress = Callable[[int, int | None], object]


class Statistic(Protocol):
    """What the loop needs of a statistic."""

    @property
    def row_bytes(self) -> int:
        """Working memory of `update` per sample, features included."""

    def update(self, X: np.ndarray, Y: np.ndarray) -> object:
        """Add the samples X (m, d), Y (m, p) in place."""


S = TypeVar("S", bound=Statistic)


def reduce(source: Source, statistic: S, progress: Progress | None = None, block_bytes: int = 32 * 2**20) -> S:
    """Add every sample of the source to the statistic and return it.

    A block has as many rows as fit in block_bytes, at least one. progress(done, total) is called
    after each block; total is None where the source does not know its length.
    """
    source_bytes = 8 * (source.n_inputs + source.n_outputs)
    rows = max(1, block_bytes // (statistic.row_bytes + source_bytes))
    done = 0
    for X, Y in source.blocks(rows):
        statistic.update(X, Y)
        done += len(X)
        if progress is not None:
            progress(done, source.n_samples)
    return statistic
