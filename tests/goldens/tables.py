"""Networks planted in tables that people have, where some inputs hardly vary or some unit is hardly ever on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

import neurecover as nr
from goldens.drawing import network, standardised
from goldens.outcome import Outcome, of_recovery


def counts(rng: np.random.Generator) -> np.ndarray:
    """Counts of eight rates."""
    return rng.poisson(rng.uniform(0.1, 2.0, 8), (800, 8)).astype(float)


def mostly_zero(rng: np.random.Generator) -> np.ndarray:
    """Eight columns that are zero in 80 to 98 % of the rows."""
    return (rng.random((1_500, 8)) < rng.uniform(0.02, 0.2, 8)) * rng.exponential(1.0, (1_500, 8))


def category(rng: np.random.Generator) -> np.ndarray:
    """Three numbers beside a category of ten levels."""
    return np.hstack([rng.standard_normal((800, 3)), np.eye(10)[rng.integers(10, size=800)]])


def digits(rng: np.random.Generator) -> np.ndarray:
    """Images of handwritten digits, 8 × 8 pixels, of which many are nearly always white."""
    from sklearn.datasets import load_digits

    return load_digits().data


def _planted(
    inputs: Callable[[np.random.Generator], np.ndarray], seed: int, k: int, p: int = 1, repeatable: bool = True
) -> Callable[[Path], Outcome]:
    """`repeatable` is False where it depends on the rows held out which of them join the fit."""

    def run(folder: Path) -> Outcome:
        rng = np.random.default_rng(seed)
        X = standardised(inputs(rng))
        truth = network(rng, X.shape[1], k, p)
        return of_recovery(nr.recover(X, truth(X), k, random_state=0), truth, X=X, repeatable=repeatable)

    return run


def _few_rows(seed: int, rows: int) -> Callable[[Path], Outcome]:
    """A unit that is on in fewer rows than it has weights: the others are found, and vouched for."""

    def run(folder: Path) -> Outcome:
        rng = np.random.default_rng(seed)
        truth, X = network(rng, 6, 4, 3), rng.standard_normal((600, 6))
        z = np.sort(X @ truth.W[0])
        b = np.append(-0.5 * (z[-rows] + z[-rows - 1]), truth.b[1:])
        truth = nr.Network(truth.W, b, truth.A, truth.c)
        return of_recovery(nr.recover(X, truth(X), 4, random_state=0), truth, X=X)

    return run


CASES: dict[str, Callable[[Path], Outcome]] = {
    "counts": _planted(counts, 0, 3),
    "inputs mostly zero": _planted(mostly_zero, 0, 3),
    "a category": _planted(category, 1, 3, repeatable=False),
    "digits, 4 units": _planted(digits, 0, 4, 10),
    "digits, 8 units": _planted(digits, 1, 8, 10),
    "a unit on in five rows": _few_rows(0, 5),
    "a unit on in four rows": _few_rows(1, 4),
}
