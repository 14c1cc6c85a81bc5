"""Recover a network of any depth from samples. Each step is a function from one frozen value to the next:

load → prepare (whiten, divide) → estimate (an algorithm) → search and fit → certify → Recovery
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from neurecover import activations
from neurecover.activations import Activation
from neurecover.algorithms import Algorithm, Call, get_method, methods
from neurecover.certificate import Certificate, Check, Evidence
from neurecover.certificate.checks.search import search_ended
from neurecover.data import (
    ArraySource,
    Prepared,
    Source,
    as_source,
    load_samples,
    reduce,
    side_by_side,
    with_misfits,
)
from neurecover.data.views.weights import moderate_weights, without_weights
from neurecover.fit import EXACT
from neurecover.fit.model_fit import PassOptions, fit_in_passes
from neurecover.models import DeepNetwork, Network
from neurecover.pipeline.checkpoints import Folder, begin_records, choose_seed, resume_search
from neurecover.pipeline.choosing import add_hint, choose_activation, keep_time_for_hint
from neurecover.pipeline.linear_term import Solved, with_or_without_line
from neurecover.pipeline.options import PipelineOptions
from neurecover.pipeline.progress import Progress
from neurecover.pipeline.robust import LOSSES, outlier_check, recover_robustly
from neurecover.pipeline.running import (
    Run,
    add_diagnosis,
    certify_network,
    check_affine,
    check_architecture,
    check_width,
    constant_network,
    diagnose,
    estimate_in_input_units,
    in_input_units,
    in_order,
    read_samples,
    run_algorithm,
    running,
)
from neurecover.pipeline.straight import Line, as_good, left_by
from neurecover.random import RandomStateLike
from neurecover.results import Estimate, Recovery, Stage
from neurecover.search import SearchOptions, Task
from neurecover.search.gates import columns
from neurecover.search.kink_grid import grid_start
from neurecover.search.network import Found, fit_network, fitted, polish, search_network
from neurecover.search.race import n_weights
from neurecover.solve import Deadline
from neurecover.statistics import Residuals


def recover(
    X: Any,
    Y: Any = None,
    n_hidden: int | tuple[int, ...] | None = None,
    method: str = "auto",
    activation: str | Activation = "relu",
    bias: bool = True,
    affine: bool | str = False,
    depth: int = 1,
    random_state: RandomStateLike = None,
    time_budget: float | None = None,
    progress: bool | Progress = False,
    n_samples: int | None = None,
    checkpoint: Folder | None = None,
    sample_weight: ArrayLike | None = None,
    loss: str = "squared",
    options: PipelineOptions | None = None,
) -> Recovery[Network | DeepNetwork]:
    """Recover the network y = A h_L + C x + c behind samples, h_l = act(W_l h_{l−1} + b_l), with a certificate.

    Parameters
    ----------
    X : array_like of shape (n, d), path, table, data source or oracle
        The inputs, perhaps sparse; or samples with their outputs, in which case Y is left out.
    Y : array_like of shape (n,) or (n, p) or None, default=None
        The outputs.
    n_hidden : int, tuple of int or None, default=None
        The number of hidden units, or one number per hidden layer, (20, 10); None finds it.
    method : str, default="auto"
        A name from `neurecover.methods()`; "auto" starts at random and uses published methods if that does not suffice.
    activation : str or Activation, default="relu"
        The hidden units' function, as in `neurecover.Network`; "auto" finds the likeliest of those with names.
    bias : bool, default=True
        Whether b and c are free; False fixes both at zero.
    affine : bool or "auto", default=False
        Whether there is a linear term C x in addition to the hidden units; "auto" keeps one if the samples need it.
    depth : int, default=1
        The number of hidden layers, if n_hidden does not give it. Only `extract` can find it.
    random_state : int, Generator, RandomState or None, default=None
        The seed. The same seed gives the same answer, even on a busy machine, unless a time budget runs out.
    time_budget : float or None, default=None
        Seconds after which no new work is started; None for a fixed number of descents. If time ended the search, the
        certificate says so.
    progress : bool or callable, default=False
        True for a line on standard error, or a callable progress(stage, residual) that is called several times a
        second; residual is √(Σ r² / Σ y²) of the current fit, nan if there is none yet.
    n_samples : int or None, default=None
        The number of queries, if X is an oracle.
    checkpoint : path or None, default=None
        A folder for the state of a run on samples that do not fit in memory. After an interruption the same call
        continues from there and returns the same network to the last bit.
    sample_weight : array_like of shape (n,) or None, default=None
        Weights w ≥ 0 of the rows: the fit minimises Σ w‖y − f(x)‖². Only their ratios matter, and a row of weight zero
        has no effect. Standard errors hold for any weights and are smallest for w = 1/variance of the noise. Without
        weights every row is an observation, though copies of a row are no further evidence for an exact network. With
        weights, identical rows (x, y) count as one row with the sum of their weights: one row of weight 3 equals three
        rows of weight 1, with the same errors.
    loss : {"squared", "huber", "tukey"}, default="squared"
        "huber" and "tukey" bound the influence of outliers: they give M-estimates with their own standard errors, and
        the certificate names the outlying rows. For samples in memory.
    options : PipelineOptions or None, default=None
        The numbers that decide how samples, work and time are divided, for experiments.

    Returns
    -------
    Recovery
        `network` and its `certificate`, whose `verdict` is "exact" (to rounding, all weights determined), "statistical"
        (noise, with an error for every weight), "approximate" (a predictor; do not read its weights) or "failed".
        `summary()` explains it, `conf_int()` has intervals, `to_html(path)` writes a report.

    Raises
    ------
    ValueError
        For invalid input: values that are not finite, shapes that do not fit, unknown columns.

    See Also
    --------
    extract : The same from queries, if the model can be queried.
    HingeRegression : Piecewise linear lines and planes, with intervals that are valid in small samples.
    estimate : A published algorithm's own answer, without refinement.

    Examples
    --------
    >>> import neurecover as nr
    >>> truth = nr.simulate.teacher(n_inputs=4, n_hidden=3, random_state=0)
    >>> X, Y = nr.simulate.sample(truth, 600, random_state=0)
    >>> r = nr.recover(X, Y, random_state=0)
    >>> r.certificate.verdict, r.network.n_hidden, nr.compare(r.network, truth).weight_error < 1e-10
    ('exact', 3, True)
    """
    if loss != "squared":
        if loss not in LOSSES:
            raise ValueError(f"loss needs to be one of {', '.join(LOSSES)}. Got {loss!r} instead.")
        given = as_source(X, Y, sample_weight)
        if n_samples is None:
            given.count()  # count the rows of a file of unknown length: without it even a small file would be a stream
        source = load_samples(given, n_samples)
        wanted: dict[str, Any] = {"n_hidden": n_hidden, "method": method, "activation": activation, "bias": bias}
        wanted |= {"affine": affine, "depth": depth, "time_budget": time_budget, "progress": progress}
        seed = choose_seed(None, random_state)
        return recover_robustly(source, loss, lambda made: recover(made, random_state=seed, options=options, **wanted))
    options = options or PipelineOptions()
    open_activation = activation == "auto"
    act = activations.get("relu" if open_activation else activation)
    n_hidden, depth = check_architecture(n_hidden, depth)
    check_affine(affine, checkpoint is not None)
    algorithm = get_method("least_squares") if method == "auto" else _network_method(method, depth, bool(affine))
    random_state = choose_seed(checkpoint, random_state)

    def prepare(source: Source) -> None:
        run.passes.planned = options.passes
        if checkpoint is not None:
            wanted = {"n_hidden": n_hidden, "method": method, "activation": str(act), "bias": bias}
            wanted |= {"depth": depth, "affine": affine}
            begin_records(run, checkpoint, source, random_state, wanted)

    with running("recover", random_state, time_budget, progress, options) as run, side_by_side():
        problem = read_samples(
            run,
            X,
            Y,
            n_samples,
            algorithm,
            act,
            bias,
            n_hidden,
            prepare,
            sample_weight,
            depth,
            affine != "auto" and bool(affine),
        )
        if problem.reason is not None:
            return run.recovery(
                *constant_network(problem.prepared, problem.task, problem.reason),
                algorithm.name,
                None,
                problem.n_queries,
            )
        prepared, task = problem.prepared, problem.task
        starts: list[np.ndarray] = []
        said: list[Check] = []
        sought = keep_time_for_hint(run)
        if open_activation:
            task, starts, *said = choose_activation(_search_sample(prepared, task, options), task, sought)

        def solve(task: Task, run: Run) -> Solved:
            if method == "auto":
                return _solve_by_race(prepared, task, starts, run)
            return _solve_by(algorithm, prepared, task, run)

        solved = with_or_without_line(solve, task, sought) if affine == "auto" else solve(task, sought)
        certificate = replace(solved.certificate, checks=(*solved.certificate.checks, *said))
        if certificate.verdict in ("approximate", "failed") and certificate.likelihood is not None:
            far = outlier_check(solved.network, prepared.source)
            certificate = certificate if far is None else replace(certificate, checks=(*certificate.checks, far))
        certificate = add_hint(certificate, lambda: _search_sample(prepared, task, options), prepared, task, run)
    certificate = add_diagnosis(certificate, X, solved.network.activation)
    return run.recovery(solved.network, certificate, solved.method, solved.estimate, problem.n_queries)


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
    options: object = None,
) -> Estimate:
    """Run one algorithm and return its own estimate, before any refinement.

    Parameters
    ----------
    X, Y, n_hidden, activation, bias, random_state, time_budget, n_samples, progress, sample_weight
        As in `recover`.
    method : str, default="hermite"
        A name from `neurecover.methods()`.
    form : str, default="best"
        "best" for the algorithm as used here; "paper" for the algorithm as printed; or another form of the method.
    options : object, default=None
        The options of the form, such as the thresholds of a paper's algorithm; None for the defaults.

    Returns
    -------
    Estimate
        The network, and the algorithm's own record as `details`. If the algorithm cannot solve the data, `network` is
        None and `notes` say why.

    Examples
    --------
    >>> import neurecover as nr
    >>> truth = nr.simulate.teacher(4, 2, random_state=0)
    >>> X, Y = nr.simulate.sample(truth, 20_000, random_state=0)
    >>> found = nr.estimate(X, Y, n_hidden=2, random_state=0)
    >>> nr.compare(found.network, truth).weight_error < 0.1
    True
    """
    act = activations.get(activation)
    check_width(n_hidden)
    algorithm = get_method(method, besides="")
    if algorithm.run is None:
        raise ValueError(f"{method} has no estimate of its own: it only refines others. Use recover instead.")
    if form not in algorithm.forms:
        raise ValueError(f"{method} comes in the form {' or '.join(algorithm.forms)}. Got {form!r} instead.")
    kind = algorithm.options.get(form)
    if options is not None and (kind is None or not isinstance(options, kind)):
        wanted = "no options" if kind is None else f"options of the class {kind.__module__}.{kind.__name__}"
        raise ValueError(f"{method} takes {wanted} in the form {form!r}. Got {options!r} instead.")
    with running("estimate", random_state, time_budget, progress) as run, side_by_side():
        problem = read_samples(run, X, Y, n_samples, algorithm, act, bias, n_hidden, sample_weight=sample_weight)
        if problem.reason is not None:
            return Estimate(None, (problem.reason,), method=method, form=form)
        run.report(method, np.nan)
        raw = form in algorithm.raw
        samples = problem.given if raw else problem.prepared.samples
        found = run_algorithm(algorithm, Call(samples, problem.task, run.rng, run.deadline, form, options))
        if run.deadline.watch.ended:
            found = replace(found, notes=(*found.notes, search_ended().sentence))
    if raw:
        return replace(found, network=None if found.network is None else found.network.normal_form())
    answer = estimate_in_input_units(found, problem.prepared)
    assert answer is not None
    return answer


def _solve_by(algorithm: Algorithm, prepared: Prepared, task: Task, run: Run) -> Solved:
    """Run one algorithm, then search and fit from its estimate."""
    found: Estimate | None = None
    aside: tuple[Check, ...] = ()
    if algorithm.run is not None:
        run.report(algorithm.name, np.nan)
        found = run_algorithm(algorithm, Call(prepared.train, task.on(prepared.train.count()), run.rng, run.deadline))
        run.clock.stage(algorithm.name, " ".join(found.notes) or "an estimate")
        if algorithm.clean is not None and found.network is not None:
            prepared, aside = algorithm.clean(prepared, found)
    network, certificate, finished = _finish(prepared, task, _as_starts(found, task.bias), run)
    more = (*aside, *diagnose(run, algorithm, finished.network, prepared.samples))
    if found is not None and certificate.verdict in ("approximate", "failed"):
        more = (*aside, *(Check(algorithm.name, True, None, None, note) for note in found.notes), *more[len(aside) :])
    certificate = replace(certificate, checks=(*certificate.checks, *more))
    return Solved(network, certificate, algorithm.name, estimate_in_input_units(found, prepared), finished.rss)


def _solve_by_race(prepared: Prepared, task: Task, starts: list[np.ndarray], run: Run) -> Solved:
    """Search from the given starts and random ones; if that fails, from the estimates of other algorithms."""
    # Estimates only serve as starts, which need no weights.
    train = without_weights(prepared.train)
    reserve = _Reserve(Call(train, task.on(train.count()), run.rng, run.deadline), run.options)
    network, certificate, finished = _finish(prepared, task, chain(starts, reserve.starts()), run)
    run.clock.stages += [Stage(e.method, e.seconds, " ".join(e.notes) or "an estimate") for e in reserve.called]
    last = reserve.called[-1] if reserve.called else None
    method, own = last.method if last else "least_squares", estimate_in_input_units(last, prepared)
    return Solved(network, certificate, method, own, finished.rss)


def _finish(
    prepared: Prepared,
    task: Task,
    starts: Iterable[np.ndarray],
    run: Run,
) -> tuple[Network | DeepNetwork, Certificate, Found]:
    """Search, fit and certify; return the network in the inputs' units, its certificate, and the search result."""
    fitted = _search_and_fit(prepared, task, starts, run)
    found = replace(fitted.found, network=in_order(fitted.found.network, prepared))
    evidence = Evidence(
        task.asked,
        found.sign_choices,
        found.agreements,
        found.converged,
        found.last_drop,
        at_rounding=task.coarse and found.exact,
        unrivalled=found.unrivalled,
        line=fitted.line,
        straight=fitted.straight,
        better=fitted.better,
        predicts=fitted.predicts,
        copied=prepared.copied,
    )
    certificate = certify_network(run, found.network, fitted.prepared, fitted.holdout, evidence, task.bias)
    network = in_input_units(found.network, prepared, certificate)
    assert isinstance(network, Network | DeepNetwork)
    return network, certificate, found


