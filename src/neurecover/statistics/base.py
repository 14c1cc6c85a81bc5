"""What every statistic is: named sums over samples that can be updated, merged and stored."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Self

import numpy as np


class Statistic(ABC):
    """Sums over samples, S = Σᵢ s(xᵢ, yᵢ), whose size does not depend on the number of samples.

    `sums` holds the arrays by name, `n` among them. Because every entry is a sum, any partition of the
    samples, merged in any order, gives the same statistic up to rounding. `row_bytes` is the working memory
    that `update` takes per sample, from which the reduction chooses its block size.
    """

    sums: dict[str, np.ndarray]
    row_bytes: int

    @abstractmethod
    def update(self, X: np.ndarray, Y: np.ndarray) -> None:
        """Add the samples of one block, X (m, d) and Y (m, p)."""

    @property
    def n(self) -> int:
        """How many samples have been added."""
        return int(self.sums["n"])

    def merge(self, other: Self) -> None:
        """Add what another statistic of the same kind has summed."""
        self._same_shapes(type(other).__name__, other.sums)
        for name, value in other.sums.items():
            self.sums[name] += value

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The sums, to be stored; `from_arrays` of an equally built statistic reads them back."""
        return {name: value.copy() for name, value in self.sums.items()}

    def from_arrays(self, arrays: dict[str, np.ndarray]) -> Self:
        """A statistic built like this one that holds the given sums."""
        self._same_shapes("the stored arrays", arrays)
        result = copy.copy(self)
        result.sums = {
            name: np.array(arrays[name], dtype=self.sums[name].dtype, order="K") for name in self.sums
        }
        return result

    def _same_shapes(self, source: str, arrays: dict[str, np.ndarray]) -> None:
        expected = {name: value.shape for name, value in self.sums.items()}
        came = {name: np.shape(value) for name, value in arrays.items()}
        if expected != came:
            raise ValueError(
                f"{type(self).__name__} needs sums of shapes {expected}. {source} gave {came} instead; "
                "build both with the same arguments."
            )


def float64(X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both blocks in double precision: single-precision samples, double-precision sums."""
    return np.asarray(X, dtype=np.float64), np.asarray(Y, dtype=np.float64)
