"""The parts common to all runs: the clock, progress, reading samples, running an algorithm, and certifying."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from neurecover.activations import Activation
from neurecover.algorithms import Algorithm, Call
from neurecover.certificate import (
    Case,
    Certificate,
    Check,
    Evidence,
    certify,
    certify_constant,
    certify_untested,
    scaled_to_determined,
)
from neurecover.certificate.checks.search import search_ended
from neurecover.data import (
    Oracle,
    Prepared,
    Source,
    as_source,
    diagnose_labels,
    diagnose_oracle,
    diagnose_probabilities,
    load_samples,
    prepare_samples,
    reduce,
    unwhiten,
)
from neurecover.data.passes import Passes, count_passes
from neurecover.exceptions import OutOfTimeError, UnsolvableError
from neurecover.excerpt import Excerpt
from neurecover.fit import EXACT
from neurecover.models import Composite, DeepNetwork, Model, Network
from neurecover.pipeline.options import PipelineOptions
from neurecover.pipeline.progress import Progress, Reporter, display_progress
from neurecover.queried import Queried
from neurecover.random import RandomStateLike, as_generator
from neurecover.results import Estimate, Recovery, Stage
from neurecover.search import Task
from neurecover.solve import FLOPS, Deadline, interrupt, time_limit
from neurecover.statistics import Residuals

M = TypeVar("M", bound=Model)
logger = logging.getLogger("neurecover")


class Clock:
    """The stages of a run, its start time, an excerpt of the samples that tested it, and a record of the queries."""

    def __init__(self) -> None:
        self.began = self.last = time.monotonic()
        self.stages: list[Stage] = []
        self.excerpt: Excerpt | None = None
        self.queried: Queried | None = None

    def stage(self, name: str, detail: str) -> None:
        """Record a stage, which lasted from the end of the previous one until now."""
        now = time.monotonic()
        self.stages.append(Stage(name, now - self.last, detail))
        logger.info("%s: %s (%.2f s)", name, detail, now - self.last)
        self.last = now


@dataclass(frozen=True)
class Run:
    """The state of a run: random numbers, deadline, progress, the counter of passes, options and the clock."""

    rng: np.random.Generator
    deadline: Deadline
    report: Reporter
    late: float
    passes: Passes
    options: PipelineOptions
    clock: Clock = field(default_factory=Clock)

    def overtime(self, most: float = np.inf) -> AbstractContextManager[None]:
        """Limit the time, at most `most` seconds, of work that is done even after the deadline (the certificate)."""
        interrupt.clear()  # the interrupt was meant for the search
        moment = self.deadline.moment
        return time_limit(None if moment is None else moment + min(self.late, most))

    def recovery(
        self,
        network: M,
        certificate: Certificate,
        method: str,
        found: Estimate | None = None,
        n_queries: int | None = None,
    ) -> Recovery[M]:
        """Return the result with the stages so far; if time ended the search, add a check that says so."""
        if self.deadline.watch.ended:
            certificate = replace(
                certificate, checks=(*certificate.checks, search_ended(self.deadline.watch.interrupted))
            )
        clock, seconds = self.clock, time.monotonic() - self.clock.began
        return Recovery(
            network,
            certificate,
            method,
            tuple(clock.stages),
            seconds,
            found,
            n_queries,
            clock.excerpt,
            queried=clock.queried,
        )


@contextmanager
def running(
    purpose: str,
    random_state: RandomStateLike,
    time_budget: float | None,
    progress: bool | Progress,
    options: PipelineOptions | None = None,
) -> Iterator[Run]:
    """Check the arguments and start a run; progress goes to the user's function, to standard error, or nowhere."""
    options = options or PipelineOptions()
    if time_budget is not None and not (isinstance(time_budget, Real) and time_budget >= 0):
        raise ValueError(f"time_budget needs to be a number of seconds from 0. Got {time_budget!r} instead.")
    reporter = Reporter(progress if callable(progress) else lambda stage, residual: None)
    deadline = Deadline.after(time_budget, reporter.pulse)
    late = max(options.late, options.late_share * (time_budget or 0.0))
    display = display_progress(reporter, deadline) if progress and not callable(progress) else nullcontext()
    with display, count_passes(reporter) as passes:
        yield Run(as_generator(random_state, purpose), deadline, reporter, late, passes, options)