@dataclass(frozen=True)
class _Fitted:
    """The network fitted to all samples, its residuals on held-out samples before they joined the fit, and the samples.

    `line` has the mean squared residual of a straight line on held-out samples, per output; None if none was fitted.
    `straight` says that the line is as good as the network, `better` that the network predicts held-out samples better
    than the line, and `predicts` that the network beats the mean by BIC and is not clearly worse than the line.
    `before` is the network before the held-out samples joined the fit.
    """

    found: Found
    holdout: Residuals
    prepared: Prepared
    before: Network | DeepNetwork
    line: np.ndarray | None = None
    straight: bool = False
    better: bool = True
    predicts: bool = False


def _search_and_fit(prepared: Prepared, task: Task, starts: Iterable[np.ndarray], run: Run) -> _Fitted:
    """Search and fit. If the number of units was not given, return a straight line instead if it is as good."""
    if not task.bias:
        return _search_and_polish(prepared, task, starts, run)
    line, wanted = Line.of(prepared, task.activation), task.asked is None
    exact = task.level * prepared.moments.n * _size_of_outputs(prepared)
    if wanted and prepared.stream is None and line.rss < exact:
        found = _as_found(line, task)
        run.clock.stage("straight line", f"{_residual(found)} on all {prepared.moments.n} samples")
        return _Fitted(found, left_by(line.network, prepared, prepared.judges), prepared, line.network, line.held_out)
    fitted = _search_and_polish(prepared, task, starts, run)
    network = fitted.found.network
    widths = tuple(len(W) for W in network.hidden_weights)
    more = task.n_parameters(widths) - sum(widths) - task.n_outputs * (task.n_inputs + 1)
    straight = not fitted.found.exact and as_good(line.rss, fitted.found.rss, task.n_samples * task.n_outputs, more)
    if not wanted or not straight:
        beaten = line.beaten_by(fitted.before, prepared, not straight)
        # Parameters beyond the p of the mean.
        beats_mean = not as_good(line.total, fitted.found.rss, task.n_samples * task.n_outputs, more + line.n_slopes)
        predicts = beats_mean and not beaten.worse
        return replace(fitted, line=line.held_out, straight=straight, better=beaten.better, predicts=predicts)
    run.clock.stage("straight line", f"as good as {sum(widths)} units by BIC")
    left = left_by(line.network, prepared, prepared.judges)
    return replace(fitted, found=_as_found(line, task), holdout=left, line=line.held_out)


