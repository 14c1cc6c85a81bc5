"""Gates from rows that agree: rows that differ from what is known in one direction δ alone.

For rows x̃ = (known part) + τ δ units are z + τ t with z known and t = V δ not. Whatever t and c are, all rows with the
same gates S have one vector

    (y − A_S z_S) / τ = A_S t_S + c/τ        (τ being the same in all of them),

so that two rows in which it is the same for some S have these gates: an equation held to rounding that nothing was
chosen for. All 2^k sets are compared, each vector as one number along a random direction, sorted. Rows of known gates
give equations for t, and an inequality 0 < z + τ t or ≥ for every unit; a row that agrees with no other has one of the
sets that these allow (exclusion).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.optimize import linprog

from neurecover.search.gates.state import DEFAULT, GateOptions, State, equal_runs, move_apart, null_space


@dataclass(frozen=True, eq=False)
class Block:
    """Rows whose known part is equal but for multiples τ t of one direction δ: the units read by A have the values Z +
    τ t there, and the outputs leave R = y − c, accurate to `floor`.
    """

    rows: np.ndarray
    delta: np.ndarray
    tau: float
    Z: np.ndarray
    R: np.ndarray
    A: np.ndarray
    floor: float
    options: GateOptions = DEFAULT

    @classmethod
    def of(cls, state: State, rows: np.ndarray, known: np.ndarray) -> Block:
        """Return the block of rows that leave the columns `known` (D,) by the same vector."""
        delta = np.where(known, 0.0, state.X[rows[0]])
        tau = float(np.linalg.norm(delta))
        Z = state.X[rows] @ np.where(known, state.V, 0.0).T
        return cls(rows, delta / tau, tau, Z, state.Y[rows] - state.c, state.A, state.floor, state.options)

    def bounds(self, gates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the least and the largest t (k,) for Z + τ t > 0 where a gate (n, k) is 1, ≤ 0 where it is 0."""
        edge = -self.Z / self.tau
        low = np.where(gates == 1, edge, -np.inf).max(axis=0, initial=-np.inf)
        return low, np.where(gates == 0, edge, np.inf).min(axis=0, initial=np.inf)

    def sums(self, rows: np.ndarray, gates: np.ndarray) -> np.ndarray:
        """Return A_S t_S (m, p) as rows with the gates S, (m, k) or (k,), show it."""
        return (self.R[rows] - (gates * self.Z[rows]) @ self.A.T) / self.tau


def all_sets(k: int, choices: tuple[int, ...] = (0, 1)) -> np.ndarray:
    return np.array(list(product(choices, repeat=k))).reshape(-1, k)


def agreeing(block: Block, sets: np.ndarray, least: int = 2) -> list[tuple[int, np.ndarray]]:
    """Return the rows of a block that agree with one of the sets (m, k), and the index of that set, most rows first."""
    p = len(block.A)
    side = np.random.default_rng(p).standard_normal(p) if p > 1 else np.ones(1)
    values = (block.R @ side - (sets * (side @ block.A)) @ block.Z.T) / block.tau
    return equal_runs(values, float(np.abs(side).sum()) * block.floor / block.tau, least)


def gates_of(block: Block) -> np.ndarray:
    """Return the gates (n, k) of the rows that agree with others, and −1 for all other rows."""
    gates, sets = np.full(block.Z.shape, -1), all_sets(block.Z.shape[1])
    for s, own in agreeing(block, sets):
        tried = gates.copy()
        tried[own] = sets[s]
        low, high = block.bounds(tried)
        if (gates[own] < 0).all() and np.all(low <= high + block.floor):
            gates = tried
    return gates


def solve(blocks: list[Block], gates: list[np.ndarray], frame: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return weights (k, D) in the span of `frame` (q, D) that give all blocks their gates, and what to add to c.

    Equations are met to the last digit, inequalities within what they leave open.
    """
    A, options = blocks[0].A, blocks[0].options
    (p, k), equations, values, planes, edges = A.shape, [], [], [], []
    for block, own in zip(blocks, gates):
        along = frame @ block.delta
        for S in np.unique(own[own[:, 0] >= 0], axis=0):
            equations.append(np.hstack([np.kron(A * S, along), np.eye(p) / block.tau]))
            values.append(block.sums((own == S).all(axis=1), S).mean(axis=0))
        for side, edge in zip((-1.0, 1.0), block.bounds(own)):
            some = np.isfinite(edge)
            planes.append(np.hstack([np.kron(np.eye(k)[some], side * along), np.zeros((some.sum(), p))]))
            edges.append(side * edge[some])
    left, sides = np.vstack(equations), np.vstack(planes)
    x = np.linalg.lstsq(left, np.concatenate(values), rcond=options.rounding)[0]
    free = null_space(left, options.rounding)
    moves = sides @ free.T
    moving = np.abs(moves).max(axis=1, initial=0.0) > options.solved * options.rounding
    if moving.any():
        size = float(np.std(np.concatenate([block.Z.ravel() for block in blocks])))
        x = x + move_apart((sides @ x - np.concatenate(edges))[moving], moves[moving], size, options.near, 1.0) @ free
    return x[: k * len(frame)].reshape(k, len(frame)) @ frame, x[k * len(frame) :]


def by_exclusion(block: Block, gates: np.ndarray, guess: np.ndarray) -> np.ndarray:
    """Return gates for rows that agree with no others: the only sets that all other equations and inequalities allow.

    The row with the fewest such sets is first, and of its sets the likeliest, a unit being on as often as in the rows
    that are told and in `guess` (n, k): the fewer units switch for one row alone, the less was free to be chosen.
    """
    gates = gates.copy()
    while True:
        left = np.flatnonzero(gates[:, 0] < 0)[: block.options.excluding]
        allowed = {int(i): found for i in left if (found := _allowed(block, gates, int(i)))}
        row = min(allowed, key=lambda i: len(allowed[i]), default=-1)
        if row < 0:
            return gates
        known = np.vstack([gates[gates[:, 0] >= 0], guess[row]])
        on = (known.sum(axis=0) + 0.5) / (len(known) + 1.0)
        gates[row] = max(allowed[row], key=lambda S: float(np.log(np.where(S == 1, on, 1.0 - on)).sum()))


def _allowed(block: Block, gates: np.ndarray, i: int) -> list[np.ndarray]:
    """Return the sets that row i may have beside the gates of the others, where A_S t_S is known."""
    told, first = np.unique(gates, axis=0, return_index=True)
    A, rows, found = block.A, np.append(first[told[:, 0] >= 0], i), []
    for S in all_sets(A.shape[1]):
        low, high = block.bounds(np.where(np.arange(len(gates))[:, None] == i, S, gates))
        if np.any(low > high):
            continue
        own = np.vstack([gates[rows[:-1]], S])
        M, m = np.vstack([A * each for each in own]), block.sums(rows, own).ravel()
        t = np.linalg.lstsq(M, m, rcond=block.options.rounding)[0]
        if np.linalg.norm(M @ t - m) > block.options.summed * block.floor / block.tau:
            continue
        inside = np.all((low <= t) & (t <= high))
        if inside or linprog(np.zeros(len(t)), A_eq=M, b_eq=M @ t, bounds=list(zip(low, high))).status == 0:
            found.append(S)
    return found
