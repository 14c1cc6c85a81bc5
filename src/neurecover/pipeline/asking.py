"""Query an oracle for an extraction: budgets, progress reports, and designed samples.

Designed samples are for smooth units. Far from the origin single bends show the activation, and second differences the
number of units (`queries.smooth`). With both known, a search on samples is short.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from neurecover.activations import Activation
from neurecover.data import Oracle
from neurecover.models import DeepNetwork, Network
from neurecover.pipeline.classifying import Classifier, read_classifier
from neurecover.pipeline.recovering import recover
from neurecover.pipeline.running import Run
from neurecover.queries.box.black_box import Box
from neurecover.queries.box.limits import EVERYWHERE, Limits, choose_frame
from neurecover.queries.diagnosis import diagnose_steps
from neurecover.queries.options import QueryOptions
from neurecover.queries.smooth.counting import count_units
from neurecover.queries.smooth.options import SmoothOptions
from neurecover.queries.smooth.shape import Shape, find_shape
from neurecover.results import Recovery

SETTLED = ("exact", "statistical")


def make_box(oracle: Oracle, budget: int | None, options: QueryOptions) -> tuple[Box, Classifier]:
    """Return the oracle as a box, with queries around its data and within bounds and budgets, and its classifier.

    `box.reserved` queries of the budget are kept for the certificate until the search has ended.
    """
    if budget is not None and (not isinstance(budget, int | np.integer) or budget < 1):
        raise ValueError(f"query_budget needs a whole number from 1. Got {budget!r} instead.")
    frame, limits = oracle.frame, EVERYWHERE
    if oracle.bounds is not None:
        frame = choose_frame(*oracle.bounds, frame, options.box)
        limits = Limits.of(*oracle.bounds, frame, options.box)
    left = smaller(budget, oracle.calls.left)
    read = read_classifier(oracle, frame, limits, left, options)
    box = Box(
        oracle.ask if read.probabilities is None else read.ask,
        oracle.n_inputs,
        budget=left,
        frame=frame,
        single=oracle.single,
        limits=read.limits,
        options=options,
        affordable=lambda: oracle.calls.affordable,
        rounding=read.rounding,
    )
    box.queries = box.purposes["kind of model"] = read.queries
    if box.budget is not None and box.budget > 2 * options.certificate_queries:
        box.reserved = options.certificate_queries
    return box, read


def find_steps(oracle: Oracle, box: Box, pairs: np.ndarray | None) -> str | None:
    """Return a sentence if the oracle's raw answers, before taking logits, are a step function; else None."""
    limits = EVERYWHERE if oracle.bounds is None else box.limits
    if pairs is None:
        return None
    own = Box(
        oracle.ask_as_it_is,
        box.n_inputs,
        budget=box.budget,
        frame=box.frame,
        single=oracle.single,
        limits=limits,
        options=box.options,
    )
    own.queries = box.queries
    try:
        return diagnose_steps(own, pairs)
    finally:
        box.purposes["kind of model"] += own.queries - box.queries
        box.queries = own.queries


def smaller(first: float | None, second: float | None) -> int | None:
    """Return the smaller of two budgets; None stands for no limit."""
    given = [budget for budget in (first, second) if budget is not None]
    return min(given) if given else None  # type: ignore[return-value]


@contextmanager
def resumable(oracle: Oracle) -> Iterator[None]:
    """If Ctrl-C or a failing oracle ends the queries early, add a note to the error on how to continue."""
    try:
        yield
    except (KeyboardInterrupt, OSError) as error:
        if oracle.saved is None:
            error.add_note(f"{oracle.queries:,} queries were answered. With keep= a later run would not repeat them.")
        else:
            error.add_note(
                f"{len(oracle.saved):,} answers are kept in {oracle.saved.path}: run the same again to continue."
            )
        raise


class Teller:
    """Reports progress at every stage and every call: the queries so far, their rate and a forecast."""

    def __init__(self, box: Box, oracle: Oracle, run: Run) -> None:
        self._box, self._oracle, self._run = box, oracle, run
        self._name, self._expected = "measure the answers", 0
        self.errors: np.ndarray | None = None  # of the rows found last
        self._report(np.nan)

    def __call__(self, stage: str, figure: float) -> None:
        """Report a stage; figures other than residuals are part of its name."""
        self._name, residual = ("check", figure) if stage == "residual" else (f"{stage}: {figure:g}", np.nan)
        if stage == "units":
            self._expected = self._forecast(int(figure))
        self._report(residual)

    def pulse(self) -> None:
        """Report another call, unless the last report is recent."""
        self._run.report.stage = self._sentence()
        self._run.report.pulse(np.nan)

    def _report(self, residual: float) -> None:
        self._run.report(self._sentence(), residual)

    def _sentence(self) -> str:
        asked, rate = self._box.queries, self._oracle.calls.rate
        parts = [self._name, f"{asked:,} queries"]
        if rate > 0.0:
            parts.append(f"{rate:,.0f}/s")
        if self._expected > asked:
            # For one hidden layer only: the queries for several layers depend on unknown widths.
            parts.append(f"about {self._expected - asked:,} more")
            if rate > 0.0:
                parts.append(f"{(self._expected - asked) / rate:.0f} s")
        if self._run.deadline.moment is not None:
            parts.append(f"{self._run.deadline.seconds_left:.0f} s left")
        return ", ".join(parts)

    def _forecast(self, k: int) -> int:
        """Return the total number of queries for k units in one hidden layer, including those of the joint fit."""
        box, options = self._box, self._box.options.shallow
        d, p = box.n_inputs, box.n_outputs
        if box.coarse:
            parameters = k * (d + 1 + p) + (d + 1) * p
            per_parameter = np.clip(options.answers_work / parameters**2, options.answers_least, options.answers_most)
            further = parameters * per_parameter / p + options.unit_queries * k * (d + 1) + box.options.noise_queries
        else:
            further = np.ceil(options.regions * k / p) * (d + 2)
        # The search and the certificate each end with held-out queries.
        return box.queries + int(further) + 2 * box.options.held_out * len(box.options.distances)


