"""Prepare samples for the algorithms: whiten them, and divide them into samples to fit and held-out samples."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.data.distinct import groups_of_rows, with_gaps, without_repeats
from neurecover.data.loop import reduce
from neurecover.data.options import PrepareOptions
from neurecover.data.oracles.oracle import Oracle
from neurecover.data.source import SMALLEST, Source
from neurecover.data.sources.arrays import ArraySource, Block
from neurecover.data.views.rows import Kept, split
from neurecover.data.views.weights import WeightedRows, without_weights
from neurecover.data.views.whitening import Mapped, Whitening
from neurecover.models import Model
from neurecover.statistics import (
    Alike,
    Divided,
    Division,
    Moments,
    OutputDigits,
    OutputPrecision,
    RowSample,
    Statistic,
    Together,
)

DEFAULTS = PrepareOptions()


@dataclass(frozen=True)
class Stream:
    """The rows that a first pass over streamed samples keeps for the search, whitened and not held out.

    `division` says which rows are held out. `sample` has the kept rows, the `n_unusual` unusual ones first. In a part
    of the sample, at most one row in `unusual` is an unusual one.
    """

    division: Division
    sample: ArraySource
    n_unusual: int
    unusual: int

    def part(self, n: int) -> ArraySource:
        """Return n rows, some unusual and the others random; the whole sample if it has at most n rows."""
        if n >= self.sample.count():
            return self.sample
        unusual = min(self.n_unusual, n // self.unusual)
        first = self.n_unusual - unusual
        return self.sample.select(np.r_[first : self.n_unusual, self.n_unusual : self.n_unusual + n - unusual])


@dataclass(frozen=True)
class Prepared:
    """Whitened samples, divided into samples to fit (`train`) and held-out samples (`holdout`).

    `samples` is `source`, whitened. `moments` and `whitening` count every row once; `by_weight` are moments with the
    weights of the rows, if there are any. `n_rows` counts the given rows, and `precision` is that of the outputs.
    `distinct` has every sample once, None if there are no copies. `stream` is set if the samples do not fit into
    memory. If `n_joined` held-out samples have joined the fit, `sealed` has the held-out samples that were not used.
    """

    source: Source
    moments: Moments
    whitening: Whitening
    samples: Source
    train: Source
    holdout: Source
    n_rows: int
    precision: OutputPrecision
    stream: Stream | None = None
    by_weight: Moments | None = None
    sealed: Source | None = None
    n_joined: int = 0
    distinct: Source | None = None

    @property
    def n_distinct(self) -> int:
        """The number of distinct rows; of streamed samples, all rows count as distinct."""
        return self.moments.n if self.distinct is None else self.distinct.count()

    @property
    def copied(self) -> float:
        """The share of rows that are copies of others rather than further observations, without weights.

        Outputs coarse enough to repeat at one input also repeat between inputs. If no two distinct rows have the same
        outputs, equal rows are therefore copies of one record.
        """
        if self.distinct is None or self.source.weighted:
            return 0.0
        Y = self.distinct.collect()[1]
        return 0.0 if len(np.unique(Y, axis=0)) < len(Y) else 1.0 - self.n_distinct / self.n_rows

    @property
    def judges(self) -> Source:
        """The held-out samples that were not used for any choice."""
        return self.holdout if self.sealed is None else self.sealed

    @property
    def output_mean(self) -> np.ndarray:
        return self.fitted_moments.mean[self.source.n_inputs :]

    @property
    def fitted_moments(self) -> Moments:
        """The moments, with the rows weighted as in the fit."""
        return self.moments if self.by_weight is None else self.by_weight


def load_samples(source: Source, n_samples: int | None) -> Source:
    """Return the source, in memory if it is small; limit an oracle to its first n_samples rows."""
    if n_samples is not None:
        if not isinstance(source, Oracle):
            raise ValueError("n_samples is the number of queries to an oracle. Leave it out if you give the samples.")
        source = source.with_samples(n_samples)
    if not source.streams and not isinstance(source, ArraySource):
        return ArraySource(*source.collect(), origin=source.origin, weight=source.weights()).named_like(source)
    return source


def prepare_samples(
    source: Source, bias: bool, rng: np.random.Generator, options: PrepareOptions = DEFAULTS
) -> Prepared:
    """Whiten the samples about the mean, or about zero without biases, and divide them at random.

    Copies of a row count as observations, but either all copies are held out or none: a row with copies in both parts
    would test nothing. With weights, copies become one row with the sum of their weights. Weights are scaled to mean 1.
    """
    if source.streams:
        return _prepare_stream(source, bias, rng, options)
    n_rows = source.count()
    copies, first, group = 0, None, None
    if isinstance(source, ArraySource):
        if source.weighted:
            merged = without_repeats(source)
            # Copies count as samples when we check that there are enough.
            copies, source = n_rows - merged.count(), _of_mean_one(merged)
        else:
            first, group = groups_of_rows(np.hstack(source.collect()))
    moments = second_moments(without_weights(source), bias, copies, options.fewest)
    by_weight = second_moments(source, bias, copies, options.fewest) if source.weighted else None
    whitening = _whitening(moments, bias)
    samples = Mapped(source, whitening)
    scarce: np.ndarray | bool = False
    if isinstance(source, ArraySource) and len(source.input_names):
        scarce = _rare_rows(source.collect()[0], options.scarce)
    train, holdout = _divide(samples, group, rng, scarce, options)
    precision = reduce(source, OutputDigits(source.n_outputs)).precision()
    if isinstance(source, ArraySource):
        precision = with_gaps(precision, source.collect()[1])
    prepared = Prepared(source, moments, whitening, samples, train, holdout, n_rows, precision, None, by_weight)
    if isinstance(source, ArraySource) and first is not None and len(first) < n_rows:
        prepared = replace(prepared, distinct=Mapped(source.select(first), whitening))
    return prepared


def with_misfits(prepared: Prepared, model: Model, exact: float, options: PrepareOptions = DEFAULTS) -> Prepared | None:
    """Move the held-out samples that a model on whitened inputs predicts wrongly to the training samples.

    `exact` is Σ r² / Σ y² of a sample that is predicted up to rounding. Some held-out samples stay sealed: they are not
    looked at here, and they alone judge the new fit.
    Return None if no other sample is wrong, if so many are wrong that the model is, or if too few can be sealed.
    """
    (X, Y), (Z, known), sealed = prepared.train.collect(), prepared.holdout.collect(), prepared.sealed
    if prepared.holdout.weighted:
        return None
    if sealed is None:
        count = max(options.fewest, min(options.sealed, len(Z) // 10))
        kept = np.isin(np.arange(len(Z)), np.linspace(0, len(Z) - 1, min(count, len(Z))).astype(int))
        sealed = Block(Z[kept], known[kept], prepared.samples)
        Z, known = Z[~kept], known[~kept]
    apart = np.sum((model(Z) - known) ** 2, axis=1) > exact * np.mean(np.sum(Y**2, axis=1))
    joining = int(np.count_nonzero(apart))
    if joining == 0 or prepared.n_joined + joining > options.misfits * (prepared.n_joined + len(Z)):
        return None
    train = Block(np.vstack([X, Z[apart]]), np.vstack([Y, known[apart]]), prepared.samples)
    holdout = Block(Z[~apart], known[~apart], prepared.samples)
    return replace(prepared, train=train, holdout=holdout, sealed=sealed, n_joined=prepared.n_joined + joining)


def _of_mean_one(source: ArraySource) -> ArraySource:
    """Return the samples with weights scaled to mean one, or without weights if all are equal."""
    weight = source.weights()
    if weight is None:
        return source
    return source.with_weight(None if np.all(weight == weight[0]) else weight / weight.mean())


def second_moments(source: Source, bias: bool = True, copies: int = 0, fewest: int = DEFAULTS.fewest) -> Moments:
    """Compute second moments about the first sample, which avoids cancellation if means are large.

    Raise ValueError for fewer than `fewest` samples, including `copies` repeated rows that were removed before.
    """
    X, Y = next(source.blocks(1))
    origin = np.concatenate([X[0], Y[0]]).astype(np.float64) if bias else None
    moments = reduce(source, Moments(source.n_inputs, source.n_outputs, origin=origin))
    _check_enough(source, moments, fewest, copies)
    return moments


def _check_enough(source: Source, moments: Moments, fewest: int, copies: int = 0) -> None:
    if moments.n + copies < fewest:
        raise ValueError(
            f"{source.origin}: expected at least {fewest} samples, to hold one out. Got {moments.n} instead."
        )
    size = np.sqrt(np.diag(moments.second) + moments.mean**2)
    faint = np.flatnonzero((size > 0.0) & (size < SMALLEST))
    if len(faint):
        name = (*source.input_names, *source.output_names)[faint[0]]
        raise ValueError(
            f"{source.origin}, column {name!r}: expected values of size {SMALLEST:.0e} or more. "
            f"Got {size[faint[0]]:.1e} instead; give the column in other units."
        )


def _whitening(moments: Moments, bias: bool) -> Whitening:
    d = moments.n_inputs
    mean = moments.mean[:d] if bias else np.zeros(d)
    return Whitening.of(mean, moments.covariance[:d, :d] if bias else moments.xx)


def _prepare_stream(source: Source, bias: bool, rng: np.random.Generator, options: PrepareOptions) -> Prepared:
    """Compute moments and draw a sample of rows in one pass; read a source that proves small into memory."""
    d, p = source.n_inputs, source.n_outputs
    first_X, first_Y = (np.asarray(part, dtype=np.float64) for part in next(source.blocks(options.first_rows)))
    origin = np.concatenate([first_X[0], first_Y[0]]) if bias else None
    seeds = rng.integers(2**63, size=2)
    division = Division(options.holdout, int(seeds[0]))
    size = max(options.sample_bytes // (8 * (d + p)), 1)
    kept = RowSample(p, size, size // options.unusual, int(seeds[1]), first_X.mean(axis=0), first_X.std(axis=0))
    wanted: dict[str, Statistic] = {"moments": Moments(d, p, origin=origin), "digits": OutputDigits(p)}
    wanted["rows"] = Divided(division, train=kept)
    if source.weighted:
        wanted["alike"] = Alike(moments=Moments(d, p, origin=origin))
    sums = reduce(source, Together(**wanted))
    moments, rows = sums.part("moments", Moments), sums.part("rows", Divided).part("train", RowSample)
    by_weight, weight = moments, None
    if source.weighted:
        moments = sums.part("alike", Alike).part("moments", Moments)
    if not source.streams:
        return prepare_samples(load_samples(source, None), bias, rng, options)
    _check_enough(source, moments, options.fewest)
    whitening = _whitening(moments, bias)
    unusual, random = rows.unusual, rows.random
    together = np.vstack([unusual, random])
    if isinstance(source, WeightedRows):
        source = source.scaled(moments.n / by_weight.weight, moments.n)
        weight = source.scale * together[:, d + p]
    sample = ArraySource(whitening.inputs(together[:, :d]), together[:, d : d + p], weight=weight)
    sample.held = True
    train, holdout = (Mapped(Kept(source, division, held_out=held_out), whitening) for held_out in (False, True))
    train.n_samples, holdout.n_samples = rows.n, moments.n - rows.n
    stream, precision = (
        Stream(division, sample, len(unusual), options.unusual),
        sums.part("digits", OutputDigits).precision(),
    )
    samples = Mapped(source, whitening)
    return Prepared(
        source,
        moments,
        whitening,
        samples,
        train,
        holdout,
        moments.n,
        precision,
        stream,
        None if weight is None else by_weight,
    )


def _divide(
    samples: Source,
    group: np.ndarray | None,
    rng: np.random.Generator,
    scarce: np.ndarray | bool,
    options: PrepareOptions,
) -> tuple[Source, Source]:
    """Return training and held-out samples, as arrays if they are small. `scarce` rows are never held out.

    Rows of one `group` go to the same part; without groups each row is its own group.
    """
    group = np.arange(samples.count()) if group is None else group
    n = int(group.max(initial=-1)) + 1
    fraction = max(options.holdout, min(options.fewest / n, 0.5))
    if samples.n_inputs == 0:
        return split(samples, fraction, int(rng.integers(2**31)))
    (X, Y), weight = samples.collect(), samples.weights()
    for _ in range(100):
        drawn = np.random.default_rng(int(rng.integers(2**31))).random(n) < fraction
        held_out = drawn[group] & np.logical_not(scarce)
        if 0.8 * fraction * len(group) <= np.count_nonzero(held_out) < len(group):
            break
    train, holdout = (
        Block(X[rows], Y[rows], samples, None if weight is None else weight[rows]) for rows in (~held_out, held_out)
    )
    return train, holdout


def _rare_rows(X: np.ndarray, scarce: int) -> np.ndarray | bool:
    """Return a mask of the rows that have, in some column, a value shared by fewer than `scarce` rows.

    The fit needs these rows, because few others show the effect of that column. Return False if too many rows are rare.
    """
    differs = np.median(X, axis=0) != X
    count = differs.sum(axis=0)
    rows = differs[:, (count > 0) & (count < scarce)].any(axis=1)
    return rows if np.count_nonzero(rows) < 0.2 * len(rows) else False
