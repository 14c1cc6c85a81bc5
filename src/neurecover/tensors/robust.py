"""Recover a low-rank matrix under sparse gross errors: principal component pursuit, then the exact low-rank part.

    min ‖L‖_* + λ‖S‖₁   subject to   L + S = Y,     λ = 1/√max(n, p)       [CLMW11; BJW18, §8]

by the alternating direction method: L by shrinking singular values by 1/μ, S by shrinking entries by λ/μ, then the
multiplier. Only the singular values above 1/μ enter L. They are computed from the p × p Gram matrix of the smaller
side, which costs n p².

The pursuit converges to a few digits, which suffice for the row space B of L. Given B every row is a small
regression with sparse errors, solved in the ℓ₁ norm; then every column likewise. This shows the corrupted entries.
Without these the low-rank part is a linear problem: B and the coordinates of every row in it are fitted in turn, by
least squares on the clean entries, down to rounding. If there are too few columns, or too many errors, for the pursuit,
B comes from `consensus` instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.exceptions import UnsolvableError
from neurecover.tensors.consensus import DEFAULTS as CONSENSUS
from neurecover.tensors.consensus import ConsensusOptions, low_rank_by_consensus


@dataclass(frozen=True)
class SeparationOptions:
    """When the iterations end, and when the two parts count as low-rank and sparse."""

    tolerance: float = 1e-7  # relative to ‖Y‖, at which the pursuit ends: a few digits suffice for the row space
    growth: float = 1.5  # factor of the penalty μ per step
    clip: float = 50.0  # upper quartiles of |Y|: a larger entry is corrupted in any case
    rank: float = 1e-5  # relative to the largest singular value of the pursuit's L; larger ones count
    rejudged: int = 10  # rounds of marking the corrupted entries anew
    reweighted: int = 30  # rounds of reweighted least squares for the ℓ₁ solution of a row
    most_corrupted: float = 0.3  # largest share of entries in a sparse part
    clean: float = 1e-9  # largest relative residual of the low-rank part on clean entries
    most_rank: int = 10  # tried by consensus if no rank is given: every further rank costs all its draws
    consensus: ConsensusOptions = CONSENSUS


DEFAULTS = SeparationOptions()


@dataclass(frozen=True)
class LowRankSparse:
    """Y ≈ L + S; `mask` marks the corrupted entries, `residual` is ‖Y − L‖/‖Y‖ over the clean ones."""

    L: np.ndarray
    S: np.ndarray
    mask: np.ndarray
    residual: float
    rank: int
    separated: bool  # whether L has low rank, S is sparse, and their sum is Y


def principal_component_pursuit(
    Y: np.ndarray, max_iterations: int = 300, options: SeparationOptions = DEFAULTS
) -> tuple[np.ndarray, np.ndarray]:
    """Return L and S of Y (n, p); ‖Y − L − S‖_F ≤ `tolerance` ‖Y‖_F unless the steps run out."""
    n, p = Y.shape
    lam = 1.0 / np.sqrt(max(n, p))
    size = float(np.linalg.norm(Y))
    spectral = float(np.sqrt(np.linalg.eigvalsh(Y.T @ Y if p <= n else Y @ Y.T)[-1]))
    if size == 0.0:
        raise UnsolvableError("The outputs are all zero, so there is nothing to separate.")
    multiplier = Y / max(spectral, float(np.abs(Y).max()) / lam)
    mu = 1.25 / spectral
    S = np.zeros_like(Y)
    for _ in range(max_iterations):
        L = _shrink_singular(Y - S + multiplier / mu, 1.0 / mu)
        rest = Y - L + multiplier / mu
        S = np.sign(rest) * np.maximum(np.abs(rest) - lam / mu, 0.0)
        gap = Y - L - S
        multiplier = multiplier + mu * gap
        if np.linalg.norm(gap) <= options.tolerance * size:
            break
        mu *= options.growth
    return L, S


def separate(
    Y: np.ndarray,
    rank: int | None = None,
    rng: np.random.Generator | None = None,
    options: SeparationOptions = DEFAULTS,
) -> LowRankSparse:
    """Find the low-rank part of Y (n, p) exactly, and the mask of the corrupted entries.

    If the pursuit does not leave a sparse part, the row space comes from the agreement of small blocks. If no rank is
    given, it is the number of large singular values of the pursuit's L, or the smallest rank with an agreement.
    """
    # An entry far beyond all others is corrupted in any case; clipping it preserves the digits of the others.
    p = Y.shape[1]
    bulk = options.clip * float(np.quantile(np.abs(Y), 0.75))
    clipped = np.clip(Y, -bulk, bulk) if bulk > 0.0 else Y
    found = _pursued(Y, clipped, rank, options)
    if found.separated:
        return found
    rng = np.random.default_rng(0) if rng is None else rng
    for k in range(1, min(options.most_rank, p - 2) + 1) if rank is None else (rank,):
        agreed = low_rank_by_consensus(clipped, k, rng, options.consensus)
        if agreed is not None:
            parts = _parts(Y, clipped, *agreed, options)
            if parts.separated:
                return parts
    return found


def _pursued(Y: np.ndarray, clipped: np.ndarray, rank: int | None, options: SeparationOptions) -> LowRankSparse:
    L, _ = principal_component_pursuit(clipped, options=options)
    _, s, right = np.linalg.svd(L, full_matrices=False)
    k = int(np.count_nonzero(s > options.rank * s[0])) if rank is None else rank
    B = right[:k].T
    scale = float(np.sqrt(np.mean(L**2)))
    mask = np.abs(clipped - L) > 1e-3 * scale
    for _ in range(options.rejudged):
        _, B = _complete(clipped, ~mask, B)
        # If the pursuit is wrong in a row or a column, all its entries look corrupted. So judge every entry anew: first
        # rows by B, then columns by the coordinates of the rows.
        C = np.linalg.qr(_least_absolute(clipped, B, options.reweighted))[0]
        L = C @ _least_absolute(clipped.T, C, options.reweighted).T
        before, mask = mask, np.abs(clipped - L) > 1e-7 * scale
        if np.array_equal(before, mask):
            break
    return _parts(Y, clipped, B, mask, options)


def _parts(
    Y: np.ndarray, clipped: np.ndarray, B: np.ndarray, mask: np.ndarray, options: SeparationOptions
) -> LowRankSparse:
    """Return the low-rank part from the clean entries, to rounding, with the residual on them."""
    L, B = _complete(clipped, ~mask, B)
    clean = np.where(mask, 0.0, Y - L)
    size = float(np.linalg.norm(np.where(mask, 0.0, Y)))
    residual = float(np.linalg.norm(clean)) / max(size, np.finfo(np.float64).tiny)
    sparse = float(mask.mean()) <= options.most_corrupted
    separated = B.shape[1] < min(L.shape) and sparse and residual <= options.clean
    return LowRankSparse(L, np.where(mask, Y - L, 0.0), mask, residual, B.shape[1], separated)


def _shrink_singular(M: np.ndarray, by: float) -> np.ndarray:
    """Return U (Σ − by)₊ Vᵀ through the Gram matrix of the smaller side."""
    if M.shape[0] < M.shape[1]:
        return _shrink_singular(M.T, by).T
    values, V = np.linalg.eigh(M.T @ M)
    s = np.sqrt(np.maximum(values, 0.0))
    kept = s > by
    V, s = V[:, kept], s[kept]
    return ((M @ V) * ((s - by) / s)) @ V.T


def _complete(
    Y: np.ndarray, clean: np.ndarray, B: np.ndarray, max_iterations: int = 60
) -> tuple[np.ndarray, np.ndarray]:
    """Fit L = C Bᵀ of rank k to the clean entries, by alternating least squares from the row space B (p, k)."""
    filled = np.where(clean, Y, 0.0)
    last = np.inf
    for _ in range(max_iterations):
        C = _coordinates(filled, clean, B)
        B = _coordinates(filled.T, clean.T, C)
        B, triangle = np.linalg.qr(B)
        C = C @ triangle.T
        L = C @ B.T
        misfit = float(np.linalg.norm(np.where(clean, Y - L, 0.0)))
        if misfit >= 0.5 * last:
            break
        last = misfit
    return _coordinates(filled, clean, B) @ B.T, B


def _least_absolute(Y: np.ndarray, B: np.ndarray, rounds: int) -> np.ndarray:
    """Return for every row the c that minimises ‖y − B c‖₁, by reweighted least squares; sparse errors lose influence.

    The weights 1/|residual| are bounded by the upper quartile of the residuals, so that they grow only as fast as the
    fit improves. The median would be too small: half of the samples may fit an output exactly because its unit is off.
    """
    k = B.shape[1]
    products = (B[:, :, None] * B[:, None, :]).reshape(-1, k * k)
    least = 1e-13 * float(np.abs(Y).max())
    C = Y @ B
    for _ in range(rounds):
        residuals = np.abs(Y - C @ B.T)
        floor = np.maximum(np.quantile(residuals, 0.75, axis=1, keepdims=True), least)
        weights = floor / np.maximum(residuals, floor)
        grams = (weights @ products).reshape(-1, k, k)
        C = np.linalg.solve(grams, ((weights * Y) @ B)[..., None])[..., 0]
    return C


def _coordinates(filled: np.ndarray, clean: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return for every row of Y the coefficients on B that fit its clean entries best, by n small linear systems."""
    k = B.shape[1]
    weights = clean.astype(np.float64)
    grams = (weights @ (B[:, :, None] * B[:, None, :]).reshape(-1, k * k)).reshape(-1, k, k)
    trace = np.trace(grams, axis1=1, axis2=2)
    grams += (1e-14 * np.maximum(trace, 1e-300))[:, None, None] * np.eye(k)
    C = np.linalg.solve(grams, (filled @ B)[..., None])
    # One step of refinement removes the error of the ridge, which is there for rows without clean entries.
    rest = filled - np.where(clean, C[..., 0] @ B.T, 0.0)
    return (C + np.linalg.solve(grams, (rest @ B)[..., None]))[..., 0]
