"""What is fitted by a network of several layers, and how a fit of it is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from neurecover.activations import Activation
from neurecover.data import ArraySource, Source, reduce, subsample
from neurecover.refine.deep_search import Samples
from neurecover.statistics import Residuals

EXACT = 1e-20  # relative Σ r² below which a fit is taken for noiseless

Progress = Callable[[str, float], object]


@dataclass(frozen=True)
class Problem:
    """The samples, and Σ (y − ȳ)², or Σ y² without biases, as the `total` that residuals are compared with."""

    source: Source
    activation: Activation
    bias: bool
    total: float
    progress: Progress

    @property
    def n_equations(self) -> int:
        return self.source.n_outputs * (self.source.n_samples or 1)

    def n_parameters(self, widths: tuple[int, ...]) -> int:
        """How many numbers a network of these widths has."""
        sizes = (self.source.n_inputs, *widths, self.source.n_outputs)
        return sum((below + self.bias) * above for below, above in pairwise(sizes))

    def criterion(self, relative_rss: float, widths: tuple[int, ...]) -> float:
        """N·log Σr² + (parameters)·log N up to a constant, all exact fits counting alike; less is better."""
        N = self.n_equations
        return float(N * np.log(max(relative_rss, EXACT)) + self.n_parameters(widths) * np.log(N))

    def samples(self, wanted: int, rng: np.random.Generator) -> Samples:
        """At most so many samples in memory, for the search."""
        seed, n = int(rng.integers(2**31)), self.source.n_samples
        X, Y = (self.source if n is not None and n <= wanted else subsample(self.source, wanted, seed)).collect()
        return Samples(X, Y, output_total(ArraySource(X, Y), self.bias), self.bias, self.activation)


def output_total(source: Source, bias: bool) -> float:
    """Σ (y − ȳ)² over samples and outputs, or Σ y² for a network without constants."""
    p = source.n_outputs

    def about(origin: np.ndarray) -> Residuals:
        return reduce(source, Residuals(lambda X: np.zeros((len(X), p)), p, origin=origin))

    origin = about(np.zeros(p)).average("output") if bias else np.zeros(p)
    return float(about(origin).sums["output_squared"].sum())
