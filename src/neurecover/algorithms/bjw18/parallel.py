"""Fewer outputs than units: samples on which a single unit is on [BJW18, Alg. 7].

With W of rank k every pattern of units being on or off occurs, so some samples have exactly one unit on, and there
y = aᵢ·relu(wᵢ·x): the outputs of two such samples are parallel, while other samples have outputs in general position.
Groups of samples with the same direction of y therefore give the columns aᵢ, and each group a linear system for wᵢ.

Equal directions are found by sorting: directions on the sphere are projected to a random line, neighbours there are
compared in full, n log n instead of n² pairs. Units found are taken off the outputs, after which only one of the others
needs to be on: the κ^O(k) samples of Theorem 11 are needed for the first units alone.

A pair of columns a and −βa shares a line, which Theorem 11 allows and Algorithm 7 does not treat: with both units on,
y is on the same line too, so that the group of +a follows one of two linear pieces, w·x or (w − βw′)·x. Both vanish on
their samples (x, c), c the length of y along a, in the quadratic polynomial

    (c − p·x)(c − q·x) = ζᵀ M ζ,     ζ = (x, c),   M ∝ sym(a bᵀ),   a = (−p, 1), b = (−q, 1),

found as a null vector of the products of ζ. Its gradient M ζ at a sample of the first piece is a multiple of a, at one
of the second of b: every sample names its own piece, and the consensus of each piece is a linear system solved again at
full accuracy. Of the four pieces of the two groups the one that occurs with both signs is the difference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover import activations
from neurecover.activations import Activation
from neurecover.algorithms.base import BEST, PAPER, Algorithm, Call
from neurecover.algorithms.bjw18.options import EXACT, SOLVED, PieceOptions
from neurecover.algorithms.bjw18.patterns import null_vector, with_outputs
from neurecover.data import subsample
from neurecover.models import Network
from neurecover.results import Estimate
from neurecover.search import Task

RELU = activations.get("relu")
OPTIONS = PieceOptions()


@dataclass(frozen=True)
class OneSparse:
    """The network of the units found, the relative residual on the samples, and the sizes of the groups behind them."""

    network: Network
    residual: float
    groups: tuple[int, ...]

    @property
    def exact(self) -> bool:
        return self.residual <= EXACT


@dataclass(frozen=True)
class _Group:
    """Samples whose outputs have the same direction, y = c·direction with c > 0."""

    direction: np.ndarray
    rows: np.ndarray
    lengths: np.ndarray


@dataclass(frozen=True)
class _Unit:
    """column·act(w·x), from a group of n_samples."""

    w: np.ndarray
    column: np.ndarray
    n_samples: int


def one_sparse(
    X: np.ndarray,
    Y: np.ndarray,
    k: int | None,
    rng: np.random.Generator,
    activation: Activation = RELU,
    *,
    printed: bool = False,
    options: PieceOptions = OPTIONS,
) -> OneSparse:
    """Find the network of k units, or of as many as the groups show, behind noiseless X (n, d) and Y (n, p).

    activation is a power of relu [BJW18, §9.1]: on a unit's own samples y = a act(w·x), and act⁻¹ makes that linear.
    Units found are taken off the outputs, and the search goes on among the samples where a single one of the others
    is on; `printed` looks once, as Algorithm 7 does, and at no line that two columns share.
    """
    d = X.shape[1]
    units: list[_Unit] = []
    rest = Y
    while k is None or len(units) < k:
        groups = parallel_groups(rest, rng, float(np.abs(Y).max(initial=0.0)), options)
        groups = [group for group in groups if len(group.rows) > d]
        lines = [(group, None) for group in groups] if printed else _by_line(groups, options)
        fresh = [
            unit for group, opposite in lines for unit in _units_of_line(X, group, opposite, rng, activation, options)
        ]
        if not fresh:
            break
        units += sorted(fresh, key=lambda unit: -unit.n_samples)[: None if k is None else k - len(units)]
        if printed:
            break
        W = np.array([unit.w for unit in units])
        rest = Y - activation(X @ W.T) @ np.array([unit.column for unit in units])
    W = np.array([unit.w for unit in units]).reshape(-1, d)
    network, residual = with_outputs(X, Y, W, activation)
    return OneSparse(network, residual, tuple(unit.n_samples for unit in units))


def parallel_groups(
    Y: np.ndarray, rng: np.random.Generator, scale: float, options: PieceOptions = OPTIONS
) -> list[_Group]:
    """Return the groups of two or more samples with one direction of y, largest first; `scale` is the size of what was
    added up.

    An entry carries about 1e-15·scale of rounding, so outputs shorter than `shortest`·scale have no direction to
    the accuracy `parallel`.
    """
    lengths = np.linalg.norm(Y, axis=1)
    live = np.flatnonzero(lengths > options.shortest * scale)
    directions = Y[live] / lengths[live, None]
    # Equal directions are neighbours on any line; on a random one others hardly ever come between them.
    order = np.argsort(directions @ rng.standard_normal(Y.shape[1]))
    live, directions = live[order], directions[order]
    same = np.linalg.norm(np.diff(directions, axis=0), axis=1) <= options.parallel
    starts = np.flatnonzero(np.concatenate([[True], ~same])) if len(live) else np.zeros(0, dtype=int)
    stops = np.append(starts[1:], len(live))
    groups = []
    for start, stop in zip(starts, stops):
        if stop - start >= 2:
            direction = directions[start:stop].mean(axis=0)
            direction /= np.linalg.norm(direction)
            rows = np.sort(live[start:stop])
            groups.append(_Group(direction, rows, Y[rows] @ direction))
    return sorted(groups, key=lambda g: -len(g.rows))


def _by_line(groups: list[_Group], options: PieceOptions) -> list[tuple[_Group, _Group | None]]:
    """Return every group with the one of opposite direction, if there is one."""
    paired, taken = [], set()
    for i, group in enumerate(groups):
        if i in taken:
            continue
        others = (j for j in range(i + 1, len(groups)) if j not in taken)
        opposite = (j for j in others if np.linalg.norm(groups[j].direction + group.direction) <= options.parallel)
        j = next(opposite, None)
        taken.add(j)
        paired.append((group, None if j is None else groups[j]))
    return paired


def _units_of_line(
    X: np.ndarray,
    group: _Group,
    opposite: _Group | None,
    rng: np.random.Generator,
    activation: Activation,
    options: PieceOptions,
) -> list[_Unit]:
    """Return the units, one or two, whose output weights lie along this line; [] if the samples leave them open."""
    pieces = linear_pieces(X[group.rows], activation.inverse(group.lengths), rng, options)
    if opposite is None:
        return [_Unit(p, group.direction, len(group.rows)) for p in pieces] if len(pieces) == 1 else []
    others = linear_pieces(X[opposite.rows], activation.inverse(opposite.lengths), rng, options)
    # p, p − q and q, q − p: leave out the piece that is minus one of the other group.
    first = [p for p in pieces if not any(_close(p, -q) for q in others)]
    second = [q for q in others if not any(_close(-p, q) for p in pieces)]
    units = [_Unit(p, group.direction, len(group.rows)) for p in first] if len(first) == 1 else []
    return units + ([_Unit(q, opposite.direction, len(opposite.rows)) for q in second] if len(second) == 1 else [])


def linear_pieces(
    X: np.ndarray, c: np.ndarray, rng: np.random.Generator, options: PieceOptions = OPTIONS
) -> list[np.ndarray]:
    """Return one or two vectors p such that every sample has c = p·x for one of them, or an empty list.

    Where one of two pieces has too few samples to be determined, only the other is returned.
    """
    p, misfit = _linear(X, c)
    if misfit <= SOLVED:
        return [p]
    mine = _by_gradient(X, c)
    if mine is None:
        mine = _by_consensus(X, c, rng, options)
    pieces = []
    for part in (mine, ~mine):
        if np.count_nonzero(part) > X.shape[1]:
            p, misfit = _linear(X[part], c[part])
            if misfit > SOLVED:
                return []
            pieces.append(p)
    return pieces


def _by_gradient(X: np.ndarray, c: np.ndarray) -> np.ndarray | None:
    """Return which samples are on the piece of the longest one, by the quadratic that vanishes on two pieces; None if
    no such quadratic exists.
    """
    zeta = np.column_stack([X / np.sqrt(np.mean(X**2)), c / np.sqrt(np.mean(c**2))])
    m = zeta.shape[1]
    i, j = np.triu_indices(m)
    if len(zeta) < len(i):
        return None
    coefficients, null, second = null_vector(zeta[:, i] * zeta[:, j])
    if null > 1e-10 or second < 1e-7:
        return None
    M = np.zeros((m, m))
    M[i, j] = coefficients
    gradients = zeta @ (M + M.T)
    gradients /= np.maximum(np.linalg.norm(gradients, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    along = np.abs(gradients @ gradients[int(np.argmax(c))])
    return along > 0.5 * (1.0 + float(along.min()))


def _by_consensus(X: np.ndarray, c: np.ndarray, rng: np.random.Generator, options: PieceOptions) -> np.ndarray:
    """Return the samples that agree with the linear piece on which most agree, among those through d random samples."""
    (n, d), m, few = X.shape, options.trials, slice(options.voters)
    draws = np.argsort(rng.random((m, n)), axis=1)[:, :d] if n < 4 * d else rng.integers(n, size=(m, d))
    systems, right = X[draws], c[draws]
    regular = np.abs(np.linalg.det(systems / np.linalg.norm(systems, axis=2, keepdims=True))) > 1e-6
    if not regular.any():
        return np.ones(n, dtype=bool)
    candidates = np.linalg.solve(systems[regular], right[regular][..., None])[..., 0]
    close = 1e-7 * np.abs(c).max()
    votes = np.count_nonzero(np.abs(X[few] @ candidates.T - c[few, None]) <= close, axis=0)
    return np.abs(X @ candidates[int(np.argmax(votes))] - c) <= close


def _linear(X: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, float]:
    p = np.linalg.lstsq(X, c, rcond=None)[0]
    return p, float(np.abs(X @ p - c).max() / np.abs(c).max())


def _close(p: np.ndarray, q: np.ndarray) -> bool:
    return bool(np.linalg.norm(p - q) <= 1e-7 * np.linalg.norm(p))


def _refuse(task: Task) -> str | None:
    if task.bias:
        return "one_sparse is for networks without biases: pass bias=False (--no-bias)."
    if not task.activation.rectified or task.activation.homogeneity is None:
        return f"one_sparse needs relu or a power of it. Got {task.activation} instead."
    if task.n_outputs == 1 and task.n_hidden is not None and task.n_hidden > 2:
        return (
            "With one output one_sparse finds at most two units, of opposite signs: columns of A may not be positive "
            f"multiples of each other. Got {task.n_hidden} units instead; use least_squares."
        )
    if task.n_hidden is not None and task.n_hidden > task.n_inputs:
        return f"one_sparse needs W of rank k. Got {task.n_hidden} units and {task.n_inputs} inputs instead."
    return None


def _run(call: Call) -> Estimate:
    options, task = call.options_as(PieceOptions), call.task
    X, Y = subsample(call.source, options.most_rows, int(call.rng.integers(2**31))).collect()
    found = one_sparse(X, Y, task.n_hidden, call.rng, task.activation, printed=call.form == PAPER, options=options)
    sizes = ", ".join(str(size) for size in found.groups) or "0"
    note = f"{sizes} samples with parallel outputs; relative residual {found.residual:.1e}"
    if found.exact:
        return Estimate(found.network, (f"all {found.network.n_hidden} units exact; {note}",), details=found)
    wanted = "" if task.n_hidden is None else f" of {task.n_hidden}"
    reason = (
        f"{found.network.n_hidden}{wanted} units have more than {X.shape[1]} samples on which they alone are on: give "
        f"more samples, or the outputs are noisy; {note}"
    )
    return Estimate(None, (reason,), (found.network.W,) if found.network.n_hidden else (), found)


ALGORITHM = Algorithm(
    name="one_sparse",
    paper="BJW18, Algorithm 7",
    assumes="no biases, no noise; relu or a power of it; fewer outputs than units, down to one for a unit per sign; "
    "W of rank k; samples with one unit on",
    refuse=_refuse,
    run=_run,
    forms=(BEST, PAPER),
    options={BEST: PieceOptions, PAPER: PieceOptions},
)
