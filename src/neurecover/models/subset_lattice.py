"""Subset sums by lattice reduction: all s in {0, 1}^k with ‖C s − g‖ ≤ ε, and the proof that these are all.

The vectors (x, N C x), x in Z^k, form a lattice. A solution s is a point of it within

    ρ² = k/4 + N² ε²                 of       t = (½, …, ½, N g),

because |s_j − ½| = ½ for either bit. So the solutions are among the lattice points in a ball, and these can be listed
[Fincke & Pohst 1985]: with a basis M = Q R of the lattice and y = Qᵀ t, coefficient x_i is an integer in

    |R_ii x_i + Σ_{l>i} R_il x_l − y_i|² ≤ ρ² − (the sum of these squares for all l > i),

from the last to the first. In a reduced basis the R_ii are about as large as the diameter of the ball, so few
coefficients are tried. The list is complete for any basis: if it has one entry, no other signs exist.

The reduction is that of [Lenstra, Lenstra & Lovász 1982] on R in double precision, with x in exact integers. N grows in
stages, so that the numbers from which R is computed stay small.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_CENTRED = 3  # least-squares steps: each halves the number of remaining digits


@dataclass(frozen=True)
class LatticeOptions:
    """Limits of the reduction and of the listing, each with its reason."""

    deltas: tuple[float, ...] = (0.95, 0.999)  # δ of Lovász' condition; the second, a third more work, if needed
    stage: int = 6  # bits by which N grows at a time: R keeps nine digits
    finer: int = 8  # bits of the equations below N: their rounding in k columns stays below one
    swaps: int = 400_000  # after which a reduction is abandoned: 100 vectors take a tenth of this
    most: int = 500_000  # partial solutions tried before a listing is abandoned: it takes about as long as a reduction
    together: int = 4_096  # partial solutions extended at a time
    slack: float = 0.5  # N ε √m as a fraction of √k/2: more bits would only enlarge the ball


def lattice_subsets(
    columns: np.ndarray, target: np.ndarray, error: float, options: LatticeOptions | None = None
) -> np.ndarray | None:
    """Return all s (n, k) with ‖columns·s − target‖ ≤ error; None if too many would have to be tried."""
    options = options or LatticeOptions()
    k = columns.shape[1]
    # An orthonormal basis of the equations removes dependent ones.
    U, S, Vt = np.linalg.svd(columns, full_matrices=False)
    kept = 1e-12 * S.max(initial=1e-300) < S
    C, g = S[kept, None] * Vt[kept], U[:, kept].T @ target
    largest = float(np.abs(C).max(initial=1e-300))
    N = min(options.slack * 0.5 * np.sqrt(k) / max(error, 1e-300), 2.0**50 / largest)
    basis: np.ndarray | None = np.eye(k, dtype=np.int64)
    listed = None
    for delta in options.deltas:
        basis = None if basis is None else _reduced_basis(C * N, basis, delta, options)
        listed = None if basis is None else _list_subsets(C, g, N, error, basis, options)
        if basis is None or listed is not None:
            break
    if listed is None:
        return None
    s = listed[np.all((listed == 0) | (listed == 1), axis=1)]
    return s[np.linalg.norm(s @ columns.T - target, axis=1) <= error].astype(bool)


def _list_subsets(
    C: np.ndarray, g: np.ndarray, N: float, error: float, basis: np.ndarray, options: LatticeOptions
) -> np.ndarray | None:
    """Return the x (n, k) of all lattice points in the ball; None if too many partial solutions must be tried."""
    k, weight = C.shape[1], 2.0**-options.finer
    fine, sums = np.rint(N / weight * C).astype(np.int64), np.rint(N / weight * g).astype(np.int64)
    M = np.vstack([basis.astype(float), weight * (fine @ basis).astype(float)])
    t, base = np.concatenate([np.full(k, 0.5), weight * sums.astype(float)]), np.zeros(k, dtype=np.int64)
    for _ in range(_CENTRED):
        # The target relative to a near lattice point: t itself is so long that its rounding exceeds the ball.
        base = base + basis @ np.rint(np.linalg.lstsq(M, t, rcond=None)[0]).astype(np.int64)
        t = np.concatenate([0.5 - base, weight * (sums - fine @ base).astype(float)])
    rounding = weight * 0.5 * np.sqrt(k * len(C))
    squared = 0.25 * k + (N * error + rounding) ** 2
    listed = _points_in_ball(M, t, squared, options)
    return None if listed is None else base + listed @ basis.T


def _reduced_basis(C: np.ndarray, basis: np.ndarray, delta: float, options: LatticeOptions) -> np.ndarray | None:
    """Return a reduced basis of the vectors (x, C x), as integer columns x (k, k); None if it was abandoned.

    `basis` is the start: the unit vectors, or a basis of an earlier, weaker reduction.
    """
    k, left = C.shape[1], options.swaps
    bits = int(np.ceil(np.log2(max(np.abs(C).max(initial=1.0), 2.0))))
    first = options.stage if np.array_equal(basis, np.eye(k)) else bits
    for stage in range(first, bits + options.stage, options.stage):
        scale = 2.0 ** (min(stage, bits) - bits)
        fine = np.rint(scale * 2.0**options.finer * C).astype(np.int64)
        # Products may wrap around in 64 bits; their sums are still right if the result fits.
        M = np.vstack([basis.astype(float), 2.0**-options.finer * (fine @ basis).astype(float)])
        swaps = reduce_lattice(M, left, delta)
        if swaps is None:
            return None
        basis, left = np.rint(M[:k]).astype(np.int64), left - swaps
    return basis


def reduce_lattice(B: np.ndarray, most: int, delta: float) -> int | None:
    """Reduce the columns of B in place by integer steps; return the number of swaps, None if more than `most`.

    B = Q R. Column j is shortened by multiples of earlier columns, and swapped with column j − 1 while
    δ R²_{j−1,j−1} > R²_{j−1,j} + R²_{j,j}.
    """
    V, L = np.ascontiguousarray(B.T), _lower(B)  # transposed, because rows are contiguous in memory
    n, j, swaps, fresh = len(V), 1, 0, 0
    while j < n:
        _shorten(V, L, j)
        a, b = float(L[j, j - 1]), float(L[j, j])
        if delta * float(L[j - 1, j - 1]) ** 2 <= a * a + b * b:
            j += 1
            continue
        swaps, fresh = swaps + 1, fresh + 1
        if swaps > most:
            return None
        for rows in (V, L):
            kept = rows[j - 1].copy()
            rows[j - 1] = rows[j]
            rows[j] = kept
        # Rotate columns j − 1 and j, so that L is triangular again.
        r = float(np.hypot(a, b))
        L[j - 1 :, j - 1 : j + 1] = L[j - 1 :, j - 1 : j + 1] @ (np.array([[a, -b], [b, a]]) / r)
        L[j - 1, j] = 0.0
        j = max(j - 1, 1)
        if fresh >= 20 * n:  # rotations accumulate rounding
            L, fresh = _lower(V.T), 0
    B[:] = V.T
    return swaps


def _lower(B: np.ndarray) -> np.ndarray:
    """Return Rᵀ of B = Q R."""
    return np.ascontiguousarray(np.linalg.qr(B)[1].T)


def _shorten(V: np.ndarray, L: np.ndarray, j: int) -> None:
    """Subtract integer multiples of earlier rows from row j, in place, until all multiples are zero."""
    # Slightly more than a half: rounding at exact halves could cycle for ever.
    half, row = 0.5000001 * np.abs(L.diagonal()[:j]), L[j, :j]
    for _ in range(50 * j):
        far = (np.abs(row) > half).nonzero()[0]
        if not len(far):
            return
        i = int(far[-1])
        q = round(float(row[i]) / float(L[i, i]))
        row[: i + 1] -= q * L[i, : i + 1]
        V[j] -= q * V[i]


def _points_in_ball(M: np.ndarray, t: np.ndarray, squared: float, options: LatticeOptions) -> np.ndarray | None:
    """Return the integer x (n, k) with ‖M x − t‖² ≤ squared; None if too many partial solutions must be tried."""
    k = M.shape[1]
    Q, R = np.linalg.qr(M)
    y = Q.T @ t
    squared = squared * (1.0 + 1e-9) - max(float(t @ t - y @ y), 0.0)
    found, tried = [np.zeros((0, k), dtype=np.int64)], 0
    # A batch: the next index to decide, coefficients (n, k), remaining y (n, k), remaining squared radius (n,).
    batches = [(k - 1, np.zeros((1, k), dtype=np.int64), y[None].copy(), np.array([squared]))]
    while batches:
        i, X, rest, room = batches.pop()
        tried += len(X)
        if tried > options.most:
            return None
        centre, reach = rest[:, i] / R[i, i], np.sqrt(np.maximum(room, 0.0)) / abs(R[i, i])
        low, high = np.ceil(centre - reach), np.floor(centre + reach)
        count = np.maximum(high - low + 1, 0).astype(int)
        row = np.repeat(np.arange(len(X)), count)
        value = low[row] + np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        X, rest = X[row], rest[row] - value[:, None] * R[:, i]
        room = room[row] - rest[:, i] ** 2
        X[:, i] = value
        if i == 0:
            found.append(X)
            continue
        for start in range(0, len(X), options.together):
            part = slice(start, start + options.together)
            batches.append((i - 1, X[part], rest[part], room[part]))
    return np.concatenate(found)
