"""Two units on one hyperplane with opposite directions.

    A₁ act(z) + A₂ act(−z),       z = w·x + b,      act(z) = α z + κ relu(z),

has the kink of one unit with A = A₁ + A₂, and the rest is linear: α A z − m A₂ z with m = 2α + κ. For k hyperplanes let
u_j = 0 for a unit along w_j, u_j = A_j for a reversed one, and u_j = A₂ for an opposite pair. Then

    Σ_j u_j w_jᵀ = (α Σ_j A_j w_jᵀ − L) / m =: E.

With t opposite pairs the p (d − t) equations orthogonal to their rows do not contain their u_j. These must hold for
bits alone, which an unrelated affine part would satisfy only by chance; with t = d there are no such equations and
nothing is proved. (A₁ = −A₂ in every output has no kink at all: such a pair is an affine part.)

If there is a pair on every hyperplane and A₁ and A₂ have the same ratio on all of them, act(z) − s act(−z) is a single
unit of another activation.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from neurecover.activations import Activation
from neurecover.models import Network
from neurecover.models.signs import find_flips
from neurecover.queries.shallow.options import ShallowOptions
from neurecover.queries.shallow.planes import AffinePartError, Planes, slopes_of


@dataclass(frozen=True, eq=False)
class OppositeUnits:
    """A network, the hyperplane (k,) that each of its units lies on, and whether the network is `unique`."""

    network: Network
    plane: np.ndarray
    unique: bool


def resolve_opposite_units(
    planes: Planes, activation: Activation, tolerance: float, options: ShallowOptions
) -> OppositeUnits | None:
    """Return the network with the fewest opposite pairs; None if a few do not explain the affine part.

    `tolerance` is the misfit, relative to the jumps, up to which equations are taken to hold.
    """
    alpha, kappa = slopes_of(activation)
    m = 2.0 * alpha + kappa
    if m == 0.0 or not len(planes):
        return None
    A = planes.J / kappa
    E = (alpha * A @ planes.W - planes.L) / m
    found: list[tuple[np.ndarray, np.ndarray, bool]] = []
    for opposite in _choices(A, planes.W, E, tolerance, options):
        if found and np.count_nonzero(found[0][0]) < np.count_nonzero(opposite):
            break
        solved = _solve(A, planes.W, E, opposite, tolerance, options)
        if solved is not None:
            found.append((opposite, *solved))
    if not found:
        return None
    opposite, U, unique = found[0]
    if len(planes) > 1 and opposite.all():
        _refuse_one_ratio(A, U, tolerance)
    unique = unique and len(found) == 1 and _is_determined(planes, opposite, tolerance, options)
    return OppositeUnits(*_build_network(planes, A, U, opposite, activation), unique)


def _is_determined(planes: Planes, opposite: np.ndarray, tolerance: float, options: ShallowOptions) -> bool:
    """Return whether the equations orthogonal to the pairs carry far more digits than signs and choices of pairs can
    use up.
    """
    k, t = len(opposite), int(np.count_nonzero(opposite))
    equations = planes.L.shape[0] * (planes.W.shape[1] - t)
    return bool(equations * np.log2(1.0 / tolerance) > k + np.log2(comb(k, t)) + options.spare_bits)


def _choices(
    A: np.ndarray, W: np.ndarray, E: np.ndarray, tolerance: float, options: ShallowOptions
) -> list[np.ndarray]:
    """Return the sets of hyperplanes that may carry a pair, as masks (k,): one set if linear equations give it, else
    all small ones.
    """
    k, d = W.shape
    sizes = np.linalg.svd(W, compute_uv=False)
    if k <= d and sizes[-1] > options.pair_independent * sizes[0]:
        U = E @ np.linalg.pinv(W)
        slack = tolerance * float(np.linalg.norm(A, axis=0).sum()) / sizes[-1]
        bits = np.minimum(np.linalg.norm(U, axis=0), np.linalg.norm(U - A, axis=0)) < slack
        return [~bits] if np.count_nonzero(~bits) < d else []
    if k > options.pair_planes:
        return []
    sets = [s for t in range(1, min(options.pairs, d - 1) + 1) for s in combinations(range(k), t)]
    return [np.isin(np.arange(k), chosen) for chosen in sets[: options.pair_choices]]


def _solve(
    A: np.ndarray, W: np.ndarray, E: np.ndarray, opposite: np.ndarray, tolerance: float, options: ShallowOptions
) -> tuple[np.ndarray, bool] | None:
    """Solve for u (p, k) with these pairs; return it and whether it is unique, or None without a solution."""
    across = np.eye(W.shape[1]) - np.linalg.pinv(W[opposite]) @ W[opposite]
    size = max(float(np.linalg.norm(A, axis=0).sum()), float(np.linalg.norm(E)))
    U, unique = np.zeros_like(A), True
    if not opposite.all():
        search = find_flips(A[:, ~opposite], W[~opposite] @ across, E @ across, 1.0, tolerance)
        U[:, ~opposite] = A[:, ~opposite] * search.flips[0]
        unique = search.complete and len(search.flips) == 1
    U[:, opposite] = (E - U @ W) @ np.linalg.pinv(W[opposite])
    if np.linalg.norm(U @ W - E) > tolerance * size:
        return None
    sizes = np.linalg.svd(W[opposite], compute_uv=False)
    return U, bool(unique and sizes[-1] > options.pair_independent * sizes[0])


def _refuse_one_ratio(A: np.ndarray, U: np.ndarray, tolerance: float) -> None:
    """Raise AffinePartError if u_j = ρ A_j, or (1 − ρ) A_j for a reversed unit, with one ρ for all hyperplanes."""
    size = np.sum(A * A, axis=0)
    rho = np.sum(U * A, axis=0) / size
    near = np.minimum(rho, 1.0 - rho)
    apart = np.ptp(near) + float(np.max(np.linalg.norm(U - rho * A, axis=0) / np.sqrt(size)))
    if apart < np.sqrt(tolerance):
        slope = float(np.mean(near / (near - 1.0)))
        name = "abs" if abs(slope + 1.0) < np.sqrt(tolerance) else f"leaky_relu({slope:.6g})"
        raise AffinePartError(
            f"The affine part on all {len(near)} hyperplanes is that of {name} units: ask for them with "
            f"activation='{name}'."
        )


def _build_network(
    planes: Planes, A: np.ndarray, U: np.ndarray, opposite: np.ndarray, activation: Activation
) -> tuple[Network, np.ndarray]:
    """Return the network with a unit along w_j with A_j − u_j and one against it with u_j, and their hyperplanes."""
    alpha, kappa = slopes_of(activation)
    size = np.linalg.norm(A, axis=0)
    forth = np.flatnonzero(opposite | (np.linalg.norm(A - U, axis=0) > 0.5 * size))
    back = np.flatnonzero(opposite | (np.linalg.norm(U, axis=0) > 0.5 * size))
    W, b = np.vstack([planes.W[forth], -planes.W[back]]), np.append(planes.b[forth], -planes.b[back])
    # The units add α A z − m u z to κ A relu(z); its constant is subtracted from c.
    c = planes.c - (alpha * A - (2.0 * alpha + kappa) * U) @ planes.b
    network = Network(W, b, np.hstack([(A - U)[:, forth], U[:, back]]), c, activation)
    return network, np.append(forth, back)
