"""How many digits the outputs carry: values rounded to decimals, to significant figures, or to a shorter float.

A value on such a grid of step s is off by at most s/2, and by s/√12 in the root mean square where it could have been
anywhere between two points of the grid. Three grids are looked for, each by the fewest digits that hold every value:

    y = m·2^(e − bits),      |y| in [2^(e−1), 2^e)      bits of the mantissa, 24 in single precision
    y = m·10^(−decimals)                                digits after the point
    y = m·10^(E − figures),  |y| in [10^(E−1), 10^E)    significant figures

Any other grid shows where it is coarse: most values occur more than once, and the gaps between them are its steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.statistics.base import Statistic, float64

DOUBLE = 53  # bits of the mantissa
SHORT = {8: "bfloat16", 11: "half precision", 24: "single precision"}
MOST = 12  # decimals or figures looked for; more would not be told from double precision
NONE = 99  # digits of an output on no grid of the kind
VACUOUS = 0.1  # of a step: rounding may blur a grid by so much, or else any value is on it


@dataclass(frozen=True)
class OutputPrecision:
    """Per output a name for the grid, empty where there is none, and the root mean square of its step, (p,)."""

    names: tuple[str, ...]
    step: np.ndarray

    @property
    def rounding(self) -> np.ndarray:
        """The root mean square of the rounding errors, (p,)."""
        return self.step / np.sqrt(12.0)

    @property
    def is_float(self) -> np.ndarray:
        """Whether the output was stored in a shorter float, and then computed in it too as a rule; (p,)."""
        return np.array([name in SHORT.values() for name in self.names], dtype=bool)


class OutputDigits(Statistic):
    """The most bits, decimals and figures that a value of each output needs, and the mean squares of the steps."""

    maxima = frozenset({"bits", "decimals", "figures", "gap"})

    def __init__(self, n_outputs: int) -> None:
        self.sums = {"n": np.zeros((), dtype=np.int64)}
        self.sums |= {name: np.zeros(n_outputs) for name in ("bits", "decimals", "figures", "gap", "binary", "decimal")}
        self.row_bytes = 64 * n_outputs

    def update(self, X: np.ndarray, Y: np.ndarray) -> None:
        _, Y = float64(X, Y)
        sums = self.sums
        sums["n"] += len(Y)
        for o, y in enumerate(Y.T):
            sums["gap"][o] = max(sums["gap"][o], _gap(y))
            y = np.abs(y[y != 0.0])
            mantissa, exponent = np.frexp(y)
            whole = np.ldexp(mantissa, DOUBLE).astype(np.int64)
            _, low = np.frexp((whole & -whole).astype(np.float64))  # the place of the last bit, from 1
            bits = int(np.max(DOUBLE + 1 - low, initial=0))
            place = np.floor(np.log10(y)) + 1.0
            blur = 2.0 ** (1 - max(bits, 24)) * y if bits <= 24 else 2.0 ** (2 - DOUBLE) * y
            sums["bits"][o] = max(sums["bits"][o], bits)
            sums["decimals"][o] = max(sums["decimals"][o], _fewest(y, blur, np.zeros(len(y))))
            sums["figures"][o] = max(sums["figures"][o], _fewest(y, blur, place))
            with np.errstate(over="ignore"):  # beyond 1e154 the mean square of the steps has no number
                sums["binary"][o] += np.sum(np.ldexp(1.0, 2 * exponent))
                sums["decimal"][o] += np.sum(100.0**place)

    def precision(self) -> OutputPrecision:
        """The coarsest grid that holds every value of an output."""
        names, steps = [], []
        for bits, decimals, figures, gap, binary, decimal in zip(*list(self.sums.values())[1:]):
            found = [(0.0, "")]
            found += [(np.sqrt(binary / self.n) * 2.0**-b, name) for b, name in SHORT.items() if bits <= b][:1]
            if decimals <= MOST:
                found.append((10.0**-decimals, f"{decimals:.0f} decimal{'' if decimals == 1 else 's'}"))
            if figures <= MOST:
                unit = f"{figures:.0f} significant digit{'' if figures == 1 else 's'}"
                found.append((np.sqrt(decimal / self.n) * 10.0**-figures, unit))
            step, name = max(found)
            if gap > 2.0 * step:
                step, name = gap, f"steps of {gap:.2g}"
            steps.append(step)
            names.append(name)
        return OutputPrecision(tuple(names), np.array(steps))


def _gap(y: np.ndarray) -> float:
    """The middle gap between values if most occur more than once, else 0; the commonest is left out, which may be c."""
    values, counts = np.unique(y, return_counts=True)
    if len(values) < 3:
        return 0.0
    counts[np.argmax(counts)] = 0
    repeated = counts[counts > 1].sum() > counts.sum() / 2
    return float(np.median(np.diff(values))) if repeated else 0.0


def _fewest(y: np.ndarray, blur: np.ndarray, place: np.ndarray) -> int:
    """The fewest digits q for which every y is a multiple of 10^(place − q), to within its blur; NONE if too many."""
    most = 0
    for q in range(MOST, -1, -1):
        scale = 10.0 ** (q - place)
        ok = np.abs(y * scale - np.rint(y * scale)) <= blur * scale
        if not ok.all():
            most = q + 1
            break
    if most > MOST or np.any(blur * 10.0 ** (most - place) > VACUOUS):
        return NONE
    return most