@dataclass(frozen=True)
class Problem:
    """The samples, given and prepared, the task, the queries made, and the reason if no method can work on them."""

    given: Source
    prepared: Prepared
    task: Task
    n_queries: int | None
    reason: str | None


def read_samples(
    run: Run,
    X: Any,
    Y: Any,
    n_samples: int | None,
    algorithm: Algorithm,
    activation: Activation,
    bias: bool,
    n_hidden: int | tuple[int, ...] | None,
    prepare: Callable[[Source], object] = lambda source: None,
    sample_weight: ArrayLike | None = None,
    depth: int = 1,
    affine: bool = False,
) -> Problem:
    """Read and whiten the samples. `reason` is set when no method can work on them.

    `prepare` is called with the source before the first pass over it.
    """
    run.report("read", float("nan"))
    queried = algorithm.prepare(as_source(X, Y, sample_weight))
    if queried.weighted and not algorithm.weighs:
        raise ValueError(
            f"{algorithm.name} has no form for weighted samples. Leave the weights out, or recover with method='auto'."
        )
    if isinstance(queried, Oracle):
        before, total = queried.queries, n_samples or queried.n_samples or 0
        run.report.count = lambda: (queried.queries - before, total)
    source = load_samples(queried, n_samples)
    run.report.count = None
    prepare(source)
    prepared = prepare_samples(source, bias, run.rng, run.options.prepare)
    shapes = prepared.whitening.rank, source.n_outputs, prepared.moments.n
    one, several = (None, n_hidden) if isinstance(n_hidden, tuple) else (n_hidden, None)
    task = Task(activation, *shapes, bias, one, _level(prepared, run.options.rounding), depth, affine, several)
    run.clock.stage("read", _read_sentence(prepared))
    if source.base.assumed:
        run.clock.stage("columns", source.base.assumed)
    n_queries = queried.queries if isinstance(queried, Oracle) else None
    reason = _reason_to_give_up(prepared, task, algorithm, run.options.prepare.fewest)
    return Problem(source, prepared, task, n_queries, reason)


def add_diagnosis(certificate: Certificate, source: Any, activation: Activation) -> Certificate:
    """Add a check that says what kind of model the oracle looks like, when its weights were not found."""
    if not isinstance(source, Oracle) or certificate.verdict in ("exact", "statistical"):
        return certificate
    sentence = diagnose_oracle(source, activation.homogeneity is not None)
    if sentence is None:
        return certificate
    return replace(certificate, checks=(*certificate.checks, Check("box", False, None, None, sentence)))


def _level(prepared: Prepared, rounding: float) -> float:
    """Return the Σ r² / Σ y² that rounded outputs explain, with a margin; EXACT if outputs have all digits.

    A network computed in single precision also loses digits in its sums, not only in its outputs. If the level exceeds
    `rounding`, a wrong network may reach it too, as with noise; the level is then EXACT again.
    """
    total = float(
        np.sum(np.diag(prepared.fitted_moments.covariance)[prepared.source.n_inputs :] + prepared.output_mean**2)
    )
    left = np.sum(prepared.precision.largest)
    share = float(left) / total if total > 0.0 else 0.0
    return max(EXACT, share) if share <= rounding else EXACT


def check_architecture(n_hidden: int | tuple[int, ...] | None, depth: int) -> tuple[int | tuple[int, ...] | None, int]:
    """Return the number of units, one number for one layer or one per layer, and the number of hidden layers."""
    if not isinstance(depth, int | np.integer) or isinstance(depth, bool) or depth < 1:
        raise ValueError(f"depth needs to be a whole number from 1. Got {depth!r} instead.")
    if not isinstance(n_hidden, tuple | list):
        if n_hidden is None or depth == 1:
            check_width(n_hidden)
            return None if n_hidden is None else int(n_hidden), int(depth)
        n_hidden = (n_hidden,)
    whole = all(isinstance(k, int | np.integer) and not isinstance(k, bool) and k >= 1 for k in n_hidden)
    if not n_hidden or not whole:
        raise ValueError(f"n_hidden needs whole numbers from 1, one per hidden layer. Got {n_hidden!r} instead.")
    if depth not in (1, len(n_hidden)):
        raise ValueError(f"n_hidden={n_hidden!r} has {len(n_hidden)} hidden layers. Got depth={depth} instead.")
    widths = tuple(int(k) for k in n_hidden)
    return (widths[0] if len(widths) == 1 else widths), len(widths)


