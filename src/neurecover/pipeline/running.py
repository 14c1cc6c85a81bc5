"""What every road through the pipeline shares: the clock, progress, the samples as they are read, and giving up."""

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
    certify_nothing,
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
from neurecover.data.preparing import FEWEST
from neurecover.exceptions import OutOfTimeError, UnsolvableError
from neurecover.excerpt import Excerpt
from neurecover.fit.options import EXACT
from neurecover.models import Composite, Model, Network
from neurecover.pipeline.progress import Progress, Reporter, displayed
from neurecover.random import RandomStateLike, as_generator
from neurecover.results import Estimate, Recovery, Stage
from neurecover.search.task import Task
from neurecover.solve import FLOPS, Deadline, time_limit
from neurecover.statistics import Residuals

M = TypeVar("M", bound=Model)
logger = logging.getLogger("neurecover")
LATE, LATE_SHARE = 1.0, 0.1  # seconds, and share of the time budget, that a certificate may take after its end
LOOKED_AT = 4096  # rows that tell inputs that are constant from those that are small
NOISE_LIKE = 1e-9  # share of Σ y² beyond which a fit at the level of rounding may be a wrong one, as it is with noise


class Clock:
    """The stages of a run, when it began, and the excerpt of what it was tested on, if it came to that."""

    def __init__(self) -> None:
        self.began = self.last = time.monotonic()
        self.stages: list[Stage] = []
        self.excerpt: Excerpt | None = None

    def stage(self, name: str, detail: str) -> None:
        """Note what was done since the last stage."""
        now = time.monotonic()
        self.stages.append(Stage(name, now - self.last, detail))
        logger.info("%s: %s (%.2f s)", name, detail, now - self.last)
        self.last = now


@dataclass(frozen=True)
class Run:
    """Random numbers, the time there is, where progress goes, and the clock."""

    rng: np.random.Generator
    deadline: Deadline
    report: Reporter
    late: float
    passes: Passes
    clock: Clock = field(default_factory=Clock)

    def overtime(self) -> AbstractContextManager[None]:
        """The limit for what is due even where the time is over, one for all of it."""
        moment = self.deadline.moment
        return time_limit(None if moment is None else moment + self.late)

    def recovery(
        self,
        network: M,
        certificate: Certificate,
        method: str,
        found: Estimate | None = None,
        n_queries: int | None = None,
    ) -> Recovery[M]:
        """The answer, with the stages so far; its certificate says so where time ended the search."""
        if self.deadline.watch.ended:
            certificate = replace(certificate, checks=(*certificate.checks, search_ended()))
        clock, seconds = self.clock, time.monotonic() - self.clock.began
        return Recovery(network, certificate, method, tuple(clock.stages), seconds, found, n_queries, clock.excerpt)


@contextmanager
def running(
    purpose: str, random_state: RandomStateLike, time_budget: float | None, progress: bool | Progress
) -> Iterator[Run]:
    """A run, its arguments checked; progress goes nowhere, to the caller's function, or to a line on standard error."""
    if time_budget is not None and not (isinstance(time_budget, Real) and time_budget >= 0):
        raise ValueError(f"time_budget needs to be a number of seconds from 0. Got {time_budget!r} instead.")
    reporter = Reporter(progress if callable(progress) else lambda stage, residual: None)
    deadline = Deadline.after(time_budget, reporter.pulse)
    late = max(LATE, LATE_SHARE * (time_budget or 0.0))
    shown = displayed(reporter, deadline) if progress and not callable(progress) else nullcontext()
    with shown, count_passes(reporter) as passes:
        yield Run(as_generator(random_state, purpose), deadline, reporter, late, passes)


@dataclass(frozen=True)
class Begun:
    """Samples prepared, what is sought in them, how often a black box was asked, and why nothing can be done, if so."""

    given: Prepared
    task: Task
    n_queries: int | None
    hopeless: str | None

    @property
    def shapes(self) -> tuple[int, int]:
        return self.given.source.n_inputs, self.given.source.n_outputs


