"""Where to begin when some inputs hardly vary: pixels at the rim, indicators of a category.

Whitening makes such a column enormous where it varies at all, and few samples then decide every descent. So all units
begin without the rare columns: v = B g with g ~ N(0, 1), where B spans the common columns among the whitened inputs
(`CommonUnits`). Moreover, where the rare columns have their usual values the function is a network of the same units in
the common columns. Once it is found it explains these rows, and the others follow (`explain`). A category of many
levels has no usual value; there each level is such a network (`levels`).

With one output rows say little of which units are on, and without a category the search alone does better: 16 of 16 on
counts and inputs mostly zero, 14 with a start from here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.data import ArraySource, Prepared, Whitening, unwhiten
from neurecover.models import Network
from neurecover.search.gates.engine import Found, Task, polish, rectified, solve
from neurecover.search.gates.explain import explain
from neurecover.search.gates.few_rows import explain_all, suits
from neurecover.search.gates.levels import Levels, from_levels, with_levels
from neurecover.search.gates.state import DEFAULT, GateOptions, State
from neurecover.solve import Deadline


@dataclass(frozen=True)
class CommonUnits:
    """Random units in the span of some whitened directions, `frame` (r, c)."""

    frame: np.ndarray

    def __call__(self, rng: np.random.Generator, n_hidden: int, n_inputs: int, bias: bool) -> np.ndarray:
        V = rng.standard_normal((n_hidden, self.frame.shape[1] + bias))
        W = V[:, : self.frame.shape[1]]
        W = W / np.linalg.norm(W, axis=1, keepdims=True) @ self.frame.T
        return np.hstack([W, V[:, self.frame.shape[1] :]])


@dataclass(frozen=True)
class Start:
    """Units (m, d + 1) on whitened inputs to begin with, m = 0 where none were found, and what draws all others."""

    units: np.ndarray
    draw: CommonUnits


def start(
    given: Prepared, task: Task, rng: np.random.Generator, deadline: Deadline, options: GateOptions = DEFAULT
) -> Start | None:
    """Return units from the common columns or the levels of a category; None where no column is rare, or all are."""
    table = Table.of(given, task, options)
    if table is None or (task.n_outputs == 1 and table.levels is None):
        return None
    if table.levels is not None and (task.n_outputs == 1 or np.mean(table.base) < options.base):
        state = from_levels(table.levels, task, rng, deadline)
        return table.start(state if state is None else explain(state, task.n_hidden or len(state.V), deadline))
    return table.start(_from_base(table, task, rng, deadline) if np.mean(table.base) >= options.base else None)


def fit_again(
    given: Prepared, task: Task, found: Found, deadline: Deadline, options: GateOptions = DEFAULT
) -> Found | None:
    """Return a network on whitened inputs with its gates changed in training samples that it does not explain."""
    if not suits(task, options) or not isinstance(found.network, Network):
        return None
    table, k = Table.of(given, task, options), found.network.n_hidden
    if table is None:
        whole = explain_all(State.of(found.network, *given.train.collect(), options), k, deadline)
        return None if whole is None else polish(given.train, found, whole.network, deadline)
    state: State | None = table.state(found.network)
    if table.levels is not None and state is not None and len(state.left):
        plain = replace(state, V=state.V * table.levels.common, c=np.zeros_like(state.c))
        state = with_levels(table.levels, plain, turned=False) or state
    whole = state and explain_all(state, k, deadline)
    if whole is None:
        return None
    V = table.start(whole).units
    return polish(given.train, found, Network(V[:, :-1], V[:, -1], whole.A, whole.c), deadline)


@dataclass(frozen=True, eq=False)
class Table:
    """Training samples before whitening, less the `usual` values of the columns that are `rare` (d,).

    `plain` is a state of these rows without any unit. `levels` are the combinations of rare values where they are few,
    as for a category. `back` takes whitened inputs to those less their mean.
    """

    plain: State
    rare: np.ndarray
    usual: np.ndarray
    levels: Levels | None
    back: np.ndarray
    whitening: Whitening

    @classmethod
    def of(cls, given: Prepared, task: Task, options: GateOptions) -> Table | None:
        first = given.source.collect()[0]
        shown = np.count_nonzero(np.median(first, axis=0) != first, axis=0)
        rare = (shown <= (1.0 - options.rare) * len(first)) & (shown > 0)
        category = rare.any() and rectified(task) and _levels(first[:, rare]).max() < options.levels
        rare = rare if category else rare & (shown < options.many)
        if not rare.any() or rare.all() or not task.bias:
            return None
        (white, Y), d, p = given.train.collect(), len(rare), task.n_outputs
        back = given.whitening.matrix.T @ given.moments.covariance[:d, :d]  # E[z (x − mean)ᵀ], and E[z zᵀ] = 1
        X = white @ back + given.whitening.mean
        level_of, usual = _levels(X[:, rare]), np.zeros(d)
        usual[rare] = X[np.argmax(level_of == np.argmax(np.bincount(level_of)))][rare]
        same = rare & (np.abs(X - usual) <= options.rounding * np.maximum(np.ptp(X, axis=0), 1e-300))
        extended = np.hstack([np.where(same, 0.0, X - usual), np.ones((len(X), 1))])
        plain = State(extended, Y, np.empty((0, d + 1)), np.empty((p, 0)), np.zeros(p), options)
        levels = Levels.of(plain, rare, level_of) if category else None
        return cls(plain, rare, usual, levels, back, given.whitening)

    @property
    def base(self) -> np.ndarray:
        """The rows (n,) in which all rare columns have their usual values."""
        return ~np.any(self.plain.X[:, :-1][:, self.rare] != 0.0, axis=1)

    def state(self, white: Network) -> State:
        """Write a network on whitened inputs as a state."""
        network = unwhiten(white, self.whitening)
        assert isinstance(network, Network)
        V = np.hstack([network.W, (network.b + network.W @ self.usual)[:, None]])
        return replace(self.plain, V=V, A=network.A, c=network.c)

    def start(self, state: State | None) -> Start:
        """Write the units of a state as units on whitened inputs."""
        left, sizes, _ = np.linalg.svd(self.back[:, ~self.rare], full_matrices=False)
        draw = CommonUnits(left[:, sizes > self.plain.options.rounding * sizes.max(initial=1e-300)])
        V = self.plain.V if state is None else state.V
        bias = V[:, -1] + V[:, :-1] @ (self.whitening.mean - self.usual)
        return Start(np.hstack([V[:, :-1] @ self.back.T, bias[:, None]]), draw)


def _levels(X: np.ndarray) -> np.ndarray:
    """Number (n,) the combinations of values that the rows have."""
    grid = np.rint(X / (1e-6 * np.maximum(np.ptp(X, axis=0), 1e-300)))
    return np.unique(grid, axis=0, return_inverse=True)[1].ravel()


def _from_base(table: Table, task: Task, rng: np.random.Generator, deadline: Deadline) -> State | None:
    """Search for the network in the common columns, and explain the other rows from there.

    A search that ends above rounding may have come to a local optimum; with noise the next one ends there again.
    """
    plain, base, columns, best = table.plain, table.base, np.flatnonzero(~table.rare), None
    X, Y = plain.X[base][:, columns], plain.Y[base]
    whitening = Whitening.of(X.mean(axis=0), np.atleast_2d(np.cov(X.T, bias=True)))
    smaller = replace(task, n_inputs=whitening.rank, n_samples=len(X))
    if whitening.rank == 0 or Y.size < plain.options.equations * smaller.n_parameters(task.widths or (1,)):
        return None
    source = ArraySource(whitening.inputs(X), Y)
    for _ in range(plain.options.searches):
        found = solve(source, smaller, rng, deadline)
        again = best is not None and abs(found.rss - best.rss) <= 1e-3 * best.rss
        best = found if best is None or found.rss < best.rss else best
        if best.relative_rss < task.level or again or deadline.passed:
            break
    assert best is not None
    network = unwhiten(best.network, whitening)
    assert isinstance(network, Network)
    # A unit of the network that is off in all of these samples has left its place to one that adds nothing.
    adds = np.abs(network.hidden(X)).max(axis=0) * np.linalg.norm(network.A, axis=0)
    useful = adds > plain.options.rounding * np.abs(Y).max(initial=0.0)
    V = np.zeros((int(useful.sum()), len(table.rare) + 1))
    V[:, columns], V[:, -1] = network.W[useful], network.b[useful]
    state = replace(plain, V=V, A=network.A[:, useful], c=network.c)
    if not rectified(task) or not state.explained[base].all():
        return state
    return explain(state, task.n_hidden or len(V), deadline)
