"""Activations act(z), and their Hermite coefficients as functions of the bias.

For g ~ N(0, 1) and the probabilists' polynomials He_{j+1}(g) = g He_j(g) − j He_{j−1}(g), not normalised,

    h_j(b) = E[act(g + b) He_j(g)] = E[act⁽ʲ⁾(g + b)],

the second form by Stein's identity wherever the derivative exists. A unit a·act(w·x + b) with ‖w‖ = 1 and
x ~ N(0, I) contributes a·h_j(b)·w^{⊗j} to the tensor E[y He_j(x)] [ATV21, Lemma 3.5].

All but two of the activations here are powers of the two sides of z, z₊ = max(z, 0) and z₋ = max(−z, 0):

    act(z) = z₊^c + λ z₋^c,

with 0⁰ = 0. Their symmetries, inverses and coefficients follow from c and λ alone. The two others are sigmoid
and exp.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit, ndtr

# Both integrands are analytic for |Im| < π, and there a trapezoidal rule of step s errs by about e^{−2π²/s}.
_STEP = 0.25


@dataclass(frozen=True)
class Activation(ABC):
    """A scalar function, applied to every entry of z, with the symmetries it has; one that it lacks is None.

    `spec` is the text that `get` reads back; it alone decides whether two activations are equal.
    """

    spec: str

    def __str__(self) -> str:
        return self.spec

    @property
    def name(self) -> str:
        """The spec without its parameter."""
        return self.spec.partition("(")[0]

    @property
    def homogeneity(self) -> float | None:
        """The h of act(s z) = s^h act(z) for all s > 0."""
        return None

    @property
    def reflection(self) -> tuple[float, float] | None:
        """The pair (sign, constant) of act(−z) = sign·act(z) + constant for all z ≠ 0."""
        return None

    @property
    def odd_slope(self) -> float | None:
        """The m of act(z) − act(−z) = m z for all z."""
        return None

    @property
    def differentiable(self) -> bool:
        """Whether the derivative tells a Gauss–Newton step anything."""
        return True

    @abstractmethod
    def __call__(self, z: ArrayLike) -> np.ndarray:
        """act(z), in double precision."""

    @abstractmethod
    def derivative(self, z: ArrayLike) -> np.ndarray:
        """act′(z); at a kink, the derivative from the left (for a power on one side only, that is 0)."""

    @abstractmethod
    def inverse(self, y: ArrayLike) -> np.ndarray:
        """The z with act(z) = y, the non-negative one of two; ValueError where y does not determine it."""

    @abstractmethod
    def hermite(self, b: ArrayLike, degree: int) -> np.ndarray:
        """h_0(b), …, h_degree(b), of shape (degree + 1, *b.shape).

        For degree ≤ 8 and |b| ≤ 4 each is accurate to 1e-12·max(1, |h_j(b)|).
        """

    def _invertible(self, y: ArrayLike, condition: str, holds: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        y = np.asarray(y, dtype=float)
        bad = y[~holds(y)]
        if bad.size:
            raise ValueError(
                f"The output y of {self} determines its input only where {condition}. "
                f"Got {bad[0]:g} instead ({bad.size} such of {y.size}). Leave those samples out."
            )
        return y


@dataclass(frozen=True)
class SidedPower(Activation):
    """act(z) = z₊^c + λ z₋^c, with c = `exponent` and λ = `left`. Made by `get`, which knows the specs."""

    exponent: float
    left: float

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
        # Where act is constant, 1 stands in for z: c < 1 would make 0·∞ of 0·|z|^{c−1} at z = 0.
        return side * np.abs(np.where(side == 0.0, 1.0, z)) ** (c - 1.0)

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
        b, degree = _checked(b, degree)
        rectified = _by_recurrence if self.exponent in range(6) else _by_quadrature
        h = rectified(b, self.exponent, degree)
        if self.left:
            # g is distributed like −g and He_j(−g) = (−1)^j He_j(g).
            mirrored = rectified(-b, self.exponent, degree)
            mirrored[1::2] *= -1.0
            h += self.left * mirrored
        return h


@dataclass(frozen=True)
class Sigmoid(Activation):
    """act(z) = 1 / (1 + e^{−z})"""

    spec: str = "sigmoid"

    @property
    def reflection(self) -> tuple[float, float]:
        return -1.0, 1.0

    def __call__(self, z: ArrayLike) -> np.ndarray:
        return expit(np.asarray(z, dtype=float))

    def derivative(self, z: ArrayLike) -> np.ndarray:
        z = np.asarray(z, dtype=float)
        return expit(z) * expit(-z)

    def inverse(self, y: ArrayLike) -> np.ndarray:
        return logit(self._invertible(y, "0 < y < 1", lambda y: (y > 0.0) & (y < 1.0)))

    def hermite(self, b: ArrayLike, degree: int) -> np.ndarray:
        b, degree = _checked(b, degree)
        reach = _reach(degree)
        g = np.arange(-reach, reach, _STEP)
        weights = _STEP * _density(g) * _hermite_polynomials(g, degree)
        return np.tensordot(weights, expit(np.add.outer(g, b)), axes=1)


@dataclass(frozen=True)
class Exp(Activation):
    """act(z) = e^z"""

    spec: str = "exp"

    def __call__(self, z: ArrayLike) -> np.ndarray:
        return np.exp(np.asarray(z, dtype=float))

    def derivative(self, z: ArrayLike) -> np.ndarray:
        return self(z)

    def inverse(self, y: ArrayLike) -> np.ndarray:
        return np.log(self._invertible(y, "y > 0", lambda y: y > 0.0))

    def hermite(self, b: ArrayLike, degree: int) -> np.ndarray:
        b, degree = _checked(b, degree)
        return np.repeat(np.exp(b + 0.5)[None], degree + 1, axis=0)


def _leaky_relu(slope: float = 0.01) -> Activation:
    if not math.isfinite(slope) or slope == 1.0:
        raise ValueError(
            f"leaky_relu needs a finite slope other than 1, where it is the identity. Got {slope:g} instead."
        )
    return SidedPower(f"leaky_relu({_figure(slope)})", 1.0, -slope)


def _power(c: float = 2.0) -> Activation:
    if not 0.0 < c < math.inf:
        raise ValueError(f"power needs a finite exponent above 0; for 0 take step. Got {c:g} instead.")
    return SidedPower(f"power({_figure(c)})", c, 0.0)


_FIXED: dict[str, Activation] = {
    "relu": SidedPower("relu", 1.0, 0.0),
    "step": SidedPower("step", 0.0, 0.0),
    "sigmoid": Sigmoid(),
    "exp": Exp(),
    "abs": SidedPower("abs", 1.0, 1.0),
    "square": SidedPower("square", 2.0, 1.0),
    "identity": SidedPower("identity", 1.0, -1.0),
}
_PARAMETRIC: dict[str, Callable[..., Activation]] = {"leaky_relu": _leaky_relu, "power": _power}

NAMES = (*_FIXED, *_PARAMETRIC)


def get(activation: str | Activation) -> Activation:
    """The activation that a spec names: "relu", "leaky_relu", "leaky_relu(0.1)", "power(3)", …"""
    if isinstance(activation, Activation):
        return activation
    match = re.fullmatch(r"(\w+)(?:\((.*)\))?", str(activation).strip())
    name, parameter = match.groups() if match else (None, None)
    if name in _FIXED and parameter is None:
        return _FIXED[name]
    if name in _PARAMETRIC:
        try:
            values = [] if parameter is None else [float(parameter) + 0.0]  # −0.0 + 0.0 is 0.0
        except ValueError:
            raise ValueError(
                f"{name} takes one number, as in {_PARAMETRIC[name]()}. Got {activation!r} instead."
            ) from None
        return _PARAMETRIC[name](*values)
    if name in _FIXED:
        raise ValueError(f"{name} takes no parameter. Got {activation!r} instead.")
    raise ValueError(f"The known activations are {', '.join(NAMES)}. Got {activation!r} instead.")


def scaled_hermite(activation: Activation, b: np.ndarray, s: np.ndarray, degree: int) -> np.ndarray:
    """F_j(b, s) = E[act(s g + b) He_j(g)] for j = 0 … degree at every pair of b and s > 0, (degree + 1, k)."""
    if activation.homogeneity is not None:
        return s**activation.homogeneity * activation.hermite(b / s, degree)
    # The grid is finer for a steeper unit, whose poles in g lie at distance π/s, and wider: e^{sg} φ(g) peaks at g = s.
    steepest = float(np.max(s, initial=1.0))
    h, reach = _STEP / steepest, _reach(4.0) + steepest
    g = np.arange(-reach, reach, h)
    weights = h * _density(g) * _hermite_polynomials(g, degree)
    return weights @ activation(np.multiply.outer(g, s) + b)


def _figure(value: float) -> str:
    return repr(value).removesuffix(".0")


def _checked(b: ArrayLike, degree: int) -> tuple[np.ndarray, int]:
    if degree < 0:
        raise ValueError(f"The degree of a Hermite coefficient is at least 0. Got {degree} instead.")
    return np.asarray(b, dtype=float), degree


def _rectified_power(z: np.ndarray, c: float) -> np.ndarray:
    if c == 0.0:
        return np.heaviside(z, 0.0)
    positive = np.maximum(z, 0.0)
    return positive if c == 1.0 else positive**c


def _density(g: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * g * g) / math.sqrt(2.0 * math.pi)


def _hermite_polynomials(g: np.ndarray, degree: int) -> np.ndarray:
    He = np.ones((degree + 1, *g.shape))
    He[1:2] = g
    for j in range(1, degree):
        He[j + 1] = g * He[j] - j * He[j - 1]
    return He


def _reach(degree: float) -> float:
    # |g|^degree φ(g) peaks at √degree and is below 1e-16 of its peak this far out.
    return 10.0 + 2.0 * math.sqrt(degree)


def _by_recurrence(b: np.ndarray, exponent: float, degree: int) -> np.ndarray:
    """h_j for z₊^c, c a small integer.

    Integration by parts gives (c − j) h_j = b h_{j+1} + h_{j+2}. It is run from h_c = c! Φ(b) and
    h_{c+1} = c! φ(b) down to h_0, and up, where it yields h_{c+1+m} = (−1)^m c! He_m(b) φ(b) [ATV21, (7)].
    Run up from h_0 it would lose its digits for large b, where h_{c+1} is a small difference of large terms;
    run down from a large c it loses them for b < 0.
    """
    c = int(exponent)
    h = np.empty((max(degree, c + 1) + 1, *b.shape))
    h[c] = math.factorial(c) * ndtr(b)
    h[c + 1] = math.factorial(c) * _density(b)
    for j in range(c - 1, -1, -1):
        h[j] = (b * h[j + 1] + h[j + 2]) / (c - j)
    for j in range(c, degree - 1):
        h[j + 2] = (c - j) * h[j] - b * h[j + 1]
    return h[: degree + 1]


def _by_quadrature(b: np.ndarray, exponent: float, degree: int) -> np.ndarray:
    """h_j for z₊^c, any c > 0, by the trapezoidal rule in u where z = log(1 + e^u).

    The substitution moves the kink to u = −∞, where the integrand decays like e^{(1+c)u}, and leaves u ≈ z
    for large z. Stein's identity first takes as many derivatives as stay bounded, m = min(j, ⌊c⌋):

        h_j(b) = c(c − 1)⋯(c − m + 1) E[(g + b)₊^{c−m} He_{j−m}(g)],

    so that no large power meets an oscillating polynomial and cancels.
    """
    n = math.floor(exponent)
    tail = 40.0  # e^{−40} < 1e-17
    u = np.add.outer(np.arange(-tail, _reach(degree + exponent), _STEP), np.maximum(b, 0.0))
    z = np.logaddexp(0.0, u)
    measure = _STEP * expit(u) * _density(z - b)
    He = _hermite_polynomials(z - b, max(degree - n, 0))
    h = np.empty((degree + 1, *b.shape))
    falling = 1.0
    for j in range(degree + 1):
        m = min(j, n)
        if 0 < j <= n:
            falling *= exponent - j + 1
        h[j] = falling * np.sum(z ** (exponent - m) * He[j - m] * measure, axis=0)
    return h
