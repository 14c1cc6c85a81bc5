"""Some of the rows of a source: a random split in two, and a random sample of n.

For arrays, one uniform number u_i per row is drawn in the order of the rows. Which rows are chosen depends on the seed
and on i alone, not on the block size. The numbers of streamed rows depend on the values in the row instead
(`Division`), so that the order in which rows are read, and the machine that reads them, make no difference.
"""

from collections.abc import Callable

import numpy as np

from neurecover.data.source import Source
from neurecover.data.sources.arrays import ArraySource
from neurecover.data.views.view import Seen, View
from neurecover.statistics import Division

_STRETCH = 2**16  # random numbers drawn at a time, 512 kB


class Rows(View):
    """The rows i of a parent with u_i < fraction, or the others; u_i is the i-th double of the seed."""

    def __init__(self, parent: Source, fraction: float, seed: np.random.SeedSequence, *, below: bool) -> None:
        super().__init__(parent, f"{'held-out' if below else 'training'} rows")
        self._fraction, self._seed, self._below = fraction, seed, below
        self.n_samples = None if parent.n_samples is None else self._count(parent.n_samples)
        if self.n_samples == 0:
            raise ValueError(
                f"{self.origin}: a split leaves both parts at least one row. "
                f"Got none of {parent.n_samples} rows at fraction {fraction} instead; give more samples."
            )

    def _begin(self) -> Callable[[np.ndarray, np.ndarray], Seen]:
        rng = np.random.default_rng(self._seed)

        def see(X: np.ndarray, Y: np.ndarray) -> Seen:
            mine = self._chosen(rng, len(X))
            return X[mine], Y[mine], mine

        return see

    def _chosen(self, rng: np.random.Generator, m: int) -> np.ndarray:
        return (rng.random(m) < self._fraction) == self._below

    def _count(self, n: int) -> int:
        rng = np.random.default_rng(self._seed)
        return sum(
            int(np.count_nonzero(self._chosen(rng, min(_STRETCH, n - start)))) for start in range(0, n, _STRETCH)
        )


class Kept(View):
    """The rows that a division holds out, or all others."""

    def __init__(self, parent: Source, division: Division, *, held_out: bool) -> None:
        super().__init__(parent, f"{'held-out' if held_out else 'training'} rows")
        self._division, self._held_out = division, held_out

    def _seen(self, X: np.ndarray, Y: np.ndarray) -> Seen:
        mine = self._division.held_out(X, Y) == self._held_out
        return X[mine], Y[mine], mine


def split(source: Source, fraction: float, seed: int | None) -> tuple[Source, Source]:
    """Return (train, holdout): row i is held out when the i-th double of default_rng(seed) is < fraction.

    A streamed source is divided at its base, by the values as they are read, before any view changes them.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"The held-out fraction lies strictly between 0 and 1. Got {fraction} instead.")
    if source.base.streams:
        division = Division(fraction, int(np.random.default_rng(seed).integers(2**63)))
        base = source.base
        train, holdout = (source.on(Kept(base, division, held_out=held_out)) for held_out in (False, True))
        return train, holdout
    # Both parts and every pass use one seed sequence, so that even seed=None gives a partition.
    sequence = np.random.SeedSequence(seed)
    return Rows(source, fraction, sequence, below=False), Rows(source, fraction, sequence, below=True)


def subsample(source: Source, n: int, seed: int | None) -> ArraySource:
    """Draw n rows uniformly without replacement, or all if there are fewer, in their own order.

    The rows with the n smallest u_i are a uniform sample. One pass keeps the n smallest so far
    and does not need the total number of rows.
    """
    if n < 1:
        raise ValueError(f"A sample holds at least one row. Got n={n} instead.")
    rng = np.random.default_rng(seed)
    kept: tuple[np.ndarray, ...] = ()
    # A merge copies up to n rows, so blocks of n or more keep the copying proportional to the data.
    for X, Y, weight in source.weighted_blocks(max(n, _STRETCH)):
        u = rng.random(len(X))
        full = bool(kept) and len(kept[0]) == n
        # Rows stay in their order, since the newcomers are appended and the choice below is sorted.
        better = u < kept[0].max() if full else np.ones(len(u), bool)
        new = (u[better], X[better], Y[better], *(() if weight is None else (weight[better],)))
        kept = tuple(np.concatenate(pair) for pair in zip(kept, new)) if kept else new
        if len(kept[0]) > n:
            smallest = np.sort(np.argpartition(kept[0], n - 1)[:n])
            kept = tuple(array[smallest] for array in kept)
    _, X, Y, *rest = kept
    origin = f"{source.origin} (a sample of {len(X)} rows)"
    sample = ArraySource(X, Y, origin=origin, weight=rest[0] if rest else None)
    sample.input_names, sample.output_names = source.input_names, source.output_names
    return sample
