"""A network of any depth from samples, each step a function from one frozen value to the next:

load → prepare (whiten, divide) → estimate (an algorithm) → search and fit → certify → Recovery
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
from neurecover.certificate.checks.search import search_ended
from neurecover.data import ArraySource, Prepared, Source, reduce, side_by_side, with_misfits
from neurecover.data.views.weights import moderate_weights, without_weights
from neurecover.fit.options import EXACT
from neurecover.fit.passes import LARGEST, fit_in_passes
from neurecover.models import DeepNetwork, Network
from neurecover.pipeline.checkpoints import Folder, begin_records, kept_search, steady_seed
from neurecover.pipeline.choosing import before_hint, chosen_activation, with_hint
from neurecover.pipeline.progress import Progress
from neurecover.pipeline.running import (
    Run,
    begun,
    certified,
    check_architecture,
    check_width,
    diagnosed,
    estimated,
    in_inputs,
    looked_at,
    nothing,
    running,
    shown,
)
from neurecover.random import RandomStateLike
from neurecover.results import Estimate, Recovery, Stage
from neurecover.search.gates import columns
from neurecover.search.network import Found, polish, search_network
from neurecover.search.options import SearchOptions
from neurecover.search.race import n_weights
from neurecover.search.task import Task
from neurecover.solve import Deadline
from neurecover.statistics import Residuals

UNTOLD = 64  # units per layer for which a stream's sample has to suffice where nobody gives the number
FEWEST_SEARCHED = 2_000  # rows of a stream that a search looks at
START_LOAD = 100  # samples per parameter that bring the search close enough for two steps on all (`refine.passes`)
PASSES = 4  # over streamed samples: moments and a sample of rows, two steps, the certificate
JOINED = 10  # times that held-out samples may join the fit: each closes a direction that the others leave open
RANDOM_ROUNDS, RESERVE_INPUTS = 3, 20  # when "auto" calls on other methods, and up to how many inputs


def recover(
    X: Any,
    Y: Any = None,
    n_hidden: int | tuple[int, ...] | None = None,
    method: str = "auto",
    activation: str | Activation = "relu",
    bias: bool = True,
    affine: bool = False,
    depth: int = 1,
    random_state: RandomStateLike = None,
    time_budget: float | None = None,
    progress: bool | Progress = False,
    n_samples: int | None = None,
    checkpoint: Folder | None = None,
    sample_weight: ArrayLike | None = None,
) -> Recovery[Network | DeepNetwork]:
    """Recover the network y = A h_L + C x + c behind samples, h_l = act(W_l h_{l−1} + b_l), with a certificate.

    Parameters
    ----------
    X, Y : arrays (n, d) and (n,) or (n, p), X perhaps sparse; or X alone as a path, a data source or an oracle.
    n_hidden : the number of hidden units, or one number per hidden layer, (20, 10); None finds it.
    method : "auto", or a name from `neurecover.methods()`.
    activation : the hidden units' function, as in `neurecover.Network`; "auto" finds the likeliest of those with names.
    bias : whether b and c are free; False fixes both at zero.
    affine : whether there is a linear term C x beside the hidden units.
    depth : the number of hidden layers, where n_hidden does not say it.
    random_state : int, numpy Generator or RandomState, or None. Same seed, same answer (unless time runs out).
    time_budget : seconds after which no new work is begun; None for a fixed number of descents. The certificate says so
        where time ended the search; without a budget the same seed gives the same answer on any load.
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
    open_activation = activation == "auto"
    act = activations.get("relu" if open_activation else activation)
    n_hidden, depth = check_architecture(n_hidden, depth)
    algorithm = get_method("least_squares") if method == "auto" else _network_method(method, depth, affine)
    random_state = steady_seed(checkpoint, random_state)

    def prepare(source: Source) -> None:
        run.passes.planned = PASSES
        if checkpoint is not None:
            options = {"n_hidden": n_hidden, "method": method, "activation": str(act), "bias": bias}
            options |= {"depth": depth, "affine": affine}
            begin_records(run, checkpoint, source, random_state, options)

    with running("recover", random_state, time_budget, progress) as run, side_by_side():
        begin = begun(run, X, Y, n_samples, algorithm, act, bias, n_hidden, prepare, sample_weight, depth, affine)
        if begin.hopeless is not None:
            return run.recovery(
                *nothing(begin.given, begin.task, begin.hopeless), algorithm.name, None, begin.n_queries
            )
        given, task = begin.given, begin.task
        starts: list[np.ndarray] = []
        said: list[Check] = []
        sought = before_hint(run)
        if open_activation:
            task, starts, *said = chosen_activation(_search_sample(given, task), task, sought)
        if method == "auto":
            solved = _solve_by_race(given, task, starts, sought)
        else:
            solved = _solve_by(algorithm, given, task, sought)
        certificate = replace(solved.certificate, checks=(*solved.certificate.checks, *said))
        certificate = with_hint(certificate, lambda: _search_sample(given, task), given, task, run)
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
        if run.deadline.watch.ended:
            found = replace(found, notes=(*found.notes, search_ended().sentence))
    answer = in_inputs(found, begin.given)
    assert answer is not None
    return answer


