"""Samples as every algorithm wants them: whitened, and divided into those to fit and those held out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.data.arrays import ArraySource
from neurecover.data.distinct import with_gaps, without_repeats
from neurecover.data.loop import reduce
from neurecover.data.mapped import Mapped, Whitening
from neurecover.data.oracles import Oracle
from neurecover.data.rows import split
from neurecover.data.source import SMALLEST, Source
from neurecover.statistics import Moments, OutputDigits, OutputPrecision

HOLDOUT = 0.1
FEWEST = 5  # samples
IN_MEMORY = 512 * 2**20  # bytes; larger sources are read again for every pass


@dataclass(frozen=True)
class Prepared:
    """`samples` are those of `source`, whitened; `train` and `holdout` are disjoint parts of them.

    `n_given` is how many rows there were before those that repeat others were left out, `precision` the digits of the
    outputs.
    """

    source: Source
    moments: Moments
    whitening: Whitening
    samples: Source
    train: Source
    holdout: Source
    n_given: int
    precision: OutputPrecision

    @property
    def output_mean(self) -> np.ndarray:
        return self.moments.mean[self.source.n_inputs :]


def loaded(source: Source, n_samples: int | None) -> Source:
    """The source with as many rows as an oracle is to be asked, as arrays where it is small."""
    if n_samples is not None:
        if not isinstance(source, Oracle):
            raise ValueError(
                "n_samples goes with an oracle, which is asked that often. Leave it out for given samples."
            )
        source = source.with_samples(n_samples)
    if source.n_samples is not None and not isinstance(source, ArraySource) and _fits(source, source.n_samples):
        return ArraySource(*source.collect(), origin=source.origin)
    return source


def prepared(source: Source, bias: bool, rng: np.random.Generator) -> Prepared:
    """Whitened about the mean, or about zero without biases, and divided at random.

    Rows that repeat others exactly are left out where the samples are in memory: a copy in both parts would be no test.
    """
    n_given = source.count()
    if isinstance(source, ArraySource) and _fits(source, n_given):
        source = without_repeats(source)
    moments = second_moments(source, bias)
    d = source.n_inputs
    mean = moments.mean[:d] if bias else np.zeros(d)
    whitening = Whitening.of(mean, moments.covariance[:d, :d] if bias else moments.xx)
    samples = Mapped(source, whitening)
    train, holdout = _divided(samples, moments.n, rng)
    precision = reduce(source, OutputDigits(source.n_outputs)).precision()
    if isinstance(source, ArraySource):
        precision = with_gaps(precision, source.collect()[1])
    return Prepared(source, moments, whitening, samples, train, holdout, n_given, precision)


def second_moments(source: Source, bias: bool = True) -> Moments:
    """Second moments about the first sample, which keeps large means from cancelling the digits."""
    X, Y = next(source.blocks(1))
    origin = np.concatenate([X[0], Y[0]]).astype(np.float64) if bias else None
    moments = reduce(source, Moments(source.n_inputs, source.n_outputs, origin=origin))
    if moments.n < FEWEST:
        raise ValueError(
            f"{source.origin}: expected at least {FEWEST} samples, to hold one out. Got {moments.n} instead."
        )
    size = np.sqrt(np.diag(moments.second) + moments.mean**2)
    faint = np.flatnonzero((size > 0.0) & (size < SMALLEST))
    if len(faint):
        name = (*source.input_names, *source.output_names)[faint[0]]
        raise ValueError(
            f"{source.origin}, column {name!r}: expected values of size {SMALLEST:.0e} or more. "
            f"Got {size[faint[0]]:.1e} instead; give the column in other units."
        )
    return moments


def _divided(samples: Source, n: int, rng: np.random.Generator) -> tuple[Source, Source]:
    """Training and held-out samples; kept as arrays where they are small."""
    fraction = max(HOLDOUT, min(FEWEST / n, 0.5))
    for _ in range(100):
        train, holdout = split(samples, fraction, int(rng.integers(2**31)))
        if 0.8 * fraction * n <= holdout.count() < n:
            break
    if samples.n_inputs == 0 or not _fits(samples, n):
        return train, holdout
    return ArraySource(*train.collect()), ArraySource(*holdout.collect())


def _fits(source: Source, n: int) -> bool:
    return 8 * n * (source.n_inputs + source.n_outputs) <= IN_MEMORY
