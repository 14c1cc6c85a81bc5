"""Sources that are views of another one: its rows changed, or some of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from neurecover.data.source import Blocks, Source, WeightedBlocks

Seen = tuple[np.ndarray, np.ndarray, np.ndarray | None]


class View(Source):
    """A source made from another one, `parent`, block by block; rows keep their weights."""

    parent: Source

    def __init__(self, parent: Source, what: str = "", n_samples: int | None = None) -> None:
        self.parent, self.n_samples = parent, n_samples
        self.origin = f"{parent.origin} ({what})" if what else parent.origin
        self.input_names, self.output_names = parent.input_names, parent.output_names

    def _seen(self, X: np.ndarray, Y: np.ndarray) -> Seen:
        """Return X and Y of a block as the view has them, and a mask of the rows it keeps, None for all."""
        raise NotImplementedError

    def _begin(self) -> Callable[[np.ndarray, np.ndarray], Seen]:
        """Return the `_seen` of one pass, for views in which it depends on the blocks before."""
        return self._seen

    def _blocks(self, rows: int) -> Blocks:
        return ((X, Y) for X, Y, _ in self._weighted_blocks(rows))

    def _weighted_blocks(self, rows: int) -> WeightedBlocks:
        see = self._begin()
        for X, Y, weight in self.parent.weighted_blocks(rows):
            X, Y, mine = see(X, Y)
            yield X, Y, weight if weight is None or mine is None else weight[mine]
