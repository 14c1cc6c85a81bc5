"""Starts for the halfspaces of a union, and their number.

The units of Step 1 are the first start. Others grow: a unit at a time is put where samples inside the union are
missed, and what does least is dropped. The number of units is that of the least

    BIC(k) = −2 log-likelihood + (k (d + 1) + 2) log n.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import entr, ndtri

from neurecover.activations import get
from neurecover.algorithms.gp18.landscape.step_one import directions, hermite_coefficients
from neurecover.algorithms.gp18.options import DEFAULTS, UnionOptions
from neurecover.algorithms.gp18.union.fit import UnionFit, fit_union, missed_samples, with_unit, without_unit
from neurecover.algorithms.gp18.union.splits import splits
from neurecover.data import Source, subsample
from neurecover.exceptions import UnsolvableError


@dataclass(frozen=True)
class UnionFound:
    """The fit on all samples, and the criterion BIC(k) of every number of units that was tried on those of the search.

    `explained` is whether flipped labels account for all samples that are missed, and a unit costs `price` of BIC.
    """

    fit: UnionFit
    criteria: dict[int, float]
    explained: bool
    price: float

    def gap(self, k: int) -> float:
        """Return BIC with k units minus BIC of the fit; nan if k was not tried."""
        return self.criteria.get(k, np.nan) - self.criteria[len(self.fit.W)]


def find_union(
    labels: Source, rng: np.random.Generator, n_hidden: int | None = None, options: UnionOptions = DEFAULTS.union
) -> UnionFound:
    """Find the union behind labels y ∈ {0, 1} of whitened inputs, and the number of halfspaces if n_hidden is None."""
    n = labels.count()
    sample = labels if n <= options.rows else subsample(labels, options.rows, int(rng.integers(2**31)))
    search = _Search.of(sample, labels, rng, options)
    best, criteria = search.with_best_size() if n_hidden is None else search.with_size(n_hidden)
    if sample is not labels:
        best = fit_union(labels, best.W, best.threshold, best.tan_alpha, flips=best.flips, options=options)
    explained = missed_samples(labels, best).by_chance and not splits(labels, best, options)
    return UnionFound(best, criteria, explained, (labels.n_inputs + 1) * float(np.log(sample.count())))


@dataclass(frozen=True)
class _Search:
    """The samples of the search, Hermite coefficients of all labels with their standard error, random numbers."""

    sample: Source
    tensors: dict[int, np.ndarray]
    error: np.ndarray
    share: float
    rng: np.random.Generator
    options: UnionOptions

    @classmethod
    def of(cls, sample: Source, labels: Source, rng: np.random.Generator, options: UnionOptions) -> _Search:
        tensors, error = hermite_coefficients(labels, labels.count(), 3)
        share = float(np.mean(sample.collect()[1]))
        return cls(sample, tensors, error, share, rng, options)

    def of_size(self, k: int) -> UnionFit:
        """Find the best fit of k units: from Step 1, and from other starts if that leaves samples unexplained."""
        best: UnionFit | None = None
        for start in self._starts(k):
            fit = self._fit(start)
            if best is None or fit.log_likelihood > best.log_likelihood:
                best = fit
            if missed_samples(self.sample, best).by_chance:
                break
        assert best is not None
        return self._resplit(best)

    def with_size(self, k: int) -> tuple[UnionFit, dict[int, float]]:
        """Return the best fit of k units, and the criteria of k − 1, k, k + 1 and no units."""
        best = self.of_size(k)
        criteria = {0: self.constant_criterion(), k: self.criterion(best)}
        if k > 1:
            criteria[k - 1] = self.criterion(self._narrower(best))
        if k < self._most:
            criteria[k + 1] = self.criterion(self._best_of(self._grown(best)))
        return best, criteria

    def with_best_size(self) -> tuple[UnionFit, dict[int, float]]:
        """Find the number of units by BIC: from that of Step 1 up and down as long as BIC falls."""
        first = self.step_one(None)
        here = self._fit(self._mean_start() if first is None or len(first.W) > self._most else first)
        fits = {len(here.W): here}
        criteria = {0: self.constant_criterion(), len(here.W): self.criterion(here)}
        while True:
            k = min(fits, key=criteria.__getitem__)
            wider, narrower = k + 1 not in fits and k < self._most, k > 1 and k - 1 not in fits
            if wider:
                fits[k + 1] = self._wider(fits[k])
                criteria[k + 1] = self.criterion(fits[k + 1])
            if narrower:
                fits[k - 1] = self._narrower(fits[k])
                criteria[k - 1] = self.criterion(fits[k - 1])
            if not wider and not narrower:
                break
        return fits[k], criteria

    @property
    def _most(self) -> int:
        """The number of units that the samples can carry."""
        return max(1, (self.sample.count() // self.options.load - 2) // (self.sample.n_inputs + 1))

    def step_one(self, k: int | None) -> UnionFit | None:
        """Return the units that the moments show, as a start; None if they show none, or fewer than k."""
        r = self.sample.n_inputs
        if k is not None and k > r:
            return None
        try:
            found = directions(self.tensors, r, self.rng, n_hidden=k, standard_error=self.error)
        except UnsolvableError:
            return None
        return self._start(found.signed(get("step")).W, self.options.narrow)

    def _starts(self, k: int) -> Iterator[UnionFit]:
        first = self.step_one(k)
        if first is not None:
            yield first
        growing = self._fit(self._mean_start())
        while len(growing.W) < k:
            growing = self._wider(growing)
        yield growing
        for _ in range(self.options.random_starts):
            turned = self._mean_start().W + 0.7 * self.rng.standard_normal((k, self.sample.n_inputs))
            yield self._start(turned, self.options.wide)

    def _mean_start(self) -> UnionFit:
        """Return a start with one unit along the mean of the samples inside."""
        mean = self.tensors[1]
        return self._start(mean if np.any(mean) else np.eye(1, self.sample.n_inputs), self.options.wide)

    def _start(self, W: np.ndarray, tan: float) -> UnionFit:
        """Return a start with one threshold for all: 1 − ∏Φ(tᵢ) is the share inside for orthogonal units."""
        k = len(W)
        t = float(ndtri(np.clip(1.0 - self.share, 1e-6, 1.0 - 1e-6) ** (1.0 / k)))
        flips = np.full(2, self.options.first_flips)
        return UnionFit(W / np.linalg.norm(W, axis=1, keepdims=True), np.full(k, t), np.full(k, tan), flips)

    def _fit(self, start: UnionFit) -> UnionFit:
        return fit_union(
            self.sample, start.W, start.threshold, start.tan_alpha, flips=start.flips, options=self.options
        )

    def _wider(self, fit: UnionFit) -> UnionFit:
        """Return the fit with one unit more, placed where samples are missed, or with all units from Step 1 if that
        fits better.
        """
        first = self.step_one(len(fit.W) + 1)
        return self._best_of([*self._grown(fit), *([] if first is None else [first])])

    def _grown(self, fit: UnionFit) -> list[UnionFit]:
        """Return starts with a unit more, where samples are missed or in place of one that may be two."""
        lost = missed_samples(self.sample, fit)
        if lost.count == 0:  # nothing shows the way
            lost = replace(lost, mean=self.rng.standard_normal(self.sample.n_inputs))
        return [with_unit(fit, lost), *self._splits(fit)]

    def _splits(self, fit: UnionFit) -> list[UnionFit]:
        return splits(self.sample, fit, self.options)[: self.options.splits]

    def _best_of(self, starts: list[UnionFit]) -> UnionFit:
        return max((self._fit(start) for start in starts), key=lambda found: found.log_likelihood)

    def _resplit(self, fit: UnionFit) -> UnionFit:
        """Return the fit, or a better one in which one unit is split in two and the least useful is dropped."""
        for start in self._splits(fit) if len(fit.W) > 1 else []:
            least = int(np.argmin(missed_samples(self.sample, start).alone[: len(fit.W) - 1]))
            again = self._fit(without_unit(start, least))
            if again.log_likelihood > fit.log_likelihood + 1.0:
                return again
        return fit

    def _narrower(self, fit: UnionFit) -> UnionFit:
        """Return the fit without the unit that contributes least, fitted again."""
        return self._fit(without_unit(fit, int(np.argmin(missed_samples(self.sample, fit).alone))))

    def criterion(self, fit: UnionFit) -> float:
        k, d = fit.W.shape
        return -2.0 * fit.log_likelihood + (k * (d + 1) + 2) * float(np.log(self.sample.count()))

    def constant_criterion(self) -> float:
        """Return BIC of labels that do not depend on the inputs."""
        n = self.sample.count()
        return 2.0 * n * float(entr(self.share) + entr(1.0 - self.share)) + float(np.log(n))