def _as_found(line: Line, task: Task) -> Found:
    """Return the straight line in the form of a search result; it is the only optimum of its kind."""
    return Found(line.network, line.rss, line.rss, task.level, 1, 0, 1, converged=True)


def _size_of_outputs(prepared: Prepared) -> float:
    """Return the mean of Σ y² over samples."""
    moments, d = prepared.fitted_moments, prepared.source.n_inputs
    return float(np.trace(moments.covariance[d:, d:]) + prepared.output_mean @ prepared.output_mean)


def _search_and_polish(prepared: Prepared, task: Task, starts: Iterable[np.ndarray], run: Run) -> _Fitted:
    """Search on part of the samples, fit to all that are not held out, then to all."""
    deadline, clock = run.deadline, run.clock
    sample = _search_sample(prepared, task, run.options)

    def report(stage: str, rss: float) -> None:
        run.report(stage, float(np.sqrt(rss)))

    run.report("search", np.nan)

    def search() -> Found:
        grid = None if prepared.stream is not None else grid_start(*sample.collect(), task)
        given = starts if grid is None else chain([grid], starts)
        rare = (
            None
            if prepared.stream is not None or task.depth > 1 or task.affine
            else columns.start(prepared, task, run.rng, deadline)
        )
        if rare is None:
            return search_network(sample, task.on(sample.count()), run.rng, deadline, given, report)
        first = chain([rare.units], given)
        return search_network(sample, task.on(sample.count()), run.rng, deadline, first, report, rare.draw)

    found = resume_search(run, task.activation, search)
    clock.stage("search", _search_sentence(found, sample.count()))
    if prepared.stream is None and found.exact:
        prepared, found = _join_rare_samples(prepared, task, found, run)
    train = prepared.train
    if prepared.stream is not None:
        train = prepared.stream.part(run.options.start_load * found.network.n_parameters)
    if sample is not train:
        run.report("refine", np.nan)
        found = polish(train, found, task, deadline)
        clock.stage("refine", f"{_residual(found)} on {train.count()} samples")
    run.report("last fit", np.nan)
    if prepared.stream is not None and found.network.n_parameters <= PassOptions().largest:
        streamed = fit_in_passes(prepared, found.network, task.bias)
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
        residuals = reduce(prepared.judges, Residuals(found.network, task.n_outputs, width, prepared.output_mean))
        final = polish(prepared.samples, found, task, deadline)
        final = _no_worse_than_grid(prepared.samples, final, task, deadline)
        final = _refit_unweighted(prepared.samples, final, task, deadline)
    passes = f" after {run.passes.made} {'pass' if run.passes.made == 1 else 'passes'}" if run.passes.made else ""
    clock.stage("last fit", f"{_residual(final)} on all {prepared.moments.n} samples{passes}")
    return _Fitted(final, residuals, prepared, found.network)


