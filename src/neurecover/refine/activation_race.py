"""Which activation? Students of every kind on the same samples, one descent each in turn.

The first that fits to rounding, and keeps doing so once its superfluous units are gone and its signs are settled, has
won: relu with a free affine part also fits what leaky_relu did, and two of its units are one of abs, but not then. With
noise none does, and the least error on samples that had no part in the fits decides. sigmoid has no student of its own,
sigmoid(z) = (1 + tanh(z/2))/2; nor has what has no useful derivative, or a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from neurecover.activations import Activation, get
from neurecover.data import Source, reduce
from neurecover.models import Student
from neurecover.refine.descent import Descent
from neurecover.refine.narrowing import ended, lean, narrow
from neurecover.refine.search import good_enough, hops
from neurecover.refine.settling import settle
from neurecover.refine.task import Task
from neurecover.solve import Deadline
from neurecover.statistics import Residuals

CANDIDATES = ("relu", "tanh", "softplus", "gelu", "silu", "elu", "selu", "leaky_relu", "abs", "exp", "square")
ROUNDS = (11, 11, 5, 5, 5, 3, 3, 3, 3)  # how many are left in every round: those that are best so far
WIDTHS = (6, 12, 24)  # of the first rounds, and of all after them, where the number of units is to be found


@dataclass(frozen=True)
class Contestant:
    """An activation, the least mean squared error of its students on other samples, and that student.

    `solved` says that it fits to rounding with all its signs settled.
    """

    activation: Activation
    mse: float
    student: Student
    solved: bool


def race(
    fit: Source,
    other: Source,
    task: Task,
    rng: np.random.Generator,
    deadline: Deadline,
    *,
    without: Iterable[Activation] = (),
    rounds: Sequence[int] = ROUNDS,
    progress: Callable[[str, float], object] = lambda stage, rss: None,
) -> list[Contestant]:
    """Those that came to a descent before the deadline, the best first; it ends with the first that has solved it."""
    tasks = [replace(task, activation=act) for act in map(get, CANDIDATES) if act not in without]
    runs: dict[tuple[Activation, int], Iterator[Descent]] = {}
    best: dict[Activation, Contestant] = {}
    for round_, n_left in enumerate(rounds):
        for one in _still_in(tasks, best, n_left):
            if deadline.passed:
                break
            width = _width(one, round_)
            if (one.activation, width) not in runs:
                runs[one.activation, width] = hops(fit, one, width, rng, deadline, iter(()))
            descent = next(runs[one.activation, width])
            progress(f"activation {one.activation}", descent.relative_rss)
            contestant = _judged(fit, other, one, descent, deadline)
            if contestant.solved or contestant.mse < best.get(one.activation, contestant).mse:
                best[one.activation] = contestant
            best.setdefault(one.activation, contestant)
            if contestant.solved:
                return _in_order(best)
    return _in_order(best)


def _still_in(tasks: list[Task], best: dict[Activation, Contestant], n_left: int) -> list[Task]:
    """The best so far, in their own order; all where not every one has had a descent."""
    if len(best) < len(tasks):
        return tasks
    left = {contestant.activation for contestant in _in_order(best)[:n_left]}
    return [task for task in tasks if task.activation in left]


def _in_order(best: dict[Activation, Contestant]) -> list[Contestant]:
    return sorted(best.values(), key=lambda contestant: (not contestant.solved, contestant.mse))


def _width(task: Task, round_: int) -> int:
    affine = task.prefers_affine()
    if task.n_hidden is not None:
        return task.width(affine)
    return max(min(WIDTHS[min(round_, len(WIDTHS) - 1)], task.widest(affine)), 1)


def _judged(fit: Source, other: Source, task: Task, descent: Descent, deadline: Deadline) -> Contestant:
    student, solved = descent.student, False
    if descent.relative_rss < good_enough(task, student.n_hidden):
        slim = ended(fit, lean(fit, descent, task, deadline), task, deadline)
        narrowed, _ = narrow(fit, slim, task, deadline)
        settled = settle(fit, task, narrowed, deadline)
        solved = settled.exact and settled.sign_choices > 0
        student = narrowed.student
    with np.errstate(over="ignore", invalid="ignore"):  # exp, far from the samples of the fit
        mse = reduce(other, Residuals(student, task.n_outputs)).mse
    return Contestant(task.activation, mse if np.isfinite(mse) else np.inf, student, solved)
