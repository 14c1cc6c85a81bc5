"""activation="auto", and the hint that another activation would fit better."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from neurecover.certificate import Certificate, Check
from neurecover.certificate.verdict import passed
from neurecover.data import Prepared, Source, split
from neurecover.fit import FitOptions
from neurecover.pipeline.activations import Contestant, RaceOptions, race_activations
from neurecover.pipeline.running import Run
from neurecover.search import SearchOptions, Task
from neurecover.search.race import n_weights
from neurecover.solve import Watch, steps_within


def choose_activation(sample: Source, task: Task, run: Run) -> tuple[Task, list[np.ndarray], Check]:
    """Return the task with the likeliest activation, hidden weights to start from, and a check that says why."""
    options = run.options.activation
    fit, other = split(sample, 0.2, int(run.rng.integers(2**31)))
    task_of_fit = task.on(fit.count())
    deadline = run.deadline.share(options.race_share).within_steps(_steps(task_of_fit, options.race_work))
    order = race_activations(fit, other, task_of_fit, run.rng, deadline, progress=_report(run))
    best = order[0] if order else Contestant(task.activation, np.inf, np.empty((0, 0)), False)
    sentence = f"The activation was found: {best.activation} {_lead(best, order[1:])}."
    run.clock.stage("activation", sentence)
    starts = [np.roll(best.units, -int(task.bias), axis=1)] if best.solved and task.depth == 1 else []
    return replace(task, activation=best.activation), starts, Check("activation", True, None, None, sentence)


def add_hint(
    certificate: Certificate, draw: Callable[[], Source], prepared: Prepared, task: Task, run: Run
) -> Certificate:
    """Add a check that suggests another activation or more units, if the fit is poor and the change helps.

    Students of the race are wider than the network sought, so another activation is compared with an equally wide
    student of the given one. `draw` returns the samples to search on.
    """
    options = run.options.activation
    enough = [("rounding",), ("structure", "generalisation")]  # only rounding is left, or only noise
    fits = certificate.verdict in ("exact", "statistical") or any(passed(certificate.checks, names) for names in enough)
    deadline = replace(run.deadline, watch=Watch())  # running out of time here must not count as an unfinished search
    if fits or deadline.passed:
        return certificate
    most = int(options.hint_steps * run.report.steps)
    sample = draw()
    task_of_sample = task.on(sample.count())
    order = race_activations(
        sample,
        prepared.holdout,
        task_of_sample,
        run.rng,
        deadline.within_steps(min(_steps(task_of_sample, options.hint_work), most)),
        also=(task.activation,),
        options=RaceOptions(rounds=options.hint_rounds),
        progress=_report(run),
    )
    run.clock.stage("other activations", ", ".join(f"{one.activation} {np.sqrt(one.mse):.2g}" for one in order[:3]))
    mses = {one.activation: one.mse for one in order}
    wider = mses.get(task.activation, np.inf)
    others = [one for one in order if one.activation != task.activation]
    ours = min(certificate.holdout_mse, wider)
    if others and others[0].mse * (options.better if others[0].solved else options.clearly) <= ours:
        best = others[0].activation
        ratio = np.sqrt(ours / max(others[0].mse, 1e-300))
        which = f"activation='{best}'" if others[0].solved else f"activation='{best}', or 'auto'"
        how = "to rounding, unlike" if others[0].solved else f"{float(f'{ratio:.1g}'):,g} times better than"
        sentence = f"{best} fits these samples {how} {task.activation}: try {which}."
    elif task.widths is not None and wider * options.clearly <= certificate.holdout_mse:
        ratio = np.sqrt(certificate.holdout_mse / max(wider, 1e-300))
        how = "to rounding" if wider < task.level * certificate.holdout_mse else "far better"
        sentence = f"More units fit these samples {how}: give a larger n_hidden, or try n_hidden=None."
    else:
        return certificate
    return replace(certificate, checks=(*certificate.checks, Check("activation", True, float(ratio), None, sentence)))


def keep_time_for_hint(run: Run) -> Run:
    """Return the run with a deadline that leaves time for a hint."""
    return replace(run, deadline=run.deadline.share(1.0 - run.options.activation.hint_share))


def _steps(task: Task, work: float) -> int:
    """Return the number of steps that `work` allows for the widest students of a race."""
    sought = task.widths or (RaceOptions().widths[-1],) * task.depth
    wide = tuple(int(SearchOptions().wider * k) + 1 for k in sought) if task.widths else sought
    size, _ = n_weights(task.n_inputs + task.bias, wide, task.n_outputs)
    dense = size <= (FitOptions().dense if task.depth == 1 else FitOptions().dense_deep)
    return steps_within(work, task.n_samples, size, dense=dense)


def _lead(best: Contestant, others: list[Contestant]) -> str:
    rounding = "fits to rounding" if best.solved else f"has the least error on other samples, {np.sqrt(best.mse):.2g}"
    if best.solved or not others:
        return rounding
    second = others[0]
    return f"{rounding}; the next is {second.activation}, {np.sqrt(second.mse):.2g}"


def _report(run: Run) -> Callable[[str, float], object]:
    return lambda stage, rss: run.report(stage, float(np.sqrt(rss)))
