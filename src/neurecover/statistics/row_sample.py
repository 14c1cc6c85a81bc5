"""A sample of the rows themselves, of a size that does not grow with n.

The m rows with the smallest numbers hash(x, y) are a uniform sample of the distinct rows. Such a sample has few rare
inputs, and may miss units that are active only there. The rows with the largest max_j |x_j − centre_j| / spread_j are
therefore kept too. Both choices depend on x or on chance, never on the size of y, so least squares on the sample is as
unbiased as on all rows. Both choices are the same for any order and any partition of the rows.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Self

import numpy as np

from neurecover.statistics.base import Statistic
from neurecover.statistics.together import row_numbers


class RowSample(Statistic):
    """Up to `size` random rows (x, y), or (x, y, w), and up to `extreme` rows with unusual inputs, each row once.

    `centre` and `spread` (d,) define what is usual; in a column with spread 0, every other value is unusual. New rows
    are buffered until they are half as many as the rows held, so that every row is copied only a few times.
    """

    def __init__(
        self, n_outputs: int, size: int, extreme: int, seed: int, centre: np.ndarray, spread: np.ndarray
    ) -> None:
        self.most = {"random": size, "extreme": extreme}
        self.seed, self.centre = seed, centre
        self.scale = 1.0 / np.maximum(spread, 1e-9 * np.abs(centre) + 1e-300)
        q = len(centre) + n_outputs
        self.row_bytes = 8 * (2 * q + 8)
        self.sums = _no_rows(q)
        self._waiting: dict[str, list[_Rows]] = {"random": [], "extreme": []}

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        self._count(len(X), weight)
        if len(X) == 0:
            return
        if weight is not None:
            Y = np.column_stack([Y, weight])
        numbers = row_numbers(X, Y, self.seed)
        # The rows with the smallest keys are kept, so the most unusual rows get the smallest keys.
        unusual = -(np.abs(X - self.centre) * self.scale).max(axis=1)
        for name, keys in (("random", numbers), ("extreme", unusual)):
            held, most = self.sums[f"{name}_keys"], self.most[name]
            new = keys < held[-1] if len(held) == most else np.ones(len(keys), dtype=bool)
            rows = np.hstack([X[new], Y[new]], dtype=np.float64)
            self._waiting[name].append((keys[new].astype(held.dtype), numbers[new], rows))
            if 2 * sum(len(waiting[0]) for waiting in self._waiting[name]) > most:
                self._settle(name)

    def weigh(self) -> None:
        if "weight" not in self.sums:
            super().weigh()
            self.sums |= _no_rows(self.sums["random_rows"].shape[1] + 1)

    def _settle(self, name: str) -> None:
        """Merge the buffered rows with the kept ones, then drop copies and the rows with the largest keys."""
        held = tuple(self.sums[f"{name}_{part}"] for part in _PARTS)
        keys, numbers, rows = (np.concatenate(parts) for parts in zip(held, *self._waiting[name]))
        self._waiting[name] = []
        _, first = np.unique(numbers, return_index=True)
        # Rows with equal keys are ordered by their hash, so that the order of arrival does not matter.
        chosen = first[np.lexsort((numbers[first], keys[first]))][: self.most[name]]
        for part, values in zip(_PARTS, (keys, numbers, rows)):
            self.sums[f"{name}_{part}"] = values[chosen]

    @property
    def random(self) -> np.ndarray:
        """The random rows (m, d + p); the first k of them are a random sample of size k."""
        self._settle("random")
        return self.sums["random_rows"]

    @property
    def unusual(self) -> np.ndarray:
        """The rows with unusual inputs that are not among the random rows."""
        for name in self.most:
            self._settle(name)
        return self.sums["extreme_rows"][~np.isin(self.sums["extreme_numbers"], self.sums["random_numbers"])]

    def blank(self) -> Self:
        nothing = _no_rows(self.sums["random_rows"].shape[1])
        return self._holding(nothing | ({"weight": np.zeros(())} if "weight" in self.sums else {}))

    def merge(self, other: Self) -> None:
        arrays = other.to_arrays()
        self.sums["n"] += arrays["n"]
        if "weight" in arrays:
            self.sums["weight"] += arrays["weight"]
        for name in self.most:
            self._waiting[name].append((arrays[f"{name}_keys"], arrays[f"{name}_numbers"], arrays[f"{name}_rows"]))
            self._settle(name)

    def to_arrays(self) -> dict[str, np.ndarray]:
        for name in self.most:
            self._settle(name)
        return super().to_arrays()

    def from_arrays(self, arrays: Mapping[str, np.ndarray]) -> Self:
        return self._holding({name: np.array(arrays[name], dtype=held.dtype) for name, held in self.sums.items()})

    def _holding(self, sums: dict[str, np.ndarray]) -> Self:
        result = copy.copy(self)
        result.sums, result._waiting = sums, {name: [] for name in self.most}
        return result


_PARTS = ("keys", "numbers", "rows")
_Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


def _no_rows(q: int) -> dict[str, np.ndarray]:
    sums: dict[str, np.ndarray] = {"n": np.zeros((), dtype=np.int64)}
    for name, kind in (("random", np.uint64), ("extreme", np.float64)):
        keys, numbers = np.zeros(0, dtype=kind), np.zeros(0, dtype=np.uint64)
        sums |= {f"{name}_keys": keys, f"{name}_numbers": numbers, f"{name}_rows": np.zeros((0, q))}
    return sums
