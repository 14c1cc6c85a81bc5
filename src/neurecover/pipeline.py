"""From samples to a certified network, each step a function from one frozen value to the next:

load → prepare (whiten, divide) → estimate (an algorithm) → search and fit (the finisher) → certify → Recovery
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from neurecover import activations
from neurecover.activations import Activation
from neurecover.algorithms import Algorithm, Call, get_method, methods
from neurecover.certificate import Certificate, Check, Evidence, certify, certify_nothing
from neurecover.data import (
    Oracle,
    Prepared,
    Source,
    as_source,
    loaded,
    prepared,
    reduce,
    side_by_side,
    split,
    subsample,
    unwhitened,
)
from neurecover.exceptions import UnsolvableError
from neurecover.models import Composite, Model, Network
from neurecover.random import RandomStateLike, as_generator
from neurecover.refine.finisher import finish
from neurecover.refine.model_fit import can_be_fitted, fit_model
from neurecover.refine.settling import Finished, polish
from neurecover.refine.task import Task
from neurecover.results import Estimate, Recovery, Stage
from neurecover.solve import Deadline
from neurecover.statistics import Residuals

SEARCH_LOAD = 10  # samples per parameter that the search looks at; the last fit takes all
RANDOM_ROUNDS, RESERVE_INPUTS = 3, 20  # when "auto" calls on other methods, and up to how many inputs

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
    clock = _Clock()
    act = activations.get(activation)
    _check_arguments(n_hidden, time_budget)
    algorithm = None if method == "auto" else _network_method(method)
    rng = as_generator(random_state, "recover")
    deadline = Deadline.after(time_budget)
    with _reporter(progress) as report:
        report("read", float("nan"))
        source, n_queries = _load(X, Y, n_samples, algorithm)
        given = prepared(source, bias, rng)
        task = Task(act, given.whitening.rank, source.n_outputs, given.moments.n, bias, n_hidden)
        clock.stage("read", _read_sentence(given))
        if (reason := _hopeless(given, task, algorithm)) is not None:
            network, certificate = _nothing(given, task, reason)
            return clock.recovery(network, certificate, method if algorithm else "least_squares", None, n_queries)
        with side_by_side():
            if algorithm is None:
                solved = _solve_by_race(given, task, rng, deadline, report, clock)
            else:
                solved = _solve_by(algorithm, given, task, rng, deadline, report, clock)
    return clock.recovery(solved.network, solved.certificate, solved.method, solved.estimate, n_queries)


def estimate(
    X: Any,
    Y: Any = None,
    n_hidden: int | None = None,
    method: str = "hermite",
    form: str = "best",
    activation: str | Activation = "relu",
    bias: bool = True,
    random_state: RandomStateLike = None,
    time_budget: float | None = None,
    n_samples: int | None = None,
) -> Estimate:
    """An algorithm's own answer, before the finisher, with its record as `details`.

    form is "best", the algorithm as it is used here, or "paper", as it is printed, where that differs. The other
    parameters are those of `recover`. Data that the algorithm cannot solve gives an `Estimate` without a network whose
    notes say why.
    """
    began = time.monotonic()
    act = activations.get(activation)
    _check_arguments(n_hidden, time_budget)
    algorithm = get_method(method)
    if algorithm.run is None:
        raise ValueError(f"{method} has no estimate of its own: it is the finisher. Use recover instead.")
    if form not in algorithm.forms:
        raise ValueError(f"{method} comes in the form {' or '.join(algorithm.forms)}. Got {form!r} instead.")
    rng = as_generator(random_state, "estimate")
    deadline = Deadline.after(time_budget)
    source, _ = _load(X, Y, n_samples, algorithm)
    given = prepared(source, bias, rng)
    task = Task(act, given.whitening.rank, source.n_outputs, given.moments.n, bias, n_hidden)
    reason = algorithm.refuse(task)
    if reason is not None:
        return Estimate(None, (reason,), method=method, form=form, seconds=time.monotonic() - began)
    with side_by_side():
        found = estimated(algorithm, Call(given.samples, task, rng, deadline, form))
    network = None if found.network is None else unwhitened(found.network, given.whitening).normal_form()
    return replace(found, network=network, seconds=time.monotonic() - began)


def recover_lowest_layer(
    X: Any,
    Y: Any = None,
    n_hidden: int | None = None,
    upper: str = "polynomial",
    method: str = "lowest_layer",
    activation: str | Activation = "relu",
    n_upper: int | tuple[int, ...] | None = None,
    upper_activation: str | Activation = "relu",
    max_degree: int = 3,
    random_state: RandomStateLike = None,
    time_budget: float | None = None,
    progress: bool | Progress = False,
    n_samples: int | None = None,
) -> Recovery:
    """The first layer and the upper part of y = upper(act(W x − t)) [GP18], as a `Composite`, with a certificate.

    Parameters
    ----------
    X, Y : Gaussian inputs (n, d) and outputs (n,) or (n, 1); or X alone as a path, a data source or an oracle.
    n_hidden : the units of the first layer, at most d; None finds them.
    upper : "polynomial", sparse and of degree up to max_degree; "network", one hidden layer of n_upper units (None
        finds them); or "deep", hidden layers of the widths n_upper.
    method : how the first layer is found, a name from `neurecover.methods()` that finds a composite.

    The other parameters are those of `recover`.
    """
    from neurecover.algorithms.gp18.whole import explained, fit_upper, polished

    clock = _Clock()
    act = activations.get(activation)
    _check_arguments(n_hidden, time_budget)
    algorithm = get_method(method)
    if algorithm.finds != "composite":
        raise ValueError(f"{method} finds a network of one hidden layer: use recover instead.")
    rng = as_generator(random_state, "recover_lowest_layer")
    deadline = Deadline.after(time_budget)
    with _reporter(progress) as report:
        report("read", float("nan"))
        source, n_queries = _load(X, Y, n_samples, algorithm)
        given = prepared(source, True, rng)
        task = Task(act, given.whitening.rank, source.n_outputs, given.moments.n, True, n_hidden)
        clock.stage("read", _read_sentence(given))
        if (reason := _hopeless(given, task, algorithm)) is not None:
            return clock.recovery(*_nothing(given, task, reason), method, None, n_queries)
        with side_by_side():
            report(method, float("nan"))
            found = estimated(algorithm, Call(given.train, _sized(task, given.train), rng, deadline))
            clock.stage(method, " ".join(found.notes) or "an estimate")
            if not isinstance(found.network, Composite):
                reason = " ".join(found.notes) or f"{method} found no layer."
                return clock.recovery(*_nothing(given, task, reason), method, found, n_queries)
            fit, chosen = split(given.train, 0.2, int(rng.integers(2**31)))
            whole = fit_upper(
                fit,
                found.network,
                upper,
                rng=rng,
                n_upper=n_upper,
                max_degree=max_degree,
                activation=upper_activation,
                deadline=deadline,
            )
            whole = polished(whole, fit, chosen, rng)
            clock.stage("upper part", f"{upper}, R² = {explained(whole, chosen):.6f} on samples not used for it")
            network, certificate = _certified_composite(given, whole, n_hidden, rng, deadline, clock)
    notes = tuple(Check(method, True, None, None, note) for note in found.notes)
    certificate = replace(certificate, checks=(*certificate.checks, *notes))
    return clock.recovery(network, certificate, method, _in_inputs(found, given), n_queries)


def _certified_composite(
    given: Prepared,
    whole: Composite,
    n_hidden: int | None,
    rng: np.random.Generator,
    deadline: Deadline,
    clock: _Clock,
) -> tuple[Model, Certificate]:
    """The network fitted to all samples once more, in the coordinates of the inputs, and its certificate."""
    held_out = Residuals(whole, whole.n_outputs, 4 * whole.n_hidden, given.output_mean)
    residuals = reduce(given.holdout, held_out)
    converged = False
    if can_be_fitted(whole):
        fit = fit_model(given.samples, whole, deadline)
        whole, converged = fit.network, fit.converged
        clock.stage("last fit", f"relative residual {np.sqrt(fit.relative_rss):.1e} on all {given.moments.n} samples")
    evidence = Evidence(n_hidden, converged=converged)
    certificate = certify(whole, given.whitening, given.samples, residuals, evidence, rng)
    clock.stage("certify", certificate.verdict)
    return unwhitened(whole, given.whitening).normal_form(), certificate


def estimated(algorithm: Algorithm, call: Call) -> Estimate:
    """What the algorithm finds on whitened samples; nothing, and why, where it cannot go on."""
    began = time.monotonic()
    assert algorithm.run is not None
    try:
        found = algorithm.run(call)
    except UnsolvableError as reason:
        found = Estimate(None, (str(reason),))
    return replace(found, method=algorithm.name, form=call.form, seconds=time.monotonic() - began)


@dataclass(frozen=True)
class _Solved:
    """The network in the coordinates of the inputs, its certificate, and who found it."""

    network: Network
    certificate: Certificate
    method: str
    estimate: Estimate | None


def _solve_by(
    algorithm: Algorithm,
    given: Prepared,
    task: Task,
    rng: np.random.Generator,
    deadline: Deadline,
    report: Progress,
    clock: _Clock,
) -> _Solved:
    """One algorithm's estimate, then the finisher from there."""
    found: Estimate | None = None
    aside: tuple[Check, ...] = ()
    if algorithm.run is not None:
        found = estimated(algorithm, Call(given.train, _sized(task, given.train), rng, deadline))
        clock.stage(algorithm.name, " ".join(found.notes) or "an estimate")
        if algorithm.clean is not None and found.network is not None:
            given, aside = algorithm.clean(given, found)
    network, certificate, finished = _finished(given, task, _as_starts(found, task.bias), rng, deadline, report, clock)
    more = (*aside, *algorithm.diagnose(finished, given.samples, rng))
    if found is not None and certificate.verdict in ("approximate", "failed"):
        more = (*aside, *(Check(algorithm.name, True, None, None, note) for note in found.notes), *more[len(aside) :])
    certificate = replace(certificate, checks=(*certificate.checks, *more))
    return _Solved(network, certificate, algorithm.name, _in_inputs(found, given))


