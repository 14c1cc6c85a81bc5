"""Pure neurons: combinations of the outputs that see one hidden unit only [GKLW19, §3.2].

y = A act(W x) + ξ with act(z) = h z + g |z|, x ~ −x, A (p, k) and W (k, d) of rank k, ξ independent of x. The steps,
each usable by itself:

    linear_part     L = h A W, the least-squares map of y on x                             [Lemma 1, Alg. 1]
    reduction       k combinations of the outputs that hold all that depends on x          [Alg. 4]
    detector        a matrix whose null space is the span of the z zᵀ, z a row of A⁻¹      [Lemmas 3, 4, 9, 10]
    pure_directions the z themselves, by simultaneous diagonalisation                      [Lemma 5]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.activations import Activation
from neurecover.algorithms.gklw19.options import DEFAULTS, SymmetricOptions
from neurecover.data import Source, reduce
from neurecover.exceptions import UnsolvableError
from neurecover.statistics import HermiteSums, Moments
from neurecover.statistics.base import symmetric
from neurecover.statistics.moments.detector import PureNeuronSums
from neurecover.tensors import joint_diagonalise, root_multiplicities, unpack
from neurecover.tensors.alternating import alternating_least_squares


def gains(activation: Activation) -> tuple[float, float] | None:
    """Return (h, g) of act(z) = h z + g |z| with h, g ≠ 0; None for an activation that is not of this form."""
    if activation.homogeneity != 1.0 or not activation.odd_slope:
        return None
    h = 0.5 * activation.odd_slope
    g = float(activation(1.0)) - h
    return (h, g) if abs(g) > 1e-12 else None


@dataclass(frozen=True)
class LinearPart:
    """L (p, d), the standard error of one of its entries, and the number of even features that joined x in the
    regression.
    """

    L: np.ndarray
    standard_error: float
    even_features: int


def linear_part(source: Source, regress: bool = True, options: SymmetricOptions = DEFAULTS) -> LinearPart:
    """Return L = E[y xᵀ] E[x xᵀ]⁻¹ [GKLW19, Lemma 1], which is h A W for symmetric inputs.

    The residual of this regression is the even part g A |W x|, much larger than any noise. Even functions of x are
    uncorrelated with x, so with `regress` the constant and all products xᵢxⱼ join the regression: L stays the same in
    the mean and loses most of its variance, because |z| is 95 % explained by a constant and a square (Gaussian z).
    Where the samples are too few for that, the constant joins alone.
    """
    n = source.count()
    d, p = source.n_inputs, source.n_outputs
    if not regress:
        moments = reduce(source, Moments(d, p))
        L = np.linalg.lstsq(moments.xx, moments.yx.T, rcond=1e-12)[0].T
        left = float(np.trace(moments.yy) - np.vdot(L, moments.yx)) / p
        return LinearPart(L, _standard_error(left, n, d), 0)
    features = (d + 1) * (d + 2) // 2
    degree = 2 if options.samples_per_feature * features <= n and features <= options.features else 1
    sums = reduce(source, HermiteSums(d, p, degree))
    gram, output = symmetric(sums.average("gram")), sums.average("output")
    # Inputs with few values, such as ±1, make even features equal to one another but leave the odd ones determined.
    beta = np.linalg.lstsq(gram, output, rcond=1e-11)[0]
    left = float(np.sum(sums.average("output_squared")) - np.vdot(beta, output)) / p
    return LinearPart(beta[1 : d + 1].T, _standard_error(left, n, len(gram)), len(gram) - d)


@dataclass(frozen=True)
class Reduction:
    """k combinations P y of the outputs, P (k, p), and the way back: A = lift · (the reduced A), lift (p, k).

    `linear` (k, d) is P L and `singular_values` are those of L.
    """

    projection: np.ndarray
    lift: np.ndarray
    linear: np.ndarray
    singular_values: np.ndarray


def reduction(L: np.ndarray, k: int, balance: bool = True, options: SymmetricOptions = DEFAULTS) -> Reduction:
    """Project the outputs onto the k leading left singular vectors of L [GKLW19, Alg. 4]; with `balance`, scale them so
    that P L has orthonormal rows.

    The balanced form depends on the outputs only through their span: mixing them by any invertible matrix, however
    ill-conditioned, changes nothing without noise. Measured with W and A on the sphere, d = k = p = 10, n = 5,000:
    squared error 0.003 against 0.10.
    """
    U, s, Vt = np.linalg.svd(L, full_matrices=False)
    if k > len(s) or s[k - 1] <= options.rank * max(s[0], 1e-300):
        rank = int(np.count_nonzero(s > options.rank * max(s[0], 1e-300)))
        raise UnsolvableError(
            f"{k} units need outputs whose linear part has rank {k}. Got rank {rank} instead: fewer outputs or "
            "inputs than units, or A W is singular."
        )
    scale = s[:k] if balance else np.ones(k)
    return Reduction((U[:, :k] / scale).T, U[:, :k] * scale, (Vt[:k].T * (s[:k] / scale)).T, s)


def detector_sums(
    source: Source, reduced: Reduction, gains: tuple[float, float], pointwise: bool = True
) -> PureNeuronSums:
    """Sum over the samples, once, what both detectors need."""
    return reduce(source, PureNeuronSums(reduced.projection, reduced.linear, gains, pointwise))


def detector_matrix(sums: PureNeuronSums, centred: bool = True) -> np.ndarray:
    """Return T with T p(u) = f(u), both sides in orthonormal packed coordinates: p(u) = vec*(u uᵀ) with off-diagonal
    entries × √2.

    f is Corollary 1's for centred=False and Lemma 9's, which independent noise leaves alone, for centred=True.
    """
    r, d = sums.linear.shape
    root_d, root_r = root_multiplicities(d, 2), root_multiplicities(r, 2)
    return -0.25 * sums.cross_moment(centred) * root_d[:, None] * root_r


@dataclass(frozen=True)
class Spectrum:
    """The right singular vectors of a detector, as symmetric matrices (K₂, r, r), largest singular value first."""

    values: np.ndarray
    matrices: np.ndarray

    def null_space(self, k: int) -> np.ndarray:
        """Return the k matrices of the smallest singular values: the span of the z zᵀ."""
        return self.matrices[len(self.matrices) - k :]

    def gap(self, k: int) -> float:
        """Return σ_{K₂−k} / σ_{K₂−k+1}, the gap between the null space and the other singular values."""
        above = self.values[len(self.values) - k - 1] if len(self.values) > k else np.inf
        return float(above / max(self.values[len(self.values) - k], 1e-300))


def moment_spectrum(sums: PureNeuronSums, centred: bool = True) -> Spectrum:
    """Return the spectrum of the paper's detector T."""
    T = detector_matrix(sums, centred)
    if T.shape[0] < T.shape[1]:
        T = np.vstack([T, np.zeros((T.shape[1] - T.shape[0], T.shape[1]))])
    _, values, right = np.linalg.svd(T, full_matrices=False)
    return _spectrum(values, right, sums.linear.shape[0])