def check_affine(affine: bool | str, bias: bool, saves: bool) -> None:
    """Refuse values other than True, False and "auto"; refuse "auto" with a checkpoint, which can save one search."""
    if not isinstance(bias, bool | np.bool_):
        raise ValueError(f"bias needs to be True or False. Got {bias!r} instead.")
    if not isinstance(affine, bool | np.bool_) and affine != "auto":
        raise ValueError(f"affine needs to be True, False or 'auto'. Got {affine!r} instead.")
    if saves and affine == "auto":
        raise ValueError("A checkpoint needs affine=True or False. Got 'auto' instead, which makes two searches.")


def check_width(n_hidden: int | None) -> None:
    if n_hidden is not None and (
        not isinstance(n_hidden, int | np.integer) or isinstance(n_hidden, bool) or n_hidden < 1
    ):
        raise ValueError(
            f"n_hidden needs to be a whole number from 1, or None to have it found. Got {n_hidden!r} instead."
        )


def run_algorithm(algorithm: Algorithm, call: Call) -> Estimate:
    """Run the algorithm on whitened samples; return its estimate, which has no network but a reason if it fails."""
    began = time.monotonic()
    assert algorithm.run is not None
    try:
        with time_limit(call.deadline.moment, call.deadline.watch):
            found = algorithm.run(call)
    except UnsolvableError as reason:
        found = Estimate(None, (str(reason),))
    return replace(found, method=algorithm.name, form=call.form, seconds=time.monotonic() - began)


def certify_network(
    run: Run, model: Model, prepared: Prepared, holdout: Residuals, evidence: Evidence, bias: bool = True
) -> Certificate:
    """Certify a network on whitened inputs; if time is too short for all checks, no weight counts as certified."""
    run.report("certify", np.nan)
    P = sum(W.size + len(W) for W in model.hidden_weights)
    # The cost of the information matrix, of its inverse, and of the influence of every sample.
    run.report.expect((3.0 * prepared.samples.count() * model.n_outputs * P**2 + 2.0 * P**3) / FLOPS)
    run.clock.excerpt = Excerpt.of_samples(prepared, holdout.predict, model)
    evidence = replace(evidence, precision=prepared.precision, joined=prepared.n_joined)
    options = run.options.certificate
    case = Case(
        model, prepared.whitening, prepared.samples, holdout, evidence, run.rng, bias, options, prepared.distinct
    )
    try:
        with run.overtime():
            certificate = certify(case)
    except OutOfTimeError:
        certificate = certify_untested(case)
    sentence = None if certificate.verdict in ("exact", "statistical") else diagnose_probabilities(prepared.source)
    if sentence is not None:
        check = Check("probabilities", False, None, None, sentence)
        certificate = replace(certificate, checks=(*certificate.checks, check))
    run.clock.stage("certify", certificate.verdict)
    return certificate


def diagnose(run: Run, algorithm: Algorithm, network: Model, samples: Source) -> tuple[Check, ...]:
    """Return the checks that an algorithm adds to the certificate; none if there is no time for them."""
    try:
        with run.overtime():
            return algorithm.diagnose(network, samples, run.rng)
    except OutOfTimeError:
        return ()


