"""Where to begin when some inputs hardly vary: pixels at the rim, indicators of categories, counts mostly zero.

Whitening makes such a column enormous where it varies at all, and few samples then decide every descent. So all units
begin without the rare columns: v = B g with g ~ N(0, 1), where B spans the common columns among the whitened inputs
(`CommonUnits`). Moreover, where the rare columns have their usual values the function is one of the common columns
alone,

    y = A·act(W_c x_c + b'),        b' = b + W_r u,        u the usual values of x_r,

a network of the same units in fewer inputs. Once it is found, a rare column j adds k unknowns w_j to the samples in
which it alone has another value: y = A·act(z + w_j (x_j − u_j)) + c with all but w_j known. Column after column, those
seen in most samples first, the weights are fitted there, and the whole is where the search on all columns begins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from neurecover.data import ArraySource, Prepared, Source, Whitening, unwhitened
from neurecover.models import Network
from neurecover.refine.few_rows import with_rest
from neurecover.refine.finisher import MAX_DESCENTS
from neurecover.refine.rare_biases import Levels, groups_fitted
from neurecover.refine.rare_fits import FITTED, refit
from neurecover.refine.rare_groups import units_from_groups
from neurecover.refine.rare_rows import by_rows
from neurecover.refine.rare_steady import by_rows_beside_steady
from neurecover.refine.settling import Finished
from neurecover.refine.task import Task
from neurecover.solve import Deadline, within

RARE = 0.9  # share of the samples in which a column has its usual value
MANY = 100  # samples, with which the search can do without the rest of this (measured: counts, sparse inputs, pixels)
BASE = 0.3  # share of the samples with all rare columns at their usual values; a category of many levels has fewer
ENOUGH = 2.0  # equations per parameter of the network in the common columns
SAME = 1e-9  # of a column's range: values that differ by less are one, after a whitening and back
SWEEPS, TOGETHER = 12, 3  # how often columns that do not agree are fitted anew, and how many at a time

UNEXPLAINED = 0.7  # share of the samples on which all units but a few err that need not show these few by themselves
TRIES, AGAIN = 3, 1e-3  # searches in the common columns, and Σ r² of two that have come to the same, relative

Search = Callable[[Source, Task, int], Finished]


@dataclass(frozen=True)
class CommonUnits:
    """Random units in the span of some whitened directions, `frame` (r, c), as `starts.random_units` draws them."""

    frame: np.ndarray

    def __call__(self, rng: np.random.Generator, n_hidden: int, n_inputs: int, bias: bool) -> np.ndarray:
        V = rng.standard_normal((n_hidden, self.frame.shape[1] + bias))
        W = V[:, : self.frame.shape[1]]
        W = W / np.linalg.norm(W, axis=1, keepdims=True) @ self.frame.T
        return np.hstack([W, V[:, self.frame.shape[1] :]])


@dataclass(frozen=True)
class RareStart:
    """Units (m, d + 1) on whitened inputs to begin with, m = 0 where none were found, and what draws all others."""

    units: np.ndarray
    draw: CommonUnits


def start_from_common_columns(
    given: Prepared, task: Task, search: Search, rng: np.random.Generator, deadline: Deadline
) -> RareStart | None:
    """Found as above, or from the levels of a category; None where no column is rare, or all are.

    `search` finds the network of a task on whitened samples within so many descents.
    """
    common = _Common.of(given, task)
    if common is None:
        return None
    X, Y = common.X, common.Y
    base, columns = ~common.differs.any(axis=1), np.flatnonzero(~common.rare)
    if np.mean(base) < BASE:
        network = units_from_groups(common.levels(), task, search, deadline)
        if network is not None and network.n_hidden < (task.n_hidden or 0):
            network = with_rest(network, X, Y, task.n_hidden or 0) or network
        return common.begin(network)
    found = _on_common(X[base][:, columns], Y[base], task, search, deadline)
    if found is None:
        return common.begin(None)
    W = np.zeros((found.n_hidden, X.shape[1]))
    W[:, columns] = found.W
    return common.begin(common.with_rare_columns(replace(found, W=W), task.n_hidden, rng, deadline))


def start_once_more(
    given: Prepared, task: Task, white: Network, rng: np.random.Generator, deadline: Deadline
) -> RareStart | None:
    """From a network on whitened inputs that does not fit some samples; None where that is not for rare columns."""
    common = _Common.of(given, task)
    if common is None:
        return None
    network = unwhitened(white, given.whitening)
    assert isinstance(network, Network)
    if np.mean(~common.differs.any(axis=1)) >= BASE:
        usual = replace(network, W=np.where(common.rare, 0.0, network.W), b=network.b + network.W @ common.usual)
        return common.begin(common.with_rare_columns(usual, task.n_hidden, rng, deadline))
    again = groups_fitted(network, common.levels(), task, deadline)
    return None if again is None else common.begin(again)


@dataclass(frozen=True)
class _Common:
    """Training samples as they were before whitening, which columns are `rare` (d,), and their `usual` values.

    `differs` (n, d) are the places with another value, `back` takes whitened inputs to those less their mean.
    """

    X: np.ndarray
    Y: np.ndarray
    rare: np.ndarray
    usual: np.ndarray
    differs: np.ndarray
    back: np.ndarray
    whitening: Whitening

    @classmethod
    def of(cls, given: Prepared, task: Task) -> _Common | None:
        """None where no column is rare, or all are."""
        rare = _rare(given.source.collect()[0], task)
        if not rare.any() or rare.all() or not task.bias:
            return None
        (Z, Y), whitening, d = given.train.collect(), given.whitening, len(rare)
        back = whitening.matrix.T @ given.moments.covariance[:d, :d]  # E[z (x − mean)ᵀ], and E[z zᵀ] = 1
        X = Z @ back + whitening.mean
        usual = np.zeros(d)
        usual[rare] = _commonest(X[:, rare])
        differs = (np.abs(X - usual) > SAME * np.maximum(np.ptp(X, axis=0), 1e-300)) & rare
        return cls(X, Y, rare, usual, differs, back, whitening)

    def levels(self) -> Levels:
        return Levels(self.X, self.Y, self.rare, _levels(self.X[:, self.rare]))

    def with_rare_columns(self, found: Network, k: int | None, rng: np.random.Generator, deadline: Deadline) -> Network:
        """The network whose weights of the common columns are those of `found`, on inputs less their usual values."""
        moved = self.X - self.usual
        moved[:, self.rare] *= self.differs[:, self.rare]
        whole = _bring_in(found.W.copy(), found, moved, self.Y, self.differs, k, rng, deadline)
        return replace(whole, b=whole.b - whole.W @ self.usual)

    def begin(self, network: Network | None) -> RareStart:
        """From the units of a network on inputs as they were, if there is one."""
        draw = CommonUnits(_span(self.back[:, ~self.rare]))
        if network is None:
            return RareStart(np.empty((0, len(self.back) + 1)), draw)
        bias = network.b + network.W @ self.whitening.mean
        return RareStart(np.hstack([network.W @ self.back.T, bias[:, None]]), draw)


def _rare(X: np.ndarray, task: Task) -> np.ndarray:
    """The columns (d,) that vary, with one value in RARE of the samples or more, which then is the median.

    If they are not those of a category, a column that MANY samples show is not rare after all.
    """
    shown = np.count_nonzero(np.median(X, axis=0) != X, axis=0)
    rare = (shown <= (1.0 - RARE) * len(X)) & (shown > 0)
    return rare if Levels(X, X, rare, _levels(X[:, rare])).suit(task) else rare & (shown < MANY)


def _span(columns: np.ndarray) -> np.ndarray:
    """An orthonormal basis (r, c) of the columns."""
    left, values, _ = np.linalg.svd(columns, full_matrices=False)
    return left[:, values > SAME * values.max(initial=1e-300)]


def _commonest(X: np.ndarray) -> np.ndarray:
    """The combination of values that most rows have."""
    level_of = _levels(X)
    return X[np.argmax(level_of == np.argmax(np.bincount(level_of)))]


def _levels(X: np.ndarray) -> np.ndarray:
    """Numbers (n,) of the combinations of values that the rows have."""
    grid = np.rint(X / (1e3 * SAME * np.maximum(np.ptp(X, axis=0), 1e-300)))
    return np.unique(grid, axis=0, return_inverse=True)[1].ravel()


def _on_common(X: np.ndarray, Y: np.ndarray, task: Task, search: Search, deadline: Deadline) -> Network | None:
    """The network in the columns X alone, as good as some searches find it.

    One that ends above rounding may have come to a local optimum twice; with noise the next one ends there again.
    """
    width = task.n_hidden or 1
    if Y.size < ENOUGH * (width * (X.shape[1] + 1 + task.n_outputs) + task.n_outputs):
        return None
    whitening = Whitening.of(X.mean(axis=0), np.atleast_2d(np.cov(X.T, bias=True)))
    if whitening.rank == 0:
        return None
    source = ArraySource(whitening.inputs(X), Y)
    smaller = replace(task, n_inputs=whitening.rank, n_samples=len(X))
    best: Finished | None = None
    for _ in range(TRIES):
        found = search(source, smaller, MAX_DESCENTS)
        again = best is not None and abs(found.rss - best.rss) <= AGAIN * best.rss
        best = found if best is None or found.rss < best.rss else best
        if best.relative_rss < task.level or again or deadline.passed:
            break
    assert best is not None
    network = unwhitened(best.network, whitening)
    assert isinstance(network, Network)
    # A unit of the network that is off in all of these samples has left its place to one that adds nothing.
    adds = np.abs(network.activation(X @ network.W.T + network.b)).max(axis=0) * np.linalg.norm(network.A, axis=0)
    useful = adds > SAME * np.abs(Y).max(initial=0.0)
    return replace(network, W=network.W[useful], b=network.b[useful], A=network.A[:, useful])


def _bring_in(
    W: np.ndarray,
    found: Network,
    moved: np.ndarray,
    Y: np.ndarray,
    differs: np.ndarray,
    k: int | None,
    rng: np.random.Generator,
    deadline: Deadline,
) -> Network:
    """With the columns of W for the rare inputs filled in, where `moved` (n, d) are the inputs less their usual values.

    A column that few samples show may get weights that no sample with another one agrees with: then both are fitted
    anew, in turn.
    """
    rare = np.flatnonzero(differs.any(axis=0))
    columns = _independent(moved, rare[np.argsort(differs[:, rare].sum(axis=0), kind="stable")])
    act = found.activation
    if act.homogeneity == 1.0 and act.odd_slope == 1.0 and found.n_outputs > 1:
        if found.n_hidden:
            found = _told_by_rows(W, found, moved, Y, differs, deadline)
            W = found.W.copy()
        if k is not None and found.n_hidden < k:
            # The others are on where rare columns have other values alone; what hides them there they may tell then.
            more = with_rest(found, moved, Y, k, UNEXPLAINED)
            if more is not None:
                found = _told_by_rows(more.W, more, moved, Y, differs, deadline)
                W = found.W.copy()
    if found.n_hidden == 0:
        return found
    wrong = _wrong(W, found, moved, Y)
    left = {j for j in columns if wrong[differs[:, j]].all()}
    while left and not deadline.passed:
        alone = differs[:, sorted(left)].sum(axis=1) == 1
        column = max(left, key=lambda j: (np.count_nonzero(differs[:, j] & alone), -j))
        rows = differs[:, column] & alone
        left.remove(column)
        if rows.any():
            refit(W, [column], rows, found, moved, Y, rng, deadline)
    tried: set[int] = set()
    for _ in within(deadline, range(SWEEPS)):
        wrong = _wrong(W, found, moved, Y)
        shown = {j: np.count_nonzero(differs[wrong, j]) for j in columns if j not in tried}
        if not max(shown.values(), default=0):
            break
        column = max(shown, key=shown.__getitem__)
        beside = differs[wrong & differs[:, column]].sum(axis=0) * np.isin(np.arange(differs.shape[1]), columns)
        group = [int(j) for j in np.argsort(-beside, kind="stable")[:TOGETHER] if beside[j]]
        others = [j for j in columns if j not in group and differs[wrong, j].any()]
        rows = np.any(differs[:, group], axis=1) & ~differs[:, others].any(axis=1)
        refit(W, group, rows, found, moved, Y, rng, deadline)
        tried = set() if np.count_nonzero(_wrong(W, found, moved, Y)) < np.count_nonzero(wrong) else tried | {column}
    return replace(found, W=W)


def _told_by_rows(
    W: np.ndarray, found: Network, moved: np.ndarray, Y: np.ndarray, differs: np.ndarray, deadline: Deadline
) -> Network:
    filled = W.copy()
    plain = replace(by_rows(filled, found, moved, Y, differs, deadline), W=filled)
    left = np.count_nonzero(_wrong(filled, plain, moved, Y))
    steady = by_rows_beside_steady(W, found, moved, Y, differs, deadline) if left else None
    return plain if steady is None or np.count_nonzero(_wrong(steady.W, steady, moved, Y)) >= left else steady


def _residual(W: np.ndarray, found: Network, moved: np.ndarray, Y: np.ndarray) -> np.ndarray:
    return found.activation(moved @ W.T + found.b) @ found.A.T + found.c - Y


def _wrong(W: np.ndarray, found: Network, moved: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Which samples are not fitted."""
    apart = np.sum(_residual(W, found, moved, Y) ** 2, axis=1)
    return apart > FITTED * np.mean(np.sum(Y**2, axis=1))


def _independent(moved: np.ndarray, rare: np.ndarray) -> list[int]:
    """The rare columns that are not combinations of the others, those that vary least first."""
    order = np.concatenate([np.setdiff1d(np.arange(moved.shape[1]), rare), rare])
    columns = moved[:, order]
    triangle = np.linalg.qr(columns, mode="r")
    size = np.maximum(np.linalg.norm(columns, axis=0), 1e-300)[: len(triangle)]
    kept = np.abs(np.diag(triangle)) > 1e-9 * size
    return [int(j) for j in order[: len(kept)][kept] if j in rare]
