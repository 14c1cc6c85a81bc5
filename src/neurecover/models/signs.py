"""Determine the signs of units that are known up to sign, from the affine part that is fitted with them.

If act(z) − act(−z) = m z (ReLU: m = 1, leaky ReLU: m = 1 + slope), a fit with a free affine part L x + c determines
every unit only up to the sign of (w, b). The function is a sum of units without an affine part if

    L = m Σ_j s_j A_j w_jᵀ,     s_j = 1 if unit j has to be reversed, else 0,        [ATV21, Alg. 3, eq. 5]

which are p·d equations for k unknown bits. The constant c gives no equation, because c is also a parameter of the
network. If the matrices A_j w_jᵀ are linearly independent, one least-squares solution gives the bits. If not, as for
one output and k > d, the bits that the equations leave free are enumerated (up to 2^16 choices), or the solutions are
listed in a reduced lattice (`subset_lattice`), which needs equations with more digits than there are bits.

A unit u that is on for every sample, or whose weights the samples do not determine, is entirely in the affine part, and
M = L − m Σ_j s_j A_j w_jᵀ = Σ_u A_u w_uᵀ has low rank. With fewer units j than inputs, L x = M x for all x orthogonal
to all w_j, which gives the column space of M. Outside that space, x_j with w_i·x_j = 1 for i = j and 0 otherwise gives
L x_j = m s_j A_j. With more units, all s are tried if they are few.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr

from neurecover.models.subset_lattice import lattice_subsets


@dataclass(frozen=True)
class SignOptions:
    """Limits of the search for signs."""

    enumerated: int = 16  # bits that the equations leave free: 65,536 choices
    solutions: int = 32  # largest number that is returned
    ranked: int = 2**22  # numbers in memory when all choices of signs are tried for a remainder of low rank


DEFAULTS = SignOptions()


@dataclass(frozen=True)
class SignSearch:
    """`flips` (s, k): the assignments found, best first; `misfit` (s,): ‖L − m Σ s_j A_j w_jᵀ‖ of each, relative to L.

    `complete` is False if the search was too large to be made; `flips` is then only the rounded least-squares guess.
    """

    flips: np.ndarray
    misfit: np.ndarray
    complete: bool


def find_flips(
    A: np.ndarray,
    W: np.ndarray,
    linear: np.ndarray,
    slope: float,
    tolerance: float,
    max_solutions: int = DEFAULTS.solutions,
) -> SignSearch:
    """Find the s in {0, 1}^k with linear (p, d) = slope · Σ_j s_j A_j w_jᵀ, to a relative misfit of `tolerance`.

    If no assignment is within the tolerance, the best one found is returned, with its misfit.
    """
    columns = slope * np.einsum("oj,jd->odj", A, W).reshape(-1, len(W))
    return find_subsets(columns, linear.ravel(), tolerance, max_solutions)


def flips_beside_others(
    A: np.ndarray, W: np.ndarray, linear: np.ndarray, slope: float, tolerance: float, rank: int = 1
) -> tuple[np.ndarray, np.ndarray] | None:
    """Find s (k,) for which M = linear − slope · Σ_j s_j A_j w_jᵀ has at most this rank, up to `tolerance`.

    Return s and M, or None if there is no such s, or if there are so few equations that another s would do as well.
    """
    (p, d), k = linear.shape, len(W)
    columns = slope * np.einsum("oj,jd->odj", A, W).reshape(p * d, k)
    small = tolerance * max(float(np.linalg.norm(columns)), float(np.linalg.norm(linear)))
    if 0 < k < d:
        left, sizes, _ = np.linalg.svd(linear @ np.linalg.svd(W)[2][k:].T)
        B = left[:, : np.count_nonzero(sizes > small)]
        beside, told = A - B @ (B.T @ A), (linear - B @ (B.T @ linear)) @ np.linalg.pinv(W)
        if np.any(np.linalg.norm(beside, axis=0) <= tolerance * np.linalg.norm(A, axis=0)):
            return None
        flips = np.sum(beside * told, axis=0) > 0.5 * slope * np.sum(beside**2, axis=0)
    elif k > 0 and p * d << k <= DEFAULTS.ranked:
        rest = linear - (subsets(k) @ columns.T).reshape(-1, p, d)
        flips = subsets(k)[np.argmin(np.linalg.eigvalsh(rest @ rest.transpose(0, 2, 1))[:, :-1].sum(axis=1))]
    else:
        return None
    rest = linear - (columns @ flips).reshape(p, d)
    r = int(np.count_nonzero(np.linalg.svd(rest, compute_uv=False) > small))
    return (flips, rest) if r <= min(rank, p - 1, d - 1) and p * d > k + r * (p + d) else None


def find_subsets(
    columns: np.ndarray, target: np.ndarray, tolerance: float, max_solutions: int = DEFAULTS.solutions
) -> SignSearch:
    """Find the s in {0, 1}^k with columns·s = target, to a relative misfit of `tolerance`; columns is (equations, k).

    If none is that close, the result holds the best one found, with its misfit.
    """
    k = columns.shape[1]
    scale = max(float(np.linalg.norm(columns)), float(np.linalg.norm(target)), 1e-300)
    _, triangle, pivots = qr(columns, mode="economic", pivoting=True)
    diagonal = np.abs(np.diag(triangle))
    rank = int(np.count_nonzero(diagonal > max(1e-9, tolerance) * diagonal.max(initial=1e-300)))
    complete = True
    if k - rank <= DEFAULTS.enumerated:
        flips = _enumerate_free(columns, target, pivots[:rank], pivots[rank:])
    else:
        listed = lattice_subsets(columns, target, tolerance * scale)
        complete = listed is not None
        flips = _rounded(columns, target) if listed is None or not len(listed) else listed.astype(float)
    misfit = np.linalg.norm(flips @ columns.T - target, axis=1) / scale
    order = np.argsort(misfit, kind="stable")
    keep = order[: max(1, min(max_solutions, np.count_nonzero(misfit <= tolerance)))]
    return SignSearch(flips[keep].astype(bool), misfit[keep], complete)


def nearest_subsets(columns: np.ndarray, target: np.ndarray, count: int) -> np.ndarray:
    """Return the `count` best s in {0, 1}^k, by ‖columns·s − target‖, within two bits of the best one found.

    columns is (equations, k). The nearest s comes first.
    """
    base = find_subsets(columns, target, 1e-2, 1).flips[0]
    k = len(base)
    if k == 0:
        return base[None]
    single = np.eye(k, dtype=bool)
    double = np.array([single[i] | single[j] for i in range(k) for j in range(i)], dtype=bool).reshape(-1, k)
    flips = base ^ np.vstack([np.zeros((1, k), dtype=bool), single, double])
    misfit = np.linalg.norm(flips @ columns.T - target, axis=1)
    return flips[np.argsort(misfit, kind="stable")[:count]]


def _enumerate_free(columns: np.ndarray, target: np.ndarray, bound: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Try every value of the free bits; the bound bits follow by least squares and rounding."""
    choices = subsets(len(free)).astype(float)
    right = target[:, None] - columns[:, free] @ choices.T
    solved = np.linalg.lstsq(columns[:, bound], right, rcond=None)[0] if len(bound) else np.zeros((0, len(choices)))
    flips = np.empty((len(choices), columns.shape[1]))
    flips[:, free] = choices
    flips[:, bound] = np.clip(np.rint(solved.T), 0, 1)
    return flips


def subsets(count: int) -> np.ndarray:
    """Return all subsets of `count` elements as masks, (2^count, count)."""
    return _bits(np.arange(2**count), count)


def _bits(codes: np.ndarray, count: int) -> np.ndarray:
    return ((codes[:, None] >> np.arange(count)) & 1).astype(bool)


def _rounded(columns: np.ndarray, target: np.ndarray) -> np.ndarray:
    solved = np.linalg.lstsq(columns, target, rcond=None)[0]
    return np.clip(np.rint(solved), 0, 1)[None]
