"""Choose the activation (activation="auto") by a race, and hint at a better one.

A student of every kind is fitted to the same samples, in rounds of growing width. Without noise the winner is the first
that fits to rounding and still does so after its superfluous units are removed and its signs are settled: relu with a
free affine part also fits a leaky_relu network, and two relu units an abs, but not then. With noise the winner has the
least error on samples that no fit has used. There is no student of sigmoid(z) = (1 + tanh(z/2))/2, of an activation
without a useful derivative, or of one with a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from neurecover.activations import Activation, get
from neurecover.certificate import Certificate, Check
from neurecover.certificate.verdict import passed
from neurecover.data import Prepared, Source, split
from neurecover.fit import FitOptions
from neurecover.fit.descent import Fit
from neurecover.fit.samples import Samples
from neurecover.pipeline.running import Run
from neurecover.search import SearchOptions, Task
from neurecover.search.candidates import complete
from neurecover.search.find import settled_on
from neurecover.search.race import Setting, n_weights, race, wider
from neurecover.search.widths import slim
from neurecover.solve import Deadline, Watch, steps_within

CANDIDATES = ("relu", "tanh", "softplus", "gelu", "silu", "elu", "selu", "leaky_relu", "abs", "exp", "square")


@dataclass(frozen=True)
class RaceOptions:
    """How many are in each round, and how wide their students are."""

    rounds: tuple[int, ...] = (11, 11, 5, 5, 5, 3, 3, 3, 3)  # those that are left are the best so far
    widths: tuple[int, ...] = (6, 12, 24)  # of the first rounds, and of all after them, where nobody gives the number


@dataclass(frozen=True)
class Contestant:
    """An activation, the least mean squared error of its students on other samples, and that student's units (m, D).

    `solved` says that it fits to rounding with all its signs settled.
    """

    activation: Activation
    mse: float
    units: np.ndarray
    solved: bool


def race_activations(
    fit: Source,
    other: Source,
    task: Task,
    rng: np.random.Generator,
    deadline: Deadline,
    *,
    also: Iterable[Activation] = (),
    options: RaceOptions | None = None,
    progress: Callable[[str, float], object] = lambda stage, relative_rss: None,
) -> list[Contestant]:
    """Return the activations that were fitted in time, the best first; the race ends with the first that fits to
    rounding.

    `also` are activations besides the candidates.
    """
    options, samples, unseen = options or RaceOptions(), Samples.of(fit, task.bias), Samples.of(other, task.bias)
    acts = list(dict.fromkeys((*map(get, CANDIDATES), *also)))
    settings = {act: Setting.plain(replace(task, activation=act), rng, deadline) for act in acts}
    runs: dict[tuple[Activation, tuple[int, ...]], Iterator[tuple[int, Fit]]] = {}
    best: dict[Activation, Contestant] = {}
    for round_, n_left in enumerate(options.rounds):
        for act in _still_in(acts, best, n_left):
            if deadline.passed:
                break
            setting = settings[act]
            widths, wide = _widths(samples, setting, round_, options)
            if (act, wide) not in runs:
                runs[act, wide] = race(samples, setting, widths, wide, 1e-26)
            step = next(runs[act, wide], None)
            if step is None:
                break
            progress(f"activation {act}", step[1].relative)
            contestant = _judged(step[1], unseen, setting)
            if contestant.solved or contestant.mse < best.get(act, contestant).mse:
                best[act] = contestant
            best.setdefault(act, contestant)
            if contestant.solved:
                return _in_order(best)
    return _in_order(best)


def _still_in(acts: list[Activation], best: dict[Activation, Contestant], n_left: int) -> list[Activation]:
    """Return the best `n_left` activations so far, in their original order; all of them until each has been fitted."""
    if len(best) < len(acts):
        return acts
    left = {contestant.activation for contestant in _in_order(best)[:n_left]}
    return [act for act in acts if act in left]


def _in_order(best: dict[Activation, Contestant]) -> list[Contestant]:
    return sorted(best.values(), key=lambda contestant: (not contestant.solved, contestant.mse))


def _widths(
    samples: Samples, setting: Setting, round_: int, options: RaceOptions
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the widths sought and those of the student."""
    if setting.task.widths is not None:
        return setting.task.widths, wider(samples, setting.task.widths, setting.options)
    m, depth, p = options.widths[min(round_, len(options.widths) - 1)], setting.task.depth, samples.Y.shape[1]
    most = setting.options.load * samples.n_equations
    while m > 1 and n_weights(samples.F.shape[1], (m,) * depth, p)[1] > most:
        m -= 1
    return (m,) * depth, (m,) * depth


def _judged(fit: Fit, unseen: Samples, setting: Setting) -> Contestant:
    task, student, solved = setting.task, fit.student, False
    samples = fit.point.samples
    level = samples.level(task.level)
    if fit.relative < level:
        few = slim(fit, setting) if task.widths is None else complete(fit, setting, task.widths)
        settled = settled_on(samples, few, setting)
        solved = settled.fit.relative < level and settled.sign_choices > 0
        student = few.student if solved else student
    with np.errstate(over="ignore", invalid="ignore"):  # exp, far from the samples of the fit
        mse = float(np.mean((unseen.Y - student(unseen.F)) ** 2))
    return Contestant(task.activation, mse if np.isfinite(mse) else np.inf, student.V[0], solved)


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
