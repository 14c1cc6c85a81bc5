"""Symmetric decomposition T = Σᵢ aᵢ wᵢ^{⊗j}, even with more components than dimensions [ATV21, Alg. 1 and 4].

For j ≥ 2ℓ + 1, flatten(T, ℓ, ℓ, j − 2ℓ) = Σᵢ aᵢ p(wᵢ) ⊗ p(wᵢ) ⊗ …, with p(w) the C(r + ℓ − 1, ℓ) coordinates of w^{⊗ℓ}.
For generic wᵢ the p(wᵢ) are linearly independent up to that many components: ℓ = 1 (orders 3 and 4) reaches
k ≤ r, ℓ = 2 (orders 5 and 6) k ≤ r(r + 1)/2. Each slice of the last axis is a matrix that the p(wᵢ) diagonalise,
so slices of several orders and outputs are stacked: a component that is missing from one order, because hⱼ(bᵢ) = 0,
is seen in another. wᵢ is the leading singular vector of p(wᵢ) reshaped. All tensors then enter one least-squares
polish.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from neurecover.exceptions import UnsolvableError, breakdown
from neurecover.solve import DenseSystem
from neurecover.tensors.diagonalise import pencil_starts
from neurecover.tensors.packing import flatten, n_packed, root_multiplicities, unpack
from neurecover.tensors.power_sums import PowerPoint, Target, best_weights
from neurecover.tensors.separable import descend_best


@dataclass(frozen=True)
class SymmetricComponents:
    """Tⱼ ≈ Σᵢ weights[j]_i wᵢ^{⊗j} with unit rows wᵢ in W (k, r) and weights[j] (p, k) for every order j.

    For odd j changing the sign of wᵢ and of its weights gives the same tensor; the choice is arbitrary.
    """

    W: np.ndarray
    weights: dict[int, np.ndarray]
    relative_error: float


def slices(packed: np.ndarray, r: int, order: int, ell: int) -> np.ndarray:
    """Return the matrices (m, N, N), N = n_packed(r, ℓ), that the p(wᵢ) diagonalise: T by output and last axis."""
    if order < 2 * ell:
        raise ValueError(f"Flattening with ℓ = {ell} needs a tensor of order {2 * ell} or more. Got {order} instead.")
    N = n_packed(r, ell)
    cube = flatten(np.atleast_2d(packed), r, (order - 2 * ell, ell, ell))
    return cube.reshape(-1, N, N)


def flattening_values(tensors: Mapping[int, np.ndarray], r: int, ell: int) -> np.ndarray:
    """Return the singular values of flatten(T_j, ℓ, j − ℓ), all orders and outputs side by side [ATV21, Alg. 4]."""
    sides = [flatten(np.atleast_2d(T), r, (ell, j - ell)).transpose(1, 0, 2) for j, T in tensors.items()]
    return np.linalg.svd(np.hstack([side.reshape(len(side), -1) for side in sides]), compute_uv=False)


@breakdown("The decomposition")
def decompose(
    tensors: Mapping[int, np.ndarray],
    r: int,
    rank: int,
    rng: np.random.Generator,
    *,
    pencils: int = 20,
    polished: int = 3,
    max_iterations: int = 200,
) -> SymmetricComponents:
    """Find the `rank` directions that all the tensors share.

    tensors maps an order to packed entries, (n_packed,) or (p, n_packed); the weights of the components are free in
    every order and output. The sum of squared errors is minimised, so first scale the tensors by their noise
    (Hermite coefficients: by 1/√j!). ℓ is the smallest one that allows `rank` components; no order may be
    below 2ℓ, and one must exceed it unless there are several outputs.
    """
    ell = _flattening_order(r, rank, min(tensors))
    stack = np.concatenate([slices(T, r, j, ell) for j, T in tensors.items()])
    if len(stack) < 2 and rank > 1:
        raise UnsolvableError("One symmetric matrix has no unique decomposition. Give a tensor of higher order.")
    starts = [directions_of_powers(P, r, ell) for P in pencil_starts(stack, rank, rng, pencils)]
    targets = [Target.of({j: T}, r, {}) for j, T in tensors.items()]
    points = [_Shared(tuple(PowerPoint.plain(target, W) for target in targets)) for W in starts]
    best = descend_best(points, polished, max_iterations)
    W = best.parts[0].W
    weights = {j: best_weights(T, W, j) for j, T in tensors.items()}
    return SymmetricComponents(W, weights, float(np.sqrt(best.loss / best.scale)))


def _flattening_order(r: int, rank: int, lowest: int) -> int:
    fits = (ell for ell in range(1, lowest // 2 + 1) if n_packed(r, ell) >= rank)
    ell = next(fits, None)
    if ell is None:
        raise UnsolvableError(
            f"Tensors of order {lowest} in {r} dimensions determine at most {n_packed(r, max(lowest // 2, 1))} "
            f"components. Got rank {rank} instead; take higher orders, or leave out the lowest."
        )
    return ell


def directions_of_powers(powers: np.ndarray, r: int, ell: int) -> np.ndarray:
    """Return the unit w (k, r), up to sign, whose w^{⊗ℓ} is nearest to each row of `powers` (k, n_packed(r, ℓ)).

    The rows are in the orthonormal coordinates of `flatten`. As an r × r^{ℓ−1} matrix, w^{⊗ℓ} has rank one.
    """
    full = unpack(powers / root_multiplicities(r, ell), r, ell)
    return np.linalg.svd(full.reshape(len(powers), r, -1), full_matrices=False)[0][:, :, 0]


@dataclass(frozen=True)
class _Shared:
    """The joint least-squares problem of several tensors with common directions and separate weights."""

    parts: tuple[PowerPoint, ...]

    @property
    def loss(self) -> float:
        return sum(part.loss for part in self.parts)

    @property
    def scale(self) -> float:
        return sum(part.scale for part in self.parts)

    def system(self) -> DenseSystem:
        systems = [part.system() for part in self.parts]
        S, g, D = (sum(getattr(s, name) for s in systems) for name in ("S", "g", "D"))
        return DenseSystem(S, g, D)

    def moved(self, step: np.ndarray) -> _Shared:
        return _Shared(tuple(part.moved(step) for part in self.parts))
