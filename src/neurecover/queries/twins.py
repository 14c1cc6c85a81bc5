"""Two units on one plane that face away from each other.

    A₁ act(z) + A₂ act(−z),       z = w·x + b,      act(z) = α z + κ relu(z),

bends on the plane like one unit with A = A₁ + A₂, and what is left is straight: α A z − m A₂ z with m = 2α + κ. For k
planes, with u_j = 0 for a unit that faces along w_j, u_j = A_j for one that faces the other way and any u_j = A₂ for
twins,

    Σ_j u_j w_jᵀ = (α Σ_j A_j w_jᵀ − L) / m =: E.

With t twins the p (d − t) equations across their rows are free of their u_j. These have to hold for bits alone, which
a straight part that has nothing to do with the planes would meet only by chance; with t = d there are none, and nothing
is shown. (A₁ = −A₂ in every output does not bend at all: such twins are a straight part.)

Twins on every plane whose A₁ and A₂ are in one ratio, act(z) − s act(−z), are single units of another activation.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from neurecover.activations import Activation
from neurecover.models import Network
from neurecover.models.signs import find_flips
from neurecover.queries.planes import AffinePartError, Planes, slopes_of

# Rows count as independent while the least singular value is above this part of the largest.
_INDEPENDENT = 1e-3
# Where rows are dependent, so many planes at most are tried for twins, in so many ways, and none where there are many
# planes: each way is a search of its own for signs, and a deeper network shows many planes.
_TWINS, _WAYS, _MANY = 2, 500, 16
# A million to one against chance.
_SPARE_BITS = 20


@dataclass(frozen=True, eq=False)
class Twins:
    """The network, the plane (k,) that each of its units lies on, and whether no other one has the same planes."""

    network: Network
    plane: np.ndarray
    only: bool


def with_twins(planes: Planes, activation: Activation, tolerance: float) -> Twins | None:
    """The network of these planes with as few twins as can be; None where no few of them explain the affine part.

    tolerance is the misfit, relative to the jumps, up to which equations are taken to hold.
    """
    alpha, kappa = slopes_of(activation)
    m = 2.0 * alpha + kappa
    if m == 0.0 or not len(planes):
        return None
    A = planes.J / kappa
    E = (alpha * A @ planes.W - planes.L) / m
    found: list[tuple[np.ndarray, np.ndarray, bool]] = []
    for twins in _choices(A, planes.W, E, tolerance):
        if found and np.count_nonzero(found[0][0]) < np.count_nonzero(twins):
            break
        solved = _solved(A, planes.W, E, twins, tolerance)
        if solved is not None:
            found.append((twins, *solved))
    if not found:
        return None
    twins, U, only = found[0]
    if len(planes) > 1 and twins.all():
        _refuse_one_ratio(A, U, tolerance)
    only = only and len(found) == 1 and _told(planes, twins, tolerance)
    return Twins(*_network(planes, A, U, twins, activation), only)


def _told(planes: Planes, twins: np.ndarray, tolerance: float) -> bool:
    """Whether the equations across the twins' rows have far more digits than there are bits and ways to choose."""
    k, t = len(twins), int(np.count_nonzero(twins))
    equations = planes.L.shape[0] * (planes.W.shape[1] - t)
    return bool(equations * np.log2(1.0 / tolerance) > k + np.log2(comb(k, t)) + _SPARE_BITS)


def _choices(A: np.ndarray, W: np.ndarray, E: np.ndarray, tolerance: float) -> list[np.ndarray]:
    """Masks (k,) of planes that may have twins: what solves for all u_j at once, or all sets of a few."""
    k, d = W.shape
    sizes = np.linalg.svd(W, compute_uv=False)
    if k <= d and sizes[-1] > _INDEPENDENT * sizes[0]:
        U = E @ np.linalg.pinv(W)
        slack = tolerance * float(np.linalg.norm(A, axis=0).sum()) / sizes[-1]
        bits = np.minimum(np.linalg.norm(U, axis=0), np.linalg.norm(U - A, axis=0)) < slack
        return [~bits] if np.count_nonzero(~bits) < d else []
    if k > _MANY:
        return []
    sets = [s for t in range(1, min(_TWINS, d - 1) + 1) for s in combinations(range(k), t)]
    return [np.isin(np.arange(k), chosen) for chosen in sets[:_WAYS]]


def _solved(
    A: np.ndarray, W: np.ndarray, E: np.ndarray, twins: np.ndarray, tolerance: float
) -> tuple[np.ndarray, bool] | None:
    """The u_j (p, k) with the given twins, and whether they are the only ones; None where the equations do not hold."""
    across = np.eye(W.shape[1]) - np.linalg.pinv(W[twins]) @ W[twins]
    size = max(float(np.linalg.norm(A, axis=0).sum()), float(np.linalg.norm(E)))
    U, only = np.zeros_like(A), True
    if not twins.all():
        search = find_flips(A[:, ~twins], W[~twins] @ across, E @ across, 1.0, tolerance)
        U[:, ~twins] = A[:, ~twins] * search.flips[0]
        only = search.complete and len(search.flips) == 1
    U[:, twins] = (E - U @ W) @ np.linalg.pinv(W[twins])
    if np.linalg.norm(U @ W - E) > tolerance * size:
        return None
    sizes = np.linalg.svd(W[twins], compute_uv=False)
    return U, bool(only and sizes[-1] > _INDEPENDENT * sizes[0])


def _refuse_one_ratio(A: np.ndarray, U: np.ndarray, tolerance: float) -> None:
    """AffinePartError where u_j = ρ A_j, or (1 − ρ) A_j of a unit reversed, with one ρ for all planes."""
    size = np.sum(A * A, axis=0)
    rho = np.sum(U * A, axis=0) / size
    near = np.minimum(rho, 1.0 - rho)
    apart = np.ptp(near) + float(np.max(np.linalg.norm(U - rho * A, axis=0) / np.sqrt(size)))
    if apart < np.sqrt(tolerance):
        slope = float(np.mean(near / (near - 1.0)))
        name = "abs" if abs(slope + 1.0) < np.sqrt(tolerance) else f"leaky_relu({slope:.6g})"
        raise AffinePartError(
            f"An affine part is left over as units of {name} leave it, on all {len(near)} planes: ask for them with "
            f"activation='{name}'."
        )


def _network(
    planes: Planes, A: np.ndarray, U: np.ndarray, twins: np.ndarray, activation: Activation
) -> tuple[Network, np.ndarray]:
    """A unit along w_j with A_j − u_j and one against it with u_j, those that are there."""
    alpha, kappa = slopes_of(activation)
    size = np.linalg.norm(A, axis=0)
    forth = np.flatnonzero(twins | (np.linalg.norm(A - U, axis=0) > 0.5 * size))
    back = np.flatnonzero(twins | (np.linalg.norm(U, axis=0) > 0.5 * size))
    W, b = np.vstack([planes.W[forth], -planes.W[back]]), np.append(planes.b[forth], -planes.b[back])
    # The units add α A z − m u z to κ A relu(z); its constant is taken off c.
    c = planes.c - (alpha * A - (2.0 * alpha + kappa) * U) @ planes.b
    network = Network(W, b, np.hstack([(A - U)[:, forth], U[:, back]]), c, activation)
    return network, np.append(forth, back)
