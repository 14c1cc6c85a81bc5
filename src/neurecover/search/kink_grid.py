"""Starts from a grid of kinks, where there are one or two inputs and a grid is all there is to search.

Every plane of the grid, t·x = ψ at quantiles ψ along directions t, is a column max(t·x − ψ, 0) beside an affine part. K
of them are chosen one by one, then exchanged one by one for whichever lowers Σr² most, until none does: with H the
columns orthogonal to what is chosen, a column h takes ‖Rᵀh‖²/‖h‖² off Σr².
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.search import Task


@dataclass(frozen=True)
class GridOptions:
    """How fine the grid is, and where it is searched."""

    inputs: int = 2  # up to which a grid is not too coarse
    places: tuple[int, ...] = (60, 16)  # kinks along a direction, for one input and two
    directions: int = 16  # of two inputs: half a circle in steps of 11 degrees
    margin: float = 0.03  # share of the samples beyond the outermost kinks
    rows: int = 2_000  # that the grid looks at
    rounds: int = 10  # of exchanges
    most: int = 12  # units: beyond, a grid says little
    own: float = 1e-9  # of a column, squared, that the chosen ones do not explain: less is rounding


def grid_start(X: np.ndarray, Y: np.ndarray, task: Task, options: GridOptions | None = None) -> np.ndarray | None:
    """Return hidden weights (K, d + 1), biases last, of the best kinks of the grid; None where there is no grid."""
    options = options or GridOptions()
    K, d = task.n_hidden, X.shape[1]
    bends = task.depth == 1 and task.bias and task.activation.homogeneity == 1.0 and bool(task.activation.odd_slope)
    if not bends or K is None or options.most < K or not 0 < d <= options.inputs:
        return None
    step = max(1, len(X) // options.rows)
    X, Y = X[::step][: options.rows], Y[::step][: options.rows]
    angles = np.pi * np.arange(options.directions) / options.directions
    T = np.ones((1, 1)) if d == 1 else np.column_stack([np.cos(angles), np.sin(angles)])
    shares = np.linspace(options.margin, 1.0 - options.margin, options.places[d - 1])
    planes = np.vstack([np.column_stack([np.tile(t, (len(shares), 1)), -np.quantile(X @ t, shares)]) for t in T])
    H = np.maximum(X @ planes[:, :d].T + planes[:, d], 0.0)
    chosen: list[int] = []
    for _ in range(min(K, len(planes))):
        chosen.append(_best(H, X, Y, chosen, options))
    for _ in range(options.rounds):
        before = list(chosen)
        for place in range(len(chosen)):
            others = chosen[:place] + chosen[place + 1 :]
            chosen[place] = _best(H, X, Y, others, options)
        if chosen == before:
            break
    return planes[chosen]


def _best(H: np.ndarray, X: np.ndarray, Y: np.ndarray, chosen: list[int], options: GridOptions) -> int:
    """Return the column that lowers Σr² most beside the affine part and the chosen ones."""
    Q = np.linalg.qr(np.column_stack([np.ones(len(X)), X, H[:, chosen]]))[0]
    R = Y - Q @ (Q.T @ Y)
    left = H - Q @ (Q.T @ H)
    size = np.einsum("ij,ij->j", left, left)
    own = size > options.own * np.einsum("ij,ij->j", H, H)
    gain = np.where(own, np.sum((left.T @ R) ** 2, axis=1) / np.where(own, size, 1.0), 0.0)
    return int(np.argmax(gain))
