"""Which way round units are beside one that is off in samples that do not tell its weights.

A fit with an affine part L x + c sees such a unit, A_u relu(v·x̃), as the function A_u relu(−v·x̃) of the few samples
where it is off, through some v̂ that is arbitrary away from them, and the rest is in L [ATV21, eq. 5]. In general
samples leave open some (δV, δL) that change nothing, of one unit or of several. With T the units that look the wrong
way,

    L + Σ_{j ∈ T} A_j w_jᵀ + Σ_ν θ_ν (δL_ν + Σ_{j ∈ T} A_j δw_νjᵀ) = 0.

Orthogonal to all δL and A_j δw_jᵀ this is an equation for T alone; T then gives θ, where a unit that looks to the side
with fewer samples is right as it is unless it is in T. One sample agrees with every T; two or more tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from neurecover.data import Source, reduce
from neurecover.models import Network, Student
from neurecover.search.gates.engine import find_subsets
from neurecover.statistics import GaussNewtonSums, PreactivationRange

AGREES = 1e-6  # relative misfit of the equations, as for signs
OPEN = 1e-12  # of the largest curvature: what is no more than rounding


def candidates(source: Source, student: Student) -> Iterator[np.ndarray]:
    """Yield hidden weights (k, D) that leave no affine part, some units changed and others reversed, the best first."""
    k, d = student.n_hidden, student.n_inputs
    if student.activation.name != "relu" or not student.bias or k == 0:
        return
    units = Network(student.V[:, :d], student.V[:, d], student.A, None, student.activation)
    seen = reduce(source, PreactivationRange(units)).sums
    student = _turned(student, 2 * seen["on"] > seen["n"])
    dV, dL = _open_directions(reduce(source, GaussNewtonSums(student)))
    linear = student.readout[k : k + d].T.ravel()
    columns = np.einsum("oj,jd->odj", student.A, student.V[:, :d]).reshape(-1, k)
    moves = np.einsum("oj,vjd->odvj", student.A, dV[:, :, :d]).reshape(len(linear), len(dV), k)
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
            yield _reversed(student.V + np.einsum("v,vjd->jd", theta, dV), flips)


def _turned(student: Student, units: np.ndarray) -> Student:
    """Reverse some units, with the difference, relu(z) = relu(−z) + z, in the affine part but for its constant."""
    k, d = student.n_hidden, student.n_inputs
    readout = student.readout.copy()
    readout[k : k + d] += student.V[units, :d].T @ student.A[:, units].T
    return replace(student, V=_reversed(student.V, units), readout=readout)


def _reversed(V: np.ndarray, units: np.ndarray) -> np.ndarray:
    return np.where(units[:, None], -V, V)


def _open_directions(sums: GaussNewtonSums) -> tuple[np.ndarray, np.ndarray]:
    """Return all δV (f, k, D) and δL (f, p, d) that together change the function nowhere, A as it is."""
    student = sums.student
    k, d, (_, D) = student.n_hidden, student.n_inputs, student.V.shape
    mm, hm = sums.curvature()
    # The affine part follows δV by least squares: δ(L, c)ᵀ = −(Σ f fᵀ)⁻¹ Σ_j (Σ f m_jᵀ) δv_j A_jᵀ with f = (x, 1).
    follows = np.linalg.lstsq(sums.sums["hh"][k:, k:], hm[k:], rcond=OPEN)[0]
    S = (mm - hm[k:].T @ follows).reshape(k, D, k, D) * (student.A.T @ student.A)[:, None, :, None]
    values, vectors = np.linalg.eigh(S.reshape(k * D, k * D))
    dV = vectors[:, values <= OPEN * values[-1]].T.reshape(-1, k, D)
    dL = -np.einsum("fjd,vjd,oj->vof", follows.reshape(-1, k, D), dV, student.A, optimize=True)
    return dV, dL[:, :, :d]
