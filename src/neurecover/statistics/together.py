"""Several statistics in one pass, and statistics over some of the rows.

Rows are chosen by a number that depends on their values alone,

    u(x, y) = hash(seed, x, y) / 2⁶⁴,        hash = mix(Σ_j c_j · bits(z_j) mod 2⁶⁴),   z = (x, y),  c_j odd and random,

a multiply–add hash [Dietzfelbinger 1996] followed by a mixing of its bits [Steele et al. 2014, SplitMix64]. bits(z) are
the bits of a double, with the upper half added to the lower, which is zero for single-precision values. The choice of a
row does not depend on its block, file, worker or order, and exact copies are always chosen together.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np

from neurecover.statistics.base import Statistic

S = TypeVar("S", bound=Statistic)


def row_numbers(X: np.ndarray, Y: np.ndarray, seed: int) -> np.ndarray:
    """Return hash(seed, x, y) of every row as a 64-bit integer; values are converted to double, and −0 to 0."""
    odd = np.random.default_rng(seed).integers(2**63, size=X.shape[1] + Y.shape[1], dtype=np.uint64) * np.uint64(2) + 1
    total = np.zeros(len(X), dtype=np.uint64)
    start = 0
    for part in (X, Y):
        for column in range(part.shape[1]):
            bits = (part[:, column].astype(np.float64) + 0.0).view(np.uint64)
            total += (bits ^ (bits >> np.uint64(32))) * odd[start + column]
        start += part.shape[1]
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        total = (total ^ (total >> np.uint64(shift))) * np.uint64(factor)
    return total ^ (total >> np.uint64(31))


@dataclass(frozen=True)
class Division:
    """A division of rows by a hash u of their values: rows with u < fraction are held out."""

    fraction: float
    seed: int

    def held_out(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        """Return a mask of the rows that are held out."""
        return row_numbers(X, Y, self.seed) < np.uint64(int(self.fraction * 2.0**64))


class Together(Statistic):
    """Several named statistics of the same rows, as one statistic whose sums are called `name.sum`."""

    def __init__(self, **parts: Statistic) -> None:
        self.parts = parts
        self.row_bytes = max(part.row_bytes for part in parts.values())

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        for part in self.parts.values():
            part.update(X, Y, weight)

    def part(self, name: str, kind: type[S]) -> S:
        """Return the statistic with this name, and check that it has this type."""
        found = self.parts[name]
        assert isinstance(found, kind)
        return found

    @property
    def n(self) -> int:
        """The number of samples that the first part has seen."""
        return next(iter(self.parts.values())).n

    @property
    def n_bytes(self) -> int:
        return sum(part.n_bytes for part in self.parts.values())

    def weigh(self) -> None:
        for part in self.parts.values():
            part.weigh()

    def blank(self) -> Self:
        return self._of({name: part.blank() for name, part in self.parts.items()})

    def merge(self, other: Self) -> None:
        for name, part in self.parts.items():
            part.merge(other.parts[name])

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {f"{name}.{key}": value for name, part in self.parts.items() for key, value in part.to_arrays().items()}

    def from_arrays(self, arrays: Mapping[str, np.ndarray]) -> Self:
        return self._of({name: part.from_arrays(_under(name, arrays)) for name, part in self.parts.items()})

    def _of(self, parts: dict[str, Statistic]) -> Self:
        result = copy.copy(self)
        result.parts = parts
        return result


class Alike(Together):
    """Statistics that ignore the weights of the rows."""

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        super().update(X, Y)

    def weigh(self) -> None:
        pass


class Divided(Together):
    """A statistic `train` of the training rows and one `held` of the held-out rows; either may be missing."""

    def __init__(self, division: Division, **parts: Statistic) -> None:
        super().__init__(**parts)
        self.division = division

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        held_out = self.division.held_out(X, Y)
        for name, part in self.parts.items():
            mine = held_out if name == "held" else ~held_out
            part.update(X[mine], Y[mine], None if weight is None else weight[mine])


def _under(name: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    start = f"{name}."
    return {key.removeprefix(start): value for key, value in arrays.items() if key.startswith(start)}