def pointwise_spectrum(sums: PureNeuronSums) -> Spectrum:
    """Return the spectrum of the pointwise detector: the square roots of the eigenvalues of E[φ φᵀ].

    Without noise and with L exact every single φ is orthogonal to every z zᵀ, so no moment of x needs to converge.
    """
    r = sums.linear.shape[0]
    root = root_multiplicities(r, 2)
    values, vectors = np.linalg.eigh(sums.gram() * root[:, None] * root)
    return _spectrum(np.sqrt(np.maximum(values[::-1], 0.0)), vectors[:, ::-1].T, r)


def _spectrum(values: np.ndarray, right: np.ndarray, r: int) -> Spectrum:
    return Spectrum(values, unpack(right / root_multiplicities(r, 2), r, 2))


def count_units(part: LinearPart, options: SymmetricOptions = DEFAULTS) -> int:
    """Return how many singular values of L stand above what its standard errors alone would give: an upper bound of k.

    An m × d matrix of independent errors s has norm about s (√m + √d).
    """
    p, d = part.L.shape
    values = np.linalg.svd(part.L, compute_uv=False)
    edge = options.significant * part.standard_error * (np.sqrt(p) + np.sqrt(d))
    return int(np.count_nonzero(values > max(edge, options.rank * max(values[0], 1e-300))))


def units_from_gap(spectrum: Spectrum, r: int) -> int:
    """Return the k ≤ r whose detector rank, k(k − 1)/2, is followed by the widest gap in the singular values [GKLW19,
    Lemma 4].

    With r ≥ k reduced outputs the detector has rank k(k − 1)/2 all the same: the null space is {U : AᵀUA diagonal}.
    """
    s = np.maximum(spectrum.values, 1e-13 * max(spectrum.values[0], 1e-300))
    ranks = {k: k * (k - 1) // 2 for k in range(2, r + 1)}
    return max(ranks, key=lambda k: s[ranks[k] - 1] / s[ranks[k]], default=1)


def pure_directions(span: np.ndarray, rng: np.random.Generator, how: str = "joint") -> np.ndarray:
    """Return the directions z as unit rows (k, r), up to sign, from a basis (m, r, r) of the span of the matrices z zᵀ.

    "joint" diagonalises the whole basis at once; "pencil" takes the eigenvectors of X Y⁻¹ for two random elements
    [GKLW19, Alg. 2, steps 7–8]; "als" is the CP decomposition of 10k random elements with 10 restarts [GKLW19, §4].
    """
    k = len(span)
    if how == "joint":
        return joint_diagonalise(span, k, rng).V
    if how == "pencil":
        return joint_diagonalise(span, k, rng, pencils=1, polished=1, max_iterations=0).V
    if how == "als":
        drawn = np.tensordot(rng.standard_normal((10 * k, k)), span, axes=1)
        found = alternating_least_squares(drawn.transpose(1, 2, 0), k, rng)
        # The two factors agree up to sign for symmetric slices; where they do not quite, their mean is taken.
        aligned = found.V * np.sign(np.sum(found.U * found.V, axis=1, keepdims=True))
        mean = found.U + aligned
        return mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-300)
    raise ValueError(f"how needs to be joint, pencil or als. Got {how!r} instead.")


def _standard_error(mean_square: float, n: int, features: int) -> float:
    return float(np.sqrt(max(mean_square, 0.0) / max(n - features, 1)))
