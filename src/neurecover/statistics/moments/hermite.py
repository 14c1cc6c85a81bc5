"""Hermite coefficients T_j = E[y · He_j(z)] of every output, j = 0 … degree, z = Pᵀ(x − mean) ~ N(0, I_r).

An entry of T_j is E[y ∏ᵢ He_{αᵢ}(zᵢ)] for a multi-index α of size j. The features used are normalised,
h_α = ∏ᵢ He_{αᵢ}(zᵢ)/√αᵢ!, so that E[h_α h_β] = δ_αβ and T_α = √α! · E[y h_α].

The plain mean of y h_α is the papers' estimate. For Gaussian z any polynomial of degree q may be subtracted
from y first without changing the coefficients above q, and least squares on all features up to q has far
less variance than the mean. With G = Σ h_q h_qᵀ over the features up to q, β = G⁻¹ Σ h_q y:

    degree ≤ q:   E[y h_α] ← β_α
    degree > q:   E[y h_α] ← mean of (y − β·h_q) h_α = mean(y h_α) − β · mean(h_q h_α)

q = −1 is the plain mean, q = degree the full regression.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb, factorial, sqrt

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.blas import dgemm
from scipy.linalg.lapack import dpocon

from neurecover.exceptions import UnsolvableError
from neurecover.statistics.base import Statistic, add_gram, by_root, float64, setting


def n_features(r: int, degree: int) -> int:
    """Return C(r + degree, degree): the monomials in r variables up to a degree; 0 for degree −1."""
    return comb(r + degree, degree) if degree >= 0 else 0


def regression_degree(n: int, r: int, degree: int, max_bytes: int = 2**30) -> int:
    """Return the largest q ≤ degree that n samples and the memory allow; −1 means the plain mean.

    A regression needs eight samples per feature. The features of higher degree have heavy tails, so with fewer
    samples the regression multiplies the unexplained part of y by much more than n/(n − F). Measured on ReLU
    teachers with r = 3, 5, 8 at n = 2F, it is worse than degree q − 1 without noise, and worse than the plain mean
    with noise. The sums take 8·F_q·F bytes and solving them 8·F_q² more.
    """
    F = n_features(r, degree)
    sizes = ((q, n_features(r, q)) for q in range(degree, -1, -1))
    return next((q for q, Fq in sizes if n >= 8 * Fq and 8 * Fq * (F + Fq) <= max_bytes), -1)


class HermiteSums(Statistic):
    """Sums for the coefficients of every output up to `degree`, after a regression on features up to degree `regress`.

    Time is n·F_q·(2F − F_q) multiply–adds, F = C(r + degree, degree), F_q likewise for q = `regress`; memory
    8·F_q·F bytes.
    """

    def __init__(
        self,
        n_inputs: int,
        n_outputs: int,
        degree: int = 4,
        regress: int | None = None,
        projection: np.ndarray | None = None,
        mean: np.ndarray | None = None,
    ) -> None:
        P = np.eye(n_inputs) if projection is None else np.array(projection, dtype=np.float64)
        if P.ndim != 2 or P.shape[0] != n_inputs:
            raise ValueError(f"projection needs shape ({n_inputs}, r). Got {P.shape} instead.")
        if degree < 0:
            raise ValueError(f"degree needs to be 0 or more. Got {degree} instead.")
        regress = degree if regress is None else regress
        if not -1 <= regress <= degree:
            raise ValueError(f"regress must be between −1 and degree = {degree}. Got {regress}.")
        self.projection, self.mean = P, setting("mean", mean, np.zeros(n_inputs))
        self.settings = {"projection": self.projection, "mean": self.mean}
        self.degree, self.regress = degree, regress
        self.r = P.shape[1]
        F, Fq = n_features(self.r, degree), n_features(self.r, self.regress)
        self.sums = {
            "n": np.zeros((), dtype=np.int64),
            "gram": np.zeros((Fq, Fq), order="F"),  # the lower triangle of Σ h_q h_qᵀ
            "cross": np.zeros((Fq, F - Fq), order="F"),  # Σ h_q h_αᵀ for the degrees above q
            "output": np.zeros((F, n_outputs)),  # Σ h y
            "output_squared": np.zeros(n_outputs),
        }
        self.row_bytes = 8 * (F + (degree + 2) * self.r + n_inputs)

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, Y = float64(X, Y)
        features = hermite_features((X - self.mean) @ self.projection, self.degree)
        if weight is not None:
            features *= np.sqrt(weight)
            (Y,) = by_root(weight, Y)
        cross = self.sums["cross"]
        lower, upper = features[: len(cross)], features[len(cross) :]
        self.sums["gram"] = add_gram(self.sums["gram"], lower)
        if cross.size and len(X):
            self.sums["cross"] = dgemm(1.0, lower.T, upper.T, beta=1.0, c=cross, trans_a=1, overwrite_c=1)
        self._count(len(X), weight)
        self.sums["output"] += features @ Y
        self.sums["output_squared"] += np.einsum("ij,ij->j", Y, Y)

    def coefficients(self) -> HermiteCoefficients:
        """Return the estimates, by the regression if `regress` ≥ 0, else by plain means."""
        means, residual = self.average("output"), self.average("output_squared")
        n, Fq = self.n, len(self.sums["gram"])
        if Fq:
            beta = self._regression()
            means[Fq:] -= self.sums["cross"].T @ beta / self.weight
            residual -= np.einsum("ij,ij->j", beta, means[:Fq])
            means[:Fq] = beta
        return HermiteCoefficients(self.r, self.degree, means.T, n - Fq, np.maximum(residual, 0.0))

    def _regression(self) -> np.ndarray:
        """Return β = G⁻¹ Σ h_q y, with G scaled to a unit diagonal first."""
        gram, right = self.sums["gram"], self.sums["output"][: len(self.sums["gram"])]
        scale = np.sqrt(np.diag(gram))
        if self.n >= len(gram) and scale.all():
            scaled = gram / scale
            scaled /= scale[:, None]
            factor = _cholesky(scaled)
            if factor is not None:
                return cho_solve((factor, True), right / scale[:, None]) / scale[:, None]
        raise UnsolvableError(
            f"The regression up to degree {self.regress} has {len(gram)} features, and {self.n} samples do not "
            "determine them: there are too few, or their inputs take too few values or lie in a subspace. "
            "Lower `regress` (see regression_degree), give more samples, or project the inputs."
        )


@dataclass(frozen=True)
class HermiteCoefficients:
    """Estimated coefficients E[y h_α] of normalised features, (p, F), in order of degree.

    `freedom` is the number of samples minus the number of regressors, and `residual_variance` (p,) the mean square
    after the regression. A coefficient has a standard error of about √(residual_variance / freedom).
    """

    r: int
    degree: int
    values: np.ndarray
    freedom: int
    residual_variance: np.ndarray

    def packed(self, order: int) -> np.ndarray:
        """Return the distinct entries of T_order, (p, C(r + order − 1, order)), in lexicographic order."""
        if not 0 <= order <= self.degree:
            raise ValueError(f"These coefficients go from order 0 to {self.degree}. Got {order} instead.")
        start, stop = n_features(self.r, order - 1), n_features(self.r, order)
        return self.values[:, start:stop] * root_factorials(self.r, order)


def hermite_features(Z: np.ndarray, degree: int) -> np.ndarray:
    """Return all normalised Hermite products h_α(z) up to `degree`, one feature per row: (F, n) for Z (n, r).

    Within degree j the multi-indices are sorted tuples in lexicographic order. A feature whose tuple begins with i
    repeated m times is h_m(zᵢ) times a feature of degree j − m in the later variables. The latter are the last rows of
    the block of degree j − m, so every block is filled by multiplications of contiguous rows.
    """
    n, r = Z.shape
    one = _one_variable(Z.T, degree)
    out = np.empty((n_features(r, degree), n))
    out[0] = 1.0
    row = 1
    for j in range(1, degree + 1):
        for i, m, tail in _layout(r, j):
            stop = n_features(r, j - m)
            np.multiply(one[m, i], out[stop - tail : stop], out=out[row : row + tail])
            row += tail
    return out


def root_factorials(r: int, order: int) -> np.ndarray:
    """Return √α! for every multi-index α of the given order, in the order of `hermite_features`."""
    blocks = [np.ones(1)]
    for j in range(1, order + 1):
        parts = [sqrt(factorial(m)) * blocks[j - m][-tail:] for _, m, tail in _layout(r, j)]
        blocks.append(np.concatenate(parts))
    return blocks[order]


def _layout(r: int, j: int) -> Iterator[tuple[int, int, int]]:
    """Yield groups of multi-indices of degree j in r variables: (first variable i, its power m, size of the group)."""
    for i in range(r):
        for m in range(j, 0, -1):
            tail = comb(r - i - 2 + j - m, j - m) if i < r - 1 else int(j == m)
            if tail:
                yield i, m, tail


def _one_variable(Z: np.ndarray, degree: int) -> np.ndarray:
    """Return h_m of every entry, m = 0 … degree: √(m+1) h_{m+1} = z h_m − √m h_{m−1}."""
    h = np.ones((degree + 1, *Z.shape))
    if degree >= 1:
        h[1] = Z
    for m in range(1, degree):
        h[m + 1] = (Z * h[m] - np.sqrt(m) * h[m - 1]) / np.sqrt(m + 1)
    return h


def _cholesky(matrix: np.ndarray) -> np.ndarray | None:
    """Overwrite a matrix of unit diagonal with its lower Cholesky factor and return it; None if it is singular.

    Rounding alone can make a singular matrix look positive definite, so ‖matrix⁻¹‖₁ is estimated too.
    """
    try:
        factor, _ = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return None
    reciprocal, _ = dpocon(factor, 1.0, uplo="L")
    return factor if reciprocal > 1e-14 * len(matrix) else None
