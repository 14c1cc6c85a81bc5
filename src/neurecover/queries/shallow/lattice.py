"""Subset sums by lattice reduction: which of k vectors add up to a target, with fewer equations than vectors.

    C s = g,      C (m, k), s in {0, 1}^k,

is Σ_j e_j C_j = 2 g − Σ_j C_j with e = 2 s − 1 in {−1, 1}^k. The columns of

    ( I      0 )
    ( 0      1 )
    ( N C   −N (2 g − C 1) )        N large, entries rounded to integers

span a lattice in which (e, 1, 0) is a very short vector: far shorter than any other if the equations carry many more
bits than there are unknowns. Lattice reduction [Lenstra, Lenstra & Lovász 1982] finds it.
"""

from __future__ import annotations

import numpy as np

from neurecover.exceptions import UnsolvableError
from neurecover.queries.shallow.options import ShallowOptions

_UPDATES = 100  # of R by rotations before it is recomputed from B


def subset_by_lattice(columns: np.ndarray, target: np.ndarray, error: float, options: ShallowOptions) -> np.ndarray:
    """Return the bits s (k,) with columns @ s = target; raise UnsolvableError if the reduction does not find them.

    `error` is that of the equations, relative to the largest entry: digits beyond it would only mislead.
    """
    k = columns.shape[1]
    # Rows of unequal size carry unequal numbers of bits, and dependent ones none: use an orthonormal basis.
    U, S, Vt = np.linalg.svd(columns, full_matrices=False)
    kept = np.flatnonzero(S / S.max(initial=1e-300) > 1e-9)
    C, g = S[kept, None] * Vt[kept], U[:, kept].T @ target
    scale = min(2.0**options.lattice_bits, 0.25 / max(error, 1e-300)) / np.abs(C).max(initial=1e-300)
    lattice = np.zeros((k + 1 + len(C), k + 1))
    lattice[: k + 1] = np.eye(k + 1)
    lattice[k + 1 :, :k] = np.rint(scale * C)
    lattice[k + 1 :, k] = np.rint(-scale * (2.0 * g - C.sum(axis=1)))
    reduced = reduce_lattice(lattice, options)[: k + 1]
    for vector in reduced.T:
        if np.all(np.abs(vector) == 1.0):
            return vector[:k] * vector[k] > 0
    raise UnsolvableError(f"Lattice reduction found no signs for the {k} units.")


def reduce_lattice(basis: np.ndarray, options: ShallowOptions) -> np.ndarray:
    """Return an LLL-reduced basis of the lattice that the columns of `basis` span, as integers stored in floats.

    B = Q R; only R is worked on. Column j is shortened against the ones before it, and swapped with its left neighbour
    while δ R²_{j−1,j−1} > R²_{j−1,j} + R²_{j,j}.
    """
    B = np.array(basis, dtype=float)
    R = _triangle(B)
    n, j, swaps = B.shape[1], 1, 0
    while j < n and swaps < options.lattice_swaps:
        _shorten(B, R, j)
        if options.lattice_delta * R[j - 1, j - 1] ** 2 <= R[j - 1, j] ** 2 + R[j, j] ** 2:
            j += 1
            continue
        B[:, [j - 1, j]] = B[:, [j, j - 1]]
        R[:, [j - 1, j]] = R[:, [j, j - 1]]
        _restore(R, j)
        swaps += 1
        if swaps % _UPDATES == 0:
            R = _triangle(B)
        j = max(j - 1, 1)
    return B


def _triangle(B: np.ndarray) -> np.ndarray:
    """Return R of B = Q R."""
    return np.asarray(np.linalg.qr(B)[1])


def _shorten(B: np.ndarray, R: np.ndarray, j: int) -> None:
    """Subtract integer multiples of earlier columns from column j, in place."""
    # Rounding in a large multiple leaves a smaller one to be subtracted in a second pass.
    for _ in range(8):
        changed = False
        for i in range(j - 1, -1, -1):
            q = np.rint(R[i, j] / R[i, i])
            if q:
                R[: i + 1, j] -= q * R[: i + 1, i]
                B[:, j] -= q * B[:, i]
                changed = True
        if not changed:
            return


def _restore(R: np.ndarray, j: int) -> None:
    """Rotate rows j − 1 and j, in place, so that R is triangular again."""
    a, b = R[j - 1, j - 1], R[j, j - 1]
    r = np.hypot(a, b)
    turn = np.array([[a, b], [-b, a]]) / r
    R[j - 1 : j + 1, j - 1 :] = turn @ R[j - 1 : j + 1, j - 1 :]
    R[j, j - 1] = 0.0
