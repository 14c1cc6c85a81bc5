"""Simultaneous diagonalisation by congruence: M_s ≈ Vᵀ diag(λ_s) V for all s, V (k, d) not orthogonal.

The λ_s may have either sign, so no combination of the M_s need be positive definite, and whitening is impossible.
Starts are the generalised eigenvectors of pencils of random combinations, which are exact if the M_s are. The best
starts are refined by second-order steps on  Σ_s ‖M_s − Vᵀ diag(λ_s) V‖_F²  over all matrices together.
"""

from dataclasses import dataclass

import numpy as np

from neurecover.exceptions import UnsolvableError, breakdown
from neurecover.tensors.packing import pack, root_multiplicities, unpack
from neurecover.tensors.pencils import leading_directions, pencil_directions
from neurecover.tensors.power_sums import PowerPoint, Target, best_weights
from neurecover.tensors.separable import descend_best


@dataclass(frozen=True)
class Congruence:
    """M_s ≈ Σᵢ weights_si vᵢ vᵢᵀ, the vᵢ unit rows of V (k, d), weights (m, k).

    `relative_error` is √(Σ_s ‖M_s − …‖² / Σ_s ‖M_s‖²).
    """

    V: np.ndarray
    weights: np.ndarray
    relative_error: float


@breakdown("The decomposition")
def joint_diagonalise(
    matrices: np.ndarray,
    rank: int,
    rng: np.random.Generator,
    *,
    pencils: int = 10,
    polished: int = 2,
    max_iterations: int = 100,
) -> Congruence:
    """Diagonalise the symmetric matrices (m, d, d) by `rank` ≤ d directions.

    `pencils` random pairs of combinations give starts, and the `polished` best are refined. pencils=1,
    max_iterations=0 is Jennrich's algorithm on a tensor Σᵢ vᵢ ⊗ vᵢ ⊗ λᵢ [ATV21, Theorem 1.5], and the diagonalisation
    by two random matrices of [GKLW19, Alg. 2].
    """
    matrices = np.asarray(matrices, dtype=float)
    matrices = 0.5 * (matrices + matrices.transpose(0, 2, 1))
    d = matrices.shape[1]
    packed = pack(matrices, 2)
    compact = packed if len(packed) <= packed.shape[1] else _compact(packed, d)
    starts = pencil_starts(unpack(compact, d, 2), rank, rng, pencils)
    target = Target.of({2: compact}, d, {})
    best = descend_best([PowerPoint.plain(target, V) for V in starts], polished, max_iterations)
    return Congruence(best.W, best_weights(packed, best.W, 2), float(np.sqrt(best.loss / best.scale)))


def pencil_starts(matrices: np.ndarray, rank: int, rng: np.random.Generator, pencils: int) -> list[np.ndarray]:
    """Return `pencils` estimates of V (rank, d), unit rows, each from two random combinations of the matrices."""
    m, d, _ = matrices.shape
    if not np.all(np.isfinite(matrices)) or not np.any(matrices):
        raise UnsolvableError("The tensors to be decomposed need to be finite and not all zero.")
    basis = leading_directions(matrices.transpose(1, 0, 2).reshape(d, -1), rank)
    core = basis.T @ matrices @ basis
    draws = rng.standard_normal((pencils, 2, m))
    combined = np.tensordot(draws, core, axes=1)
    return [pencil_directions(first, second) @ basis.T for first, second in combined]


def _compact(packed: np.ndarray, d: int) -> np.ndarray:
    """Reduce the matrices to linearly independent ones, with the same sum of squares of any linear function."""
    root = root_multiplicities(d, 2)
    return np.linalg.qr(packed * root, mode="r") / root