def begun(
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
) -> Begun:
    """Read the samples as the algorithm wants them asked, and see whether there is anything to be done.

    `prepare` sees the source before the first pass over it.
    """
    run.report("read", float("nan"))
    asked = algorithm.prepare(as_source(X, Y, sample_weight))
    if asked.weighted and not algorithm.weighs:
        raise ValueError(
            f"{algorithm.name} has no form for weighted samples. Leave the weights out, or recover with method='auto'."
        )
    if isinstance(asked, Oracle):
        before, total = asked.queries, n_samples or asked.n_samples or 0
        run.report.count = lambda: (asked.queries - before, total)
    source = load_samples(asked, n_samples)
    run.report.count = None
    prepare(source)
    given = prepare_samples(source, bias, run.rng)
    shapes = given.whitening.rank, source.n_outputs, given.moments.n
    one, several = (None, n_hidden) if isinstance(n_hidden, tuple) else (n_hidden, None)
    task = Task(activation, *shapes, bias, one, _level(given), depth, affine, several)
    run.clock.stage("read", _read_sentence(given))
    n_queries = asked.queries if isinstance(asked, Oracle) else None
    return Begun(given, task, n_queries, _hopeless(given, task, algorithm))


def looked_at(certificate: Certificate, source: Any, activation: Activation) -> Certificate:
    """Where a black box did not give its weights, how it looks where it was asked, if that says anything."""
    if not isinstance(source, Oracle) or certificate.verdict in ("exact", "statistical"):
        return certificate
    sentence = diagnose_oracle(source, activation.homogeneity is not None)
    if sentence is None:
        return certificate
    return replace(certificate, checks=(*certificate.checks, Check("box", False, None, None, sentence)))


def _level(given: Prepared) -> float:
    """Σ r² / Σ y² that the rounding of the outputs leaves, with a margin; EXACT where they have all digits.

    The sums of a network computed in a shorter float lose digits on the way, not only at the end.
    """
    total = float(np.sum(np.diag(given.fitted_moments.covariance)[given.source.n_inputs :] + given.output_mean**2))
    left = np.sum(given.precision.largest)
    share = float(left) / total if total > 0.0 else 0.0
    return max(EXACT, share) if share <= NOISE_LIKE else EXACT


def check_architecture(n_hidden: int | tuple[int, ...] | None, depth: int) -> tuple[int | tuple[int, ...] | None, int]:
    """Return the units, one number for one layer or one per layer, and the number of hidden layers."""
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


def check_width(n_hidden: int | None) -> None:
    if n_hidden is not None and (
        not isinstance(n_hidden, int | np.integer) or isinstance(n_hidden, bool) or n_hidden < 1
    ):
        raise ValueError(
            f"n_hidden needs to be a whole number from 1, or None to have it found. Got {n_hidden!r} instead."
        )


def estimated(algorithm: Algorithm, call: Call) -> Estimate:
    """What the algorithm finds on whitened samples; nothing, and why, where it cannot go on."""
    began = time.monotonic()
    assert algorithm.run is not None
    try:
        with time_limit(call.deadline.moment, call.deadline.watch):
            found = algorithm.run(call)
    except UnsolvableError as reason:
        found = Estimate(None, (str(reason),))
    return replace(found, method=algorithm.name, form=call.form, seconds=time.monotonic() - began)


def certified(
    run: Run, model: Model, given: Prepared, holdout: Residuals, evidence: Evidence, bias: bool = True
) -> Certificate:
    """The certificate of a network on whitened inputs; one that vouches for no weight where there is no time for it."""
    run.report("certify", np.nan)
    P = sum(W.size + len(W) for W in model.hidden_weights)
    # The information of all parameters, its inverse, and what every sample adds to the errors.
    run.report.expect((3.0 * given.samples.count() * model.n_outputs * P**2 + 2.0 * P**3) / FLOPS)
    run.clock.excerpt = Excerpt.of_samples(given, holdout.predict, model)
    evidence = replace(evidence, precision=given.precision, joined=given.n_joined)
    case = Case(model, given.whitening, given.samples, holdout, evidence, run.rng, bias)
    try:
        with run.overtime():
            certificate = certify(case)
    except OutOfTimeError:
        certificate = certify_untested(case)
    told = None if certificate.verdict in ("exact", "statistical") else diagnose_probabilities(given.source)
    if told is not None:
        certificate = replace(
            certificate, checks=(*certificate.checks, Check("probabilities", False, None, None, told))
        )
    run.clock.stage("certify", certificate.verdict)
    return certificate


