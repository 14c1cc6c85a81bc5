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
from neurecover.refine.settling import Finished
from neurecover.refine.task import Task

RARE = 0.9  # share of the samples in which a column has its usual value
BASE = 0.3  # share of the samples with all rare columns at their usual values; a category of many levels has fewer
ENOUGH = 2.0  # equations per parameter of the network in the common columns
SAME = 1e-9  # of a column's range: values that differ by less are one, after a whitening and back
STARTS, SOME, STEPS = 64, 100, 40  # of the fit of one column's weights: starts, samples, steps from each

SWEEPS, TOGETHER = 6, 6  # how often columns that do not agree are fitted anew, and how many at a time
FITTED = 1e-20  # Σ r² / Σ y² of a sample that is fitted

Search = Callable[[Source, Task], Finished]


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
    given: Prepared, task: Task, search: Search, rng: np.random.Generator
) -> RareStart | None:
    """Found as above; None where no column is rare, or all are.

    `search` finds the network of a task on whitened samples.
    """
    rare = _rare(given.source.collect()[0])
    if not rare.any() or rare.all() or not task.bias:
        return None
    (Z, Y), whitening, d = given.train.collect(), given.whitening, len(rare)
    back = whitening.matrix.T @ given.moments.covariance[:d, :d]  # E[z (x − mean)ᵀ], and E[z zᵀ] = 1
    nothing_more = RareStart(np.empty((0, task.n_inputs + 1)), CommonUnits(_span(back[:, ~rare])))
    X = Z @ back + whitening.mean
    usual = np.zeros(X.shape[1])
    usual[rare] = _commonest(X[:, rare])
    moved = X - usual
    differs = (np.abs(moved) > SAME * np.maximum(np.ptp(X, axis=0), 1e-300)) & rare
    base, common = ~differs.any(axis=1), np.flatnonzero(~rare)
    found = _on_common(X[base][:, common], Y[base], task, search) if np.mean(base) >= BASE else None
    if found is None:
        return nothing_more
    W = np.zeros((found.n_hidden, X.shape[1]))
    W[:, common] = found.W
    _bring_in(W, found, moved, Y, differs, rng)
    units = np.hstack([W @ back.T, (found.b + W @ (whitening.mean - usual))[:, None]])
    return replace(nothing_more, units=units)


def _rare(X: np.ndarray) -> np.ndarray:
    """The columns (d,) that vary, with one value in RARE of the samples or more, which then is the median."""
    share = np.mean(np.median(X, axis=0) == X, axis=0)
    return (share >= RARE) & (share < 1.0)


def _span(columns: np.ndarray) -> np.ndarray:
    """An orthonormal basis (r, c) of the columns."""
    left, values, _ = np.linalg.svd(columns, full_matrices=False)
    return left[:, values > SAME * values.max(initial=1e-300)]


def _commonest(X: np.ndarray) -> np.ndarray:
    """The combination of values that most rows have."""
    grid = np.rint(X / (1e3 * SAME * np.maximum(np.ptp(X, axis=0), 1e-300)))
    _, first, counts = np.unique(grid, axis=0, return_index=True, return_counts=True)
    return X[first[np.argmax(counts)]]


def _on_common(X: np.ndarray, Y: np.ndarray, task: Task, search: Search) -> Network | None:
    """The network in the columns X alone, as good as the search finds it."""
    width = task.n_hidden or 1
    if Y.size < ENOUGH * (width * (X.shape[1] + 1 + task.n_outputs) + task.n_outputs):
        return None
    whitening = Whitening.of(X.mean(axis=0), np.atleast_2d(np.cov(X.T, bias=True)))
    if whitening.rank == 0:
        return None
    source = ArraySource(whitening.inputs(X), Y)
    found = search(source, replace(task, n_inputs=whitening.rank, n_samples=len(X)))
    network = unwhitened(found.network, whitening)
    assert isinstance(network, Network)
    return network


