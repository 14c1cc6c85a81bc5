"""Test whether inputs are Gaussian, by radial polynomials of degree 3 and 4 that have mean zero for x ~ N(0, I).

    u₃(x) = (‖x‖² − d − 2) x,        u₄(x) = ‖x‖⁴ − 2(d + 2)‖x‖² + d(d + 2)

are orthogonal to all polynomials of lower degree, so that estimating mean and covariance from the same samples does not
bias their averages. E[u₃ u₃ᵀ] = 2(d + 2) I and E[u₄²] = 8 d (d + 2). u₃ gives the skewness of Móri, Rohatgi & Székely,
u₄ the kurtosis of Mardia.
"""

import numpy as np

from neurecover.statistics.base import Statistic, float64


class RadialMoments(Statistic):
    """Σ u₃ (d,) and Σ u₄."""

    def __init__(self, n_inputs: int) -> None:
        self.n_inputs = n_inputs
        self.sums = {"n": np.zeros((), dtype=np.int64), "third": np.zeros(n_inputs), "fourth": np.zeros(())}
        self.row_bytes = 16 * n_inputs

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, _ = float64(X, Y)
        d = self.n_inputs
        square = np.einsum("ij,ij->i", X, X)
        third, fourth = square - d - 2.0, square * square - 2.0 * (d + 2.0) * square + d * (d + 2.0)
        self._count(len(X), weight)
        if weight is not None:
            third, fourth = weight * third, weight * fourth
            self.sums["weight_squared"] += weight @ weight
        self.sums["third"] += third @ X
        self.sums["fourth"] += np.sum(fourth)

    def weigh(self) -> None:
        super().weigh()
        self.sums.setdefault("weight_squared", np.zeros(()))

    def deviations(self) -> tuple[float, float]:
        """Return n‖ū₃‖²/2(d + 2) and √n ū₄/√(8d(d + 2)): χ² on d degrees of freedom and N(0, 1) for Gaussian inputs.

        With weights, n is replaced by (Σ w)²/Σ w², the effective number of samples of a weighted mean.
        """
        d = self.n_inputs
        n = self.weight**2 / float(self.sums["weight_squared"]) if "weight" in self.sums else self.n
        third, fourth = self.average("third"), float(self.average("fourth"))
        return n * float(third @ third) / (2.0 * (d + 2.0)), np.sqrt(n / (8.0 * d * (d + 2.0))) * fourth
