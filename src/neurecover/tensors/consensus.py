"""Find the row space of a low-rank matrix with many wrong entries, by the agreement of small blocks.

Let L = C Bᵀ with B (p, k), and let some entries of Y = L + S be arbitrarily wrong. k rows that are clean on k + 1
columns J have one null vector v. On J, v annihilates every other clean row and no row with an error, so Y_J v = 0 up to
rounding is a vote that does not occur by chance [Fischler, Bolles 1981]. With a share q of wrong entries, a draw is
clean with probability (1 − q)^{k(k+1)}: 1 in 28 at k = 5 and q = 10 %, 1 in 800 at 20 %; thousands are drawn at once.

The rows that v annihilates, without those that v was computed from, must have rank k. Otherwise k − 1 clean rows that
are linearly dependent with many others, for instance because a unit is off, would let a wrong row pass.

The rows that agree on J determine the other columns, and all columns determine all rows, each from the k entries with
which most other entries agree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ConsensusOptions:
    """When rows count as agreeing, and how many blocks are drawn."""

    agrees: float = 1e-8  # relative: far above rounding, far below the residuals of wrong entries
    condition: float = 1e-5  # of a block of k rows; below it the null vector has fewer digits than `agrees` needs
    witnesses: int = 200  # rows that vote on every draw
    at_once: int = 4_000  # draws
    most_draws: int = 200_000
    worst: float = 0.2  # share of wrong entries for which the number of draws suffices, if `most_draws` allows it
    expected: float = 10.0  # expected number of clean draws; one suffices, but some have dependent rows
    subsets: int = 200  # of entries that are tried to determine the coordinates of a row


DEFAULTS = ConsensusOptions()


def low_rank_by_consensus(
    Y: np.ndarray, k: int, rng: np.random.Generator, options: ConsensusOptions = DEFAULTS
) -> tuple[np.ndarray, np.ndarray] | None:
    """Find the row space B (p, k) of the low-rank part of Y (n, p), p ≥ k + 2, and a mask of the wrong entries.

    A row in which no k + 2 entries agree is masked completely. Return None if no row space is agreed upon.
    """
    p = Y.shape[1]
    start = _agreed_columns(Y, k, rng, options)
    if p < k + 2 or start is None:
        return None
    J, v = start
    J_basis = np.linalg.svd(v[None, :])[2][1:].T
    agree = _annihilated(Y[:, J], v, options.agrees)
    C = Y[np.ix_(agree, J)] @ J_basis
    B, off = _agreed_coordinates(Y[agree].T, C, rng, options)
    if off.all(axis=1).any():
        return None
    B = np.linalg.qr(B)[0]
    _, mask = _agreed_coordinates(Y, B, rng, options)
    return B, mask


def _agreed_columns(
    Y: np.ndarray, k: int, rng: np.random.Generator, options: ConsensusOptions
) -> tuple[np.ndarray, np.ndarray] | None:
    """Find k + 1 columns J and the unit v (k + 1,) with Y_J v = 0 on every row that is clean there."""
    rows = np.flatnonzero(np.any(Y != 0.0, axis=1))
    if len(rows) < 4 * k or k >= Y.shape[1]:
        return None
    n_draws = int(min(options.expected / (1.0 - options.worst) ** (k * (k + 1)), options.most_draws))
    for first in range(0, n_draws, options.at_once):
        m = min(options.at_once, n_draws - first)
        J = rng.choice(Y.shape[1], k + 1, replace=False)
        drawn = rows[rng.integers(len(rows), size=(m, k))]
        blocks = Y[drawn][:, :, J]
        Q, R = np.linalg.qr(np.swapaxes(blocks, 1, 2), mode="complete")
        pivots = np.abs(np.diagonal(R, axis1=1, axis2=2))
        sound = pivots.min(axis=1) > options.condition * pivots.max(axis=1)
        nulls = Q[sound, :, -1]
        witnesses = Y[np.ix_(rng.choice(rows, min(options.witnesses, len(rows)), replace=False), J)]
        votes = np.count_nonzero(_annihilated(witnesses, nulls.T, options.agrees), axis=0)
        for i in np.argsort(-votes)[:5]:
            others = np.setdiff1d(rows, drawn[sound][i])
            agreed = Y[np.ix_(others, J)]
            agreed = agreed[_annihilated(agreed, nulls[i], options.agrees)]
            if len(agreed) >= 2 * k and np.linalg.matrix_rank(agreed, 1e-6 * np.linalg.norm(agreed)) == k:
                return J, np.linalg.svd(agreed, full_matrices=True)[2][-1]
    return None


def _annihilated(rows: np.ndarray, v: np.ndarray, agrees: float) -> np.ndarray:
    """Return a mask of the nonzero rows (m, k + 1) that are orthogonal to the unit vectors v (k + 1, …)."""
    sizes = np.linalg.norm(rows, axis=1)
    limits = np.where(sizes > 0.0, agrees * sizes, -1.0)
    return np.abs(rows @ v) <= (limits[:, None] if v.ndim > 1 else limits)


def _agreed_coordinates(
    Y: np.ndarray, B: np.ndarray, rng: np.random.Generator, options: ConsensusOptions
) -> tuple[np.ndarray, np.ndarray]:
    """Find for every row y of Y (m, q) the c (k,) with y = B c on most entries, and the mask (m, q) of the others.

    Each c solves k random entries exactly; of many such subsets, the one with which most entries agree is kept. Fewer
    than k + 2 agreeing entries count as none, because k always agree.
    """
    k = B.shape[1]
    limits = options.agrees * np.linalg.norm(B, axis=1).max() * np.linalg.norm(Y, np.inf, axis=1, keepdims=True)
    C = np.zeros((len(Y), k))
    off = np.ones(Y.shape, dtype=bool)
    most = np.full(len(Y), k + 1)
    for _ in range(options.subsets):
        S = rng.choice(len(B), k, replace=False)
        if np.linalg.cond(B[S]) > 1.0 / options.condition:
            continue
        tried = np.linalg.solve(B[S], Y[:, S].T).T
        wrong = np.abs(Y - tried @ B.T) > limits
        count = Y.shape[1] - np.count_nonzero(wrong, axis=1)
        better = count > most
        C[better], off[better], most[better] = tried[better], wrong[better], count[better]
    return C, off