def diagnosed(run: Run, algorithm: Algorithm, network: Model, samples: Source) -> tuple[Check, ...]:
    """What an algorithm adds to the certificate, if there is time for it."""
    try:
        with run.overtime():
            return algorithm.diagnose(network, samples, run.rng)
    except OutOfTimeError:
        return ()


def _hopeless(given: Prepared, task: Task, algorithm: Algorithm) -> str | None:
    """Why no fit is tried at all, or None."""
    if given.moments.n < FEWEST:
        return f"Only {given.moments.n} of {given.n_given} rows are different, too few to hold one out: give more."
    spread = np.sqrt(np.diag(given.moments.covariance)[given.source.n_inputs :])
    if np.all(spread <= 1e-13 * np.abs(given.output_mean)):
        return "The outputs are constant, so they say nothing of any hidden unit: give inputs that spread wider."
    if given.whitening.rank == 0:
        X = next(given.source.blocks(LOOKED_AT))[0]
        if np.ptp(X, axis=0).max() > 0.0:
            return f"The inputs are as small as {np.abs(X).max():.0e}, and their squares vanish: give other units."
        return "The inputs are constant, so they say nothing of any hidden unit: give inputs that vary."
    if algorithm.finds == "network" and task.activation.differentiable:
        told = diagnose_labels(given.source)
        if told is not None:
            return told
    widths = task.widths or (1,) * task.depth
    wanted = task.n_parameters(widths) - sum(widths)
    if wanted >= task.n_samples * task.n_outputs:
        return (
            f"{task.n_samples * task.n_outputs} numbers in Y cannot determine the {wanted} parameters "
            f"of {'-'.join(map(str, widths))} hidden units. Give more samples or fewer units."
        )
    return algorithm.refuse(task)


def nothing(given: Prepared, task: Task, reason: str) -> tuple[Network, Certificate]:
    """The mean of the outputs as a network without units, and the reason."""
    d, p = given.source.n_inputs, given.source.n_outputs
    c = given.output_mean if task.bias else np.zeros(p)
    network = Network(np.zeros((0, d)), None, np.zeros((p, 0)), c, task.activation)
    residuals = reduce(given.holdout, Residuals(lambda X: np.tile(c, (len(X), 1)), p, origin=c))
    constant = bool(residuals.mse <= (1e-12 * float(np.abs(c).max(initial=0.0))) ** 2)
    return network, certify_nothing(reason, residuals, constant, given.moments.n)


def shown(model: Model, given: Prepared, certificate: Certificate) -> Model:
    """The network in the coordinates of the inputs, its rows of unit norm over what is determined of them."""
    normal = unwhiten(model, given.whitening).normal_form()
    if certificate.verdict != "approximate" or certificate.determined is None or isinstance(normal, Composite):
        return normal
    return scaled_to_determined(normal, certificate.determined)


def in_inputs(found: Estimate | None, given: Prepared) -> Estimate | None:
    if found is None or found.network is None:
        return found
    return replace(found, network=unwhiten(found.network, given.whitening).normal_form())


def _read_sentence(given: Prepared) -> str:
    repeats = given.n_given - given.moments.n
    left_out = f", {repeats} that repeat others left out" if repeats else ""
    source = given.source
    columns = f"inputs {_listed(source.input_names)}; outputs {_listed(source.output_names)}"
    return f"{given.moments.n} samples{left_out}, {given.whitening.rank} input dimensions; {columns}"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) <= 6 else f"{', '.join(names[:3])}, …, {names[-1]} ({len(names)} in all)"
