"""A unit that is off for samples that do not tell its weights: its other side is in the affine part.

A fit with an affine part L x + c sees such a unit, A_u relu(v·x̃), as the function A_u relu(−v·x̃) of the few samples S
where it is off, through some v̂ that is arbitrary away from them, and the rest is in L [ATV21, eq. 5]:

    L + Σ_{j ∈ T} A_j w_jᵀ = A_u wᵀ,        T: the other units that look the wrong way.

Each T gives a candidate w for the unit. Its bias b, and whether it is the right one, follow from the samples in S, on
which (w, b)·x̃ = −v̂·x̃, that is B ((w, b) + v̂) = 0 with B = Σ_S x̃x̃ᵀ, a block of the Gauss–Newton matrix. One
sample agrees with every T, because b is free; two or more tell them apart.

More generally samples leave open some (δV, δL) that change nothing, of one unit as above or of several, as for an input
that varies only where all of these are on. With several outputs L = −Σ_{j ∈ T} A_j w_jᵀ still gives T where they have
no part, orthogonal to all δL and A_j δw_jᵀ; and then the multiples θ of them that belong to it,

    L + Σ_{j ∈ T} A_j w_jᵀ + Σ_ν θ_ν (δL_ν + Σ_{j ∈ T} A_j δw_νjᵀ) = 0,

where a unit that looks to the side with fewer samples is right as it is unless it is in T.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from neurecover.data import Source, reduce
from neurecover.models import Student
from neurecover.refine.signs import find_subsets, subsets
from neurecover.statistics import GaussNewtonSums, PreactivationRange

MOST_UNITS, CANDIDATES = 16, 512  # units whose 2^(k−1) subsets are looked at, and how many candidates are returned
AGREES = 1e-6  # relative misfit of the equations, as for signs
OPEN = 1e-12  # of the largest curvature: what is no more than rounding


def steady_candidates(source: Source, student: Student) -> Iterator[np.ndarray]:
    """Hidden weights (k, D) that leave no affine part, some units replaced and others reversed; the best first."""
    k, (d, D) = student.n_hidden, (student.n_inputs, student.V.shape[1])
    if student.activation.name != "relu" or not student.bias or k == 0:
        return
    seen = reduce(source, PreactivationRange(student)).sums
    student = _turned_beside_affine(student, 2 * seen["on"] > seen["n"])
    sums = reduce(source, GaussNewtonSums(student))
    if student.n_outputs > 1:
        yield from _told_by_outputs(student, *_open_directions(sums))
        return
    blocks = np.einsum("jcje->jce", sums.curvature()[0].reshape(k, D, k, D))
    linear = student.readout[k : k + d].T
    units = np.flatnonzero((np.linalg.matrix_rank(blocks, hermitian=True) < D) & (blocks[:, -1, -1] > 0))
    for u in units if k <= MOST_UNITS else ():
        others = np.delete(np.arange(k), u)
        turned = np.zeros((2 ** (k - 1), k), dtype=bool)
        turned[:, others] = subsets(k - 1)
        # What is left of L, (T, p, d), and its part along A_u, (T, d)
        rest = linear + np.einsum("tj,oj,jd->tod", turned, student.A, student.V[:, :d], optimize=True)
        A_u = student.A[:, u]
        w = np.einsum("tod,o->td", rest, A_u) / max(A_u @ A_u, 1e-300)
        v, misfit = _with_bias(w, student.V[u], blocks[u])
        misfit += np.linalg.norm(rest - A_u[:, None] * w[:, None, :], axis=(1, 2)) / max(np.linalg.norm(linear), 1e-300)
        for t in np.argsort(misfit, kind="stable")[:CANDIDATES]:
            if misfit[t] > AGREES:
                break
            V = _reversed(student.V, turned[t])
            V[u] = v[t]
            yield V


def _turned_beside_affine(student: Student, units: np.ndarray) -> Student:
    """The same function with some units reversed and the difference, relu(z) = relu(−z) + z, in the affine part.

    The constant is left as it is.
    """
    k, d = student.n_hidden, student.n_inputs
    readout = student.readout.copy()
    readout[k : k + d] += student.V[units, :d].T @ student.A[:, units].T
    return replace(student, V=_reversed(student.V, units), readout=readout)


def _reversed(V: np.ndarray, units: np.ndarray) -> np.ndarray:
    return np.where(units[:, None], -V, V)


def _open_directions(sums: GaussNewtonSums) -> tuple[np.ndarray, np.ndarray]:
    """All δV (f, k, D) and δL (f, p, d) that together change the function nowhere, A as it is."""
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


def _told_by_outputs(student: Student, dV: np.ndarray, dL: np.ndarray) -> Iterator[np.ndarray]:
    k, d, n_open = student.n_hidden, student.n_inputs, len(dV)
    linear = student.readout[k : k + d].T.ravel()
    columns = np.einsum("oj,jd->odj", student.A, student.V[:, :d]).reshape(-1, k)
    moves = np.einsum("oj,vjd->odvj", student.A, dV[:, :, :d]).reshape(len(linear), n_open, k)
    slides = dL.reshape(n_open, len(linear)).T
    left, sizes, _ = np.linalg.svd(np.hstack([moves.reshape(len(linear), -1), slides]), full_matrices=False)
    basis = left[:, sizes > AGREES * sizes.max(initial=0.0)]
    search = find_subsets(columns - basis @ (basis.T @ columns), basis @ (basis.T @ linear) - linear, AGREES)
    for flips in search.flips[search.misfit <= AGREES]:
        rest = linear + columns @ flips
        theta = np.linalg.lstsq(slides + moves @ flips, -rest, rcond=AGREES)[0]
        if np.linalg.norm(rest + (slides + moves @ flips) @ theta) <= AGREES * np.linalg.norm(linear):
            yield _reversed(student.V + np.einsum("v,vjd->jd", theta, dV), flips)


def _with_bias(w: np.ndarray, seen: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(w, b) for the b that makes |F ((w, b) + v̂)| least, B = FᵀF, and that length over |F||(w, b)|, for all rows w."""
    values, vectors = np.linalg.eigh(B)
    kept = values > 1e-12 * values[-1]
    F = np.sqrt(values[kept])[:, None] * vectors[:, kept].T
    gap = np.hstack([w, np.zeros((len(w), 1))]) @ F.T + F @ seen
    b = -(gap @ F[:, -1]) / (F[:, -1] @ F[:, -1])
    v = np.hstack([w, b[:, None]])
    size = np.linalg.norm(F) * (np.linalg.norm(v, axis=1) + np.linalg.norm(seen))
    return v, np.linalg.norm(gap + b[:, None] * F[:, -1], axis=1) / size
