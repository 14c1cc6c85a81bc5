"""Units from groups of samples that agree in all rare columns, as the samples of one level of a category do.

Within a group g the function is a network of the common columns alone, and from group to group only biases differ:

    y = Σ_j a_j relu(w_j·x + β_jg) + c,        β_jg = b_j + w_j^R·r_g,        r_g the values of the rare columns.

A group shows the units that switch in it, each up to its sign; the others leave an affine part. A kink that comes back
in a second group with the same direction w and the same height a‖w‖ is that of a unit; units that switch at a few
samples of each group are found from all groups together (`rare_pooled`). Once they are all known, the slope of a
group's affine part

    v_g = Σ_j s_jg a_j w_j,        s = 0 for a unit that switches, −1 if it is to be turned; 0, 1 or −1 for the others,

is one of 3^k sums and says which way round the units are. What is left are k biases a group, each fitted by itself, and
they are linear in the weights of the rare columns.
"""

from __future__ import annotations

from itertools import chain, combinations, product

import numpy as np

from neurecover.models import Network
from neurecover.refine.rare_biases import Levels, with_rare_columns
from neurecover.refine.rare_fits import fitting_most
from neurecover.refine.rare_kinks import SAME, Group, Search, Unit, add_kink, kinks, network_of
from neurecover.refine.rare_pooled import pooled_units
from neurecover.refine.task import Task
from neurecover.solve import Deadline

SEARCHED = 40  # groups, the largest first
MOST_UNITS = 9  # 3^9 sums are compared with a slope
CANDIDATES, MORE = 12, 2  # kinks seen once that may be units, and how many of them


def units_from_groups(levels: Levels, task: Task, search: Search, deadline: Deadline) -> Network | None:
    """The units of a network behind these samples; None where no kink comes back.

    `search` finds the network of a task on whitened samples within so many descents.
    """
    if not levels.suit(task):
        return None
    groups = sorted((Group(g, *levels.group(g)) for g in range(levels.count)), key=lambda group: -len(group.X))
    units: list[Unit] = []
    solved: list[Group] = []
    for group in groups[:SEARCHED]:
        network = network_of(group, task, search)
        if network is None:
            continue
        solved.append(group)
        for kink in kinks(network, group):
            add_kink(units, kink)
        if task.n_hidden is not None and sum(len(unit.bias) > 1 for unit in units) >= task.n_hidden:
            break
    sure = [unit for unit in units if len(unit.bias) > 1][: task.n_hidden]
    rng = np.random.default_rng(len(levels.X))  # of its own, so that the same samples are seen alike
    sure += pooled_units(sure, solved, (task.n_hidden or MOST_UNITS) - len(sure), rng)
    once = [unit for unit in units if len(unit.bias) == 1 and not any(unit.same(u.w, u.height) for u in sure)]
    units = _turned(sure, once, solved, task.n_hidden)
    if not units:
        return None
    W, A = np.array([unit.w for unit in units]), np.array([unit.height for unit in units]).T
    start = np.zeros((levels.count, len(units) + len(A)))
    for j, unit in enumerate(units):
        start[list(unit.bias), j] = list(unit.bias.values())
    return with_rare_columns(W, A, start, levels, task, deadline)


def _turned(sure: list[Unit], once: list[Unit], groups: list[Group], n_hidden: int | None) -> list[Unit]:
    """The units, those turned round that the slopes of most groups want turned.

    Of the kinks seen once, up to two are units that make the slopes of more groups into sums.
    """
    others = sorted(once, key=lambda unit: -unit.switching)[:CANDIDATES]
    room = MORE if n_hidden is None else min(MORE, n_hidden - len(sure))
    slopes: dict[tuple[int, ...], np.ndarray] = {}
    best, votes, most = sure, np.zeros(len(sure)), -1
    for added in chain.from_iterable(combinations(others, more) for more in range(room + 1)):
        n_sums, came = _votes([*sure, *added], groups, slopes)
        if n_sums > most + len(added):  # one group more may be chance
            best, votes, most = [*sure, *added], came, n_sums
    return [unit.turned() if vote < 0 else unit for unit, vote in zip(best, votes)]


def _votes(units: list[Unit], groups: list[Group], slopes: dict[tuple[int, ...], np.ndarray]) -> tuple[int, np.ndarray]:
    """How many groups have a slope that is a sum, and how many of them say that a unit is the right way round (k,).

    `slopes` keeps those of a group less the units seen in it.
    """
    votes, n_sums = np.zeros(len(units)), 0
    if not 0 < len(units) <= MOST_UNITS:
        return n_sums, votes
    choices = np.array(list(product((0, 1, -1), repeat=len(units))))
    sums = choices @ np.array([np.outer(unit.w, unit.height).ravel() for unit in units])
    for group in groups:
        seen = np.array([group.number in unit.bias for unit in units])
        shown = [unit for unit in units if group.number in unit.bias]
        key = (group.number, *map(id, shown))
        if key not in slopes:
            slopes[key] = _slope(group.X, group.Y - sum(unit.values(group) for unit in shown)).ravel()
        apart = np.linalg.norm(sums - slopes[key], axis=1)
        best = choices[np.argmin(apart)]
        if apart.min() < SAME * np.abs(sums).max() and not np.any(best[seen] > 0):
            n_sums += 1
            votes += np.where(seen, np.where(best == 0, 1, -1), best)
    return n_sums, votes


def _slope(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """(c, p) of an affine function that most samples are on.

    A unit that switches at one or two samples was not seen, and puts those off.
    """
    return fitting_most(np.hstack([X, np.ones((len(X), 1))]), Y)[:-1]
