"""Activations that are powers of z₊ = max(z, 0) and z₋ = max(−z, 0):

    act(z) = z₊^c + λ z₋^c,

with 0⁰ = 0. Their symmetries, inverses and coefficients follow from c and λ alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, ndtr

from neurecover.activations.base import Activation, checked
from neurecover.activations.quadrature import density, hermite_polynomials, reach

# The integrand is analytic for |Im| < π, so a trapezoidal rule of step s has an error of about e^{−2π²/s}.
_STEP = 0.25


@dataclass(frozen=True)
class SidedPower(Activation):
    """act(z) = z₊^c + λ z₋^c, with c = `exponent` and λ = `left`. Use `get` to make one from its spec."""

    exponent: float
    left: float
    analytic = False

    @property
    def homogeneity(self) -> float:
        return self.exponent

    @property
    def reflection(self) -> tuple[float, float] | None:
        # act(−z) = z₋^c + λ z₊^c is λ·act(z) exactly when λ² = 1.
        if self.left in (-1.0, 1.0):
            return self.left, 0.0
        return (-1.0, 1.0) if self.exponent == self.left == 0.0 else None

    @property
    def odd_slope(self) -> float | None:
        # act(z) − act(−z) = (1 − λ)(z₊^c − z₋^c)
        return 1.0 - self.left if self.exponent == 1.0 or self.left == 1.0 else None

    @property
    def rectified(self) -> bool:
        return self.left == 0.0 and self.exponent > 0.0

    @property
    def differentiable(self) -> bool:
        return self.exponent > 0.0

    def __call__(self, z: ArrayLike) -> np.ndarray:
        z = np.asarray(z, dtype=float)
        value = _rectified_power(z, self.exponent)
        return value + self.left * _rectified_power(-z, self.exponent) if self.left else value

    def derivative(self, z: ArrayLike) -> np.ndarray:
        z = np.asarray(z, dtype=float)
        c = self.exponent
        if c == 0.0:
            return np.zeros_like(z)
        side = np.where(z > 0.0, c, 0.0 - c * self.left)
        if c == 1.0:
            return side
        # On a side where act is constant z is replaced by 1: for c < 1, 0·|z|^{c−1} would be 0·∞ at z = 0.
        return side * np.abs(np.where(side == 0.0, 1.0, z)) ** (c - 1.0)

    def with_derivative(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.exponent != 1.0:
            return super().with_derivative(z)
        slope = self.derivative(z) if self.left else (z > 0.0).astype(z.dtype)
        return slope * z, slope

    def inverse(self, y: ArrayLike) -> np.ndarray:
        if self.exponent == 0.0:
            raise ValueError(f"{self} has no inverse: its output tells only the sign of its input.")
        root = 1.0 / self.exponent
        if self.left < 0.0:
            y = self._invertible(y, "y is a number", lambda y: ~np.isnan(y))
            return np.where(y < 0.0, -1.0, 1.0) * np.where(y < 0.0, y / self.left, y) ** root
        if self.left == 0.0:
            return self._invertible(y, "y > 0", lambda y: y > 0.0) ** root
        return self._invertible(y, "y ≥ 0", lambda y: y >= 0.0) ** root

    def hermite(self, b: ArrayLike, degree: int) -> np.ndarray:
        b, degree = checked(b, degree)
        rectified = _by_recurrence if self.exponent in range(6) else _by_quadrature
        h = rectified(b, self.exponent, degree)
        if self.left:
            # g is distributed like −g and He_j(−g) = (−1)^j He_j(g).
            mirrored = rectified(-b, self.exponent, degree)
            mirrored[1::2] *= -1.0
            h += self.left * mirrored
        return h


def _rectified_power(z: np.ndarray, c: float) -> np.ndarray:
    if c == 0.0:
        return np.heaviside(z, 0.0)
    positive = np.maximum(z, 0.0)
    return positive if c == 1.0 else positive**c


def _by_recurrence(b: np.ndarray, exponent: float, degree: int) -> np.ndarray:
    """Return h_j for z₊^c, c a small integer.

    Integration by parts gives (c − j) h_j = b h_{j+1} + h_{j+2}. The recurrence starts at h_c = c! Φ(b) and
    h_{c+1} = c! φ(b) and runs down to h_0. It also runs up, where it yields h_{c+1+m} = (−1)^m c! He_m(b) φ(b)
    [ATV21, (7)]. Upwards from h_0 it would lose digits for large b, where h_{c+1} is a small difference of large
    terms; downwards from a large c it loses digits for b < 0.
    """
    c = int(exponent)
    h = np.empty((max(degree, c + 1) + 1, *b.shape))
    h[c] = math.factorial(c) * ndtr(b)
    h[c + 1] = math.factorial(c) * density(b)
    for j in range(c - 1, -1, -1):
        h[j] = (b * h[j + 1] + h[j + 2]) / (c - j)
    for j in range(c, degree - 1):
        h[j + 2] = (c - j) * h[j] - b * h[j + 1]
    return h[: degree + 1]


def _by_quadrature(b: np.ndarray, exponent: float, degree: int) -> np.ndarray:
    """Return h_j for z₊^c, any c > 0, by the trapezoidal rule in u with z = log(1 + e^u).

    The substitution moves the kink to u = −∞, where the integrand decays like e^{(1+c)u}, and leaves u ≈ z
    for large z. First Stein's identity is applied as often as the derivatives stay bounded, m = min(j, ⌊c⌋) times:

        h_j(b) = c(c − 1)⋯(c − m + 1) E[(g + b)₊^{c−m} He_{j−m}(g)],

    which avoids the cancellation of a large power with an oscillating polynomial.
    """
    n = math.floor(exponent)
    tail = 40.0  # e^{−40} < 1e-17
    u = np.add.outer(np.arange(-tail, reach(degree + exponent), _STEP), np.maximum(b, 0.0))
    z = np.logaddexp(0.0, u)
    measure = _STEP * expit(u) * density(z - b)
    He = hermite_polynomials(z - b, max(degree - n, 0))
    h = np.empty((degree + 1, *b.shape))
    falling = 1.0
    for j in range(degree + 1):
        m = min(j, n)
        if 0 < j <= n:
            falling *= exponent - j + 1
        h[j] = falling * np.sum(z ** (exponent - m) * He[j - m] * measure, axis=0)
    return h
