"""Answers that are probabilities, and the logits from which the network computes them.

    z_j = log p_j − log p_1,   j = 2 … K,        z = log p − log(1 − p) for a single p,

with the logit of the first class set to zero, because adding a constant to all logits changes no probability. An error
δ in p_j becomes δ/p_j in z_j. Probabilities in floating point have small relative errors, down to the smallest number.
Probabilities rounded to a grid of step g, to decimals or because they were computed as 1 − p, have an absolute error
of g/2, so only probabilities well above g/2 determine their logits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.exceptions import UnsolvableError

_SUM = 2e-3  # probabilities of three decimals add up to one within this
_DECIMALS = tuple(10.0**-k for k in range(1, 10))  # grids that rounded probabilities may lie on
_BINARY = (2.0**-24, 2.0**-53)  # the spacing of numbers below one, in single and double precision
_FEW = 4  # fewer values may lie on a grid by coincidence
_SMALLEST = {np.dtype(np.float32): 1e-36, np.dtype(np.float64): 1e-290}  # numbers below lose digits (subnormal)


@dataclass(frozen=True, eq=False)
class Probabilities:
    """How answers with `columns` columns encode K class probabilities; `grid` (K,) is their rounding step, 0 for none.

    A logit is known if its probability is above `least` (K,). With `log` the answers are logarithms of probabilities.
    """

    columns: int
    grid: np.ndarray
    least: np.ndarray
    log: bool = False

    @property
    def n_logits(self) -> int:
        """The number K − 1 of logits."""
        return len(self.grid) - 1

    def classes(self, Y: np.ndarray) -> np.ndarray:
        """Return the probabilities (n, K) of all classes."""
        return _classes(np.asarray(Y, dtype=np.float64), self.log)

    def logits(self, Y: np.ndarray) -> np.ndarray:
        """Return the logits (n, K − 1) of the answers; a probability rounded to zero counts as half a grid step."""
        if self.log:
            L = np.asarray(Y, dtype=np.float64)
        else:
            P = self.classes(Y)
            if P.shape[1] != len(self.grid) or not np.isfinite(P).all() or P.min(initial=0.0) < 0.0:
                raise UnsolvableError("The model answers with probabilities here and with other numbers elsewhere.")
            L = np.log(np.maximum(P, np.maximum(0.5 * self.grid, 1e-300)))
        return L[:, 1:] - L[:, :1]

    def rounding(self, Z: np.ndarray) -> np.ndarray:
        """Return the error (n, K − 1) that the grid leaves in the logits Z: √((g_j/2p_j)² + (g_1/2p_1)²)."""
        full = np.hstack([np.zeros((len(Z), 1)), Z])
        full -= full.max(axis=1, keepdims=True)
        P = np.exp(full)
        P /= P.sum(axis=1, keepdims=True)
        errors = 0.5 * self.grid / np.maximum(P, 1e-300)
        return np.hypot(errors[:, 1:], errors[:, :1])

    def usable(self, Y: np.ndarray) -> np.ndarray:
        """Return a mask (n,) of the answers that determine all logits."""
        return np.asarray(np.all(self.classes(Y) > self.least, axis=1))

    def clipped(self, Y: np.ndarray) -> bool:
        """Return whether some probability is so small that it says nothing about its logit."""
        return bool(np.any(self.classes(Y) < np.where(self.grid > 0.0, self.grid, self.least)))


def are_probabilities(Y: np.ndarray) -> bool:
    """Return whether the columns of the answers (n, p), or their exponentials, add up to one."""
    return Y.shape[1] > 1 and (_adds_up(Y) or _adds_up(_exp(Y)))


def may_be_probability(Y: np.ndarray) -> bool:
    """Return whether all answers (n, 1), near and far, lie between 0 and 1 and differ."""
    return bool(Y.shape[1] == 1 and Y.min() >= 0.0 and Y.max() <= 1.0 and np.ptp(Y) > 0.1)


def read_probabilities(Y: np.ndarray) -> Probabilities:
    """Return how answers (n, p), near the data and far away, encode probabilities: the grid and the clipping."""
    log = Y.shape[1] > 1 and not _adds_up(Y)
    P = _classes(Y.astype(np.float64), log)
    single = np.array_equal(Y, Y.astype(np.float32))
    grid = np.array([0.0 if log else _grid(column) for column in P.T])
    least = np.maximum(np.sqrt(0.5 * grid), _SMALLEST[np.dtype(np.float32 if single else np.float64)])
    # The model clips its probabilities at a value that several far answers share.
    for j, column in enumerate(P.T):
        values, counts = np.unique(column, return_counts=True)
        shared = values[(counts >= _FEW) & (values < 0.5) & (values > 0.0)]
        if len(shared) and values[0] == shared[0]:
            least[j] = max(least[j], 2.0 * shared[0])
    return Probabilities(Y.shape[1], grid, least, log)


def _adds_up(Y: np.ndarray) -> bool:
    return bool(Y.min() >= 0.0 and Y.max() <= 1.0 + _SUM and np.abs(Y.sum(axis=1) - 1.0).max() <= _SUM)


def _exp(Y: np.ndarray) -> np.ndarray:
    return np.exp(Y) if Y.max() <= 0.0 else np.full_like(Y, np.nan)


def _classes(Y: np.ndarray, log: bool) -> np.ndarray:
    return np.exp(Y) if log else np.hstack([1.0 - Y, Y]) if Y.shape[1] == 1 else Y


def _grid(column: np.ndarray) -> float:
    """Return the coarsest grid that contains all values, 0 if there is none coarser than floating point."""
    for g in (*_DECIMALS, *_BINARY):
        # A floating-point number lies on a binary grid anyway unless it is small, so only small values are telling.
        telling = column[(column > 0.0) & (column < (2.0**-3 if g in _BINARY else 1.0))]
        if len(np.unique(telling)) >= _FEW and np.all(np.abs(telling / g - np.rint(telling / g)) < 1e-4):
            return g
    return 0.0