def _no_worse_than_grid(samples: Source, found: Found, task: Task, deadline: Deadline) -> Found:
    """Refit to all samples, starting from the best kinks on a grid and with an affine term; return the better fit.

    Σr² has a small local minimum wherever a kink passes a sample, so held-out samples that join may move the best kink.
    """
    grid = grid_start(*samples.collect(), task) if task.affine and not found.exact and task.n_inputs <= 2 else None
    if grid is None:
        return found
    d, p = task.n_inputs, task.n_outputs
    start = Network(grid[:, :d], grid[:, d], np.zeros((p, len(grid))), None, task.activation, C=np.zeros((p, d)))
    fit = fit_network(samples, start, task.bias, deadline)
    return fitted(found, fit) if fit.rss < found.rss else found


def _refit_unweighted(samples: Source, final: Found, task: Task, deadline: Deadline) -> Found:
    """Fit exact samples once more without their weights, and return that fit if it is exact too."""
    if not samples.weighted or not final.exact:
        return final
    alike = polish(without_weights(samples), final, task, deadline)
    return alike if alike.exact else final


def _join_rare_samples(prepared: Prepared, task: Task, found: Found, run: Run) -> tuple[Prepared, Found]:
    """Add held-out samples to the fit if only they show where a unit switches on or off.

    A weight that only one of these samples shows does not count as determined. Samples that joined the fit can no
    longer test it; the sealed samples, which were never used, test it instead.
    """
    for _ in range(run.options.max_joined if isinstance(found.network, Network) and not task.affine else 0):
        assert isinstance(found.network, Network)
        told = partial(columns.told_rows, prepared, task, found.network)
        enlarged = with_misfits(prepared, found.network, EXACT, run.options.prepare, told)
        if enlarged is None or run.deadline.passed:
            break
        again = columns.fit_again(enlarged, task, found, run.deadline)
        if again is None or not again.exact:
            break
        moved = enlarged.train.count() - prepared.train.count()
        prepared, found = enlarged, again
        run.clock.stage("rare samples", f"{moved} held-out samples that alone show a switch join the fit")
    return prepared, found


