"""One hidden layer from samples, each step a function from one frozen value to the next:

load → prepare (whiten, divide) → estimate (an algorithm) → search and fit (the finisher) → certify → Recovery
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from neurecover import activations
from neurecover.activations import Activation
from neurecover.algorithms import Algorithm, Call, get_method, methods
from neurecover.certificate import Certificate, Check, Evidence, certify
from neurecover.data import Prepared, Source, reduce, side_by_side, subsample, unwhitened
from neurecover.models import Network
from neurecover.pipeline.choosing import before_hint, chosen_activation, with_hint
from neurecover.pipeline.running import (
    Progress,
    Run,
    begun,
    check_width,
    estimated,
    in_inputs,
    nothing,
    running,
    sized,
)
from neurecover.random import RandomStateLike
from neurecover.refine.finisher import finish
from neurecover.refine.settling import Finished, polish
from neurecover.refine.task import Task
from neurecover.results import Estimate, Recovery, Stage
from neurecover.statistics import Residuals

SEARCH_LOAD = 10  # samples per parameter that the search looks at; the last fit takes all
RANDOM_ROUNDS, RESERVE_INPUTS = 3, 20  # when "auto" calls on other methods, and up to how many inputs


def recover(
    X: Any,
    Y: Any = None,
    n_hidden: int | tuple[int, ...] | None = None,
    method: str = "auto",
    activation: str | Activation = "relu",
    bias: bool = True,
    depth: int = 1,
    random_state: RandomStateLike = None,
    time_budget: float | None = None,
    progress: bool | Progress = False,
    n_samples: int | None = None,
) -> Recovery:
    """The network y = A·act(W x + b) + c behind the samples, or one of several hidden layers, with a certificate.

    Parameters
    ----------
    X, Y : arrays (n, d) and (n,) or (n, p); or X alone as a path, a data source or an oracle.
    n_hidden : the number of hidden units, or one number per hidden layer, (20, 10); None finds it.
    method : "auto", or a name from `neurecover.methods()`.
    activation : the hidden units' function, as in `neurecover.Network`; "auto" finds the likeliest of those with names.
    bias : whether b and c are free; False fixes both at zero.
    depth : the number of hidden layers, where n_hidden does not say it.
    random_state : int, numpy Generator or RandomState, or None. Same seed, same answer (unless time runs out).
    time_budget : seconds after which no new work is begun; None for a fixed number of descents.
    progress : True for a line on standard error, or a callable progress(stage, relative residual).
    n_samples : how often to ask, when X is an oracle.

    Data that cannot be solved gives a `Recovery` whose verdict says so. Data that is not data raises ValueError.
    """
    if isinstance(n_hidden, tuple) or depth != 1:
        from neurecover.pipeline.layers import recover_deep_network

        return recover_deep_network(
            X, Y, n_hidden, depth, method, activation, bias, random_state, time_budget, progress, n_samples
        )
    open_activation = activation == "auto"
    act = activations.get("relu" if open_activation else activation)
    check_width(n_hidden)
    algorithm = get_method("least_squares") if method == "auto" else _network_method(method)
    with running("recover", random_state, time_budget, progress) as run:
        begin = begun(run, X, Y, n_samples, algorithm, act, bias, n_hidden)
        if begin.hopeless is not None:
            return run.recovery(
                *nothing(begin.given, begin.task, begin.hopeless), algorithm.name, None, begin.n_queries
            )
        with side_by_side():
            given, task = begin.given, begin.task
            starts: list[np.ndarray] = []
            said: list[Check] = []
            sought = before_hint(run)
            if open_activation:
                task, starts, *said = chosen_activation(_search_sample(given, task, run.rng), task, sought)
            if method == "auto":
                solved = _solve_by_race(given, task, starts, sought)
            else:
                solved = _solve_by(algorithm, given, task, sought)
            certificate = replace(solved.certificate, checks=(*solved.certificate.checks, *said))
            certificate = with_hint(certificate, _search_sample(given, task, run.rng), given, task, run)
    return run.recovery(solved.network, certificate, solved.method, solved.estimate, begin.n_queries)


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
    act = activations.get(activation)
    check_width(n_hidden)
    algorithm = get_method(method)
    if algorithm.run is None:
        raise ValueError(f"{method} has no estimate of its own: it is the finisher. Use recover instead.")
    if form not in algorithm.forms:
        raise ValueError(f"{method} comes in the form {' or '.join(algorithm.forms)}. Got {form!r} instead.")
    with running("estimate", random_state, time_budget, False) as run:
        begin = begun(run, X, Y, n_samples, algorithm, act, bias, n_hidden)
        if begin.hopeless is not None:
            return Estimate(None, (begin.hopeless,), method=method, form=form)
        with side_by_side():
            found = estimated(algorithm, Call(begin.given.samples, begin.task, run.rng, run.deadline, form))
    answer = in_inputs(found, begin.given)
    assert answer is not None
    return answer


@dataclass(frozen=True)
class _Solved:
    """The network in the coordinates of the inputs, its certificate, and who found it."""

    network: Network
    certificate: Certificate
    method: str
    estimate: Estimate | None


def _solve_by(algorithm: Algorithm, given: Prepared, task: Task, run: Run) -> _Solved:
    """One algorithm's estimate, then the finisher from there."""
    found: Estimate | None = None
    aside: tuple[Check, ...] = ()
    if algorithm.run is not None:
        found = estimated(algorithm, Call(given.train, sized(task, given.train), run.rng, run.deadline))
        run.clock.stage(algorithm.name, " ".join(found.notes) or "an estimate")
        if algorithm.clean is not None and found.network is not None:
            given, aside = algorithm.clean(given, found)
    network, certificate, finished = _finished(given, task, _as_starts(found, task.bias), run)
    more = (*aside, *algorithm.diagnose(finished, given.samples, run.rng))
    if found is not None and certificate.verdict in ("approximate", "failed"):
        more = (*aside, *(Check(algorithm.name, True, None, None, note) for note in found.notes), *more[len(aside) :])
    certificate = replace(certificate, checks=(*certificate.checks, *more))
    return _Solved(network, certificate, algorithm.name, in_inputs(found, given))


