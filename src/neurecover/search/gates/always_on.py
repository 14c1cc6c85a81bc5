"""Which way round units are beside one that is off in samples that do not tell its weights.

A fit with an affine part L x + c sees such a unit, A_u relu(v·x̃), as the function A_u relu(−v·x̃) of the few samples
where it is off, through some v̂ that is arbitrary away from them, and the rest is in L [ATV21, eq. 5]. In general
samples leave open some (δV, δL) that change nothing, of one unit or of several. With T the units that look the wrong
way,

    L + Σ_{j ∈ T} A_j w_jᵀ + Σ_ν θ_ν (δL_ν + Σ_{j ∈ T} A_j δw_νjᵀ) = 0.

Orthogonal to all δL and A_j δw_jᵀ this is an equation for T alone; T then gives θ, where a unit that looks to the side
with fewer samples is right as it is unless it is in T. One sample agrees with every T; two or more tell them apart. A
unit that is never off is in L as a whole, and what T leaves of L is of rank one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from neurecover.fit.descent import Fit
from neurecover.models.signs import find_subsets, flips_beside_steady
from neurecover.models.student import Student
from neurecover.search.covariance import Turning
from neurecover.search.units import narrowest

AGREES = 1e-6  # relative misfit of the equations, as for signs
OPEN = 1e-12  # of the largest curvature: what is no more than rounding
MOST_WEIGHTS = 2_000  # hidden weights whose curvature is formed: seconds
ROWS = 4_096  # at a time


def beside_always_on(fit: Fit, n_hidden: int | None) -> Iterator[Student]:
    """Yield networks for an exact fit whose signs no equations explain, a unit being off in few rows or in none."""
    if 0 < fit.student.size <= MOST_WEIGHTS:
        yield from beside_seldom_off(fit.point.samples.F, fit.student)
    few = narrowest(fit)
    if n_hidden is None or few.student.widths[0] < n_hidden:
        yield from beside_never_off(few.point.samples.F, few.student)


def beside_never_off(F: np.ndarray, student: Student) -> Iterator[Student]:
    """Yield the network with one more unit, on in all rows F, if there is one."""
    turning = Turning.of(student, 0, affine=False)
    linear = turning.target.reshape(len(turning.rows), -1)
    found = flips_beside_steady(turning.A, turning.V[:, turning.kept :], linear, turning.slope, AGREES)
    if found is not None:
        flips, a, w = found
        rows, V = turning.turned(flips)
        unit = np.append(1.0 - float((F[:, 1:] @ -w).min()), -w)
        yield replace(student, V=(np.vstack([V, unit]),), theta=np.vstack([rows.T, a]), skips=False)


def beside_seldom_off(F: np.ndarray, student: Student) -> Iterator[Student]:
    """Yield networks without an affine part, some units changed and others reversed, the best first."""
    turning = Turning.of(student, 0, affine=False)
    rows, V = turning.turned((F @ student.V[0].T > 0.0).mean(axis=0) > 0.5)
    A, k, d = turning.A, len(V), F.shape[1] - 1
    linear = (student.theta[1 : d + 1].T + A @ (student.V[0] - V)[:, 1:] / 2.0).ravel()
    dV, dL = _open_directions(F, V, A)
    columns = np.einsum("oj,jd->odj", A, V[:, 1:]).reshape(-1, k)
    moves = np.einsum("oj,vjd->odvj", A, dV[:, :, 1:]).reshape(len(linear), len(dV), k)
    slides = dL.reshape(len(dV), len(linear)).T
    left, sizes, _ = np.linalg.svd(np.hstack([moves.reshape(len(linear), -1), slides]), full_matrices=False)
    basis = left[:, sizes > AGREES * sizes.max(initial=0.0)]
    outside = np.column_stack([columns, -linear])
    outside = outside - basis @ (basis.T @ outside)
    outside[np.abs(outside) <= AGREES**2 * max(np.linalg.norm(columns), np.linalg.norm(linear))] = 0.0  # rounding
    search = find_subsets(outside[:, :-1], outside[:, -1], AGREES)
    for flips in search.flips[search.misfit <= AGREES]:
        rest, ways = linear + columns @ flips, slides + moves @ flips
        ways[np.abs(ways) <= AGREES * np.abs(moves).max(initial=0.0)] = 0.0  # rounding where no open unit is in T
        theta = np.linalg.lstsq(ways, -rest, rcond=AGREES)[0]
        if np.linalg.norm(rest + ways @ theta) <= AGREES * np.linalg.norm(linear):
            found = V + np.einsum("v,vjd->jd", theta, dV)
            yield replace(student, V=(np.where(flips[:, None], -found, found),), theta=rows.T, skips=False)


def _open_directions(F: np.ndarray, V: np.ndarray, A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return all δV (f, k, D) and δL (f, p, d) that together change the function nowhere, A as it is."""
    k, D = V.shape
    MM, FM = np.zeros((k * D, k * D)), np.zeros((D, k * D))
    for rows in np.array_split(F, len(F) // ROWS + 1):
        M = ((rows @ V.T > 0.0)[:, :, None] * rows[:, None, :]).reshape(len(rows), k * D)
        MM, FM = MM + M.T @ M, FM + rows.T @ M
    # The affine part follows δV by least squares: δ(c, L)ᵀ = −(Σ f fᵀ)⁻¹ Σ_j (Σ f m_jᵀ) δv_j A_jᵀ with f = (1, x).
    follows = np.linalg.lstsq(F.T @ F, FM, rcond=OPEN)[0]
    S = (MM - FM.T @ follows).reshape(k, D, k, D) * (A.T @ A)[:, None, :, None]
    values, vectors = np.linalg.eigh(S.reshape(k * D, k * D))
    dV = vectors[:, values <= OPEN * values[-1]].T.reshape(-1, k, D)
    dL = -np.einsum("fjd,vjd,oj->vof", follows.reshape(-1, k, D), dV, A, optimize=True)
    return dV, dL[:, :, 1:]