@dataclass(frozen=True)
class _Solved:
    """The network in the coordinates of the inputs, its certificate, and who found it."""

    network: Network | DeepNetwork
    certificate: Certificate
    method: str
    estimate: Estimate | None


def _solve_by(algorithm: Algorithm, given: Prepared, task: Task, run: Run) -> _Solved:
    """One algorithm's estimate, then the finisher from there."""
    found: Estimate | None = None
    aside: tuple[Check, ...] = ()
    if algorithm.run is not None:
        run.report(algorithm.name, np.nan)
        found = estimated(algorithm, Call(given.train, task.on(given.train.count()), run.rng, run.deadline))
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
    train = without_weights(given.train)
    reserve = _Reserve(Call(train, task.on(train.count()), run.rng, run.deadline))
    network, certificate, _ = _finished(given, task, chain(starts, reserve.starts()), run)
    run.clock.stages += [Stage(e.method, e.seconds, " ".join(e.notes) or "an estimate") for e in reserve.called]
    last = reserve.called[-1] if reserve.called else None
    return _Solved(network, certificate, last.method if last else "least_squares", in_inputs(last, given))


def _finished(
    given: Prepared,
    task: Task,
    starts: Iterable[np.ndarray],
    run: Run,
) -> tuple[Network | DeepNetwork, Certificate, Network | DeepNetwork]:
    """Search on part of the samples, fit to all that are not held out, then to all; and certify.

    Returned are the network in the coordinates of the inputs, its certificate, and the network on whitened inputs.
    """
    fitted = _fitted(given, task, starts, run)
    found = fitted.found
    evidence = Evidence(
        task.asked,
        found.sign_choices,
        found.agreements,
        found.converged,
        found.last_drop,
        at_rounding=task.coarse and found.exact,
        unrivalled=found.unrivalled,
    )
    certificate = certified(run, found.network, fitted.given, fitted.holdout, evidence, task.bias)
    network = shown(found.network, given, certificate)
    assert isinstance(network, Network | DeepNetwork)
    return network, certificate, found.network


@dataclass(frozen=True)
class _Fitted:
    """The network fitted to all samples, and what it left on the held-out ones before these joined the fit.

    `given` are the samples as they were divided in the end.
    """

    found: Found
    holdout: Residuals
    given: Prepared


def _fitted(given: Prepared, task: Task, starts: Iterable[np.ndarray], run: Run) -> _Fitted:
    """Search on part of the samples, fit to all that are not held out, then to all."""
    deadline, clock = run.deadline, run.clock
    sample = _search_sample(given, task)

    def report(stage: str, rss: float) -> None:
        run.report(stage, float(np.sqrt(rss)))

    run.report("search", np.nan)

    def search() -> Found:
        rare = (
            None
            if given.stream is not None or task.depth > 1 or task.affine
            else columns.start(given, task, run.rng, deadline)
        )
        if rare is None:
            return search_network(sample, task.on(sample.count()), run.rng, deadline, starts, report)
        first = chain([rare.units], starts)
        return search_network(sample, task.on(sample.count()), run.rng, deadline, first, report, rare.draw)

    found = kept_search(run, task.activation, search)
    clock.stage("search", _search_sentence(found, sample.count()))
    if given.stream is None and found.exact:
        given, found = _with_what_alone_shows(given, task, found, run)
    train = given.train
    if given.stream is not None:
        train = given.stream.part(START_LOAD * found.network.n_parameters)
    if sample is not train:
        run.report("refine", np.nan)
        found = polish(train, found, task, deadline)
        clock.stage("refine", f"{_residual(found)} on {train.count()} samples")
    run.report("last fit", np.nan)
    if given.stream is not None and found.network.n_parameters <= LARGEST:
        streamed = fit_in_passes(given, found.network, task.bias)
        final = replace(
            found,
            network=streamed.network,
            rss=streamed.rss,
            relative_rss=streamed.relative_rss,
            converged=streamed.converged,
        )
        residuals = streamed.holdout
    else:
        width = sum(len(W) for W in found.network.hidden_weights)
        residuals = reduce(given.judges, Residuals(found.network, task.n_outputs, width, given.output_mean))
        final = polish(given.samples, found, task, deadline)
        final = _counting_alike(given.samples, final, task, deadline)
    passes = f" after {run.passes.made} {'pass' if run.passes.made == 1 else 'passes'}" if run.passes.made else ""
    clock.stage("last fit", f"{_residual(final)} on all {given.moments.n} samples{passes}")
    return _Fitted(final, residuals, given)


