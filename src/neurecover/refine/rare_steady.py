"""Units that are on in every row where the rare columns have their usual values, and off in some of the others.

Where such a unit is always on it is affine, A_u z, and which way round it is, how large its bias is and how much of it
is in c cannot be seen. What the other rows say of the other units they say in the outputs orthogonal to A_u as well.
With these known the unit's own value η is left over,

    η = z in the rows where it is on,        η = κ, one number, in those where it is off,

and the unit is s·relu(s (z − κ)) + κ, with s = 1 if κ lies below the values of z and −1 if above.
"""

from __future__ import annotations

import numpy as np

from neurecover.models import Network
from neurecover.refine.rare_fits import fitting_most
from neurecover.refine.rare_rows import SAME, by_rows
from neurecover.solve import Deadline


def by_rows_beside_steady(
    W: np.ndarray, found: Network, moved: np.ndarray, Y: np.ndarray, differs: np.ndarray, deadline: Deadline
) -> Network | None:
    """The network with the weights of the rare columns that the rows with other values tell; None without such units.

    W (k, d) are its weights so far.
    """
    rows, rare = np.any(differs, axis=1), np.any(differs, axis=0)
    steady = np.all(moved[~rows] @ W.T + found.b > 0.0, axis=0)
    A_s, A_o = found.A[:, steady], found.A[:, ~steady]
    n_steady = A_s.shape[1]
    if not 0 < n_steady < min(len(A_s), found.n_hidden) or np.linalg.matrix_rank(A_s) < n_steady:
        return None
    beside = np.linalg.qr(A_s, mode="complete")[0][:, n_steady:]
    others = Network(W[~steady], found.b[~steady], beside.T @ A_o, found.c @ beside, found.activation)
    W_others = others.W.copy()
    others = by_rows(W_others, others, moved, Y @ beside, differs, deadline)
    h = np.maximum(moved[rows] @ W_others.T + others.b, 0.0)
    missed = np.linalg.norm(h @ others.A.T + others.c - Y[rows] @ beside, axis=1)
    known = missed <= SAME * np.abs(Y).max(initial=0.0)
    if not known.any():
        return None
    left = np.linalg.lstsq(A_s, (Y[rows] - found.c - h @ A_o.T).T, rcond=None)[0].T
    W, b, A, c = W.copy(), found.b.copy(), found.A.copy(), found.c.copy()
    W[~steady], b[~steady] = W_others, others.b
    for u, eta in zip(np.flatnonzero(steady), left[known].T):
        W[u], side, kappa = _turned(W[u], b[u], moved[rows][known], rare, eta)
        W[u], b[u], A[:, u] = side * W[u], side * (b[u] - kappa), side * A[:, u]
        c += found.A[:, u] * kappa
    return Network(W, b, A, c, found.activation)


def switched_by_others(network: Network, X: np.ndarray, Y: np.ndarray, fitted: np.ndarray) -> Network:
    """The network, fitted to some of the rows, with its units that are on in all of these turned as the others say.

    Their weights are known. A row that nothing but such a unit leaves unexplained gives its η, as above.
    """
    for u in np.flatnonzero(np.all(X[fitted] @ network.W.T + network.b > 0.0, axis=0)):
        a, z = network.A[:, u], X @ network.W[u] + network.b[u]
        rest = Y - network(X) + np.outer(np.minimum(z, 0.0), -a)  # beside a unit that is never off
        along = rest @ a / (a @ a)
        own = np.linalg.norm(rest - np.outer(along, a), axis=1) <= SAME * np.abs(Y).max(initial=0.0)
        if np.count_nonzero(own & ~fitted) > 1:
            _, side, kappa = _turned(network.W[u], network.b[u], X[own], np.zeros(X.shape[1], bool), (z + along)[own])
            W, b, A = network.W.copy(), network.b.copy(), network.A.copy()
            W[u], b[u], A[:, u] = side * W[u], side * (b[u] - kappa), side * a
            network = Network(W, b, A, network.c + a * kappa, network.activation)
    return network


def _turned(
    w: np.ndarray, b: float, moved: np.ndarray, rare: np.ndarray, eta: np.ndarray
) -> tuple[np.ndarray, float, float]:
    """A steady unit's weights, s and κ from its values η (n,); s = 1 and κ = 0 where it is on in all of these rows."""
    w, floor = np.where(rare, 0.0, w), SAME * np.abs(eta).max(initial=0.0)
    z, T = moved @ w + b, moved[:, rare]
    off = _most_alike(eta, floor)
    w[rare] = fitting_most(T[~off], (eta - z)[~off, None])[:, 0]
    if not off.any():  # one row may be off by itself
        off = np.abs(eta - z - T @ w[rare]) > floor
    if not off.any() or np.ptp(eta[off]) > floor:
        return w, 1.0, 0.0
    kappa = float(np.median(eta[off]))
    return w, 1.0 if np.median(eta[~off]) > kappa else -1.0, kappa


def _most_alike(values: np.ndarray, floor: float) -> np.ndarray:
    """Which (n,) have the value that most have, if two have it."""
    order, number = np.argsort(values), np.empty(len(values), dtype=int)
    number[order] = np.cumsum(np.diff(values[order], prepend=values[order[0]]) > floor)
    count = np.bincount(number)
    return (number == np.argmax(count)) & (count.max() > 1)
