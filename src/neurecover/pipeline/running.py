"""What every road through the pipeline shares: the clock, progress, the samples as they are read, and giving up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from neurecover.activations import Activation
from neurecover.algorithms import Algorithm, Call
from neurecover.certificate import Certificate, certify_nothing
from neurecover.data import Oracle, Prepared, Source, as_source, loaded, prepared, reduce, unwhitened
from neurecover.exceptions import UnsolvableError
from neurecover.models import Network
from neurecover.random import RandomStateLike, as_generator
from neurecover.refine.descent import EXACT
from neurecover.refine.task import Task
from neurecover.results import Estimate, Recovery, Stage
from neurecover.solve import Deadline
from neurecover.statistics import Residuals

Progress = Callable[[str, float], object]
STORED, COMPUTED = (
    4.0,
    256.0,
)  # Σ r² over the squares of the rounding errors of Y: stored rounded, computed in that float
NOISE_LIKE = 1e-9  # share of Σ y² beyond which a fit at the level of rounding may be a wrong one, as it is with noise


class Clock:
    """The stages of a run and when it began."""

    def __init__(self) -> None:
        self.began = self.last = time.monotonic()
        self.stages: list[Stage] = []

    def stage(self, name: str, detail: str) -> None:
        """Note what was done since the last stage."""
        now = time.monotonic()
        self.stages.append(Stage(name, now - self.last, detail))
        self.last = now


@dataclass(frozen=True)
class Run:
    """Random numbers, the time there is, where progress goes, and the clock."""

    rng: np.random.Generator
    deadline: Deadline
    report: Progress
    clock: Clock = field(default_factory=Clock)

    def recovery(
        self,
        network: Any,
        certificate: Certificate,
        method: str,
        found: Estimate | None = None,
        n_queries: int | None = None,
    ) -> Recovery:
        """The answer, with the stages so far."""
        seconds = time.monotonic() - self.clock.began
        return Recovery(network, certificate, method, tuple(self.clock.stages), seconds, found, n_queries)


@contextmanager
def running(
    purpose: str, random_state: RandomStateLike, time_budget: float | None, progress: bool | Progress
) -> Iterator[Run]:
    """A run, its arguments checked; progress goes nowhere, to the caller's function, or to a line on standard error."""
    if time_budget is not None and not time_budget >= 0:
        raise ValueError(f"time_budget needs to be a number of seconds from 0. Got {time_budget!r} instead.")
    rng, deadline = as_generator(random_state, purpose), Deadline.after(time_budget)
    if callable(progress):
        yield Run(rng, deadline, progress)
    elif not progress:
        yield Run(rng, deadline, lambda stage, residual: None)
    else:
        from rich.console import Console

        with Console(stderr=True).status("reading") as status:

            def show(stage: str, residual: float) -> None:
                status.update(stage if np.isnan(residual) else f"{stage}: relative residual {residual:.1e}")

            yield Run(rng, deadline, show)


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
    n_hidden: int | None,
) -> Begun:
    """Read the samples as the algorithm wants them asked, and see whether there is anything to be done."""
    run.report("read", float("nan"))
    asked = algorithm.prepare(as_source(X, Y))
    source = loaded(asked, n_samples)
    given = prepared(source, bias, run.rng)
    task = Task(activation, given.whitening.rank, source.n_outputs, given.moments.n, bias, n_hidden, _level(given))
    run.clock.stage("read", _read_sentence(given))
    n_queries = asked.queries if isinstance(asked, Oracle) else None
    return Begun(given, task, n_queries, _hopeless(given, task, algorithm))


def _level(given: Prepared) -> float:
    """Σ r² / Σ y² that the rounding of the outputs leaves, with a margin; EXACT where they have all digits.

    The sums of a network computed in a shorter float lose digits on the way, not only at the end.
    """
    total = float(np.sum(np.diag(given.moments.covariance)[given.source.n_inputs :] + given.output_mean**2))
    left = np.sum(np.where(given.precision.is_float, COMPUTED, STORED) * given.precision.rounding**2)
    share = float(left) / total if total > 0.0 else 0.0
    return max(EXACT, share) if share <= NOISE_LIKE else EXACT


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
        found = algorithm.run(call)
    except UnsolvableError as reason:
        found = Estimate(None, (str(reason),))
    return replace(found, method=algorithm.name, form=call.form, seconds=time.monotonic() - began)


def _hopeless(given: Prepared, task: Task, algorithm: Algorithm) -> str | None:
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
    return algorithm.refuse(task)


def nothing(given: Prepared, task: Task, reason: str) -> tuple[Network, Certificate]:
    """The mean of the outputs as a network without units, and the reason."""
    d, p = given.source.n_inputs, given.source.n_outputs
    c = given.output_mean if task.bias else np.zeros(p)
    network = Network(np.zeros((0, d)), None, np.zeros((p, 0)), c, task.activation)
    residuals = reduce(given.holdout, Residuals(lambda X: np.tile(c, (len(X), 1)), p, origin=c))
    constant = bool(residuals.mse <= (1e-12 * float(np.abs(c).max(initial=0.0))) ** 2)
    return network, certify_nothing(reason, residuals, constant, given.moments.n)


def sized(task: Task, source: Source) -> Task:
    return replace(task, n_samples=source.count())


def in_inputs(found: Estimate | None, given: Prepared) -> Estimate | None:
    if found is None or found.network is None:
        return found
    return replace(found, network=unwhitened(found.network, given.whitening).normal_form())


def _read_sentence(given: Prepared) -> str:
    repeats = given.n_given - given.moments.n
    left_out = f", {repeats} that repeat others left out" if repeats else ""
    return f"{given.moments.n} samples{left_out}, {given.whitening.rank} input dimensions"