def _solve_by_race(
    given: Prepared, task: Task, rng: np.random.Generator, deadline: Deadline, report: Progress, clock: _Clock
) -> _Solved:
    """Random starts first; the algorithms in reserve are called when they have not sufficed."""
    reserve = _Reserve(given.train, _sized(task, given.train), rng, deadline)
    network, certificate, _ = _finished(given, task, reserve.starts(), rng, deadline, report, clock)
    clock.stages += [Stage(e.method, e.seconds, " ".join(e.notes) or "an estimate") for e in reserve.called]
    last = reserve.called[-1] if reserve.called else None
    return _Solved(network, certificate, last.method if last else "least_squares", _in_inputs(last, given))


def _finished(
    given: Prepared,
    task: Task,
    starts: Iterable[np.ndarray],
    rng: np.random.Generator,
    deadline: Deadline,
    report: Progress,
    clock: _Clock,
) -> tuple[Network, Certificate, Network]:
    """The finisher on part of the samples, on all that are not held out, on all; and the certificate.

    Returned are the network in the coordinates of the inputs, its certificate, and the network on whitened inputs.
    """
    sample = _search_sample(given, task, rng)
    in_stages = lambda stage, rss: report(stage, float(np.sqrt(rss)))  # noqa: E731
    found = finish(sample, _sized(task, sample), rng, deadline, starts, in_stages)
    clock.stage("search", _search_sentence(found, sample.count()))
    if sample is not given.train:
        found = polish(given.train, found, task.bias, deadline)
        residual = f"relative residual {np.sqrt(found.relative_rss):.1e}"
        clock.stage("refine", f"{residual} on {given.train.count()} samples")
    held_out = Residuals(found.network, found.network.n_outputs, found.network.n_hidden, given.output_mean)
    residuals = reduce(given.holdout, held_out)
    final = polish(given.samples, found, task.bias, deadline)
    residual = f"relative residual {np.sqrt(final.relative_rss):.1e}"
    clock.stage("last fit", f"{residual} on all {given.moments.n} samples")
    evidence = Evidence(task.n_hidden, found.sign_choices, found.agreements, final.converged, found.last_drop)
    certificate = certify(final.network, given.whitening, given.samples, residuals, evidence, rng, task.bias)
    clock.stage("certify", certificate.verdict)
    network = unwhitened(final.network, given.whitening).normal_form()
    assert isinstance(network, Network)
    return network, certificate, final.network


