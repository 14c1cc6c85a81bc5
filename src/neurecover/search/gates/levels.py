"""Units from the levels of a category: rows that agree in all rare columns.

Within a level g the function is a network of the common columns alone, and from level to level only biases differ:

    y = Σ_j a_j relu(w_j·x + β_jg) + c,        β_jg = b_j + w_j^R·r_g,        r_g the values of the rare columns.

A level shows the units that switch in it, each by the direction w and the height a of its kink, up to its sign. A kink
that comes back in a second level is that of a unit. One that switches in no level shows between them: away from kinks a
level has the slope of the units S that are on there,

    Σ_{j ∈ S} a_j w_jᵀ        or        Σ_{j ∈ S} a_j w_jᵀ + a wᵀ,

and a wᵀ is what most levels leave when some set S of the units known is taken away.

Whether k kinks are all units, and which way round they are, shows by agreement: for the right signs e and gates,
y − Σ e_j a_j (w_j·x) is one number for all rows of a level with the same gates. Then the rows of a level differ from
what is known in one direction, x̃ = (0, x, 0) + (1, 0, r_g), and `agreement` gives gates, biases and the weights of the
rare columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, islice

import numpy as np

from neurecover.data import ArraySource, Whitening, unwhiten
from neurecover.fit import EXACT
from neurecover.fit.samples import Samples
from neurecover.models import Network
from neurecover.search import Task
from neurecover.search.gates.agreement import Block, agreeing, all_sets, by_exclusion, gates_of, solve
from neurecover.search.gates.state import State, equal_runs, spaces
from neurecover.search.race import Setting, race, wider
from neurecover.search.units import narrowest
from neurecover.solve import Deadline


@dataclass(frozen=True, eq=False)
class Kink:
    """A direction w (c,) of length one, the height a (p,), the levels it was seen in, and at how many rows at most."""

    w: np.ndarray
    a: np.ndarray
    seen: tuple[int, ...]
    switching: int

    def same(self, other: Kink, alike: float) -> bool:
        near = np.linalg.norm(self.w - np.sign(self.w @ other.w) * other.w) < alike
        return bool(near and np.linalg.norm(self.a - other.a) < alike * np.linalg.norm(other.a))


@dataclass(frozen=True, eq=False)
class Levels:
    """Rows of a state without units, which columns (D,) are `common`, and the rows of each level, largest first."""

    plain: State
    common: np.ndarray
    rows: list[np.ndarray]

    @classmethod
    def of(cls, plain: State, rare: np.ndarray, level_of: np.ndarray) -> Levels:
        order = np.argsort(-np.bincount(level_of), kind="stable")
        return cls(plain, np.append(False, ~rare), [np.flatnonzero(level_of == g) for g in order])

    def units(self, kinks: list[Kink]) -> State:
        """Return the state of these units without weights of rare columns, biases and constant."""
        V = np.zeros((len(kinks), len(self.common)))
        V[:, self.common] = [kink.w for kink in kinks]
        return replace(self.plain, V=V, A=np.array([kink.a for kink in kinks]).T)

    def blocks(self, state: State, numbers: Iterable[int] | None = None) -> list[Block]:
        some = self.rows if numbers is None else (self.rows[number] for number in numbers)
        return [Block.of(state, rows, self.common) for rows in some]


def from_levels(levels: Levels, task: Task, rng: np.random.Generator, deadline: Deadline) -> State | None:
    """Return the state of units that levels show, the largest levels searched first; None where they show none."""
    options, kinks, slopes, best = levels.plain.options, list[Kink](), dict[int, np.ndarray](), None
    tried: set[frozenset[bytes]] = set()
    k = min(task.n_hidden or options.level_units, options.level_units)
    for number in range(len(levels.rows)):
        slope, new = _kinks_of(levels, number, task, rng, deadline)
        if slope is not None:
            slopes[number] = slope
        for kink in new:
            kinks = _with_kink(kinks, kink, options.alike)
        if new:
            best = _better(levels, best, _choices(levels, kinks, k, task.n_hidden is not None), tried)
        if deadline.passed or (best is not None and np.mean(best.explained) > options.nearly_all):
            break
    sure = [kink for kink in kinks if len(kink.seen) > 1]
    if best is None and task.n_hidden == k and 0 < len(sure) == k - 1:
        for whole in _between(levels, sure, slopes):
            best = _better(levels, best, iter([whole]), tried)
    return best or _better(levels, None, _choices(levels, kinks, k, False), tried)


def _between(levels: Levels, kinks: list[Kink], slopes: dict[int, np.ndarray]) -> Iterator[list[Kink]]:
    """Yield the kinks with one more that no level shows, either way round, where all slopes (p, c) are told by it."""
    options, slope = levels.plain.options, np.array(list(slopes.values()))
    p, c = slope.shape[1:]
    each = np.array([np.outer(kink.a, kink.w).ravel() for kink in kinks]).reshape(len(kinks), p * c)
    near, side = options.alike * float(np.abs(slope).max()), np.random.default_rng(p * c).standard_normal(p * c)
    found = list[tuple[int, np.ndarray]]()
    for signs in all_sets(len(kinks), (1, -1)):
        rest = slope.reshape(-1, 1, p * c) - all_sets(len(kinks)) @ (signs[:, None] * each)
        told = (np.abs(rest).max(axis=2) <= near).any(axis=1)
        others, level_of = rest[~told].reshape(-1, p * c), np.repeat(np.flatnonzero(~told), rest.shape[1])
        for _, own in equal_runs((others @ side)[None], near)[:1]:
            found.append((int(told.sum()) + len(set(level_of[own])), others[own].mean(axis=0)))
    for score, step in sorted(found, key=lambda pair: -pair[0])[: options.between]:
        left, sizes, right = np.linalg.svd(step.reshape(p, c))
        if score >= options.nearly_all * len(slope) and sizes[1:].max(initial=0.0) <= near:
            for way in (1.0, -1.0):
                yield [*kinks, Kink(way * right[0], way * sizes[0] * left[:, 0], tuple(slopes), 0)]


def with_levels(levels: Levels, state: State) -> State | None:
    """Return the state whose units have these weights of the common columns and the rest from rows that agree."""
    options = state.options
    if len(state.V) > options.level_units:
        return None
    blocks, best = levels.blocks(state), None
    gates = [gates_of(block) for block in blocks]
    frame = spaces(np.array([block.delta for block in blocks]), options.rounding)[0]
    for choices in (0, options.exclusions, None):
        if not any((own >= 0).any() for own in gates):
            break
        added, c = solve(blocks, gates, frame)
        found = replace(state, V=state.V + added, c=c)
        best = found if best is None or found.n_explained > best.n_explained else best
        if choices is None or best.explained.all():
            break
        # Rows that have to have one set of gates come first: with them the constant is known, and choices are few.
        for i, block in enumerate(levels.blocks(replace(state, c=c) if choices else state)):
            if not found.explained[block.rows].all() and 0.0 < np.mean(gates[i][:, 0] < 0) < options.untold:
                gates[i] = by_exclusion(block, gates[i], found.Z[block.rows] > 0.0, choices)
    return best


def _choices(levels: Levels, kinks: list[Kink], k: int, exactly: bool) -> Iterator[list[Kink]]:
    """Yield kinks that may be all units: those that came back, and some of the others, k in all if `exactly`.

    A level in which others came back is fitted rightly: what it alone shows is first.
    """
    sure = [kink for kink in kinks if len(kink.seen) > 1][:k]
    right = [number for kink in sure for number in kink.seen]
    alone = (kink for kink in kinks if len(kink.seen) == 1)
    once = sorted(alone, key=lambda kink: (-right.count(kink.seen[0]), -kink.switching))
    for more in range(min(levels.plain.options.kinks_more, k - len(sure)) + 1):
        if len(sure) + more > 0 and (len(sure) + more == k or not exactly):
            yield from ([*sure, *added] for added in combinations(once[: levels.plain.options.kinks_once], more))


def _better(
    levels: Levels, best: State | None, choices: Iterator[list[Kink]], tried: set[frozenset[bytes]]
) -> State | None:
    """Return the state of the choice with which most rows of the two largest levels agree, if it explains more.

    Choices that were tried before are passed over.
    """
    largest = range(len(levels.rows))[: levels.plain.options.voting]
    new = {key: kinks for kinks in choices if (key := frozenset(kink.w.tobytes() for kink in kinks)) not in tried}
    shares = {key: turn_units(levels, levels.units(kinks), largest[:2])[0] for key, kinks in new.items()}
    key = max(shares, key=lambda key: shares[key], default=frozenset())
    if shares.get(key, 0.0) <= levels.plain.options.covered:
        return best
    tried.add(key)
    voting = {*largest, *(number for kink in new[key] for number in kink.seen[:2])}
    found = with_levels(levels, turn_units(levels, levels.units(new[key]), voting)[1])
    return found if best is None or (found is not None and found.n_explained > best.n_explained) else best


def turn_units(levels: Levels, state: State, numbers: Iterable[int]) -> tuple[float, State]:
    """Return the share of rows of these levels that agree with three others, and units turned as most of them do.

    Beside a level's constant a unit may be off, on, or on the other way round: 0, 1 and −1 in a set.
    """
    votes, sets, agree = np.zeros(len(state.V)), all_sets(len(state.V), (0, 1, -1)), list[np.ndarray]()
    for block in levels.blocks(state, numbers):
        agree.append(np.zeros(len(block.rows), dtype=bool))
        for s, own in agreeing(block, sets, state.options.level_agree):
            votes, agree[-1][own] = votes + sets[s] * len(own), True
    turned = replace(state, V=state.V * np.where(votes < 0, -1.0, 1.0)[:, None])
    return float(np.mean(np.concatenate(agree))), turned


def _kinks_of(
    levels: Levels, number: int, task: Task, rng: np.random.Generator, deadline: Deadline
) -> tuple[np.ndarray | None, list[Kink]]:
    """Return the slope (p, c) of one level where most of its rows are, None without an exact fit, and the planes on
    which it changes, with more rows on each side than they have weights.
    """
    rows, options = levels.rows[number], levels.plain.options
    X, Y = levels.plain.X[rows][:, levels.common], levels.plain.Y[rows]
    if Y.size < options.equations * (task.n_hidden or 1) * (X.shape[1] + 1 + Y.shape[1]):
        return None, []
    whitening = Whitening.of(X.mean(axis=0), np.atleast_2d(np.cov(X.T, bias=True)))
    if whitening.rank < X.shape[1]:
        return None, []
    smaller = replace(task, n_inputs=X.shape[1], n_samples=len(X))
    samples, setting = Samples.of(ArraySource(whitening.inputs(X), Y), True), Setting.plain(smaller, rng, deadline)
    widths = smaller.widths or (options.level_units,)
    fits = race(samples, setting, widths, wider(samples, widths, setting.options), EXACT)
    fit = next((fit for _, fit in islice(fits, options.level_descents) if fit.relative < samples.level()), None)
    if fit is None:
        return None, []
    student = narrowest(fit).student
    C = student.theta[1 : student.reads(1)[0]].T
    network = unwhiten(Network(student.V[0][:, 1:], student.V[0][:, 0], student.top.T, C=C), whitening)
    assert isinstance(network, Network)
    assert network.C is not None
    size = np.maximum(np.linalg.norm(network.W, axis=1), 1e-300)
    W, b, A = network.W / size[:, None], network.b / size, network.A * size
    on = np.count_nonzero(X @ W.T + b > 0.0, axis=0)
    lesser, most = np.minimum(on, len(X) - on), 2 * on > len(X)
    slope = network.C + A[:, most] @ W[most]
    return slope, [Kink(W[j], A[:, j], (number,), int(lesser[j])) for j in np.flatnonzero(lesser > X.shape[1] + 1)]


def _with_kink(kinks: list[Kink], new: Kink, alike: float) -> list[Kink]:
    for i, old in enumerate(kinks):
        if old.same(new, alike):
            again = replace(old, seen=old.seen + new.seen, switching=max(old.switching, new.switching))
            return [*kinks[:i], again, *kinks[i + 1 :]]
    return [*kinks, new]