def _counting_alike(samples: Source, final: Found, task: Task, deadline: Deadline) -> Found:
    """Where an exact fit meets all rows, however little some count, return the fit in which all count alike."""
    if not samples.weighted or not final.exact:
        return final
    alike = polish(without_weights(samples), final, task, deadline)
    return alike if alike.exact else final


def _with_what_alone_shows(given: Prepared, task: Task, found: Found, run: Run) -> tuple[Prepared, Found]:
    """Where held-out samples alone show that a unit switches, in a category or at all, fit them with the others.

    What rests on one of them alone does not count as determined. The rest of those that were looked at is no test any
    more: samples that are sealed are.
    """
    for _ in range(JOINED if isinstance(found.network, Network) and not task.affine else 0):
        assert isinstance(found.network, Network)
        enlarged = with_misfits(given, found.network, EXACT)
        if enlarged is None or run.deadline.passed:
            break
        again = columns.fit_again(enlarged, task, found, run.deadline)
        if again is None or not again.exact:
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
        if task.n_inputs > RESERVE_INPUTS or task.depth > 1 or task.affine:  # their tensors take minutes
            return
        for algorithm in methods():
            if algorithm.reserve and algorithm.refuse(task) is None and not self.call.deadline.passed:
                self.called.append(estimated(algorithm, self.call))
                yield from _as_starts(self.called[-1], task.bias)


def _search_sample(given: Prepared, task: Task) -> Source:
    """Return the samples that a search is made on: those that are not held out, or of a stream as many as it needs."""
    sample: Source = given.train
    if given.stream is not None:
        options, widths = SearchOptions(), task.widths or (UNTOLD,) * task.depth
        wide = tuple(int(options.wider * k) + 1 for k in widths)
        size = n_weights(task.n_inputs + task.bias, wide, task.n_outputs)[1]
        sample = given.stream.part(max(FEWEST_SEARCHED, int(options.equations * size)))
    return moderate_weights(sample) if isinstance(sample, ArraySource) else sample


def _as_starts(found: Estimate | None, bias: bool) -> list[np.ndarray]:
    if found is None:
        return []
    net = found.network
    first = [np.hstack([net.W, net.b[:, None]]) if bias else net.W] if isinstance(net, Network) else []
    return [*first, *found.starts]


def _residual(found: Found) -> str:
    return f"relative residual {np.sqrt(found.relative_rss):.2g}"


def _search_sentence(found: Found, n: int) -> str:
    descents = f"{found.descents} descent{'' if found.descents == 1 else 's'}"
    size = "-".join(str(len(W)) for W in found.network.hidden_weights)
    return " ".join([f"{size} units, {_residual(found)} on {n} samples after {descents}", *found.notes])


def _network_method(name: str, depth: int, affine: bool) -> Algorithm:
    algorithm = get_method(name)
    if depth > 1 and name != "least_squares":
        raise ValueError(f"Several hidden layers are found by least_squares alone. Got method={name!r} instead.")
    if affine and name != "least_squares":
        raise ValueError(f"An affine term is found by least_squares alone. Got method={name!r} instead.")
    if algorithm.finds != "network":
        raise ValueError(f"{name} finds the lowest layer of a deeper network: use recover_lowest_layer or estimate.")
    return algorithm
