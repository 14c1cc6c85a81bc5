"""Find the activation by fitting wide students with every candidate in turn to the same samples.

The first activation wins that fits to rounding, and still does after its redundant units are removed and its signs are
found. This second condition is needed because relu with a free affine part also fits leaky_relu networks, and two relu
units make one of abs. With noise no candidate fits to rounding, and the smallest error on samples outside the fits
decides. sigmoid(z) = (1 + tanh(z/2))/2 is covered by tanh. Activations without a useful derivative, or with a
parameter, are not candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from neurecover.activations import Activation, get
from neurecover.data import Source
from neurecover.fit.descent import Fit
from neurecover.fit.samples import Samples
from neurecover.search import Task
from neurecover.search.candidates import complete
from neurecover.search.find import settled_on
from neurecover.search.race import Setting, n_weights, race, wider
from neurecover.search.widths import slim
from neurecover.solve import Deadline

CANDIDATES = ("relu", "tanh", "softplus", "gelu", "silu", "elu", "selu", "leaky_relu", "abs", "exp", "square")


@dataclass(frozen=True)
class RaceOptions:
    """The number of activations in each round, and the width of their students."""

    rounds: tuple[int, ...] = (11, 11, 5, 5, 5, 3, 3, 3, 3)  # the best so far stay in the race
    widths: tuple[int, ...] = (
        6,
        12,
        24,
    )  # per round, the last for all later rounds, if no width is given


@dataclass(frozen=True)
class Contestant:
    """An activation, the smallest mean squared error of its students on other samples, and that student's units (m, D).

    `solved` says that the activation fits to rounding, with the signs of all units found.
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
    """Return the contestants that were fitted in time, best first; the race ends when one fits to rounding.

    `also` are activations in addition to the candidates.
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
    """Return the n_left best activations in their original order; all of them until each one has been fitted."""
    if len(best) < len(acts):
        return acts
    left = {contestant.activation for contestant in _in_order(best)[:n_left]}
    return [act for act in acts if act in left]


def _in_order(best: dict[Activation, Contestant]) -> list[Contestant]:
    return sorted(best.values(), key=lambda contestant: (not contestant.solved, contestant.mse))


def _widths(
    samples: Samples, setting: Setting, round_: int, options: RaceOptions
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the widths of the network sought and those of the student."""
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
