"""Biases of known units in groups of samples that agree in all rare columns, and the weights of these columns.

With w_j and a_j known, a group g of samples has k unknown biases and, for a moment, constants of its own,

    y = Σ_j a_j relu(w_j·x + β_jg) + γ_g,        β_jg = b_j + w_j^R·r_g.

Many starts at once fit most of its samples. A sample that is not fitted is one of a few on the other side of some unit,
and tells that unit's bias by itself. The constants are one for all groups, and the biases linear in the weights w^R.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import lsq_linear, nnls

from neurecover.models import Network
from neurecover.refine.rare_fits import FITTED, refit
from neurecover.refine.task import Task
from neurecover.solve import Deadline

MOST_LEVELS = 200
ATTEMPTS = 8  # to fit all samples of a group
SAME = 1e-9  # of the largest output: constants that differ by less are one
HOPELESS = 8  # groups of which none is fitted
LOOKED_AT, SECOND = 12, 24  # samples of a group that are not fitted; first changes that a second one may follow
SOFT = 1e-4  # weight of a bias that only keeps a unit on, or off, beside one of a unit that switches


@dataclass(frozen=True)
class Levels:
    """Samples X (n, d), Y (n, p), which columns are `rare` (d,), and the combination of their values in a row (n,)."""

    X: np.ndarray
    Y: np.ndarray
    rare: np.ndarray
    level_of: np.ndarray

    @property
    def count(self) -> int:
        return int(self.level_of.max()) + 1

    def suit(self, task: Task) -> bool:
        """Whether they are few enough, and units those that have a bend and nothing else."""
        act = task.activation
        return act.homogeneity == 1.0 and act.odd_slope == 1.0 and 1 < self.count <= MOST_LEVELS

    def group(self, level: int) -> tuple[np.ndarray, np.ndarray]:
        """The common columns and the outputs of one level."""
        rows = self.level_of == level
        return self.X[rows][:, ~self.rare], self.Y[rows]

    def values(self) -> np.ndarray:
        """r_g: what the rare columns are in every level, (levels, rare columns)."""
        return self.X[np.unique(self.level_of, return_index=True)[1]][:, self.rare]


def groups_fitted(network: Network, levels: Levels, task: Task, deadline: Deadline) -> Network | None:
    """The network with other weights on the rare columns, where a group has samples that it does not fit."""
    if not levels.suit(task):
        return None
    biases = levels.values() @ network.W[:, levels.rare].T + network.b
    start = np.hstack([biases, np.tile(network.c, (len(biases), 1))])
    return with_rare_columns(network.W[:, ~levels.rare], network.A, start, levels, task, deadline)


def with_rare_columns(
    W: np.ndarray, A: np.ndarray, start: np.ndarray, levels: Levels, task: Task, deadline: Deadline
) -> Network | None:
    """Biases for every group, and the weights of the rare columns that give them; None where that fails.

    W (k, c) and A (p, k) are known, start (groups, k + p) are biases and constants to begin with.
    """
    X, Y, rare = levels.X, levels.Y, levels.rare
    rng = np.random.default_rng(len(X))  # of its own, so that the same samples are fitted alike
    k, n_groups = len(W), len(start)
    floor = FITTED * float(np.mean(np.sum(Y**2, axis=1)))
    biases, whole = start.copy(), np.zeros(n_groups, dtype=bool)
    least, weight = np.zeros((n_groups, k)), np.zeros((n_groups, k))
    for g in range(n_groups):
        common, values = levels.group(g)
        T = common @ W.T
        bias, fitted = _fit(start[g], T, values, A, floor, task, rng, deadline)
        if np.mean(fitted) > 0.5:
            on = T + bias[:k] > 0.0
            biases[g], whole[g], least[g] = bias, fitted.all(), (T + bias[:k]).min(axis=0)
            weight[g] = np.where(on.any(axis=0) & ~on.all(axis=0), 1.0, SOFT)
        if deadline.passed or (g + 1 == HOPELESS and not weight.any()):
            return None
    same = SAME * float(np.abs(Y).max())
    constant = _one_constant(biases, A, least, whole, same)
    for g in map(int, np.flatnonzero(whole & (np.abs(biases[:, k:] - constant).max(axis=1) > same))):
        # With another constant a unit that one sample shows may have fitted all the same.
        common, values = levels.group(g)
        start_again = np.append(biases[g, :k], constant)
        bias, fitted = _fit(start_again, common @ W.T, values, A, floor, task, rng, deadline, free=False)
        if fitted.all():
            biases[g] = bias
    values = np.hstack([levels.values(), np.ones((n_groups, 1))])
    full, b = np.zeros((k, X.shape[1])), np.zeros(k)
    full[:, ~rare] = W
    for j in range(k):
        solution = np.linalg.lstsq(values * weight[:, j, None], biases[:, j] * weight[:, j], rcond=1e-12)[0]
        full[j, rare], b[j] = solution[:-1], solution[-1]
    return Network(full, b, A, np.zeros(Y.shape[1]), task.activation)


def _fit(
    start: np.ndarray,
    T: np.ndarray,
    Y: np.ndarray,
    A: np.ndarray,
    floor: float,
    task: Task,
    rng: np.random.Generator,
    deadline: Deadline,
    free: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Biases and constants of one group that fit most of its samples, and which; the constants may not be `free`."""
    k, bias = A.shape[1], _improved(start, T, Y, A, floor, free)
    fitted = _misfit(bias, T, Y, A) <= floor
    # Where a unit is not among them the samples at which it switches are not fitted by any biases.
    for _ in range(ATTEMPTS if k == (task.n_hidden or k) else 1):
        if fitted.all():
            break
        begun = _group_biases(T, Y - (0.0 if free else start[k:]), A, bias[:k], task, rng, deadline, free)
        came = _improved(begun if free else np.append(begun[:k], start[k:]), T, Y, A, floor, free)
        now = _misfit(came, T, Y, A) <= floor
        bias, fitted = (came, now) if now.sum() > fitted.sum() else (bias, fitted)
    return bias, fitted


