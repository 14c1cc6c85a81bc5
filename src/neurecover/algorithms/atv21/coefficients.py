"""Hermite coefficients from samples, with the errors they have.

The samples are read in two halves. With E_j = (T_j⁽¹⁾ − T_j⁽²⁾) √(n₁n₂)/n the half difference, a draw of the error in
T_j, the error of one orthonormal coordinate of T_j/√j! is

    σ_j² = (‖E_j‖²/j! + ν σ² g^j) / (N_j + ν),        N_j the number of coordinates,  σ² = residual variance / n,

the second term a prior worth ν coordinates, which matters where order j has few. The residual of the regression is
largest where x is, so the errors grow with the order: measured σ_4 = 2.3 σ_1 for one output, d = k = 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import factorial, log, sqrt

import numpy as np
from scipy.special import chdtrc

from neurecover.algorithms.atv21.options import DEFAULTS, HermiteOptions
from neurecover.algorithms.atv21.steps import ROUNDING, population_coefficients
from neurecover.data import Source, reduce, split
from neurecover.models import Network
from neurecover.statistics import HermiteSums, Moments
from neurecover.statistics.checks.normality import RadialMoments
from neurecover.statistics.moments.hermite import n_features
from neurecover.statistics.moments.residual import ResidualMoments
from neurecover.tensors import Span, flattening_values, inner, multiplicities, n_packed, span, whitened


@dataclass(frozen=True)
class Coefficients:
    """T_j of every output in units of `scale` (p,), by order; `errors` maps an order to σ_j, 0 if the tensor is exact.

    `regressed` is the degree up to which the coefficients come from a regression (−1: plain means), and `n` the number
    of samples. `halves` are the same tensors from each half of the samples, independent of one another; none if they
    are exact. `chosen_by_noise` says that some of the r directions were chosen by coefficients no larger than their
    errors.
    """

    r: int
    tensors: dict[int, np.ndarray]
    errors: dict[int, float]
    scale: np.ndarray
    regressed: int
    n: int
    halves: tuple[dict[int, np.ndarray], ...] = ()
    chosen_by_noise: bool = False
    options: HermiteOptions = DEFAULTS

    @classmethod
    def exact(cls, network: Network, orders: Iterable[int]) -> Coefficients:
        """Return the exact coefficients of a network."""
        orders = tuple(orders)
        tensors = population_coefficients(network, orders)
        return cls(network.n_inputs, tensors, dict.fromkeys(orders, 0.0), np.ones(network.n_outputs), max(orders), 0)

    @property
    def known_exactly(self) -> bool:
        return not any(self.errors.values())

    def weights(self) -> dict[int, float]:
        """Return the weights 1/σ_j², with which Σ_j weight_j ‖T_j − T̂_j‖²/j! is χ²; all 1 if the tensors are exact."""
        return {j: 1.0 if self.known_exactly else 1.0 / s**2 for j, s in self.errors.items()}

    def standardised(self, orders: Iterable[int]) -> dict[int, np.ndarray]:
        """Return T_j/σ_j by order."""
        return {j: self.tensors[j] * sqrt(self.weights()[j]) for j in orders}

    def n_coordinates(self, orders: Iterable[int]) -> int:
        return len(self.scale) * sum(n_packed(self.r, j) for j in orders)

    def projected(self, basis: np.ndarray) -> Coefficients:
        """Return the coefficients of the projected inputs Bᵀx, B (r, r′) orthonormal: T_j(B, …, B)."""

        def turned(tensors: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
            return {j: np.array([whitened(row, basis, j) for row in T]) if j else T for j, T in tensors.items()}

        halves = tuple(turned(half) for half in self.halves)
        return replace(self, r=basis.shape[1], tensors=turned(self.tensors), halves=halves)

    def half(self, which: int) -> Coefficients:
        """Return the estimate from one half of the samples, with errors √2 times as large."""
        errors = {j: sqrt(2.0) * s for j, s in self.errors.items()}
        return replace(self, tensors=self.halves[which], errors=errors, n=self.n // 2, halves=())

    def span(self, orders: Iterable[int], rank: int | None = None) -> Span:
        """Return the span of the units, estimated from these orders."""
        return span(self.standardised(orders), self.r, 0.0 if self.known_exactly else 1.0, rank=rank)

    def count(self, orders: Iterable[int], ell: int, rng: np.random.Generator) -> int:
        """Return how many singular values of the flattenings (ℓ, j − ℓ), side by side, noise does not explain [ATV21,
        Alg. 4].

        The threshold is the mean norm of five draws of pure noise plus √(2 log 1/δ): the norm is a 1-Lipschitz
        function of the coordinates, so noise exceeds it with probability δ at most.
        """
        orders = [j for j in orders if j > ell]
        values = self._singular_values(self.standardised(orders), ell)
        if self.known_exactly:
            return int(np.sum(values > ROUNDING * values[0]))
        margin = sqrt(2.0 * log(1.0 / self.options.false_alarm))
        return int(np.sum(values > self._noise_norm(orders, ell, rng) + margin))

    def error_norm(self, j: int, ell: int, rng: np.random.Generator) -> float:
        """Return the norm of the errors of flatten(T_j, ℓ, j − ℓ), in units of `scale`."""
        return self.errors[j] * sqrt(factorial(j)) * self._noise_norm([j], ell, rng)

    def _noise_norm(self, orders: list[int], ell: int, rng: np.random.Generator) -> float:
        """Return the mean norm of five draws of pure noise with errors σ_j = 1."""
        norms = []
        for _ in range(5):
            draw = {
                j: rng.standard_normal((len(self.scale), n_packed(self.r, j)))
                * np.sqrt(factorial(j) / multiplicities(self.r, j))
                for j in orders
            }
            norms.append(self._singular_values(draw, ell)[0])
        return float(np.mean(norms))

    def _singular_values(self, tensors: dict[int, np.ndarray], ell: int) -> np.ndarray:
        return flattening_values({j: T / sqrt(factorial(j)) for j, T in tensors.items()}, self.r, ell)


def estimate_coefficients(
    source: Source,
    degree: int,
    rng: np.random.Generator,
    *,
    projection: np.ndarray | None = None,
    regress: int | None = None,
    options: HermiteOptions = DEFAULTS,
) -> Coefficients:
    """Return the coefficients of Bᵀx up to a degree, B = projection (d, r), for inputs of zero mean and unit
    covariance.

    regress is the degree of the regression, −1 for the paper's plain means [ATV21, (14)]; None takes the largest that
    samples, memory and the options carry.
    """
    d, p = source.n_inputs, source.n_outputs
    r = d if projection is None else projection.shape[1]
    n = source.count()
    q = affordable_regression(n, r, degree, options) if regress is None else regress
    halves = [
        reduce(half, HermiteSums(d, p, degree, q, projection)) for half in split(source, 0.5, int(rng.integers(2**31)))
    ]
    n1, n2 = (half.n for half in halves)
    parts = [half.coefficients() for half in halves]
    halves[0].merge(halves[1])
    whole = halves[0].coefficients()
    tensors, *each = ({j: estimate.packed(j) for j in range(degree + 1)} for estimate in (whole, *parts))
    size = halves[0].average("output_squared")
    return _with_errors(r, tensors, each, (n1, n2), whole.residual_variance, size, whole.freedom, q, options)


def low_coefficients(
    source: Source, rng: np.random.Generator, network: Network | None = None, options: HermiteOptions = DEFAULTS
) -> Coefficients:
    """Estimate the coefficients of orders 1 and 2, in any dimension, from the residuals of a network or, without one,
    of a linear regression.

    T_j(y) = T_j(y − f) + T_j(f) whatever f, and the error is that of the first term: the better f, the smaller.
    """
    d, p = source.n_inputs, source.n_outputs
    halves = split(source, 0.5, int(rng.integers(2**31)))
    if network is None:
        predict, own = _linear_fit(source)
    else:
        predict, own = network, population_coefficients(network, (1, 2))
    sums = [reduce(half, ResidualMoments(predict, d, p)) for half in halves]
    sizes = (sums[0].n, sums[1].n)
    parts = [{j: T + own[j] for j, T in half.packed().items()} for half in sums]
    sums[0].merge(sums[1])
    tensors = {j: T + own[j] for j, T in sums[0].packed().items()}
    variance = sums[0].average("squared")
    regressed = 1 if network is None else 2
    return _with_errors(d, tensors, parts, sizes, variance, variance, sum(sizes), regressed, options)


def _linear_fit(source: Source) -> tuple[Callable[[np.ndarray], np.ndarray], dict[int, np.ndarray]]:
    """Return x ↦ c + L x by least squares, and its coefficients of order 1 and 2."""
    d, p = source.n_inputs, source.n_outputs
    moments = reduce(source, Moments(d, p))
    covariance = moments.covariance
    L = np.linalg.lstsq(covariance[:d, :d], covariance[:d, d:], rcond=1e-12)[0].T
    c = moments.mean[d:] - L @ moments.mean[:d]
    return lambda X: X @ L.T + c, {1: L, 2: np.zeros((p, n_packed(d, 2)))}


def _with_errors(
    r: int,
    tensors: dict[int, np.ndarray],
    halves: list[dict[int, np.ndarray]],
    sizes: tuple[int, int],
    variance: np.ndarray,
    size: np.ndarray,
    freedom: int,
    regressed: int,
    options: HermiteOptions,
) -> Coefficients:
    """Return coefficients in units of each output's residual, with σ_j from the difference of the halves."""
    # Outputs that are explained to rounding have no residual to be measured in.
    scale = np.sqrt(np.where(variance > 1e-24 * size, variance, np.maximum(size, 1e-300)))
    base = float(np.mean(variance / scale**2)) / max(freedom, 1)
    n1, n2 = sizes
    whole, first, second = ({j: T / scale[:, None] for j, T in each.items()} for each in (tensors, *halves))
    errors = {}
    for j in whole:
        E = (first[j] - second[j]) * sqrt(n1 * n2) / (n1 + n2)
        square = float(inner(E, E, r, j).sum()) / factorial(j)
        prior = base * options.growth ** min(j, 2)
        errors[j] = max(sqrt((square + options.prior * prior) / (E.size + options.prior)), 1e-15)
    return Coefficients(r, whole, errors, scale, regressed, n1 + n2, (first, second), options=options)


