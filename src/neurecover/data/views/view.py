"""Sources that are views of another source: they change its rows or select some of them."""

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
        """Return X and Y of a block as this view changes them, and a mask of the rows to keep, None for all."""
        raise NotImplementedError

    def _begin(self) -> Callable[[np.ndarray, np.ndarray], Seen]:
        """Return the function `_seen` for one pass; a view overrides this if it depends on earlier blocks."""
        return self._seen

    def _blocks(self, rows: int) -> Blocks:
        return ((X, Y) for X, Y, _ in self._weighted_blocks(rows))

    def _weighted_blocks(self, rows: int) -> WeightedBlocks:
        see = self._begin()
        for X, Y, weight in self.parent.weighted_blocks(rows):
            X, Y, mine = see(X, Y)
            yield X, Y, weight if weight is None or mine is None else weight[mine]