def _one_constant(biases: np.ndarray, A: np.ndarray, least: np.ndarray, whole: np.ndarray, same: float) -> np.ndarray:
    """The same constants for all groups: a unit that is on throughout a group may have a part of the group's.

    least (groups, k) is the least value m_j of every unit in a group; one that is positive stays so. A group with the
    constants γ_g can have others γ if γ_g − γ = Σ_j a_j t_j with t_j ≥ −m_j over its units on throughout: all that lie
    to one side, for one unit, and none but its own without any. Every group that is fitted rightly can have the true
    ones, so that they are those of a group, first of one without such units, that most groups can have.
    """
    k, always = A.shape[1], least > 0.0

    def can_have(g: int, constant: np.ndarray) -> bool:
        part = A * np.where(always[g], 1.0, 0.0)
        return bool(nnls(part, biases[g, k:] - constant + part @ least[g])[1] <= same)

    groups = sorted(map(int, np.flatnonzero(whole)), key=lambda g: always[g].any())
    votes = [sum(can_have(g, biases[own, k:]) for g in groups) for own in groups]
    constant = biases[groups[int(np.argmax(votes))], k:].copy() if groups else np.zeros(len(A))
    for g in np.flatnonzero(always.any(axis=1)):
        on = np.flatnonzero(always[g])
        share = lsq_linear(A[:, on], biases[g, k:] - constant, (-least[g, on], np.inf)).x
        biases[g, on] += share
        biases[g, k:] -= A[:, on] @ share
    return constant


def _group_biases(
    T: np.ndarray,
    Y: np.ndarray,
    A: np.ndarray,
    start: np.ndarray,
    task: Task,
    rng: np.random.Generator,
    deadline: Deadline,
    free: bool,
) -> np.ndarray:
    """The biases (k,) of one group and its constants, if `free`, those that fit most of its samples."""
    n, p = len(Y), Y.shape[1] if free else 0
    # Two more units an output, one up and one down, stand for a constant; a column of ones has the biases.
    up = np.eye(len(A), p)
    network = Network(np.zeros((len(start) + 2 * p, 1)), None, np.hstack([A, up, -up]), None, task.activation)
    moved = np.hstack([T, np.zeros((n, 2 * p)), np.ones((n, 1))])
    W = np.hstack([np.eye(len(start) + 2 * p), np.concatenate([start, np.zeros(2 * p)])[:, None]])
    refit(W, [W.shape[1] - 1], np.ones(n, dtype=bool), network, moved, Y, rng, deadline)
    found, more, less = np.split(W[:, -1], [len(start), len(start) + p])
    return np.concatenate([found, np.maximum(more, 0.0) - np.maximum(less, 0.0)])