def _bring_in(
    W: np.ndarray, found: Network, moved: np.ndarray, Y: np.ndarray, differs: np.ndarray, rng: np.random.Generator
) -> None:
    """Fill in the columns of W for the rare inputs, where `moved` (n, d) are the inputs less their usual values.

    A column that few samples show may get weights that no sample with another one agrees with: then both are fitted
    anew, in turn.
    """
    rare = np.flatnonzero(differs.any(axis=0))
    columns = _independent(moved, rare[np.argsort(differs[:, rare].sum(axis=0), kind="stable")])
    left = set(columns)
    while left:
        alone = differs[:, sorted(left)].sum(axis=1) == 1
        column = max(left, key=lambda j: (np.count_nonzero(differs[:, j] & alone), -j))
        rows = differs[:, column] & alone
        left.remove(column)
        if rows.any():
            _refit(W, [column], rows, found, moved, Y, rng)
    for _ in range(SWEEPS):
        apart = np.sum((found.activation(moved @ W.T + found.b) @ found.A.T + found.c - Y) ** 2, axis=1)
        wrong = apart > FITTED * np.mean(np.sum(Y**2, axis=1))
        if not wrong.any():
            break
        group = [j for j in columns if differs[wrong, j].any()][:TOGETHER]
        if not group:  # no rare column is to blame
            break
        _refit(W, group, np.any(differs[:, group], axis=1), found, moved, Y, rng)


def _refit(
    W: np.ndarray,
    group: list[int],
    rows: np.ndarray,
    found: Network,
    moved: np.ndarray,
    Y: np.ndarray,
    rng: np.random.Generator,
) -> None:
    """Some columns of W from some of the samples, the others given: many starts, the best of them kept."""
    before, T = W[:, group].T, moved[rows][:, group]
    Z = moved[rows] @ W.T + found.b - T @ before
    size = np.std(Z) / np.maximum(np.abs(T).max(axis=0), 1e-300) + np.linalg.norm(found.W) / np.sqrt(found.W.size)
    starts = size[:, None] * rng.standard_normal((STARTS, *before.shape))
    starts[1::2] = before + np.where(rng.random(starts[1::2].shape) < 0.3, starts[1::2], 0.0)
    starts[0], starts[1] = 0.0, before
    some = rng.permutation(len(Z))[:SOME]
    w, rss = _fitted(found, Z[some], T[some], Y[rows][some], starts)
    W[:, group] = _fitted(found, Z, T, Y[rows], w[[np.argmin(rss)]])[0][0].T


def _independent(moved: np.ndarray, rare: np.ndarray) -> list[int]:
    """The rare columns that are not combinations of the others, those that vary least first."""
    order = np.concatenate([np.setdiff1d(np.arange(moved.shape[1]), rare), rare])
    columns = moved[:, order]
    triangle = np.linalg.qr(columns, mode="r")
    size = np.maximum(np.linalg.norm(columns, axis=0), 1e-300)[: len(triangle)]
    kept = np.abs(np.diag(triangle)) > 1e-9 * size
    return [int(j) for j in order[: len(kept)][kept] if j in rare]


def _fitted(
    network: Network, Z: np.ndarray, T: np.ndarray, Y: np.ndarray, w: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """min over w (c, k) of Σ ‖y − A·act(z + wᵀt) − c‖² by Levenberg–Marquardt, from every w (s, c, k) at once.

    Returned are the w and the Σ r² of each.
    """
    shape, A = w.shape, network.A
    AA = np.tile(A.T @ A, (shape[1], shape[1]))
    eye = np.eye(len(AA))

    def at(w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        z = Z + T @ w
        R = Y - network.c - network.activation(z) @ A.T
        slope = network.activation.derivative(z)
        gated = (T[:, :, None] * slope[:, :, None, :]).reshape(len(w), len(Z), -1)
        return np.einsum("sio,sio->s", R, R), gated, (T.T @ (slope * (R @ A))).reshape(len(w), -1)

    damping, (rss, gated, gradient) = np.full(len(w), 1e-2), at(w)
    for _ in range(STEPS):
        curvature = (gated.transpose(0, 2, 1) @ gated) * AA
        scale = np.maximum(np.einsum("sjj->sj", curvature), 1e-12 * np.abs(curvature).max() + 1e-300)
        system = curvature + damping[:, None, None] * scale[:, None, :] * eye
        trial = w + np.linalg.solve(system, gradient[:, :, None]).reshape(shape)
        new = at(trial)
        better = new[0] < rss
        damping = np.where(better, np.maximum(0.2 * damping, 1e-14), np.minimum(4.0 * damping, 1e8))
        w, rss, gated, gradient = (
            np.where(better.reshape(-1, *[1] * (old.ndim - 1)), came, old)
            for came, old in zip((trial, *new), (w, rss, gated, gradient))
        )
    return w, rss