class _Reserve:
    """The algorithms that "auto" calls on, one after the other and only when it comes to them."""

    def __init__(self, train: Source, task: Task, rng: np.random.Generator, deadline: Deadline) -> None:
        self.call = Call(train, task, rng, deadline)
        self.called: list[Estimate] = []

    def starts(self) -> Iterator[np.ndarray]:
        """Hidden weights to begin a round of descents with: none at first, which makes rounds random."""
        task = self.call.task
        yield from [np.empty((0, task.n_inputs + task.bias))] * RANDOM_ROUNDS
        if task.n_inputs > RESERVE_INPUTS:  # their tensors take minutes
            return
        for algorithm in methods():
            if algorithm.reserve and algorithm.refuse(task) is None and not self.call.deadline.passed:
                self.called.append(estimated(algorithm, self.call))
                yield from _as_starts(self.called[-1], task.bias)


class _Clock:
    """The stages of a run and when it began."""

    def __init__(self) -> None:
        self.began = self.last = time.monotonic()
        self.stages: list[Stage] = []

    def stage(self, name: str, detail: str) -> None:
        """Note what was done since the last stage."""
        now = time.monotonic()
        self.stages.append(Stage(name, now - self.last, detail))
        self.last = now

    def recovery(
        self, network: Any, certificate: Certificate, method: str, found: Estimate | None, n_queries: int | None
    ) -> Recovery:
        seconds = time.monotonic() - self.began
        return Recovery(network, certificate, method, tuple(self.stages), seconds, found, n_queries)


