"""Where to begin when some inputs hardly vary: pixels at the rim, indicators of a category.

Whitening makes such a column enormous where it varies at all, and few samples then decide every descent. Where the rare
columns have their usual values the function is a network of the same units in the common columns. Once it is found it
explains these rows, and the others follow (`explain`). A category of many levels has no usual value; there each level
is such a network (`levels`).

With one output rows say little of which units are on, and without a category the search alone does better: 16 of 16 on
counts and inputs mostly zero, 14 with a start from here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.data import ArraySource, Prepared, Whitening, unwhiten
from neurecover.models import Network
from neurecover.search import Task
from neurecover.search.gates.explain import explain, explain_all
from neurecover.search.gates.levels import Levels, from_levels, with_levels
from neurecover.search.gates.state import DEFAULT, GateOptions, State
from neurecover.search.network import Found, fit_network, fitted, search_network
from neurecover.solve import Deadline


def start(
    given: Prepared, task: Task, rng: np.random.Generator, deadline: Deadline, options: GateOptions = DEFAULT
) -> np.ndarray | None:
    """Return units (m, d + 1) on whitened inputs, from the common columns or the levels of a category; None where there
    are none, no column is rare, or all are.
    """
    table = Table.of(given, task, options)
    if table is None or (task.n_outputs == 1 and table.levels is None):
        return None
    searching, state = deadline.share(options.share), None
    if table.telling is not None:
        state = from_levels(table.telling, task, rng, searching)
    elif np.mean(table.base) >= options.base:
        state = _from_base(table, task, rng, searching)
    if state is None:
        return None
    if table.telling is not None or state.explained[table.base].all():
        state = explain(state, task.n_hidden or len(state.V), deadline)
    return table.whitened(state)


def fit_again(
    given: Prepared, task: Task, found: Found, deadline: Deadline, options: GateOptions = DEFAULT
) -> Found | None:
    """Return a network on whitened inputs with its gates changed in training samples that it does not explain."""
    small = task.n_samples * (task.n_inputs + 1) <= options.largest
    if not task.rectified or not small or not isinstance(found.network, Network):
        return None
    table, network = Table.of(given, task, options), found.network
    state = State.of(network, *given.train.collect(), options) if table is None else table.state(network)
    if table is not None and table.telling is not None and len(state.left):
        plain = replace(state, V=state.V * table.telling.common, c=np.zeros_like(state.c))
        state = with_levels(table.telling, plain) or state
    whole = explain_all(state, network.n_hidden, deadline)
    if whole is None:
        return None
    V = np.roll(whole.V, -1, axis=1) if table is None else table.whitened(whole)
    network = Network(V[:, :-1], V[:, -1], whole.A, whole.c)
    fit = fitted(found, fit_network(given.train, network, True, deadline))
    return fit if fit.exact else None


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
        category = rare.any() and task.rectified and _levels(first[:, rare], options.alike).max() < options.levels
        rare = rare if category else rare & (shown < options.many)
        if not rare.any() or rare.all() or not task.bias:
            return None
        (white, Y), d, p = given.train.collect(), len(rare), task.n_outputs
        back = given.whitening.matrix.T @ given.moments.covariance[:d, :d]  # E[z (x − mean)ᵀ], and E[z zᵀ] = 1
        X = white @ back + given.whitening.mean
        level_of, usual = _levels(X[:, rare], options.alike), np.zeros(d)
        usual[rare] = X[np.argmax(level_of == np.argmax(np.bincount(level_of)))][rare]
        same = rare & (np.abs(X - usual) <= options.rounding * np.maximum(np.ptp(X, axis=0), 1e-300))
        extended = np.hstack([np.ones((len(X), 1)), np.where(same, 0.0, X - usual)])
        plain = State(extended, Y, np.empty((0, d + 1)), np.empty((p, 0)), np.zeros(p), options)
        rows = [np.flatnonzero(level_of == g) for g in np.argsort(-np.bincount(level_of), kind="stable")]
        levels = Levels(plain, np.append(False, ~rare), rows) if category else None
        return cls(plain, rare, usual, levels, back, given.whitening)

    @property
    def base(self) -> np.ndarray:
        """The rows (n,) in which all rare columns have their usual values."""
        return ~np.any(self.plain.X[:, 1:][:, self.rare] != 0.0, axis=1)

    @property
    def telling(self) -> Levels | None:
        """The levels of the category if they say more than the rows with all usual values: for one output, or if those
        rows are few.
        """
        few = np.mean(self.base) < self.plain.options.base
        return self.levels if few or self.plain.Y.shape[1] == 1 else None

    def state(self, white: Network) -> State:
        """Write a network on whitened inputs as a state."""
        network = unwhiten(white, self.whitening)
        assert isinstance(network, Network)
        V = np.hstack([(network.b + network.W @ self.usual)[:, None], network.W])
        return replace(self.plain, V=V, A=network.A, c=network.c)

    def whitened(self, state: State) -> np.ndarray:
        """Write the units of a state as units (m, d + 1) on whitened inputs, biases last."""
        bias = state.V[:, 0] + state.V[:, 1:] @ (self.whitening.mean - self.usual)
        return np.hstack([state.V[:, 1:] @ self.back.T, bias[:, None]])


def _levels(X: np.ndarray, alike: float) -> np.ndarray:
    """Number (n,) the combinations of values that the rows have."""
    grid = np.rint(X / (alike * np.maximum(np.ptp(X, axis=0), 1e-300)))
    return np.unique(grid, axis=0, return_inverse=True)[1].ravel()


def _from_base(table: Table, task: Task, rng: np.random.Generator, deadline: Deadline) -> State | None:
    """Search for the network in the common columns."""
    plain, base, columns = table.plain, table.base, np.flatnonzero(~table.rare)
    X, Y = plain.X[base][:, columns + 1], plain.Y[base]
    whitening = Whitening.of(X.mean(axis=0), np.atleast_2d(np.cov(X.T, bias=True)))
    smaller = replace(task, n_inputs=whitening.rank, n_samples=len(X))
    if whitening.rank == 0 or Y.size < plain.options.equations * smaller.n_parameters(task.widths or (1,)):
        return None
    source = ArraySource(whitening.inputs(X), Y)
    found = search_network(source, smaller, rng, deadline)
    network = unwhiten(found.network, whitening)
    assert isinstance(network, Network)
    # A unit of the network that is off in all of these samples has left its place to one that adds nothing.
    adds = np.abs(network.hidden(X)).max(axis=0) * np.linalg.norm(network.A, axis=0)
    useful = adds > plain.options.rounding * np.abs(Y).max(initial=0.0)
    V = np.zeros((int(useful.sum()), len(table.rare) + 1))
    V[:, columns + 1], V[:, 0] = network.W[useful], network.b[useful]
    return replace(plain, V=V, A=network.A[:, useful], c=network.c)