def _reason_to_give_up(prepared: Prepared, task: Task, algorithm: Algorithm, fewest: int) -> str | None:
    """Return the reason not to try any fit, or None."""
    if prepared.n_distinct < fewest:
        return (
            f"Only {prepared.n_distinct} of {prepared.n_rows} rows are different, too few to hold one out: give more."
        )
    spread = np.sqrt(np.diag(prepared.moments.covariance)[prepared.source.n_inputs :])
    if np.all(spread <= 1e-13 * np.abs(prepared.output_mean)):
        return "The outputs are constant, so they show no hidden unit: give inputs that spread wider."
    if prepared.whitening.rank == 0:
        X = next(prepared.source.blocks(4096))[0]
        if np.ptp(X, axis=0).max() > 0.0:
            largest = np.abs(X).max()
            return (
                f"The inputs are so small, {largest:.0e}, that their squares vanish: give the columns in other units."
            )
        return "The inputs are constant, so they show no hidden unit: give inputs that vary."
    if algorithm.finds == "network" and task.activation.differentiable:
        sentence = diagnose_labels(prepared.source)
        if sentence is not None:
            return sentence
    widths = task.widths or (1,) * task.depth
    wanted = task.n_parameters(widths) - sum(widths)
    different = prepared.n_distinct * task.n_outputs
    if wanted >= different:
        return (
            f"{different} numbers in Y cannot determine the {wanted} parameters "
            f"of {'-'.join(map(str, widths))} hidden units. Give more samples or fewer units."
        )
    return algorithm.refuse(task)


def constant_network(prepared: Prepared, task: Task, reason: str) -> tuple[Network, Certificate]:
    """Return the mean of the outputs as a network without units, and a certificate with the reason."""
    d, p = prepared.source.n_inputs, prepared.source.n_outputs
    c = prepared.output_mean if task.bias else np.zeros(p)
    network = Network(np.zeros((0, d)), None, np.zeros((p, 0)), c, task.activation)
    residuals = reduce(prepared.holdout, Residuals(lambda X: np.tile(c, (len(X), 1)), p, origin=c))
    constant = bool(residuals.mse <= (1e-12 * float(np.abs(c).max(initial=0.0))) ** 2)
    return network, certify_constant(reason, residuals, constant, prepared.moments.n)


def in_order(network: Network | DeepNetwork, prepared: Prepared) -> Network | DeepNetwork:
    """Return the network with the units of every layer in an order that does not depend on the order of the samples.

    Units are sorted by their normalised rows in the units of the inputs, then by their kinks, to six digits.
    """
    normal = unwhiten(network, prepared.whitening).normal_form()
    assert not isinstance(normal, Composite)
    own, seen = [list(layer) for layer in network.layers], [list(layer) for layer in normal.layers]
    for level in range(network.depth):
        keys = np.column_stack([seen[level][0], -seen[level][1]])
        keys = np.round(keys / max(float(np.abs(keys).max(initial=0.0)), 1e-300), 6)
        order = np.lexsort(keys.T[::-1])
        for layers in (own, seen):
            layers[level] = [array[order] for array in layers[level]]
            layers[level + 1][0] = layers[level + 1][0][:, order]
    return network.with_layers([(W, b) for W, b in own], network.C)


def in_input_units(model: Model, prepared: Prepared, certificate: Certificate) -> Model:
    """Return the network in the units of the inputs; the determined weights of every row have norm one."""
    normal = unwhiten(model, prepared.whitening).normal_form()
    if certificate.verdict != "approximate" or certificate.determined is None or isinstance(normal, Composite):
        return normal
    return scaled_to_determined(normal, certificate.determined)


def estimate_in_input_units(found: Estimate | None, prepared: Prepared) -> Estimate | None:
    """Return the estimate with its network, if it has one, in the units of the inputs."""
    if found is None:
        return None
    found = replace(found, whitening=prepared.whitening)
    if found.network is None:
        return found
    return replace(found, network=unwhiten(found.network, prepared.whitening).normal_form())


def _read_sentence(prepared: Prepared) -> str:
    repeats = prepared.n_rows - prepared.n_distinct
    left_out = f", {repeats} of them copies of others" if repeats else ""
    source = prepared.source
    columns = f"inputs {_listed(source.input_names)}; outputs {_listed(source.output_names)}"
    rank = prepared.whitening.rank
    return f"{prepared.moments.n} samples{left_out}, {rank} input dimension{'s' * (rank != 1)}; {columns}"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) <= 6 else f"{', '.join(names[:3])}, …, {names[-1]} ({len(names)} in all)"
