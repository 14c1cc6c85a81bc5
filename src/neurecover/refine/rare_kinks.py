"""What one group of samples that agree in all rare columns shows: the units that switch in it, each up to its sign."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from neurecover.data import ArraySource, Whitening, unwhitened
from neurecover.models import Network
from neurecover.refine.descent import EXACT
from neurecover.refine.settling import Finished
from neurecover.refine.task import Task

DESCENTS = 12  # in a group
SWITCH = 3  # samples on each side of a kink that is looked at
SAME = 1e-6  # distance of directions, and relative distance of heights, below which two kinks are one unit's

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


def network_of(group: Group, task: Task, search: Search) -> Network | None:
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


def kinks(network: Network, group: Group) -> Iterator[Unit]:
    """The planes of a group's network on which the slope changes between its samples."""
    X = group.X
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
            yield Unit(W[left[0]], height, {group.number: float(b[left[0]])}, int(lesser[left[0]]))
        left = [j for j in left if j not in one]


def add_kink(units: list[Unit], new: Unit) -> None:
    """To those of other groups: one that comes back is the same unit."""
    for unit in units:
        if unit.same(new.w, new.height):
            unit.bias |= new.bias if unit.w @ new.w > 0.0 else new.turned().bias
            return
    units.append(new)