class _Reserve:
    """The algorithms that "auto" runs one after the other when random starts have failed."""

    def __init__(self, call: Call, options: PipelineOptions) -> None:
        self.call, self.options = call, options
        self.called: list[Estimate] = []

    def starts(self) -> Iterator[np.ndarray]:
        """Yield the starting weights of each round of descents; none for the first rounds, which start at random."""
        task = self.call.task
        yield from [np.empty((0, task.n_inputs + task.bias))] * self.options.random_rounds
        if task.n_inputs > self.options.reserve_inputs or task.depth > 1 or task.affine:
            return
        for algorithm in methods():
            if algorithm.reserve and algorithm.refuse(task) is None and not self.call.deadline.passed:
                self.called.append(run_algorithm(algorithm, self.call))
                yield from _as_starts(self.called[-1], task.bias)


def _search_sample(prepared: Prepared, task: Task, how: PipelineOptions) -> Source:
    """Return the samples to search on: all that are not held out, or for a stream as many as a search needs."""
    sample: Source = prepared.train
    if prepared.stream is not None:
        options, widths = SearchOptions(), task.widths or (how.unknown_width,) * task.depth
        wide = tuple(int(options.wider * k) + 1 for k in widths)
        size = n_weights(task.n_inputs + task.bias, wide, task.n_outputs)[1]
        sample = prepared.stream.part(max(how.min_search_rows, int(options.equations * size)))
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
        raise ValueError(f"Only least_squares finds several hidden layers. Got method={name!r} instead.")
    if affine and name != "least_squares":
        raise ValueError(f"Only least_squares finds an affine term. Got method={name!r} instead.")
    if algorithm.finds != "network":
        raise ValueError(f"{name} finds the lowest layer of a deeper network: use recover_lowest_layer or estimate.")
    return algorithm