def recover_smooth(
    box: Box, activation: Activation | None, shape: Shape | None, width: int | None, run: Run
) -> Recovery[Network | DeepNetwork] | None:
    """Recover one hidden layer of smooth units from designed samples; None if its bends match no known activation.

    All queries go through the box; `shape` is that of bends seen before. `width` and `activation` are found if they are
    not given.
    """
    options, spread = box.options.smooth, 1.0
    far = not box.coarse and not box.limits  # otherwise single bends cannot be seen
    if far and shape is None:
        with box.counting("activation"):
            shape = find_shape(box, run.rng)
    activation = activation or (None if shape is None else shape.activation)
    if activation is None:
        return None
    if shape is not None:
        spread = float(np.clip(options.bending / shape.size, *options.spread))
        run.clock.stage("activation", f"{shape.activation}, from single bends far from the origin.")
    given = width is not None
    if not given and far:
        with box.counting("number of units"):
            width = count_units(box, activation, run.rng)
        if width is not None:
            run.clock.stage("number of units", f"{width}, the rank of second differences.")
    best: Recovery[Network | DeepNetwork] | None = None
    Z, Y = np.zeros((0, box.n_inputs)), np.zeros((0, box.n_outputs))
    for n in _sizes(box, width, options):
        more = min(n - len(Z), int(min(box.affordable, 1e9)))
        if more <= 0 or (best is not None and run.deadline.passed):
            break
        drawn = box.limits.pull_inside(spread * run.rng.standard_normal((more, box.n_inputs)))
        with box.counting("designed samples"):
            Z, Y = np.vstack([Z, drawn]), np.vstack([Y, box(drawn)])
        best = _fit_samples(box.inputs(Z), Y, activation, width, given, run)
        run.clock.stage("designed samples", f"{len(Z):,} samples, {best.certificate.verdict}.")
        if best.certificate.verdict in SETTLED:
            break
    return best


def _fit_samples(
    X: np.ndarray, Y: np.ndarray, activation: Activation, width: int | None, given: bool, run: Run
) -> Recovery[Network | DeepNetwork]:
    """Recover one hidden layer from samples, with an affine term beside it where there is no network without one.

    A width that was not given, but counted, is where the search begins: steep units are counted too often.
    """
    best: Recovery[Network | DeepNetwork] | None = None
    for affine in (False, True):
        wanted = width
        while True:
            left = run.deadline.seconds_left
            found = recover(
                X,
                Y,
                n_hidden=wanted,
                activation=activation,
                affine=affine,
                random_state=run.rng,
                time_budget=left if np.isfinite(left) else None,
                progress=run.report.tell,
            )
            best = found if best is None or found.certificate.verdict in SETTLED else best
            assert isinstance(found.network, Network)
            fewer = not given and wanted is not None and found.network.n_hidden < wanted
            if not fewer or found.certificate.verdict in SETTLED or run.deadline.passed:
                break
            wanted = found.network.n_hidden
        if best.certificate.verdict in SETTLED or run.deadline.passed:
            break
    assert best is not None
    return best


def recover_layers(
    box: Box, activation: Activation, depth: int, widths: tuple[int, ...] | None, run: Run
) -> Recovery[Network | DeepNetwork]:
    """Recover several hidden layers from samples of N(0, I), for units that no other method can extract.

    All queries go through the box; the widths are found if they are not given.
    """
    options = box.options.smooth
    n = int(min(options.samples_of_layers, max(box.affordable, 1.0)))
    drawn = box.limits.pull_inside(run.rng.standard_normal((n, box.n_inputs)))
    with box.counting("designed samples"):
        answers = box(drawn)
    left = run.deadline.seconds_left
    found = recover(
        box.inputs(drawn),
        answers,
        n_hidden=widths,
        depth=depth,
        activation=activation,
        random_state=run.rng,
        time_budget=left if np.isfinite(left) else None,
        progress=run.report.tell,
    )
    run.clock.stage("designed samples", f"{n:,} samples, {depth} layers of {activation}, {found.certificate.verdict}.")
    return found


def _sizes(box: Box, width: int | None, options: SmoothOptions) -> tuple[int, ...]:
    """Return the numbers of samples to try in turn until one suffices."""
    if width is None:
        return options.rounds[:1] if box.coarse else options.rounds
    parameters = width * (box.n_inputs + 1 + box.n_outputs) + box.n_outputs
    n = max(options.least, int(options.equations * parameters / box.n_outputs))
    return n, int(options.again * n)
