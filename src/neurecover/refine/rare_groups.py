"""Units from groups of samples that agree in all rare columns, as the samples of one level of a category do.

Within a group g the function is a network of the common columns alone, and from group to group only biases differ:

    y = Σ_j a_j relu(w_j·x + β_jg) + c,        β_jg = b_j + w_j^R·r_g,        r_g the values of the rare columns.

A group shows the units that switch in it, each up to its sign; the others leave an affine part. A kink that comes back
in a second group with the same direction w and the same height a‖w‖ is that of a unit. Once they are all known, the
slope of a group's affine part

    v_g = Σ_j s_jg a_j w_j,        s = 0 for a unit that switches, −1 if it is to be turned; 0, 1 or −1 for the others,

is one of 3^k sums and says which way round the units are. What is left are k biases a group, each fitted by itself, and
they are linear in the weights of the rare columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, combinations, product

import numpy as np

from neurecover.data import ArraySource, Whitening, unwhitened
from neurecover.models import Network
from neurecover.refine.descent import EXACT
from neurecover.refine.rare_biases import Levels, with_rare_columns
from neurecover.refine.settling import Finished
from neurecover.refine.task import Task
from neurecover.solve import Deadline

SEARCHED, DESCENTS = 40, 12  # groups, the largest first, and descents in each
SWITCH = 3  # samples on each side of a kink that is looked at
SAME = 1e-6  # distance of directions, and relative distance of heights, below which two kinks are one unit's
MOST_UNITS = 9  # 3^9 sums are compared with a slope
CANDIDATES, MORE = 12, 2  # kinks seen once that may be units, and how many of them
REWEIGHTED = 30  # times

Search = Callable[[ArraySource, Task, int], Finished]


@dataclass(frozen=True)
class Group:
    """The samples of one combination of values: common columns X and outputs Y."""

    number: int
    X: np.ndarray
    Y: np.ndarray


@dataclass
class Unit:
    """A direction w (c,) of length one, the height of its kink (p,), and its bias in the groups that show it.

    `switching` are the samples on the lesser side of its plane in the first of them.
    """

    w: np.ndarray
    height: np.ndarray
    bias: dict[int, float]
    switching: int

    def same(self, w: np.ndarray, height: np.ndarray) -> bool:
        return bool(
            np.linalg.norm(self.w - np.sign(self.w @ w) * w) < SAME
            and np.linalg.norm(self.height - height) < SAME * np.linalg.norm(height)
        )

    def values(self, group: Group) -> np.ndarray:
        """What it adds to the outputs of a group that shows it, (n, p)."""
        return np.outer(np.maximum(group.X @ self.w + self.bias[group.number], 0.0), self.height)

    def turned(self) -> Unit:
        return replace(self, w=-self.w, bias={g: -bias for g, bias in self.bias.items()})


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
        network = _network(group, task, search)
        if network is None:
            continue
        solved.append(group)
        for w, height, bias, switching in _kinks(network, group.X):
            _add(units, Unit(w, height, {group.number: bias}, switching))
        if task.n_hidden is not None and sum(len(unit.bias) > 1 for unit in units) >= task.n_hidden:
            break
    units = _turned(units, solved, task.n_hidden)
    if not units:
        return None
    W, A = np.array([unit.w for unit in units]), np.array([unit.height for unit in units]).T
    start = np.zeros((levels.count, len(units) + len(A)))
    for j, unit in enumerate(units):
        start[list(unit.bias), j] = list(unit.bias.values())
    return with_rare_columns(W, A, start, levels, task, deadline)


def _network(group: Group, task: Task, search: Search) -> Network | None:
    """The network of one group, or None where it is not exact."""
    X, Y = group.X, group.Y
    if Y.size < 2 * (task.n_hidden or 1) * (X.shape[1] + 1 + Y.shape[1]):
        return None
    whitening = Whitening.of(X.mean(axis=0), np.atleast_2d(np.cov(X.T, bias=True)))
    if whitening.rank < X.shape[1]:
        return None
    found = search(ArraySource(whitening.inputs(X), Y), replace(task, n_inputs=X.shape[1], n_samples=len(X)), DESCENTS)
    if found.relative_rss >= EXACT:
        return None
    network = unwhitened(found.network, whitening)
    assert isinstance(network, Network)
    return network


def _kinks(network: Network, X: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, float, int]]:
    """The planes on which the slope changes between samples: direction, height, bias, samples on the lesser side."""
    size = np.linalg.norm(network.W, axis=1)
    size = np.where(size > 0.0, size, 1.0)
    W, b, A = network.W / size[:, None], network.b / size, network.A * size
    on = np.count_nonzero(X @ W.T + b > 0.0, axis=0)
    lesser = np.minimum(on, len(X) - on)
    left = [int(j) for j in np.flatnonzero(lesser >= SWITCH)]
    while left:
        side = np.sign(W[left] @ W[left[0]])
        apart = np.abs(W[left] - side[:, None] * W[left[0]]).sum(axis=1) + np.abs(b[left] - side * b[left[0]])
        one = [j for j, distance in zip(left, apart) if distance < SAME]
        height = A[:, one].sum(axis=1)  # relu(z) and relu(−z) bend alike
        if np.linalg.norm(height) > SAME * np.abs(A).max():
            yield W[left[0]], height, float(b[left[0]]), int(lesser[left[0]])
        left = [j for j in left if j not in one]


def _add(units: list[Unit], new: Unit) -> None:
    for unit in units:
        if unit.same(new.w, new.height):
            unit.bias |= new.bias if unit.w @ new.w > 0.0 else new.turned().bias
            return
    units.append(new)


def _turned(units: list[Unit], groups: list[Group], n_hidden: int | None) -> list[Unit]:
    """The units, those turned round that the slopes of most groups want turned.

    Kinks that came back are units. Of the others, up to two are that make the slopes of more groups into sums.
    """
    sure = [unit for unit in units if len(unit.bias) > 1][:n_hidden]
    others = sorted((unit for unit in units if len(unit.bias) == 1), key=lambda unit: -unit.switching)[:CANDIDATES]
    room = MORE if n_hidden is None else min(MORE, n_hidden - len(sure))
    slopes: dict[tuple[int, ...], np.ndarray] = {}
    best, votes, most = sure, np.zeros(len(sure)), 0
    for added in chain.from_iterable(combinations(others, more) for more in range(room + 1)):
        n_sums, came = _votes([*sure, *added], groups, slopes)
        if n_sums > most:
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
    """(c, p) of an affine function that most samples are on: Σ ‖r‖ made least, by least squares weighted anew.

    A unit that switches at one or two samples was not seen, and puts those off.
    """
    affine, weight = np.hstack([X, np.ones((len(X), 1))]), np.ones((len(X), 1))
    for _ in range(REWEIGHTED):
        solution = np.linalg.lstsq(weight * affine, weight * Y, rcond=None)[0]
        left = np.linalg.norm(Y - affine @ solution, axis=1, keepdims=True)
        weight = 1.0 / np.sqrt(np.maximum(left, 1e-12 * np.abs(Y).max(initial=1e-300)))
    return solution[:-1]
