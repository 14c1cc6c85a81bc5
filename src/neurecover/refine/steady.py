"""A unit that is off for fewer samples than it has weights: its other side is in the affine part.

A fit with an affine part L x + c sees such a unit, A_u relu(v·x̃), as the function A_u relu(−v·x̃) of the few samples S
where it is off, through some v̂ that is arbitrary away from them, and the rest is in L [ATV21, eq. 5]:

    L + Σ_{j ∈ T} A_j w_jᵀ = A_u wᵀ,        T: the other units that look the wrong way.

Each T gives a candidate w for the unit. Its bias b, and whether it is the right one, follow from the samples in S, on
which (w, b)·x̃ = −v̂·x̃, that is B ((w, b) + v̂) = 0 with B = Σ_S x̃x̃ᵀ, a block of the Gauss–Newton matrix. One
sample agrees with every T, because b is free; two or more tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from neurecover.data import Source, reduce
from neurecover.models import Student
from neurecover.refine.signs import subsets
from neurecover.statistics import GaussNewtonSums

MOST_UNITS, CANDIDATES = 16, 512  # units whose 2^(k−1) subsets are looked at, and how many candidates are returned
AGREES = 1e-6  # relative misfit of the equations, as for signs


def steady_candidates(source: Source, student: Student) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Hidden weights (k, D) with one unit replaced, and which units they reverse; the least misfit first."""
    k, (d, D) = student.n_hidden, (student.n_inputs, student.V.shape[1])
    if student.activation.name != "relu" or not student.bias or not 0 < k <= MOST_UNITS:
        return
    linear = student.readout[k : k + d].T
    blocks = np.einsum("jcje->jce", reduce(source, GaussNewtonSums(student)).curvature()[0].reshape(k, D, k, D))
    n_on = blocks[:, -1, -1]
    for u in np.flatnonzero((np.linalg.matrix_rank(blocks, hermitian=True) < D) & (n_on > 0)):
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
            V = student.V.copy()
            V[u] = v[t]
            yield V, turned[t]


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