def _misfit(bias: np.ndarray, T: np.ndarray, Y: np.ndarray, A: np.ndarray) -> np.ndarray:
    """‖r‖² of every sample, for biases and constants (…, k + p)."""
    k = A.shape[1]
    R = np.maximum(T + bias[..., None, :k], 0.0) @ A.T + bias[..., None, k:] - Y
    return np.einsum("...no,...no->...n", R, R)


def _improved(
    bias: np.ndarray, T: np.ndarray, Y: np.ndarray, A: np.ndarray, floor: float, free: bool = True
) -> np.ndarray:
    """One bias changed, or two, so that a sample that is not fitted is, as long as more samples are fitted then."""

    def fitted(tries: np.ndarray) -> np.ndarray:
        return np.count_nonzero(_misfit(tries, T, Y, A) <= floor, axis=-1)

    count = int(fitted(bias))
    while count < len(Y):
        tries = _changes(bias, T, Y, A, floor, free)
        counts = fitted(tries)
        if counts.max() <= count:  # two units may share a sample, and the first change then costs another one
            near = tries[np.argsort(-counts, kind="stable")[:SECOND]]
            tries = np.concatenate([_changes(each, T, Y, A, floor, free) for each in near])
            counts = fitted(tries)
        if counts.max() <= count:
            break
        bias, count = tries[int(np.argmax(counts))], int(counts.max())
    return bias


def _changes(bias: np.ndarray, T: np.ndarray, Y: np.ndarray, A: np.ndarray, floor: float, free: bool) -> np.ndarray:
    """Biases (m, k + p), each of which fits a sample that these do not fit.

    A unit that is on at the sample and should not be, or the other way round, tells its bias there. Another unit, or
    the constant, may have to make up for the change everywhere else. Two units that make up for each other are both off
    at a sample, or both on, and should not be, if r = −a_i |z_i| − a_j |z_j| there: that is the same wherever they move
    to, and they have to move no further than both have reached the sample.
    """
    k, size = A.shape[1], np.einsum("oj,oj->j", A, A)
    i = np.flatnonzero(_misfit(bias, T, Y, A) > floor)[:LOOKED_AT]
    Z = T[i] + bias[:k]
    R = Y[i] - np.maximum(Z, 0.0) @ A.T - bias[k:]
    along = R @ A / size  # the residual in units of each kink
    on = along + np.maximum(Z, 0.0) - Z  # what to add to the bias where the unit is to be on at the sample
    off = -along - np.maximum(Z, 0.0)  # and where it is to be off, something else making up for it
    tries = [bias]
    for j in range(k):
        tries += [_changed(bias, {j: change}) for change in on[:, j]]
        for change in off[:, j]:
            ratio = A[:, j] @ A / size * change
            tries += [_changed(bias, {j: change, other: -ratio[other]}) for other in range(k) if other != j]
            if free:
                tries.append(_changed(bias, {j: change, **{k + o: -A[o, j] * change for o in range(len(A))}}))
        ratio = A[:, j] @ A / size
        missing = (R + np.outer(np.abs(Z[:, j]), A[:, j]))[:, None] + np.abs(Z)[:, :, None] * A.T
        both = (np.sum(missing**2, axis=2) <= floor) & (Z * Z[:, [j]] > 0.0)
        tries += [_changed(bias, {j: -Z[row, j], other: ratio[other] * Z[row, j]}) for row, other in np.argwhere(both)]
    return np.array(tries)


def _changed(bias: np.ndarray, by: dict[int, float]) -> np.ndarray:
    bias = bias.copy()
    for index, change in by.items():
        bias[index] += change
    return bias