def affordable_regression(n: int, r: int, degree: int, options: HermiteOptions = DEFAULTS) -> int:
    """Return the largest degree of regression that the n samples of two halves, memory and time allow; −1 if none."""
    F = n_features(r, degree)
    for q in range(degree, -1, -1):
        Fq = n_features(r, q)
        # Eight samples per feature in a half: with fewer the regression loses to one of lower degree.
        affordable = 16 * Fq * (F + Fq) <= options.memory and n * Fq * (2 * F - Fq) <= options.operations
        if n >= 16 * Fq and affordable:
            return q
    return -1


@dataclass(frozen=True)
class GaussianTest:
    """χ² of the third and fourth radial moments on d + 1 degrees of freedom, and its p-value."""

    chi_squared: float
    degrees: int
    p_value: float
    kurtosis: float
    significance: float

    @property
    def gaussian(self) -> bool:
        """Whether the test accepts Gaussian inputs: p_value ≥ significance."""
        return self.p_value >= self.significance

    @property
    def finding(self) -> str:
        """What the test says, as a clause."""
        figure = f"χ² = {self.chi_squared:.0f} on {self.degrees} degrees of freedom, p = {self.p_value:.2g}"
        if self.gaussian:
            return f"The inputs pass for Gaussian ({figure})"
        return f"The inputs are not Gaussian ({figure}; fourth moment {self.kurtosis:+.1f} standard errors off)"

    @property
    def sentence(self) -> str:
        return f"{self.finding}{'' if self.gaussian else ', so the estimate of this method is biased'}."


def gaussian_test(source: Source, options: HermiteOptions = DEFAULTS) -> GaussianTest:
    """Test inputs of zero mean and unit covariance for N(0, I)."""
    third, fourth = reduce(source, RadialMoments(source.n_inputs)).deviations()
    value, degrees = third + fourth**2, source.n_inputs + 1
    return GaussianTest(value, degrees, float(chdtrc(degrees, value)), fourth, options.significance)
