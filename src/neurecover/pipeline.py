"""The one verb: read the samples, plan, race, refine, certify."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from neurecover import activations
from neurecover.activations import Activation
from neurecover.algorithms import Estimate, Method, get_method, methods
from neurecover.algorithms.gklw19.distinguishing import distinguish
from neurecover.algorithms.gklw19.reflection import symmetry_test
from neurecover.certificate.certify import Evidence, certify, unwhitened
from neurecover.data import (
    ArraySource,
    Mapped,
    Oracle,
    Source,
    Whitening,
    as_source,
    reduce,
    side_by_side,
    split,
    subsample,
)
from neurecover.data.reflected import with_reflections
from neurecover.data.repaired import Repaired
from neurecover.models import Network
from neurecover.random import RandomStateLike, as_generator
from neurecover.refine.finisher import finish
from neurecover.refine.settling import Finished, polish
from neurecover.refine.task import Task
from neurecover.results import Certificate, Recovery, Stage
from neurecover.solve import Deadline
from neurecover.statistics import Moments, Residuals

HOLDOUT = 0.1
IN_MEMORY = 512 * 2**20  # bytes; larger sources are read again for every pass
SEARCH_LOAD = 10  # samples per parameter that the search looks at; the last fit takes all

RANDOM_ROUNDS, RESERVE_INPUTS = 3, 20  # when "auto" calls on other methods, and up to how many inputs
MOST_ASIDE = 0.25  # share of corrupted outputs beyond which the rest is no evidence

Progress = Callable[[str, float], object]


def recover(
    X: Any,
    Y: Any = None,
    n_hidden: int | None = None,
    method: str = "auto",
    activation: str | Activation = "relu",
    bias: bool = True,
    random_state: RandomStateLike = None,
    time_budget: float | None = None,
    progress: bool | Progress = False,
    n_samples: int | None = None,
) -> Recovery:
    """The network y = A·act(W x + b) + c behind the samples, with a certificate.

    Parameters
    ----------
    X, Y : arrays (n, d) and (n,) or (n, p); or X alone as a path, a data source or an oracle.
    n_hidden : the number of hidden units; None finds it.
    method : "auto", or a name from `neurecover.methods()`.
    activation : the hidden units' function, as in `neurecover.Network`.
    bias : whether b and c are free; False fixes both at zero.
    random_state : int, numpy Generator or RandomState, or None. Same seed, same answer (unless time runs out).
    time_budget : seconds after which no new work is begun; None for a fixed number of descents.
    progress : True for a line on standard error, or a callable progress(stage, relative residual).
    n_samples : how often to ask, when X is an oracle.

    Data that cannot be solved gives a `Recovery` whose verdict says so. Data that is not data raises ValueError.
    """
    began = time.monotonic()
    act = activations.get(activation)
    _check_arguments(n_hidden, time_budget)
    chosen = None if method == "auto" else get_method(method)
    rng = as_generator(random_state, "recover")
    deadline = Deadline.after(time_budget)
    source = _load(X, Y, n_samples, in_pairs=method == "symmetric")
    with _reporter(progress) as report:
        moments = _moments(source, bias, report)
        work = _Work(source, moments, act, bias, n_hidden, rng)
        stages = [
            Stage("read", time.monotonic() - began, f"{moments.n} samples, {work.whitening.rank} input dimensions")
        ]
        if (reason := work.hopeless(chosen)) is not None:
            network, certificate = work.give_up(reason)
        else:
            with side_by_side():
                network, certificate, more = work.solve(chosen, deadline, report)
            stages += more
    return Recovery(
        network, certificate, chosen.name if chosen else work.last_called, tuple(stages), time.monotonic() - began
    )


class _Work:
    """The samples, split and whitened, and the steps from them to a certified network."""

    def __init__(
        self,
        source: Source,
        moments: Moments,
        activation: Activation,
        bias: bool,
        n_hidden: int | None,
        rng: np.random.Generator,
    ) -> None:
        d = source.n_inputs
        self.bias, self.rng, self.moments = bias, rng, moments
        mean = moments.mean[:d] if bias else np.zeros(d)
        spread = moments.covariance[:d, :d] if bias else moments.xx
        self.whitening = Whitening.of(mean, spread)
        self.source = source
        self.samples: Source = Mapped(source, self.whitening)
        self.train, self.holdout = _split(self.samples, moments.n, rng)
        self.activation, self.n_hidden = activation, n_hidden
        self.last_called = "least_squares"
        self.notes: tuple[str, ...] = ()
        self.aside: tuple[str, ...] = ()

    def task(self, n_samples: int) -> Task:
        p = self.source.n_outputs
        return Task(self.activation, self.whitening.rank, p, n_samples, self.bias, self.n_hidden)

    def hopeless(self, method: Method | None) -> str | None:
        """Why no fit is tried at all, or None."""
        task = self.task(self.moments.n)
        spread = np.sqrt(np.diag(self.moments.covariance)[self.source.n_inputs :])
        size = np.abs(self.moments.mean[self.source.n_inputs :])
        if np.all(spread <= 1e-13 * size):
            return "The outputs are constant, so they say nothing of any hidden unit."
        if self.whitening.rank == 0:
            return "The inputs are constant, so they say nothing of any hidden unit."
        width = self.n_hidden or 1
        wanted = task.n_parameters(width, affine=False) - width
        if wanted >= self.moments.n * task.n_outputs:
            return (
                f"{self.moments.n * task.n_outputs} numbers in Y cannot determine the {wanted} parameters "
                f"of {width} hidden units. Give more samples or fewer units."
            )
        return (method or get_method("least_squares")).refuse(task)

    def give_up(self, reason: str) -> tuple[Network, Certificate]:
        """The mean of the outputs as a network without units, and the reason."""
        d, p = self.source.n_inputs, self.source.n_outputs
        c = self.moments.mean[d:] if self.bias else np.zeros(p)
        network = Network(np.zeros((0, d)), None, np.zeros((p, 0)), c, self.activation)
        residuals = reduce(self.holdout, Residuals(lambda X: np.tile(c, (len(X), 1)), p, origin=c))
        constant = residuals.mse <= (1e-12 * float(np.abs(c).max(initial=0.0))) ** 2
        verdict = "approximate" if constant else "failed"
        return network, Certificate(verdict, (reason,), residuals.mse, None, False, self.moments.n, residuals.n)

    def solve(
        self, method: Method | None, deadline: Deadline, report: Progress
    ) -> tuple[Network, Certificate, list[Stage]]:
        stages = []
        clock = time.monotonic()

        def stage(name: str, detail: str) -> None:
            nonlocal clock
            now = time.monotonic()
            stages.append(Stage(name, now - clock, detail))
            clock = now

        starts = self._starts(method, deadline, stages)
        if method is not None:
            starts = iter(list(starts))  # before the search, which may then see other samples
        sample = self._search_sample()
        task = self.task(_count(sample))
        found = finish(sample, task, self.rng, deadline, starts, report)
        stage("search", _search_sentence(found, _count(sample)))
        if sample is not self.train:
            found = polish(self.train, found, self.bias, deadline)
            stage("refine", f"relative residual {np.sqrt(found.relative_rss):.1e} on {_count(self.train)} samples")
        network = found.network
        residuals = reduce(self.holdout, Residuals(network, network.n_outputs, network.n_hidden, self._output_mean()))
        final = polish(self.samples, found, self.bias, deadline)
        stage("last fit", f"relative residual {np.sqrt(final.relative_rss):.1e} on all {self.moments.n} samples")
        evidence = Evidence(self.n_hidden, found.sign_choices, found.agreements, final.converged, found.last_drop)
        certificate = certify(final.network, self.whitening, self.samples, residuals, evidence, self.bias, self.rng)
        more = self._symmetry(final.network) if method is not None and method.name == "symmetric" else ()
        if method is not None and certificate.verdict in ("approximate", "failed"):
            more = (*self.notes, *more)  # what the method says of its assumptions
        certificate = replace(certificate, reasons=(*certificate.reasons, *self.aside, *more))
        stage("certify", certificate.verdict)
        return unwhitened(final.network, self.whitening), certificate, stages

    def _starts(self, method: Method | None, deadline: Deadline, stages: list[Stage]) -> Iterator[np.ndarray]:
        """Hidden weights to begin a round of descents with: the method's estimate.

        For "auto" there are none for the first rounds, which makes them random, and then the estimates of the methods
        that apply.
        """
        task = self.task(_count(self.train))
        called = [method]
        if method is None:
            yield from [np.empty((0, task.n_inputs + task.bias))] * RANDOM_ROUNDS
            called = [reserve for reserve in methods() if reserve.reserve and reserve.refuse(task) is None]
            called = called if task.n_inputs <= RESERVE_INPUTS else []  # beyond, their tensors take minutes
        for each in called:
            if each is None or each.estimate is None or deadline.passed:
                continue
            began = time.monotonic()
            try:
                estimate = each.estimate(self.train, task, self.rng, deadline)
            except ValueError as error:  # data that this method cannot solve
                estimate = Estimate(None, (str(error),))
            stages.append(Stage(each.name, time.monotonic() - began, " ".join(estimate.notes) or "an estimate"))
            self.last_called, self.notes = each.name, estimate.notes
            if each.sets_aside and estimate.network is not None:
                self._set_aside(estimate.network)
            yield from _as_starts(estimate, self.bias)

    def _set_aside(self, network: Network) -> None:
        """Go on with samples that are free of the gross errors the network shows."""
        d = self.source.n_inputs
        tolerance = 1e-6 * float(np.sqrt(np.diag(self.moments.second)[d:].max(initial=0.0)))
        kept = {name: Repaired(getattr(self, name), network, tolerance) for name in ("train", "holdout", "samples")}
        share = kept["holdout"].share
        if share > MOST_ASIDE:
            return
        self.train, self.holdout, self.samples = kept["train"], kept["holdout"], kept["samples"]
        off = f"{share:.1%} of the held-out outputs are off by more than {tolerance:.1e}"
        self.aside = (f"{off} and were set aside as corrupted.",)

    def _search_sample(self) -> Source:
        width = self.task(self.moments.n).width(True) if self.n_hidden else 64
        wanted = max(2_000, SEARCH_LOAD * self.task(self.moments.n).n_parameters(width, affine=True))
        if wanted >= 0.9 * _count(self.train):
            return self.train
        return subsample(self.train, wanted, int(self.rng.integers(2**31)))

    def _symmetry(self, network: Network) -> tuple[str, ...]:
        """The diagnoses of [GKLW19]: are the inputs symmetric, and by how much do they tell the units apart?"""
        distinguished = distinguish(network, self.samples)
        told = () if distinguished is None else (distinguished.sentence,)
        return (symmetry_test(self.samples, self.rng).sentence, *told)

    def _output_mean(self) -> np.ndarray:
        return self.moments.mean[self.source.n_inputs :]


def _check_arguments(n_hidden: int | None, time_budget: float | None) -> None:
    if n_hidden is not None and (
        not isinstance(n_hidden, int | np.integer) or isinstance(n_hidden, bool) or n_hidden < 1
    ):
        raise ValueError(
            f"n_hidden needs to be a whole number from 1, or None to have it found. Got {n_hidden!r} instead."
        )
    if time_budget is not None and not time_budget >= 0:
        raise ValueError(f"time_budget needs to be a number of seconds from 0. Got {time_budget!r} instead.")


def _load(X: Any, Y: Any, n_samples: int | None, in_pairs: bool) -> Source:
    """The source, as arrays where it is small; `in_pairs`, an oracle is asked at x and −x together."""
    source = as_source(X, Y)
    if n_samples is not None:
        if not isinstance(source, Oracle):
            raise ValueError(
                "n_samples goes with an oracle, which is asked that often. Leave it out for given samples."
            )
        source = source.with_samples(n_samples)
    if in_pairs and isinstance(source, Oracle):
        source = with_reflections(source)
    size = None if source.n_samples is None else 8 * source.n_samples * (source.n_inputs + source.n_outputs)
    if size is not None and size <= IN_MEMORY and not isinstance(source, ArraySource):
        return ArraySource(*source.collect(), origin=source.origin)
    return source


def _moments(source: Source, bias: bool, report: Progress) -> Moments:
    """Second moments about the first sample, which keeps large means from cancelling the digits."""
    X, Y = next(source.blocks(1))
    origin = np.concatenate([X[0], Y[0]]).astype(np.float64) if bias else None
    report("read", float("nan"))
    moments = reduce(source, Moments(source.n_inputs, source.n_outputs, origin=origin))
    if moments.n < 5:
        raise ValueError(f"{source.origin}: expected at least 5 samples, to hold one out. Got {moments.n} instead.")
    return moments


def _split(samples: Source, n: int, rng: np.random.Generator) -> tuple[Source, Source]:
    """Training and held-out samples; kept as arrays where they are small."""
    fraction = max(HOLDOUT, min(5 / n, 0.5))
    for _ in range(100):
        train, holdout = split(samples, fraction, int(rng.integers(2**31)))
        if 0.8 * fraction * n <= _count(holdout) < n:
            break
    if samples.n_inputs == 0 or 8 * n * (samples.n_inputs + samples.n_outputs) > IN_MEMORY:
        return train, holdout
    return ArraySource(*train.collect()), ArraySource(*holdout.collect())


def _count(source: Source) -> int:
    if source.n_samples is None:
        source.n_samples = sum(len(X) for X, _ in source.blocks(65_536))
    return source.n_samples


def _as_starts(estimate: Estimate, bias: bool) -> list[np.ndarray]:
    net = estimate.network
    first = [] if net is None else [np.hstack([net.W, net.b[:, None]]) if bias else net.W]
    return [*first, *estimate.starts]


def _search_sentence(found: Finished, n: int) -> str:
    return (
        f"{found.network.n_hidden} units, relative residual {np.sqrt(found.relative_rss):.1e} on {n} samples "
        f"after {found.descents} descent{'' if found.descents == 1 else 's'}"
    )


@contextmanager
def _reporter(progress: bool | Progress) -> Iterator[Progress]:
    """Where progress goes: nowhere, to the caller's function, or to a line on standard error."""
    if callable(progress):
        yield progress
    elif not progress:
        yield lambda stage, residual: None
    else:
        from rich.console import Console

        with Console(stderr=True).status("reading") as status:
            yield lambda stage, residual: status.update(
                stage if np.isnan(residual) else f"{stage}: relative residual {np.sqrt(residual):.1e}"
            )
