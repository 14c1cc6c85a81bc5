"""Units from the levels of a category: rows that agree in all rare columns.

Within a level g the function is a network of the common columns alone, and from level to level only biases differ:

    y = Σ_j a_j relu(w_j·x + β_jg) + c,        β_jg = b_j + w_j^R·r_g,        r_g the values of the rare columns.

A level shows the units that switch in it, each by the direction w and the height a of its kink, up to its sign. A kink
that comes back in a second level is that of a unit; what one level alone shows may be a piece of a wrong fit.

Which of them are units, and which way round they are, shows by agreement: for the right signs e and gates,
y − Σ e_j a_j (w_j·x) is one number for all rows of a level with the same gates, and no rows agree with a kink that is
none. Then the rows of a level differ from what is known in one direction, x̃ = (0, x, 0) + (1, 0, r_g), and `agreement`
gives gates, biases and the weights of the rare columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from neurecover.data import ArraySource, Whitening, unwhiten
from neurecover.fit import EXACT
from neurecover.fit.samples import Samples
from neurecover.models import Network
from neurecover.search import Task
from neurecover.search.gates.agreement import Block, agreeing, all_sets, by_exclusion, gates_of, solve
from neurecover.search.gates.state import State, spaces
from neurecover.search.race import Setting, race, wider
from neurecover.search.units import narrowest
from neurecover.solve import Deadline


@dataclass(frozen=True, eq=False)
class Kink:
    """A kink seen in levels of a category: direction w (c,) of length one, output weights a (p,), and the levels that
    show it.
    """

    w: np.ndarray
    a: np.ndarray
    seen: tuple[int, ...]

    def same(self, other: Kink, alike: float) -> bool:
        near = np.linalg.norm(self.w - np.sign(self.w @ other.w) * other.w) < alike
        return bool(near and np.linalg.norm(self.a - other.a) < alike * np.linalg.norm(other.a))


@dataclass(frozen=True, eq=False)
class Levels:
    """A state without units, which columns (D,) are `common`, and the rows of each level of the category, largest
    first.
    """

    plain: State
    common: np.ndarray
    rows: list[np.ndarray]

    def blocks(self, state: State) -> list[Block]:
        return [Block.of(state, rows, self.common) for rows in self.rows]


def from_levels(levels: Levels, task: Task, rng: np.random.Generator, deadline: Deadline) -> State | None:
    """Return the state of units that levels show, the largest levels searched first; None where they show none.

    Kinks that came back are first, then those of levels in which others did, which are fitted rightly, as they came.
    """
    options, kinks = levels.plain.options, list[Kink]()
    k = min(task.n_hidden or options.level_units, options.level_units)
    for number in range(len(levels.rows)):
        for kink in _kinks_of(levels, number, task, rng, deadline):
            known = next((old for old in kinks if old.same(kink, options.alike)), None)
            if known is None:
                kinks.append(kink)
            else:
                kinks[kinks.index(known)] = replace(known, seen=(*known.seen, number))
        if deadline.passed or sum(len(kink.seen) > 1 for kink in kinks) >= k:
            break
    right = {number for kink in kinks if len(kink.seen) > 1 for number in kink.seen}
    kinks = sorted(kinks, key=lambda kink: (len(kink.seen) == 1, kink.seen[0] not in right))[:k]
    if not kinks:
        return None
    voting = {*range(len(levels.rows))[: options.voting], *(number for kink in kinks for number in kink.seen[:2])}
    V = np.zeros((len(kinks), len(levels.common)))
    V[:, levels.common] = [kink.w for kink in kinks]
    state = replace(levels.plain, V=V, A=np.array([kink.a for kink in kinks]).T)
    return with_levels(levels, turned(levels, state, voting))


def with_levels(levels: Levels, state: State) -> State | None:
    """Return the state whose units have these weights of the common columns and the rest from rows that agree."""
    options = state.options
    if len(state.V) > options.level_units:
        return None
    blocks, best = levels.blocks(state), None
    gates = [gates_of(block) for block in blocks]
    frame = spaces(np.array([block.delta for block in blocks]), options.rounding)[0]
    for last in (False, True):
        if not any((own >= 0).any() for own in gates):
            break
        added, c = solve(blocks, gates, frame)
        found = replace(state, V=state.V + added, c=c)
        best = found if best is None or found.n_explained > best.n_explained else best
        if last or best.explained.all():
            break
        for i, block in enumerate(levels.blocks(replace(state, c=c))):
            if not found.explained[block.rows].all() and 0.0 < np.mean(gates[i][:, 0] < 0) < options.untold:
                gates[i] = by_exclusion(block, gates[i], found.Z[block.rows] > 0.0)
    return best


def turned(levels: Levels, state: State, numbers: Iterable[int]) -> State:
    """Return the state with each unit reversed if most rows of these levels that agree with others want that.

    Beside a level's constant a unit may be off, on, or on the other way round: 0, 1 and −1 in a set.
    """
    votes, sets = np.zeros(len(state.V)), all_sets(len(state.V), (0, 1, -1))
    for number in numbers:
        block = Block.of(state, levels.rows[number][: state.options.voters], levels.common)
        for s, own in agreeing(block, sets, state.options.level_agree):
            votes += sets[s] * len(own)
    return replace(state, V=state.V * np.where(votes < 0, -1.0, 1.0)[:, None])


def _kinks_of(levels: Levels, number: int, task: Task, rng: np.random.Generator, deadline: Deadline) -> list[Kink]:
    """Return the planes of an exact fit of one level that have more rows on each side than they have weights."""
    rows, options = levels.rows[number], levels.plain.options
    X, Y = levels.plain.X[rows][:, levels.common], levels.plain.Y[rows]
    whitening = Whitening.of(X.mean(axis=0), np.atleast_2d(np.cov(X.T, bias=True)))
    smaller = replace(task, n_inputs=X.shape[1], n_samples=len(X))
    if Y.size < options.equations * smaller.n_parameters((task.n_hidden or 1,)) or whitening.rank < X.shape[1]:
        return []
    samples, setting = Samples.of(ArraySource(whitening.inputs(X), Y), True), Setting.plain(smaller, rng, deadline)
    widths = smaller.widths or (options.level_units,)
    fits = race(samples, setting, widths, wider(samples, widths, setting.options), EXACT)
    fit = next((fit for _, fit in islice(fits, options.level_descents) if fit.relative < samples.level()), None)
    if fit is None:
        return []
    student = narrowest(fit).student
    network = unwhiten(Network(student.V[0][:, 1:], student.V[0][:, 0], student.top.T), whitening)
    assert isinstance(network, Network)
    size = np.maximum(np.linalg.norm(network.W, axis=1), 1e-300)
    on = np.count_nonzero(X @ network.W.T + network.b > 0.0, axis=0)
    W, A, shown = network.W / size[:, None], network.A * size, np.minimum(on, len(X) - on) > X.shape[1] + 1
    return [Kink(W[j], A[:, j], (number,)) for j in np.flatnonzero(shown)]