def _solve_by_race(given: Prepared, task: Task, starts: list[np.ndarray], run: Run) -> _Solved:
    """The given starts and random ones first; the algorithms in reserve are called when these have not sufficed."""
    reserve = _Reserve(Call(given.train, sized(task, given.train), run.rng, run.deadline))
    network, certificate, _ = _finished(given, task, chain(starts, reserve.starts()), run)
    run.clock.stages += [Stage(e.method, e.seconds, " ".join(e.notes) or "an estimate") for e in reserve.called]
    last = reserve.called[-1] if reserve.called else None
    return _Solved(network, certificate, last.method if last else "least_squares", in_inputs(last, given))


def _finished(
    given: Prepared,
    task: Task,
    starts: Iterable[np.ndarray],
    run: Run,
) -> tuple[Network, Certificate, Network]:
    """The finisher on part of the samples, on all that are not held out, on all; and the certificate.

    Returned are the network in the coordinates of the inputs, its certificate, and the network on whitened inputs.
    """
    rng, deadline, clock = run.rng, run.deadline, run.clock
    sample = _search_sample(given, task, rng)

    def report(stage: str, rss: float) -> None:
        run.report(stage, float(np.sqrt(rss)))

    found = finish(sample, sized(task, sample), rng, deadline, starts, report)
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

    def __init__(self, call: Call) -> None:
        self.call = call
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


def _search_sentence(found: Finished, n: int) -> str:
    return (
        f"{found.network.n_hidden} units, relative residual {np.sqrt(found.relative_rss):.1e} on {n} samples "
        f"after {found.descents} descent{'' if found.descents == 1 else 's'}"
    )


def _network_method(name: str) -> Algorithm:
    algorithm = get_method(name)
    if algorithm.finds != "network":
        raise ValueError(f"{name} finds the lowest layer of a deeper network: use recover_lowest_layer or estimate.")
    return algorithm
