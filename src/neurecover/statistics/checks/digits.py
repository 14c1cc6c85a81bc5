"""Find how the outputs were rounded: to decimals, to significant figures, or to a shorter float.

Rounding to a grid of step s gives errors of at most s/2, with root mean square s/√12 if the exact values are uniform
between grid points. Three kinds of grid are tried, each with the fewest digits that represent every value:

    y = m·2^(e − bits),      |y| in [2^(e−1), 2^e)      bits of the mantissa, 24 in single precision
    y = m·10^(−decimals)                                digits after the point
    y = m·10^(E − figures),  |y| in [10^(E−1), 10^E)    significant figures

Values on decimal grids are off by the rounding of the float that stores them, double or single precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.statistics.base import Statistic, float64

SHORT = {8: "bfloat16", 11: "half precision", 24: "single precision"}  # by the bits of the mantissa
SINGLE, DOUBLE = 24, 53  # bits of the mantissa


@dataclass(frozen=True)
class DigitOptions:
    """Which grids are tried, and the residuals that rounding to them explains."""

    stored: float = 4.0  # largest ratio of Σ r² to the squared rounding errors of Y if Y was rounded (measured)
    computed: float = 256.0  # the same if Y was computed in a short float (measured)
    most: int = 12  # decimals or figures tried; more cannot be distinguished from double precision
    head: int = 8  # first rows of a block, which usually suffice to show that there is no grid
    vacuous: float = 0.1  # share of a step: if the float's own rounding is larger, every value seems to be on the grid


OPTIONS = DigitOptions()


@dataclass(frozen=True)
class OutputPrecision:
    """The name of the grid of each output, empty if there is none, and the root mean square of its step, (p,).

    `ties` (p,) is the largest number of the n samples that share one value, None if it was not counted.
    """

    names: tuple[str, ...]
    step: np.ndarray
    n: int = 0
    ties: np.ndarray | None = None

    @property
    def rounding(self) -> np.ndarray:
        """The root mean square of the rounding errors, (p,)."""
        return self.step / np.sqrt(12.0)

    @property
    def largest(self) -> np.ndarray:
        """The largest mean square residual that rounding explains, (p,), whether Y was stored or computed rounded."""
        return np.where(self.is_float, OPTIONS.computed, OPTIONS.stored) * self.rounding**2

    @property
    def is_float(self) -> np.ndarray:
        """Whether each output was stored, and so probably also computed, in a shorter float, (p,)."""
        return np.array([name in SHORT.values() for name in self.names], dtype=bool)


class OutputDigits(Statistic):
    """The largest numbers of bits, decimals and figures that any value of an output needs, and mean squared steps.

    `decimals` and `figures` have one row for double precision and one for single precision.
    """

    maxima = frozenset({"bits", "decimals", "figures", "largest"})

    def __init__(self, n_outputs: int) -> None:
        self.sums = {"n": np.zeros((), dtype=np.int64), "bits": np.zeros(n_outputs), "largest": np.zeros(n_outputs)}
        self.sums |= {"decimals": np.zeros((2, n_outputs)), "figures": np.zeros((2, n_outputs))}
        self.sums |= {"binary": np.zeros(n_outputs), "decimal": np.zeros(n_outputs)}
        self.row_bytes = 64 * n_outputs

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        _, Y = float64(X, Y)
        self._count(len(Y), weight)
        self._look(Y[: OPTIONS.head])
        full = (
            (self.sums["bits"] > SINGLE)
            & (self.sums["decimals"][0] > OPTIONS.most)
            & (self.sums["figures"][0] > OPTIONS.most)
        )
        if not full.all():  # if all are full, no grid is possible any more
            self._look(Y[OPTIONS.head :])

    def _look(self, Y: np.ndarray) -> None:
        sums, size = self.sums, np.abs(Y)
        given = size > 0.0
        mantissa, exponent = np.frexp(size)
        whole = np.ldexp(mantissa, DOUBLE).astype(np.int64)
        _, low = np.frexp((whole & -whole).astype(np.float64))  # the position of the last bit, counted from 1
        place = np.floor(np.log10(size, out=np.zeros_like(size), where=given)) + 1.0
        bits = np.where(given, DOUBLE + 1 - low, 0)
        np.maximum(sums["bits"], bits.max(axis=0, initial=0), out=sums["bits"])
        np.maximum(sums["largest"], size.max(axis=0, initial=0.0), out=sums["largest"])
        for row, blur in enumerate(_BLURS):
            if row and np.all(sums["bits"] > SINGLE):
                break  # no value is in single precision
            np.maximum(sums["decimals"][row], _needed(size, blur, 0.0 * place), out=sums["decimals"][row])
            np.maximum(sums["figures"][row], _needed(size, blur, place), out=sums["figures"][row])
        with np.errstate(over="ignore"):  # beyond 1e154 the mean square of the steps overflows
            sums["binary"] += np.sum(np.where(given, np.ldexp(1.0, 2 * exponent), 0.0), axis=0)
            sums["decimal"] += np.sum(np.where(given, 100.0**place, 0.0), axis=0)

    def precision(self) -> OutputPrecision:
        """Return, for each output, the coarsest grid that contains every value."""
        found = [max(self._grids(o)) for o in range(len(self.sums["bits"]))]
        return OutputPrecision(tuple(name for _, name in found), np.array([step for step, _ in found]))

    def _grids(self, o: int) -> list[tuple[float, str]]:
        """Return the steps and names of the grids that contain every value of output o."""
        sums, found = self.sums, [(0.0, "")]
        bits = sums["bits"][o]
        found += [(float(np.sqrt(sums["binary"][o] / self.n)) * 2.0**-b, SHORT[b]) for b in SHORT if bits <= b][:1]
        for row, blur in enumerate(_BLURS[: 2 if bits <= SINGLE else 1]):
            decimals, figures = int(sums["decimals"][row, o]), int(sums["figures"][row, o])
            if decimals <= OPTIONS.most and blur * sums["largest"][o] * 10.0**decimals <= OPTIONS.vacuous:
                found.append((10.0**-decimals, f"{decimals} decimal{'' if decimals == 1 else 's'}"))
            if 0 < figures <= OPTIONS.most and blur * 10.0**figures <= OPTIONS.vacuous:
                step = float(np.sqrt(sums["decimal"][o] / self.n)) * 10.0**-figures
                found.append((step, f"{figures} significant digit{'' if figures == 1 else 's'}"))
        return found


_BLURS = (2.0 ** (2 - DOUBLE), 2.0 ** (1 - SINGLE))  # relative rounding error of a stored value: double, single


def _needed(size: np.ndarray, blur: float, place: np.ndarray) -> np.ndarray:
    """Return, for every output, the fewest digits q for which |y| is a multiple of 10^(place − q), up to blur·|y|.

    If there is no such q, return a number above the largest that is tried.
    """
    needed = np.zeros(size.shape[1])
    for q in range(OPTIONS.most, -1, -1):
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = size * 10.0 ** (q - place)
            off = ~(np.abs(scaled - np.rint(scaled)) <= blur * scaled)
        needed = np.where((needed == 0) & off.any(axis=0), q + 1, needed)
        if needed.all():
            break
    return needed
