"""A network and the rows it explains to rounding; what these rows say of each unit, and what they leave open.

Rows are extended, x̃ = (1, x), and a unit is v·x̃. With E the rows that the network explains, unit u has

    v·x̃ = z      for rows of E in which it is on,
    v·x̃ ≤ 0      for rows of E in which it is off,

and N_u spans the directions in which the equations leave v open. The unit is *open* in a row if x̃ N_u ≠ 0; otherwise
its value there is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.linalg import qr
from scipy.optimize import linprog

from neurecover.models import Network


@dataclass(frozen=True)
class GateOptions:
    """The constants that decide about gates; shares are of samples, and sizes are relative to the largest value
    concerned.
    """

    rounding: float = 1e-9  # values computed in double precision that differ by less are equal
    solved: float = 1e3  # times rounding: what solving equations may leave of a zero
    summed: float = 10.0  # times rounding: what adding up several values may leave of one
    alike: float = 1e-6  # directions of one unit differ by less: they are quotients of small residuals
    directions: int = 200  # rows whose direction is compared with all: a unit that is missing is in most of them
    alone: int = 6  # rows tried by themselves where all together are not explained: one of them is wrong
    most_sets: int = 100_000  # sets of units compared with a row: a second of work, and 16 units with ten outputs
    gates: int = 320  # of a mixed-integer program that still ends
    nodes: int = 2_000  # of its tree: most end within 100, ten rows of 16 units within 600 to 1,400 (digits)
    programs: int = 4  # kinds of rows that are tried with one
    farthest: tuple[float, ...] = (2.0, 20.0)  # M over the largest value in E: the larger, the less the solver sees
    tolerance: float = 1e-7  # of the largest output, to which it meets equations: about that of the solver
    rare: float = 0.9  # share with a column's usual value
    many: int = 100  # samples that show a column well enough for the search itself (measured: counts, sparse, pixels)
    base: float = 0.3  # share with all usual values that suffices to begin there; a category of many levels has less
    share: float = 0.3  # of the time left, for the search there or in levels; what explains other rows may take more
    equations: float = 2.0  # per parameter of a network that is searched for in some of the samples
    levels: int = 200  # of a category at the most
    level_units: int = 9  # 3^9 sets are compared with the rows of a level
    level_descents: int = 12  # of a search in one level
    level_agree: int = 4  # rows that agree with a sign: with 3^k sets pairs do by chance
    voting: int = 12  # levels that say which way round units are, beside two in which each of them switches
    voters: int = 200  # rows of each of these that are compared: those of one unit agree in dozens
    untold: float = 0.2  # share of a level's rows that may agree with none: with more a unit is missing
    excluding: int = 8  # rows of one level that are looked at for the one with the fewest sets of gates
    nearly: float = 1e-6  # Σ r² / Σ y² of a wide student that may lack nothing but units of few samples
    worst: float = 0.05  # share that such a student fits worst, set aside with the samples of these units
    away_steps: int = 15  # that a fit of the other units takes when the right samples are set aside
    most_aside: float = 0.25  # share that units of few samples may be on in, all together
    near: float = 0.1  # of the spread of values in levels: a row so near to its plane may be on the other side of it
    largest: int = 2_000_000  # rows times columns of a linear program


DEFAULT = GateOptions()


@dataclass(frozen=True, eq=False)
class State:
    """The network y = A·relu(V x̃) + c on extended rows X (n, D) with outputs Y (n, p)."""

    X: np.ndarray
    Y: np.ndarray
    V: np.ndarray
    A: np.ndarray
    c: np.ndarray
    options: GateOptions = DEFAULT

    @classmethod
    def of(cls, network: Network, X: np.ndarray, Y: np.ndarray, options: GateOptions = DEFAULT) -> State:
        V = np.hstack([network.b[:, None], network.W])
        return cls(np.hstack([np.ones((len(X), 1)), X]), Y, V, network.A, network.c, options)

    @cached_property
    def floor(self) -> float:
        """The largest value of an output that rounding explains."""
        return self.options.rounding * float(np.abs(self.Y).max(initial=1e-300))

    @cached_property
    def Z(self) -> np.ndarray:
        """The preactivations v·x̃ (n, k), set to 0 where a least-squares step put a row on the plane of a unit."""
        Z = self.X @ self.V.T
        return np.where(np.abs(Z) <= self.options.rounding * np.abs(Z).max(axis=0, initial=1e-300), 0.0, Z)

    @cached_property
    def residual(self) -> np.ndarray:
        return self.Y - self.c - np.maximum(self.Z, 0.0) @ self.A.T

    @cached_property
    def explained(self) -> np.ndarray:
        """A mask (n,) of the rows E that the network explains."""
        return np.linalg.norm(self.residual, axis=1) <= self.floor

    @property
    def n_explained(self) -> int:
        return int(np.count_nonzero(self.explained))

    @property
    def left(self) -> np.ndarray:
        """The indices of the rows that are not explained."""
        return np.flatnonzero(~self.explained)

    @cached_property
    def free(self) -> list[np.ndarray]:
        """N_u (f, D) of every unit."""
        return [null_space(self.X[self.explained & (z > 0.0)], self.options.rounding) for z in self.Z.T]

    @cached_property
    def open(self) -> np.ndarray:
        """A mask (n, k) of the unit values that their equations leave open."""
        return np.array([self._moves(self.X, N) for N in self.free]).reshape(len(self.V), len(self.X)).T

    def _moves(self, T: np.ndarray, free: np.ndarray) -> np.ndarray:
        """Return a mask of the rows of T in which moving along the directions `free` changes the value by more than
        rounding.
        """
        small = self.options.solved * self.options.rounding * np.linalg.norm(T, axis=1)
        return np.asarray(np.linalg.norm(T @ free.T, axis=1) > small)

    @property
    def balanced(self) -> State:
        """Return the same function with ‖a_u‖ = 1, because a solver has one tolerance for all units."""
        size = np.maximum(np.linalg.norm(self.A, axis=0), 1e-300)
        return replace(self, V=self.V * size[:, None], A=self.A / size)

    def with_values(self, rows: np.ndarray, H: np.ndarray) -> State:
        """Move units within what is open so that they have the values H (m, k) in these rows, 0 where they are off."""
        V = self.V.copy()
        for u, N in enumerate(self.free):
            if len(N):
                on, off = H[:, u] > 0.0, rows[H[:, u] <= 0.0]
                off = np.append(off, np.flatnonzero(self.explained & (self.Z[:, u] <= 0.0)))
                V[u] = self.moved(V[u], N, self.X[rows[on]], H[on, u], self.X[off])
        return replace(self, V=V)

    def moved(self, v: np.ndarray, free: np.ndarray, T: np.ndarray, z: np.ndarray, T_off: np.ndarray) -> np.ndarray:
        """Return v + θ·free with T v = z, and T_off v < 0 as far as it can be."""
        own = self._moves(T, free)
        if own.any():
            M = T[own] @ free.T
            v = v + np.linalg.lstsq(M, (z - T @ v)[own], rcond=self.options.rounding)[0] @ free
            free = null_space(M, self.options.rounding) @ free
        sums, moves = T_off @ v, T_off @ free.T
        size = max(np.abs(z).max(initial=0.0), np.abs(sums).max(initial=0.0), 1e-300)
        moving = np.abs(moves).max(axis=1, initial=0.0) > self.options.rounding * size
        if not np.any(sums[moving] > -self.options.rounding * size):
            return v
        near = self.options.near
        return v + move_apart(sums[moving], moves[moving], size, near, near) @ free


def spaces(T: np.ndarray, rounding: float) -> tuple[np.ndarray, np.ndarray]:
    """Return orthonormal bases (r, D) of the rows of T (m, D) and (D − r, D) of what they leave open.

    A singular value decomposition may not converge where hundreds of rows have few directions (OpenBLAS, gesdd).
    """
    rows = np.asarray(np.linalg.qr(T, mode="r")) if len(T) > T.shape[1] else T  # no matrix of m × m
    Q, R, _ = qr(np.hstack([rows.T, np.zeros((T.shape[1], 1))]), pivoting=True)
    sizes = np.abs(R.diagonal())
    rank = np.count_nonzero(sizes > rounding * sizes.max(initial=1e-300))
    return Q[:, :rank].T, Q[:, rank:].T


def null_space(T: np.ndarray, rounding: float) -> np.ndarray:
    """Return an orthonormal basis of the null space of T."""
    return spaces(T, rounding)[1]


def move_apart(sums: np.ndarray, moves: np.ndarray, size: float, near: float, far: float) -> np.ndarray:
    """Return the smallest θ (f,) with sums + moves·θ < 0 in all n rows, or in as many rows as possible.

    Every row has a room r ≤ far of its own, sums + moves·θ + size·r ≤ ξ, of which the first part, `near`, counts most,
    so that it is shared: where each θ is seen by few rows, the next row is on their side unless they are at the edge.
    ξ is zero where it can be.
    """
    (n, f), one = moves.shape, sparse.identity(len(moves), format="csr")
    parts = [np.hstack([moves, -moves]), size * one, -size * one, *[size * one] * (far > near)]
    ends = [2 * f, n, n, n][: len(parts)]
    cost = np.repeat([1e-3 / size, -1.0 / near, 1e3 / near, -1.0][: len(parts)], ends)
    most = np.repeat([np.inf, near, np.inf, far - near][: len(parts)], ends)
    bounds = np.column_stack([np.zeros(len(most)), most])
    found = linprog(cost, sparse.hstack([sparse.csr_matrix(parts[0]), *parts[1:]]), -sums, bounds=bounds).x
    return np.zeros(f) if found is None else found[:f] - found[f : 2 * f]


def equal_runs(values: np.ndarray, tolerance: float, least: int = 2) -> list[tuple[int, np.ndarray]]:
    """Return the runs of at least `least` equal values within a row of `values` (m, n), as row and columns, longest
    first.
    """
    order = np.argsort(values, axis=1)
    near = np.diff(np.take_along_axis(values, order, axis=1), axis=1) <= tolerance
    found: list[tuple[int, np.ndarray]] = []
    for s in np.flatnonzero(np.count_nonzero(near, axis=1) >= least - 1):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], near[s].astype(int), [0]])))
        found += [(int(s), order[s, a : b + 1]) for a, b in zip(edges[::2], edges[1::2]) if b + 1 - a >= least]
    return sorted(found, key=lambda run: -len(run[1]))
