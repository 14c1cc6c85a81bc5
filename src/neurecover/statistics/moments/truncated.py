"""Normal equations over the samples with bounded features: Σ φ φᵀ and Σ φ yᵀ over ‖φ(x)‖ < τ [ATV21, Alg. 5]."""

from collections.abc import Callable

import numpy as np

from neurecover.statistics.base import Statistic, add_gram, by_root, float64, symmetric


class TruncatedSums(Statistic):
    """The sums for `features`, which map X (n, d) to φ (n, q), over the rows with ‖φ‖ below τ = `bound`."""

    def __init__(
        self, features: Callable[[np.ndarray], np.ndarray], n_features: int, n_outputs: int, bound: float
    ) -> None:
        self.features, self.bound = features, bound
        self.settings = {"bound": np.asarray(bound)}
        self.sums = {
            "n": np.zeros((), dtype=np.int64),
            "kept": np.zeros((), dtype=np.int64),
            "gram": np.zeros((n_features, n_features), order="F"),  # the lower triangle
            "output": np.zeros((n_features, n_outputs)),
        }
        self.row_bytes = 8 * 3 * n_features

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, Y = float64(X, Y)
        phi = self.features(X)
        kept = np.einsum("ij,ij->i", phi, phi) < self.bound**2
        phi, Y = by_root(None if weight is None else weight[kept], phi[kept], Y[kept])
        self._count(len(X), weight)
        self.sums["kept"] += len(phi)
        self.sums["gram"] = add_gram(self.sums["gram"], np.ascontiguousarray(phi.T))
        self.sums["output"] += phi.T @ Y

    def solution(self, radius: float = np.inf) -> np.ndarray:
        """Return the least-squares β (q, p) with ‖β_o‖ ≤ radius for every output o; the shortest if not unique.

        Least squares over a ball is a ridge regression with the penalty at which ‖β‖ equals the radius.
        """
        values, vectors = np.linalg.eigh(symmetric(self.sums["gram"]))
        right = vectors.T @ self.sums["output"]
        seen = values > 1e-12 * max(float(values[-1]), 1e-300)
        values, vectors, right = values[seen], vectors[:, seen], right[seen]
        return vectors @ np.column_stack([_in_ball(values, column, radius) for column in right.T])


def _in_ball(values: np.ndarray, right: np.ndarray, radius: float) -> np.ndarray:
    """Return right/(values + λ) with the least λ ≥ 0 that brings its norm down to the radius, by bisection."""
    solution = right / values
    if np.linalg.norm(solution) <= radius:
        return solution
    low, high = 0.0, float(np.linalg.norm(right)) / radius
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.linalg.norm(right / (values + middle)) > radius else (low, middle)
    return right / (values + high)
