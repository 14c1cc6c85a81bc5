"""One problem from prepared samples to a fit: search on part of them, fit to those not held out, then to all.

A straight line that does as well is the answer if the number of units was to be found.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from neurecover.certificate import Draws, draw_planes, work_of_draws
from neurecover.data import ArraySource, Prepared, Source, reduce, with_misfits
from neurecover.data.views.weights import moderate_weights, without_weights
from neurecover.fit import EXACT
from neurecover.fit.model_fit import PassOptions, fit_in_passes
from neurecover.models import DeepNetwork, Network
from neurecover.pipeline.checkpoints import resume_search
from neurecover.pipeline.options import PipelineOptions
from neurecover.pipeline.running import Run
from neurecover.pipeline.straight import Line, as_good, left_by
from neurecover.search import SearchOptions, Task
from neurecover.search.gates import columns
from neurecover.search.kink_grid import grid_start
from neurecover.search.network import Found, fit_network, fitted, polish, search_network
from neurecover.search.race import n_weights
from neurecover.solve import FLOPS, Deadline, limit, within
from neurecover.statistics import Residuals


@dataclass(frozen=True)
class Fitted:
    """The network fitted to all samples, its residuals on held-out ones before they joined the fit, and the samples.

    `line` is the mean square of every output that a straight line leaves of held-out samples, None if none was fitted,
    and `straight` says that it does as well as the network, `better` that the network predicts them better, `predicts`
    that it beats the mean by BIC and is not clearly worse than the line. `before` is the network before they joined,
    and `draws` are networks drawn from the posterior where errors to first order may be too small.
    """

    found: Found
    holdout: Residuals
    prepared: Prepared
    before: Network | DeepNetwork
    line: np.ndarray | None = None
    straight: bool = False
    better: bool = True
    predicts: bool = False
    draws: Draws | None = None


def search_and_fit(prepared: Prepared, task: Task, starts: Iterable[np.ndarray], run: Run) -> Fitted:
    """Search and fit; a straight line that does as well is the answer where the number of units was to be found."""
    if not task.bias:
        return _search_and_polish(prepared, task, starts, run)
    line, wanted = Line.of(prepared, task.activation), task.asked is None
    exact = task.level * prepared.moments.n * _size_of_outputs(prepared)
    if wanted and prepared.stream is None and line.rss < exact:
        found = _as_found(line, task)
        run.clock.stage("straight line", f"{_residual(found)} on all {prepared.moments.n} samples")
        return Fitted(found, left_by(line.network, prepared, prepared.judges), prepared, line.network, line.held_out)
    fitted = _search_and_polish(prepared, task, starts, run)
    network = fitted.found.network
    widths = tuple(len(W) for W in network.hidden_weights)
    more = task.n_parameters(widths) - sum(widths) - task.n_outputs * (task.n_inputs + 1)
    straight = not fitted.found.exact and as_good(line.rss, fitted.found.rss, task.n_samples * task.n_outputs, more)
    if not wanted or not straight:
        beaten = line.beaten_by(fitted.before, prepared, not straight)
        # More parameters than the mean has, p of them.
        beats_mean = not as_good(line.total, fitted.found.rss, task.n_samples * task.n_outputs, more + line.n_slopes)
        predicts = beats_mean and not beaten.worse
        return replace(fitted, line=line.held_out, straight=straight, better=beaten.better, predicts=predicts)
    run.clock.stage("straight line", f"as good as {sum(widths)} units by BIC")
    left = left_by(line.network, prepared, prepared.judges)
    # A search that time has cut short does not show that no unit is called for.
    found = replace(_as_found(line, task), converged=not run.deadline.watch.ended)
    return replace(fitted, found=found, holdout=left, line=line.held_out, draws=None)


def _as_found(line: Line, task: Task) -> Found:
    """Return the straight line as what a search has found: it is the one optimum of its kind."""
    return Found(line.network, line.rss, line.rss, task.level, 1, 0, 1, converged=True)


def _size_of_outputs(prepared: Prepared) -> float:
    """Return the mean of Σ y² over samples."""
    moments, d = prepared.fitted_moments, prepared.source.n_inputs
    return float(np.trace(moments.covariance[d:, d:]) + prepared.output_mean @ prepared.output_mean)


def _search_and_polish(prepared: Prepared, task: Task, starts: Iterable[np.ndarray], run: Run) -> Fitted:
    """Search on part of the samples, fit to all that are not held out, then to all."""
    deadline, clock = run.deadline, run.clock
    sample = search_sample(prepared, task, run.options)

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
        first = given if rare is None else chain([rare], given)
        return search_network(sample, task.on(sample.count()), run.rng, deadline, first, report)

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
    draws = None
    if prepared.stream is not None and found.network.n_parameters <= PassOptions().largest:
        streamed, residuals = fit_in_passes(prepared, found.network, task.bias)
        final = replace(
            found,
            network=streamed.network,
            rss=streamed.rss,
            relative_rss=streamed.relative_rss,
            converged=streamed.converged,
        )
    else:
        width = sum(len(W) for W in found.network.hidden_weights)
        residuals = reduce(prepared.judges, Residuals(found.network, task.n_outputs, width, prepared.output_mean))
        final = polish(prepared.samples, found, task, deadline)
        final = _no_worse_than_grid(prepared.samples, final, task, deadline)
        draws = _draws(prepared.samples, final, task, run)
        final = _no_worse_than_draws(prepared.samples, final, draws, task, run)
        final = _refit_unweighted(prepared.samples, final, task, deadline)
    passes = f" after {run.passes.made} {'pass' if run.passes.made == 1 else 'passes'}" if run.passes.made else ""
    clock.stage("last fit", f"{_residual(final)} on all {prepared.moments.n} samples{passes}")
    return Fitted(final, residuals, prepared, found.network, draws=draws)


def _no_worse_than_grid(samples: Source, found: Found, task: Task, deadline: Deadline) -> Found:
    """Return the fit to all samples from the kinks of their grid, beside an affine term, if it is the better one.

    Σr² has a dent at every sample that a kink passes, so that the samples which were held out may move the best one.
    """
    grid = grid_start(*samples.collect(), task) if task.affine and not found.exact and task.n_inputs <= 2 else None
    if grid is None:
        return found
    d, p = task.n_inputs, task.n_outputs
    start = Network(grid[:, :d], grid[:, d], np.zeros((p, len(grid))), None, task.activation, C=np.zeros((p, d)))
    fit = fit_network(samples, start, task.bias, deadline)
    return fitted(found, fit) if fit.rss < found.rss else found


def _draws(samples: Source, found: Found, task: Task, run: Run) -> Draws | None:
    """Draw from the posterior of units with kinks, if their errors are not narrow and it is not too much work."""
    network, options = found.network, run.options
    shallow = isinstance(network, Network) and network.n_hidden > 0 and task.bias and not found.exact
    if not shallow or network.activation.homogeneity != 1.0 or network.activation.odd_slope is None:
        return None
    assert isinstance(network, Network)
    work = work_of_draws(samples.count(), network)
    if work > options.draw_work or limit().seconds_left < work / FLOPS:
        return None
    (X, Y), weight = samples.collect(), samples.weights()
    w = np.ones(len(X)) if weight is None else weight
    return draw_planes(network, X, Y, w, 0.0, run.rng.spawn(1)[0], narrow=options.narrow)


def _no_worse_than_draws(samples: Source, found: Found, draws: Draws | None, task: Task, run: Run) -> Found:
    """Return the fit to all samples from the best of the draws, if it is the better one."""
    for t in within(run.deadline, [] if draws is None else np.argsort(draws.rss)[: run.options.best_draws]):
        assert draws is not None
        line = None if draws.C is None else draws.C[t]
        start = Network(draws.W[t], draws.b[t], draws.A[t], draws.c[t], found.network.activation, line)
        fit = fit_network(samples, start, task.bias, run.deadline)
        found = fitted(found, fit) if fit.rss < found.rss else found
    return found


def _refit_unweighted(samples: Source, final: Found, task: Task, deadline: Deadline) -> Found:
    """Fit exact samples once more without their weights, and return that fit if it is exact too."""
    if not samples.weighted or not final.exact:
        return final
    alike = polish(without_weights(samples), final, task, deadline)
    return alike if alike.exact else final


def _join_rare_samples(prepared: Prepared, task: Task, found: Found, run: Run) -> tuple[Prepared, Found]:
    """Fit held-out samples with the others if they alone show where a unit switches on or off.

    A weight that only one of them shows does not count as determined. Samples that joined the fit can no longer test
    it; the sealed ones, which nothing has looked at, do.
    """
    for _ in range(run.options.max_joined if isinstance(found.network, Network) and not task.affine else 0):
        assert isinstance(found.network, Network)
        enlarged = with_misfits(prepared, found.network, EXACT, run.options.prepare)
        if enlarged is None or run.deadline.passed:
            break
        again = columns.fit_again(enlarged, task, found, run.deadline)
        if again is None or not again.exact:
            break
        moved = enlarged.train.count() - prepared.train.count()
        prepared, found = enlarged, again
        run.clock.stage("rare samples", f"{moved} held-out samples that alone show a switch join the fit")
    return prepared, found


def search_sample(prepared: Prepared, task: Task, how: PipelineOptions) -> Source:
    """Return the samples to search on: those that are not held out, or of a stream as many as a search needs."""
    sample: Source = prepared.train
    if prepared.stream is not None:
        options, widths = SearchOptions(), task.widths or (how.unknown_width,) * task.depth
        wide = tuple(int(options.wider * k) + 1 for k in widths)
        size = n_weights(task.n_inputs + task.bias, wide, task.n_outputs)[1]
        sample = prepared.stream.part(max(how.min_search_rows, int(options.equations * size)))
    return moderate_weights(sample) if isinstance(sample, ArraySource) else sample


def _residual(found: Found) -> str:
    return f"relative residual {np.sqrt(found.relative_rss):.2g}"


def _search_sentence(found: Found, n: int) -> str:
    descents = f"{found.descents} descent{'' if found.descents == 1 else 's'}"
    size = "-".join(str(len(W)) for W in found.network.hidden_weights)
    units = f"{size} unit{'s' * (size != '1')}"
    return " ".join([f"{units}, {_residual(found)} on {n} samples after {descents}", *found.notes])
