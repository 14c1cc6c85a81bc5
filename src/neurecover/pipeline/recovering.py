"""One hidden layer from samples, each step a function from one frozen value to the next:

load → prepare (whiten, divide) → estimate (an algorithm) → search and fit (the finisher) → certify → Recovery
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from neurecover import activations
from neurecover.activations import Activation
from neurecover.algorithms import Algorithm, Call, get_method, methods
from neurecover.certificate import Certificate, Check, Evidence
from neurecover.data import ArraySource, Prepared, Source, reduce, side_by_side, subsample, with_misfits
from neurecover.data.weights import moderated, unweighted
from neurecover.models import Network
from neurecover.pipeline.checkpoints import Folder, begin_records, kept_search, steady_seed
from neurecover.pipeline.choosing import before_hint, chosen_activation, with_hint
from neurecover.pipeline.running import (
    Progress,
    Run,
    begun,
    certified,
    check_width,
    diagnosed,
    estimated,
    in_inputs,
    looked_at,
    nothing,
    running,
    shown,
    sized,
)
from neurecover.random import RandomStateLike
from neurecover.refine.few_rows import fitted_once_more
from neurecover.refine.finisher import finish
from neurecover.refine.passes import LARGEST, fit_in_passes
from neurecover.refine.pits import lowest_pit
from neurecover.refine.rare_columns import RareStart, start_from_common_columns, start_once_more
from neurecover.refine.settling import Finished, polish
from neurecover.refine.task import Task
from neurecover.results import Estimate, Recovery, Stage
from neurecover.solve import Deadline
from neurecover.statistics import Residuals

SEARCH_LOAD = 10  # samples per parameter that the search looks at; the last fit takes all
START_LOAD = 100  # samples per parameter that bring the search close enough for two steps on all (`refine.passes`)
PASSES = 4  # over streamed samples: moments and a sample of rows, two steps, the certificate
JOINED = 3  # times that held-out samples of a category may join the fit
COMMON_SHARE = 0.3  # of the time left, for a search in the columns that vary in most samples
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
    checkpoint: Folder | None = None,
    sample_weight: ArrayLike | None = None,
) -> Recovery:
    """The network y = A·act(W x + b) + c behind the samples, or one of several hidden layers, with a certificate.

    Parameters
    ----------
    X, Y : arrays (n, d) and (n,) or (n, p), X perhaps sparse; or X alone as a path, a data source or an oracle.
    n_hidden : the number of hidden units, or one number per hidden layer, (20, 10); None finds it.
    method : "auto", or a name from `neurecover.methods()`.
    activation : the hidden units' function, as in `neurecover.Network`; "auto" finds the likeliest of those with names.
    bias : whether b and c are free; False fixes both at zero.
    depth : the number of hidden layers, where n_hidden does not say it.
    random_state : int, numpy Generator or RandomState, or None. Same seed, same answer (unless time runs out).
    time_budget : seconds after which no new work is begun; None for a fixed number of descents.
    progress : True for a line on standard error, or a callable progress(stage, residual) that hears several times a
        second how far it has come; residual is √(Σ r² / Σ y²) of the fit at hand, nan where there is none yet.
    n_samples : how often to ask, when X is an oracle.
    checkpoint : a folder in which a run over more samples than memory holds keeps where it is; the same call after it
        was broken off goes on from there and ends with the same network to the last bit.
    sample_weight : weights w ≥ 0 of the rows, (n,): Σ w‖y − f(x)‖² is made least. Only their ratios matter; a row of
        weight zero is as good as not there. Standard errors hold for weights of any origin, and are the smallest for
        w = 1/variance of the noise. Copies of a row, (x, y) alike, are one observation: without weights it counts once,
        with weights theirs add up, so that a weight of 3 is as good as three rows of weight 1, with the same errors.

    Data that cannot be solved gives a `Recovery` whose verdict says so. Data that is not data raises ValueError.
    """
    if isinstance(n_hidden, tuple) or depth != 1:
        if checkpoint is not None:
            raise ValueError("checkpoint= is for one hidden layer. Leave it out for several.")
        from neurecover.pipeline.layers import recover_deep_network

        return recover_deep_network(
            X,
            Y,
            n_hidden,
            depth,
            method,
            activation,
            bias,
            random_state,
            time_budget,
            progress,
            n_samples,
            sample_weight,
        )
    open_activation = activation == "auto"
    act = activations.get("relu" if open_activation else activation)
    check_width(n_hidden)
    algorithm = get_method("least_squares") if method == "auto" else _network_method(method)
    random_state = steady_seed(checkpoint, random_state)

    def prepare(source: Source) -> None:
        run.passes.planned = PASSES
        if checkpoint is not None:
            options = {"n_hidden": n_hidden, "method": method, "activation": str(act), "bias": bias}
            begin_records(run, checkpoint, source, random_state, options)

    with running("recover", random_state, time_budget, progress) as run, side_by_side():
        begin = begun(run, X, Y, n_samples, algorithm, act, bias, n_hidden, prepare, sample_weight)
        if begin.hopeless is not None:
            return run.recovery(
                *nothing(begin.given, begin.task, begin.hopeless), algorithm.name, None, begin.n_queries
            )
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
        certificate = with_hint(certificate, lambda: _search_sample(given, task, run.rng), given, task, run)
    certificate = looked_at(certificate, X, solved.network.activation)
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
    progress: bool | Progress = False,
    sample_weight: ArrayLike | None = None,
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
    with running("estimate", random_state, time_budget, progress) as run, side_by_side():
        begin = begun(run, X, Y, n_samples, algorithm, act, bias, n_hidden, sample_weight=sample_weight)
        if begin.hopeless is not None:
            return Estimate(None, (begin.hopeless,), method=method, form=form)
        run.report(method, np.nan)
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
        run.report(algorithm.name, np.nan)
        found = estimated(algorithm, Call(given.train, sized(task, given.train), run.rng, run.deadline))
        run.clock.stage(algorithm.name, " ".join(found.notes) or "an estimate")
        if algorithm.clean is not None and found.network is not None:
            given, aside = algorithm.clean(given, found)
    network, certificate, finished = _finished(given, task, _as_starts(found, task.bias), run)
    more = (*aside, *diagnosed(run, algorithm, finished, given.samples))
    if found is not None and certificate.verdict in ("approximate", "failed"):
        more = (*aside, *(Check(algorithm.name, True, None, None, note) for note in found.notes), *more[len(aside) :])
    certificate = replace(certificate, checks=(*certificate.checks, *more))
    return _Solved(network, certificate, algorithm.name, in_inputs(found, given))


def _solve_by_race(given: Prepared, task: Task, starts: list[np.ndarray], run: Run) -> _Solved:
    """The given starts and random ones first; the algorithms in reserve are called when they have not sufficed."""
    # Their estimates are starts, for which it does not matter how much a row counts.
    train = unweighted(given.train)
    reserve = _Reserve(Call(train, sized(task, train), run.rng, run.deadline))
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
    found, residuals = _fitted(given, task, starts, run)
    evidence = Evidence(
        task.n_hidden,
        found.sign_choices,
        found.agreements,
        found.converged,
        found.last_drop,
        given.precision,
        task.coarse and found.relative_rss < task.level,
        found.unrivalled,
    )
    certificate = certified(run, found.network, given, residuals, evidence, task.bias)
    network = shown(found.network, given, certificate)
    assert isinstance(network, Network)
    return network, certificate, found.network


def _fitted(given: Prepared, task: Task, starts: Iterable[np.ndarray], run: Run) -> tuple[Finished, Residuals]:
    """The network fitted to all samples, and what it left on the held-out ones before these joined the fit."""
    deadline, clock = run.deadline, run.clock
    sample = _search_sample(given, task, run.rng)

    def report(stage: str, rss: float) -> None:
        run.report(stage, float(np.sqrt(rss)))

    run.report("search", np.nan)

    def search() -> Finished:
        rare = None if given.stream is not None else _from_common_columns(given, task, run)
        if rare is None:
            return finish(sample, sized(task, sample), run.rng, deadline, starts, report)
        return finish(sample, sized(task, sample), run.rng, deadline, chain([rare.units], starts), report, rare.draw)

    found = kept_search(run, task.activation, search)
    clock.stage("search", _search_sentence(found, sample.count()))
    if given.stream is None and found.relative_rss < task.level:
        given, found = _with_what_alone_shows(given, task, found, run)
    train = given.train
    if given.stream is not None:
        train = given.stream.part(START_LOAD * found.network.n_parameters)
    if sample is not train:
        run.report("refine", np.nan)
        found = polish(train, found, task.bias, deadline)
        clock.stage("refine", f"{_residual(found)} on {train.count()} samples")
    run.report("last fit", np.nan)
    if given.stream is not None and found.network.n_parameters <= LARGEST:
        streamed = fit_in_passes(given, found, task.bias)
        final, residuals = streamed.finished, streamed.holdout
    else:
        held_out = Residuals(found.network, found.network.n_outputs, found.network.n_hidden, given.output_mean)
        residuals = reduce(given.holdout, held_out)
        final = polish(given.samples, found, task.bias, deadline)
        if given.stream is None:
            final = lowest_pit(given.samples, final, task, run.rng, deadline)
        final = _settled(given.samples, final, task, deadline)
    passes = f" after {run.passes.made} {'pass' if run.passes.made == 1 else 'passes'}" if run.passes.made else ""
    clock.stage("last fit", f"{_residual(final)} on all {given.moments.n} samples{passes}")
    return final, residuals


def _settled(samples: Source, final: Finished, task: Task, deadline: Deadline) -> Finished:
    """Where an exact fit meets all rows, however little some count, the fit in which all count alike."""
    if not samples.weighted or final.relative_rss >= task.level:
        return final
    alike = polish(unweighted(samples), final, task.bias, deadline)
    return alike if alike.relative_rss < task.level else final


def _from_common_columns(given: Prepared, task: Task, run: Run) -> RareStart | None:
    """Where some inputs hardly vary, units to begin with from the others, for a share of the time."""
    left = run.deadline.seconds_left
    within = Deadline.after(None if left == float("inf") else COMMON_SHARE * left, run.deadline.pulse)

    def search(source: Source, smaller: Task, max_descents: int) -> Finished:
        return finish(source, smaller, run.rng, within, max_descents=max_descents)

    return start_from_common_columns(given, task, search, run.rng, within)


def _with_what_alone_shows(given: Prepared, task: Task, found: Finished, run: Run) -> tuple[Prepared, Finished]:
    """Where held-out samples alone show that a unit switches, in a category or at all, they are fitted with the others.

    What rests on one of them alone does not count as determined, and those that remain held out are as good a test.
    """
    for _ in range(JOINED):
        enlarged = with_misfits(given, found.network)
        if enlarged is None or run.deadline.passed:
            break
        again = fitted_once_more(enlarged.train, task, found, run.deadline)
        if again is None:
            rare = start_once_more(enlarged, task, found.network, run.rng, run.deadline)
            if rare is None:
                break
            again = finish(enlarged.train, task, run.rng, run.deadline, [rare.units], draw=rare.draw, max_descents=1)
        if again.relative_rss >= task.level:
            break
        moved = enlarged.train.count() - given.train.count()
        given, found = enlarged, again
        run.clock.stage("rare samples", f"{moved} held-out samples that alone show a switch join the fit")
    return given, found


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
    sample = _some_samples(given, task, rng)
    return moderated(sample) if isinstance(sample, ArraySource) else sample


def _some_samples(given: Prepared, task: Task, rng: np.random.Generator) -> Source:
    width = task.width(True) if task.n_hidden else 64
    wanted = max(2_000, SEARCH_LOAD * task.n_parameters(width, affine=True))
    if given.stream is not None:
        return given.stream.part(wanted)
    if wanted >= 0.9 * given.train.count():
        return given.train
    return subsample(given.train, wanted, int(rng.integers(2**31)))


def _as_starts(found: Estimate | None, bias: bool) -> list[np.ndarray]:
    if found is None:
        return []
    net = found.network
    first = [np.hstack([net.W, net.b[:, None]]) if bias else net.W] if isinstance(net, Network) else []
    return [*first, *found.starts]


def _residual(found: Finished) -> str:
    return f"relative residual {np.sqrt(found.relative_rss):.2g}"


def _search_sentence(found: Finished, n: int) -> str:
    descents = f"{found.descents} descent{'' if found.descents == 1 else 's'}"
    return f"{found.network.n_hidden} units, {_residual(found)} on {n} samples after {descents}"


def _network_method(name: str) -> Algorithm:
    algorithm = get_method(name)
    if algorithm.finds != "network":
        raise ValueError(f"{name} finds the lowest layer of a deeper network: use recover_lowest_layer or estimate.")
    return algorithm