def _check_arguments(n_hidden: int | None, time_budget: float | None) -> None:
    if n_hidden is not None and (
        not isinstance(n_hidden, int | np.integer) or isinstance(n_hidden, bool) or n_hidden < 1
    ):
        raise ValueError(
            f"n_hidden needs to be a whole number from 1, or None to have it found. Got {n_hidden!r} instead."
        )
    if time_budget is not None and not time_budget >= 0:
        raise ValueError(f"time_budget needs to be a number of seconds from 0. Got {time_budget!r} instead.")


def _network_method(name: str) -> Algorithm:
    algorithm = get_method(name)
    if algorithm.finds != "network":
        raise ValueError(f"{name} finds the lowest layer of a deeper network: use recover_lowest_layer or estimate.")
    return algorithm


def _load(X: Any, Y: Any, n_samples: int | None, algorithm: Algorithm | None) -> tuple[Source, int | None]:
    """The source, as the algorithm wants it asked, and how often a black box was."""
    source = as_source(X, Y)
    if algorithm is not None:
        source = algorithm.prepare(source)
    read = loaded(source, n_samples)
    return read, source.queries if isinstance(source, Oracle) else None


def _hopeless(given: Prepared, task: Task, algorithm: Algorithm | None) -> str | None:
    """Why no fit is tried at all, or None."""
    spread = np.sqrt(np.diag(given.moments.covariance)[given.source.n_inputs :])
    if np.all(spread <= 1e-13 * np.abs(given.output_mean)):
        return "The outputs are constant, so they say nothing of any hidden unit."
    if given.whitening.rank == 0:
        return "The inputs are constant, so they say nothing of any hidden unit."
    width = task.n_hidden or 1
    wanted = task.n_parameters(width, affine=False) - width
    if wanted >= task.n_samples * task.n_outputs:
        return (
            f"{task.n_samples * task.n_outputs} numbers in Y cannot determine the {wanted} parameters "
            f"of {width} hidden units. Give more samples or fewer units."
        )
    return (algorithm or get_method("least_squares")).refuse(task)


def _nothing(given: Prepared, task: Task, reason: str) -> tuple[Network, Certificate]:
    """The mean of the outputs as a network without units, and the reason."""
    d, p = given.source.n_inputs, given.source.n_outputs
    c = given.output_mean if task.bias else np.zeros(p)
    network = Network(np.zeros((0, d)), None, np.zeros((p, 0)), c, task.activation)
    residuals = reduce(given.holdout, Residuals(lambda X: np.tile(c, (len(X), 1)), p, origin=c))
    constant = bool(residuals.mse <= (1e-12 * float(np.abs(c).max(initial=0.0))) ** 2)
    return network, certify_nothing(reason, residuals, constant, given.moments.n)


def _sized(task: Task, source: Source) -> Task:
    return replace(task, n_samples=source.count())


def _search_sample(given: Prepared, task: Task, rng: np.random.Generator) -> Source:
    width = task.width(True) if task.n_hidden else 64
    wanted = max(2_000, SEARCH_LOAD * task.n_parameters(width, affine=True))
    if wanted >= 0.9 * given.train.count():
        return given.train
    return subsample(given.train, wanted, int(rng.integers(2**31)))


def _as_starts(found: Estimate | None, bias: bool) -> list[np.ndarray]:
    if found is None:
        return []
    net = found.network
    first = [np.hstack([net.W, net.b[:, None]]) if bias else net.W] if isinstance(net, Network) else []
    return [*first, *found.starts]


def _in_inputs(found: Estimate | None, given: Prepared) -> Estimate | None:
    if found is None or found.network is None:
        return found
    return replace(found, network=unwhitened(found.network, given.whitening).normal_form())


def _read_sentence(given: Prepared) -> str:
    repeats = given.n_given - given.moments.n
    left_out = f", {repeats} that repeat others left out" if repeats else ""
    return f"{given.moments.n} samples{left_out}, {given.whitening.rank} input dimensions"


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
                stage if np.isnan(residual) else f"{stage}: relative residual {residual:.1e}"
            )
