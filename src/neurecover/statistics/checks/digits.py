"""How many digits the outputs carry: values rounded to decimals, to significant figures, or to a shorter float.

A value on such a grid of step s is off by at most s/2, and by s/√12 in the root mean square where it could have been
anywhere between two points of the grid. Three grids are looked for, each by the fewest digits that hold every value:

    y = m·2^(e − bits),      |y| in [2^(e−1), 2^e)      bits of the mantissa, 24 in single precision
    y = m·10^(−decimals)                                digits after the point
    y = m·10^(E − figures),  |y| in [10^(E−1), 10^E)    significant figures

Decimal grids are blurred by the float that holds their values, double or single precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.statistics.base import Statistic, float64

SHORT = {8: "bfloat16", 11: "half precision", 24: "single precision"}  # by the bits of the mantissa
SINGLE, DOUBLE = 24, 53  # bits of the mantissa


@dataclass(frozen=True)
class DigitOptions:
    """Which grids are looked for, and what rounding to them may leave."""

    stored: float = 4.0  # Σ r² over the squares of the rounding errors of Y, at the most, if Y was rounded (measured)
    computed: float = 256.0  # the same if Y was computed in a short float (measured)
    most: int = 12  # decimals or figures looked for; more would not be told from double precision
    head: int = 8  # rows of a block that show, as a rule, that there is no grid
    vacuous: float = 0.1  # of a step: where a float blurs a grid by more, every value is on it


OPTIONS = DigitOptions()


@dataclass(frozen=True)
class OutputPrecision:
    """Per output a name for the grid, empty where there is none, and the root mean square of its step, (p,).

    `ties` (p,) are the most of n samples that share one value, None where they were not counted.
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
        """The mean square that rounding may leave of an output, (p,): stored rounded, or computed in that float."""
        return np.where(self.is_float, OPTIONS.computed, OPTIONS.stored) * self.rounding**2

    @property
    def is_float(self) -> np.ndarray:
        """Whether the output was stored in a shorter float, and then computed in it too as a rule; (p,)."""
        return np.array([name in SHORT.values() for name in self.names], dtype=bool)


class OutputDigits(Statistic):
    """The most bits, decimals and figures that a value of each output needs, and the mean squares of the steps.

    decimals and figures have a row for double and one for single precision.
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
        if not full.all():  # else no grid is left, whatever follows
            self._look(Y[OPTIONS.head :])

    def _look(self, Y: np.ndarray) -> None:
        sums, size = self.sums, np.abs(Y)
        given = size > 0.0
        mantissa, exponent = np.frexp(size)
        whole = np.ldexp(mantissa, DOUBLE).astype(np.int64)
        _, low = np.frexp((whole & -whole).astype(np.float64))  # the place of the last bit, from 1
        place = np.floor(np.log10(size, out=np.zeros_like(size), where=given)) + 1.0
        bits = np.where(given, DOUBLE + 1 - low, 0)
        np.maximum(sums["bits"], bits.max(axis=0, initial=0), out=sums["bits"])
        np.maximum(sums["largest"], size.max(axis=0, initial=0.0), out=sums["largest"])
        for row, blur in enumerate(_BLURS):
            if row and np.all(sums["bits"] > SINGLE):
                break  # no value is in single precision
            np.maximum(sums["decimals"][row], _needed(size, blur, 0.0 * place), out=sums["decimals"][row])
            np.maximum(sums["figures"][row], _needed(size, blur, place), out=sums["figures"][row])
        with np.errstate(over="ignore"):  # beyond 1e154 the mean square of the steps has no number
            sums["binary"] += np.sum(np.where(given, np.ldexp(1.0, 2 * exponent), 0.0), axis=0)
            sums["decimal"] += np.sum(np.where(given, 100.0**place, 0.0), axis=0)

    def precision(self) -> OutputPrecision:
        """Return the coarsest grid that holds every value of an output."""
        found = [max(self._grids(o)) for o in range(len(self.sums["bits"]))]
        return OutputPrecision(tuple(name for _, name in found), np.array([step for step, _ in found]))

    def _grids(self, o: int) -> list[tuple[float, str]]:
        """Return the steps of the grids that hold every value, and their names."""
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


_BLURS = (2.0 ** (2 - DOUBLE), 2.0 ** (1 - SINGLE))  # what a float adds to a value on a grid: double, single


def _needed(size: np.ndarray, blur: float, place: np.ndarray) -> np.ndarray:
    """Return per output the fewest digits q that put every |y| on the grid 10^(place − q), to blur·|y|; else more."""
    needed = np.zeros(size.shape[1])
    for q in range(OPTIONS.most, -1, -1):
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = size * 10.0 ** (q - place)
            off = ~(np.abs(scaled - np.rint(scaled)) <= blur * scaled)
        needed = np.where((needed == 0) & off.any(axis=0), q + 1, needed)
        if needed.all():
            break
    return needed
