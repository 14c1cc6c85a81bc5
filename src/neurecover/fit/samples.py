"""Samples in memory, as a student reads them, and quantities that all fits to them share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from neurecover.data import Source
from neurecover.fit import DEFAULTS, EXACT
from neurecover.models import with_constant
from neurecover.solve import Readout


@dataclass(frozen=True, eq=False)
class Samples:
    """F (n, D₀), the inputs with a constant before them if `bias` is 1, Y (n, p), and √w as a column, if rows have
    weights.
    """

    F: np.ndarray
    Y: np.ndarray
    bias: int
    root: np.ndarray | None = None

    @classmethod
    def of(cls, source: Source, bias: bool) -> Samples:
        """Collect the rows of a source with whitened inputs."""
        X, Y = source.collect()
        weight = source.weights()
        return cls(with_constant(X, bias), Y, int(bias), None if weight is None else np.sqrt(weight)[:, None])

    def some(self, n: int, rng: np.random.Generator) -> Samples:
        """Return n random rows, or all rows if there are hardly more."""
        if n >= DEFAULTS.some * len(self.F):
            return self
        rows = np.sort(rng.choice(len(self.F), n, replace=False))
        return Samples(self.F[rows], self.Y[rows], self.bias, None if self.root is None else self.root[rows])

    def weigh(self, values: np.ndarray, rows: slice = slice(None)) -> np.ndarray:
        """Return the rows of an array, one per sample, times √w."""
        return values if self.root is None else self.root[rows].astype(values.dtype, copy=False) * values

    def seeds(self, dtype: type = np.float64) -> Iterator[np.ndarray]:
        """Yield, for one output after the other, (n, p) with √w in its column: the start of backpropagation for that
        output.
        """
        for output in range(self.Y.shape[1]):
            G: np.ndarray = np.zeros(self.Y.shape, dtype=dtype)
            G[:, output] = 1.0 if self.root is None else self.root[:, 0]
            yield G

    @property
    def n_equations(self) -> int:
        return self.Y.size

    @cached_property
    def squares(self) -> float:
        """Σ w y²."""
        weighed = self.weigh(self.Y)
        return float(np.vdot(weighed, weighed))

    @cached_property
    def total(self) -> float:
        """Σ w (y − ȳ)², or Σ w y² without biases: what residuals are compared with."""
        if not self.bias:
            return self.squares
        mean = self.Y.mean(axis=0) if self.root is None else (self.root.T**2 @ self.Y)[0] / np.sum(self.root**2)
        centred = self.weigh(self.Y - mean)
        return float(np.vdot(centred, centred))

    def level(self, share: float = 0.0) -> float:
        """Return the Σr²/total at which only rounding is left; `share` is the Σr²/Σy² that outputs with few digits
        leave.
        """
        left = max(DEFAULTS.outputs, share if share > EXACT else 0.0)
        return max(EXACT, left * self.squares / max(self.total, 1e-300))

    @cached_property
    def moments(self) -> np.ndarray:
        """Σ w c₀c₀ᵀ in double precision."""
        weighed = self.weigh(self.F)
        return weighed.T @ weighed

    @cached_property
    def single(self) -> np.ndarray:
        """F in single precision."""
        return self.F.astype(np.float32)

    @cached_property
    def inverse_root(self) -> np.ndarray:
        """R with RRᵀ = E[c₀c₀ᵀ]⁻¹ but for a small ridge."""
        return Readout(self.moments / len(self.F), DEFAULTS.whitened).whiten(np.eye(self.F.shape[1])).T
