"""Recover a network of any depth from samples. Each step is a function from one frozen value to the next:

load → prepare (whiten, divide) → estimate (an algorithm) → search and fit → certify → Recovery
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from neurecover import activations
from neurecover.activations import Activation
from neurecover.algorithms import Algorithm, Call, get_method, methods
from neurecover.certificate import Certificate, Check, Evidence
from neurecover.certificate.checks.search import search_ended
from neurecover.data import Prepared, Source, as_source, load_samples, side_by_side
from neurecover.data.views.weights import without_weights
from neurecover.fit import EXACT
from neurecover.models import DeepNetwork, Network
from neurecover.pipeline.checkpoints import Folder, begin_records, choose_seed
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
from neurecover.pipeline.solving import search_and_fit, search_sample
from neurecover.random import RandomStateLike
from neurecover.results import Estimate, Recovery, Stage
from neurecover.search import Task
from neurecover.search.network import Found


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
        The constants that decide how samples, work and time are divided, for experiments.

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
    check_affine(affine, bias, checkpoint is not None)
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
            task, starts, *said = choose_activation(search_sample(prepared, task, options), task, sought)

        def solve(task: Task, run: Run) -> Solved:
            if method == "auto":
                return _solve_by_race(prepared, task, starts, run)
            return _solve_by(algorithm, prepared, task, run)

        solved = with_or_without_line(solve, task, sought) if affine == "auto" else solve(task, sought)
        certificate = replace(solved.certificate, checks=(*solved.certificate.checks, *said))
        if certificate.verdict in ("approximate", "failed") and certificate.likelihood is not None:
            far = outlier_check(solved.network, prepared.source)
            certificate = certificate if far is None else replace(certificate, checks=(*certificate.checks, far))
        certificate = add_hint(certificate, lambda: search_sample(prepared, task, options), prepared, task, run)
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
    prepared: Prepared, task: Task, starts: Iterable[np.ndarray], run: Run
) -> tuple[Network | DeepNetwork, Certificate, Found]:
    """Search, fit and certify; return the network on the inputs, its certificate, and what was found."""
    fitted = search_and_fit(prepared, task, starts, run)
    found = replace(fitted.found, network=in_order(fitted.found.network, prepared))
    evidence = Evidence(
        task.asked,
        found.sign_choices,
        found.agreements,
        found.converged,
        found.last_drop,
        at_rounding=task.level > EXACT and found.exact,
        unrivalled=found.unrivalled,
        nearby=found.nearby,
        draws=fitted.draws,
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


def _as_starts(found: Estimate | None, bias: bool) -> list[np.ndarray]:
    if found is None:
        return []
    net = found.network
    first = [np.hstack([net.W, net.b[:, None]]) if bias else net.W] if isinstance(net, Network) else []
    return [*first, *found.starts]


def _network_method(name: str, depth: int, affine: bool) -> Algorithm:
    algorithm = get_method(name)
    if depth > 1 and name != "least_squares":
        raise ValueError(f"Only least_squares finds several hidden layers. Got method={name!r} instead.")
    if affine and name != "least_squares":
        raise ValueError(f"Only least_squares finds an affine term. Got method={name!r} instead.")
    if algorithm.finds != "network":
        raise ValueError(f"{name} finds the lowest layer of a deeper network: use recover_lowest_layer or estimate.")
    return algorithm
