"""What is fitted by a network of several layers, and how a fit of it is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
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
    """The samples, their number, and the `total` that residuals are compared with: Σ (y − ȳ)², Σ y² without biases."""

    source: Source
    activation: Activation
    bias: bool
    n_samples: int
    total: float
    progress: Progress

    @classmethod
    def of(cls, source: Source, activation: Activation, bias: bool, progress: Progress | None) -> Problem:
        outputs = summed_outputs(source, bias)
        total = float(outputs.sums["output_squared"].sum())
        return cls(source, activation, bias, outputs.n, total, progress or (lambda stage, relative_rss: None))

    def samples(self, wanted: int, rng: np.random.Generator) -> Samples:
        """At most so many samples in memory, for the search."""
        seed = int(rng.integers(2**31))
        X, Y = (self.source if self.n_samples <= wanted else subsample(self.source, wanted, seed)).collect()
        total = float(summed_outputs(ArraySource(X, Y), self.bias).sums["output_squared"].sum())
        return Samples(X, Y, total, self.bias, self.activation)

    def part(self, samples: Samples) -> Problem:
        """The same problem on fewer samples."""
        return replace(self, source=samples.source, n_samples=len(samples.X), total=samples.total)


def n_parameters(d: int, widths: tuple[int, ...], p: int, bias: bool) -> int:
    """How many numbers a network of these widths has."""
    return sum((below + bias) * above for below, above in pairwise((d, *widths, p)))


def criterion(relative_rss: float, n_parameters: int, n_equations: int) -> float:
    """N·log Σr² + (parameters)·log N up to a constant, all exact fits counting alike; less is better."""
    return float(n_equations * np.log(max(relative_rss, EXACT)) + n_parameters * np.log(n_equations))


def summed_outputs(source: Source, bias: bool) -> Residuals:
    """Σ (y − ȳ)² of every output, or Σ y² for a network without constants, as sums of squared outputs."""
    p = source.n_outputs

    def about(origin: np.ndarray) -> Residuals:
        return reduce(source, Residuals(lambda X: np.zeros((len(X), p)), p, origin=origin))

    return about(about(np.zeros(p)).average("output") if bias else np.zeros(p))
