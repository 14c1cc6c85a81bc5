"""Input distributions: dist(rng, n, d) draws n samples in d dimensions, (n, d).

Gaussian, SymmetricMixture and Perturbed have the moments given by their parameters. All others have independent
coordinates of mean zero and variance one. All distributions are symmetric, x ~ −x, except Gaussian with a mean,
Exponential and Skewed, which serve to violate that assumption.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from neurecover.simulate._checks import non_negative, number

Distribution = Callable[[np.random.Generator, int, int], np.ndarray]


@dataclass(frozen=True, eq=False)
class Gaussian:
    """N(mean, covariance): mean is a vector or one number for all, covariance the identity unless given."""

    mean: ArrayLike = 0.0
    covariance: ArrayLike | None = None

    def __post_init__(self) -> None:
        _finite("mean", self.mean)
        if self.covariance is not None:
            _square_root(self.covariance)

    def __call__(self, rng: np.random.Generator, n: int, d: int) -> np.ndarray:
        x = rng.standard_normal((n, d))
        if self.covariance is not None:
            root = _square_root(self.covariance)
            if root.shape != (d, d):
                raise ValueError(f"covariance must be {d} × {d} for {d} inputs. Got shape {root.shape} instead.")
            x = x @ root
        return x + _vector("mean", self.mean, d)


@dataclass(frozen=True, eq=False)
class SymmetricMixture:
    """½ N(μ, scale² I) + ½ N(−μ, scale² I) with μ = center·(1, …, 1), or center itself if it is a vector.

    The covariance is scale² I + μ μᵀ; center = scale = 1 is the mixture of [GKLW19, Fig. 3].
    """

    center: ArrayLike = 1.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        _finite("center", self.center)
        non_negative("scale", self.scale)

    def __call__(self, rng: np.random.Generator, n: int, d: int) -> np.ndarray:
        side = rng.choice([-1.0, 1.0], (n, 1))
        return side * _vector("center", self.center, d) + self.scale * rng.standard_normal((n, d))


@dataclass(frozen=True)
class Uniform:
    """Coordinates uniform on [−√3, √3]."""

    def __call__(self, rng: np.random.Generator, n: int, d: int) -> np.ndarray:
        return rng.uniform(-np.sqrt(3.0), np.sqrt(3.0), (n, d))


@dataclass(frozen=True)
class Laplace:
    """Coordinates of density exp(−√2 |x|)/√2; kurtosis 6."""

    def __call__(self, rng: np.random.Generator, n: int, d: int) -> np.ndarray:
        return rng.laplace(0.0, np.sqrt(0.5), (n, d))


@dataclass(frozen=True)
class StudentT:
    """Coordinates √((df − 2)/df)·t with Student's t; kurtosis 3 + 6/(df − 4), infinite for df ≤ 4."""

    df: float = 5.0

    def __post_init__(self) -> None:
        number("df", self.df, "a finite number above 2, where the variance is finite", lambda v: v > 2)

    def __call__(self, rng: np.random.Generator, n: int, d: int) -> np.ndarray:
        return np.sqrt((self.df - 2.0) / self.df) * rng.standard_t(self.df, (n, d))


@dataclass(frozen=True)
class Rademacher:
    """Coordinates √(1 − jitter²)·(±1) + jitter·N(0, 1): the corners of a cube, blurred."""

    jitter: float = 0.3

    def __post_init__(self) -> None:
        number("jitter", self.jitter, "between 0 and 1", lambda v: 0 <= v <= 1)

    def __call__(self, rng: np.random.Generator, n: int, d: int) -> np.ndarray:
        corners = rng.choice([-1.0, 1.0], (n, d))
        return np.sqrt(1.0 - self.jitter**2) * corners + self.jitter * rng.standard_normal((n, d))


@dataclass(frozen=True)
class Exponential:
    """Coordinates e − 1 with e of density exp(−e) on e > 0; skewness 2. Not symmetric."""

    def __call__(self, rng: np.random.Generator, n: int, d: int) -> np.ndarray:
        return rng.exponential(1.0, (n, d)) - 1.0


@dataclass(frozen=True)
class Skewed:
    """Skew-normal coordinates, standardised. Not symmetric unless shape = 0.

    z = δ|g| + √(1 − δ²) h with g, h ~ N(0, 1) and δ = shape/√(1 + shape²) has mean δ√(2/π)
    and variance 1 − 2δ²/π.
    """

    shape: float = 4.0

    def __post_init__(self) -> None:
        number("shape", self.shape, "a finite number", lambda v: True)

    def __call__(self, rng: np.random.Generator, n: int, d: int) -> np.ndarray:
        delta = self.shape / np.hypot(1.0, self.shape)
        mean = delta * np.sqrt(2.0 / np.pi)
        z = delta * np.abs(rng.standard_normal((n, d))) + np.sqrt(1.0 - delta**2) * rng.standard_normal((n, d))
        return (z - mean) / np.sqrt(1.0 - mean**2)


@dataclass(frozen=True, eq=False)
class Perturbed:
    """x ~ base with probability 1 − λ and x = Q g, g ~ N(0, I), with probability λ = weight.

    This is the (Q, λ) perturbation of [GKLW19, §C]. Its second moment is (1 − λ) E_base[x xᵀ] + λ Q Qᵀ, and
    it is symmetric if base is. In the paper the entries of Q (d, d) are drawn from N(0, 1) once.
    """

    base: Distribution
    Q: ArrayLike
    weight: float

    def __post_init__(self) -> None:
        if not callable(self.base):
            raise ValueError(f"base must be a distribution such as Uniform(). Got {self.base!r} instead.")
        number("weight", self.weight, "between 0 and 1", lambda v: 0 <= v <= 1)
        _finite("Q", self.Q)

    def __call__(self, rng: np.random.Generator, n: int, d: int) -> np.ndarray:
        Q = np.asarray(self.Q, dtype=float)
        if Q.shape != (d, d):
            raise ValueError(f"Q must be {d} × {d} for {d} inputs. Got shape {Q.shape} instead.")
        replaced = rng.random((n, 1)) < self.weight
        return np.where(replaced, rng.standard_normal((n, d)) @ Q.T, self.base(rng, n, d))


def _square_root(covariance: ArrayLike) -> np.ndarray:
    """Return the symmetric S with S² = covariance, which may be singular."""
    C = _finite("covariance", covariance)
    if C.ndim != 2 or C.shape[0] != C.shape[1] or not np.allclose(C, C.T):
        raise ValueError(f"covariance must be a symmetric square matrix. Got shape {C.shape} instead.")
    values, vectors = np.linalg.eigh(C)
    if values[0] < -1e-10 * max(values[-1], 0.0) or values[-1] < 0:
        raise ValueError(f"covariance must have no negative eigenvalue. Got {values[0]:.3g} instead.")
    return (vectors * np.sqrt(np.clip(values, 0.0, None))) @ vectors.T


def _vector(name: str, value: ArrayLike, d: int) -> np.ndarray:
    vector = np.asarray(value, dtype=float)
    if vector.shape not in ((), (d,)):
        raise ValueError(f"{name} must be a number or a vector of length {d}. Got shape {vector.shape} instead.")
    return vector


def _finite(name: str, value: ArrayLike) -> np.ndarray:
    array = np.asarray(value, dtype=float)
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be finite. Got {value!r} instead.")
    return array
