"""activation="auto", and the hint that another activation would fit better."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from neurecover.certificate import Certificate, Check
from neurecover.certificate.verdict import passed
from neurecover.data import Prepared, Source, split
from neurecover.pipeline.running import Run, sized
from neurecover.refine.activation_race import Contestant, race
from neurecover.refine.task import Task
from neurecover.solve import Deadline

RACE_SECONDS = 30.0  # of the race for "auto", and no more than a third of the time there is
HINT_SECONDS = 5.0  # of the search for a better activation, and no more than half of what the given one took
HINT_ROUNDS = (11, 11, 3, 3)  # as `refine.activation_race.ROUNDS`
HINT_SHARE = 0.2  # of the time there is, kept for it
BETTER, CLEARLY = 2.0, 100.0  # ratio of mean squared errors that a hint is worth, solved by the other one and not


def chosen_activation(sample: Source, task: Task, run: Run) -> tuple[Task, list[np.ndarray], Check]:
    """The task with the likeliest activation, hidden weights to begin with, and the sentence that says why."""
    fit, other = split(sample, 0.2, int(run.rng.integers(2**31)))
    deadline = Deadline.after(min(RACE_SECONDS, run.deadline.seconds_left / 3.0), run.deadline.pulse)
    order = race(fit, other, sized(task, fit), run.rng, deadline, progress=_report(run))
    best = order[0] if order else Contestant(task.activation, np.inf, task.student(np.empty((0, 0)), False), False)
    sentence = f"The activation was found: {best.activation} {_lead(best, order[1:])}."
    run.clock.stage("activation", sentence)
    starts = [best.student.V] if best.solved else []
    return replace(task, activation=best.activation), starts, Check("activation", True, None, None, sentence)


def with_hint(
    certificate: Certificate, draw: Callable[[], Source], given: Prepared, task: Task, run: Run
) -> Certificate:
    """The certificate with a sentence on a better activation, where the fit is poor and there is one."""
    enough = [("rounding",), ("structure", "generalisation")]  # nothing is left, or nothing but noise
    fits = certificate.verdict in ("exact", "statistical") or any(passed(certificate.checks, names) for names in enough)
    if fits or run.deadline.passed:
        return certificate
    spent = time.monotonic() - run.clock.began
    deadline = Deadline.after(min(HINT_SECONDS, spent / 2.0, run.deadline.seconds_left), run.deadline.pulse)
    sample = draw()
    order = race(
        sample,
        given.holdout,
        sized(task, sample),
        run.rng,
        deadline,
        without=(task.activation,),
        rounds=HINT_ROUNDS,
        progress=_report(run),
    )
    run.clock.stage("other activations", ", ".join(f"{one.activation} {np.sqrt(one.mse):.2g}" for one in order[:3]))
    if not order or order[0].mse * (BETTER if order[0].solved else CLEARLY) > certificate.holdout_mse:
        return certificate
    best = order[0].activation
    ratio = np.sqrt(certificate.holdout_mse / max(order[0].mse, 1e-300))
    which = f"activation='{best}'" if order[0].solved else f"activation='{best}', or 'auto'"
    how = "to rounding, unlike" if order[0].solved else f"{float(f'{ratio:.1g}'):,g} times better than"
    sentence = f"{best} fits these samples {how} {task.activation}: try {which}."
    return replace(certificate, checks=(*certificate.checks, Check("activation", True, float(ratio), None, sentence)))


def before_hint(run: Run) -> Run:
    """The run with a deadline that leaves time for a hint."""
    deadline = run.deadline
    if deadline.moment is None:
        return run
    return replace(run, deadline=replace(deadline, moment=deadline.moment - HINT_SHARE * deadline.seconds_left))


def _lead(best: Contestant, others: list[Contestant]) -> str:
    rounding = "fits to rounding" if best.solved else f"has the least error on other samples, {np.sqrt(best.mse):.2g}"
    if best.solved or not others:
        return rounding
    second = others[0]
    return f"{rounding}; the next is {second.activation}, {np.sqrt(second.mse):.2g}"


def _report(run: Run) -> Callable[[str, float], object]:
    return lambda stage, rss: run.report(stage, float(np.sqrt(rss)))
