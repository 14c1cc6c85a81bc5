"""Activations with exponentials. tanh and sigmoid are point-symmetric; softplus, SiLU and GELU share with ReLU

    act(z) − act(−z) = z,

so that negating a unit changes the output by an affine function; elu and selu have no symmetry. None is homogeneous:
the function determines the norm of a unit's weights, and a normal form fixes only signs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit, ndtr

from neurecover.activations.base import Activation, increasing_inverse
from neurecover.activations.quadrature import density


@dataclass(frozen=True)
class Sigmoid(Activation):
    """act(z) = 1 / (1 + e^{−z})"""

    spec: str = "sigmoid"
    reflection = -1.0, 1.0

    def __call__(self, z: ArrayLike) -> np.ndarray:
        return expit(np.asarray(z, dtype=float))

    def derivative(self, z: ArrayLike) -> np.ndarray:
        z = np.asarray(z, dtype=float)
        return expit(z) * expit(-z)

    def inverse(self, y: ArrayLike) -> np.ndarray:
        return logit(self._invertible(y, "0 < y < 1", lambda y: (y > 0.0) & (y < 1.0)))


@dataclass(frozen=True)
class Tanh(Activation):
    """act(z) = (e^z − e^{−z}) / (e^z + e^{−z})"""

    spec: str = "tanh"
    reflection = -1.0, 0.0

    def __call__(self, z: ArrayLike) -> np.ndarray:
        return np.tanh(np.asarray(z, dtype=float))

    def derivative(self, z: ArrayLike) -> np.ndarray:
        z = 2.0 * np.asarray(z, dtype=float)
        return 4.0 * expit(z) * expit(-z)

    def with_derivative(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value = self(z)
        return value, 1.0 - value * value

    def inverse(self, y: ArrayLike) -> np.ndarray:
        return np.arctanh(self._invertible(y, "|y| < 1", lambda y: np.abs(y) < 1.0))


@dataclass(frozen=True)
class Softplus(Activation):
    """act(z) = log(1 + e^z)"""

    spec: str = "softplus"
    odd_slope = 1.0

    def __call__(self, z: ArrayLike) -> np.ndarray:
        z = np.asarray(z, dtype=float)
        return np.maximum(z, 0.0) + np.log1p(np.exp(-np.abs(z)))

    def derivative(self, z: ArrayLike) -> np.ndarray:
        return expit(np.asarray(z, dtype=float))

    def inverse(self, y: ArrayLike) -> np.ndarray:
        y = self._invertible(y, "y > 0", lambda y: y > 0.0)
        return y + np.log(-np.expm1(-y))


class _Gated(Activation):
    """act(z) = z·gate(z) with gate(z) + gate(−z) = 1; every output below zero belongs to two inputs."""

    odd_slope = 1.0

    def inverse(self, y: ArrayLike) -> np.ndarray:
        return increasing_inverse(self, self._invertible(y, "y ≥ 0", lambda y: y >= 0.0))


@dataclass(frozen=True)
class Silu(_Gated):
    """act(z) = z / (1 + e^{−z})"""

    spec: str = "silu"

    def __call__(self, z: ArrayLike) -> np.ndarray:
        z = np.asarray(z, dtype=float)
        return _product(z, expit(z))

    def derivative(self, z: ArrayLike) -> np.ndarray:
        z = np.asarray(z, dtype=float)
        return expit(z) * (1.0 + _product(z, expit(-z)))

    def with_derivative(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        gate = expit(np.asarray(z, dtype=float))
        value = _product(z, gate)
        return value, gate + value * (1.0 - gate)


@dataclass(frozen=True)
class Gelu(_Gated):
    """act(z) = z Φ(z), Φ(z) = (1 + erf(z/√2)) / 2"""

    spec: str = "gelu"

    def __call__(self, z: ArrayLike) -> np.ndarray:
        z = np.asarray(z, dtype=float)
        return _product(z, ndtr(z))

    def derivative(self, z: ArrayLike) -> np.ndarray:
        z = np.asarray(z, dtype=float)
        return ndtr(z) + _product(z, density(z))

    def with_derivative(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        gate = ndtr(np.asarray(z, dtype=float))
        return _product(z, gate), gate + _product(z, density(z))


@dataclass(frozen=True)
class Elu(Activation):
    """act(z) = λ z for z > 0 and λ α (e^z − 1) for z ≤ 0"""

    spec: str = "elu"
    scale: float = 1.0
    left: float = 1.0
    analytic = False

    def __call__(self, z: ArrayLike) -> np.ndarray:
        z = np.asarray(z, dtype=float)
        return self.scale * np.where(z > 0.0, z, self.left * np.expm1(np.minimum(z, 0.0)))

    def derivative(self, z: ArrayLike) -> np.ndarray:
        z = np.asarray(z, dtype=float)
        return self.scale * np.where(z > 0.0, 1.0, self.left * np.exp(np.minimum(z, 0.0)))

    def inverse(self, y: ArrayLike) -> np.ndarray:
        lowest = -self.scale * self.left
        y = self._invertible(y, f"y > {lowest:.4g}", lambda y: y > lowest) / self.scale
        return np.where(y > 0.0, y, np.log1p(np.minimum(y, 0.0) / self.left))


# The λ and α that preserve mean 0 and variance 1 from layer to layer [Klambauer et al. 2017].
SELU = Elu("selu", 1.0507009873554805, 1.6732632423543772)


@dataclass(frozen=True)
class Exp(Activation):
    """act(z) = e^z"""

    spec: str = "exp"
    growth = 1.0

    def __call__(self, z: ArrayLike) -> np.ndarray:
        return np.exp(np.asarray(z, dtype=float))

    def derivative(self, z: ArrayLike) -> np.ndarray:
        return self(z)

    def inverse(self, y: ArrayLike) -> np.ndarray:
        return np.log(self._invertible(y, "y > 0", lambda y: y > 0.0))

    def scaled(self, b: np.ndarray, s: np.ndarray, degree: int) -> np.ndarray:
        # E[e^{sg+b} He_j(g)] = s^j e^{b + s²/2}
        return np.stack([s**j * np.exp(b + 0.5 * s * s) for j in range(degree + 1)])


def _product(z: np.ndarray, gate: np.ndarray) -> np.ndarray:
    """Return z·gate, and 0 where the gate is 0, because −∞·0 is nan."""
    return np.where(gate > 0.0, np.where(gate > 0.0, z, 0.0) * gate, np.where(np.isnan(z), z, 0.0))
