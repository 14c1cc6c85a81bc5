"""The base class of activations: act(z), its derivative, inverse, symmetries, and Hermite coefficients h_j(b).

For g ~ N(0, 1) and the probabilists' polynomials He_{j+1}(g) = g He_j(g) − j He_{j−1}(g), not normalised,

    h_j(b) = E[act(g + b) He_j(g)] = E[act⁽ʲ⁾(g + b)],

the second form by Stein's identity if the derivative exists. A unit a·act(w·x + b) with ‖w‖ = 1 and
x ~ N(0, I) contributes a·h_j(b)·w^{⊗j} to the tensor E[y He_j(x)] [ATV21, Lemma 3.5].
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from neurecover.activations.quadrature import gaussian_means

Scalar = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Activation(ABC):
    """A scalar function, applied to every entry of z, with its symmetries; a symmetry that it lacks is None.

    `spec` is the text that `get` reads and that a network's file holds.
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
        """The m with act(z) − act(−z) = m z for all z; None if there is none."""
        return None

    @property
    def rectified(self) -> bool:
        """Whether act(z) = 0 for z ≤ 0 and act is injective above [BJW18, §9.1]."""
        return False

    @property
    def differentiable(self) -> bool:
        """Whether the derivative is informative, so that Gauss–Newton steps can use it."""
        return True

    @property
    def analytic(self) -> bool:
        """Whether act is analytic on the whole real line: its Hermite coefficients then fall faster than any power."""
        return True

    @property
    def growth(self) -> float:
        """The c for which act grows like e^{c|z|}; 0 for no more than a power."""
        return 0.0

    @abstractmethod
    def __call__(self, z: ArrayLike) -> np.ndarray:
        """Return act(z), in double precision."""

    @abstractmethod
    def derivative(self, z: ArrayLike) -> np.ndarray:
        """Return act′(z); at a kink, the derivative from the left (for a power on one side only, that is 0)."""

    def with_derivative(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return act(z) and act′(z); subclasses share work between the two. act′ is right to the rounding of act(z)."""
        return self(z), self.derivative(z)

    @abstractmethod
    def inverse(self, y: ArrayLike) -> np.ndarray:
        """Return the z with act(z) = y, the non-negative one of two; ValueError if y does not determine z."""

    def hermite(self, b: ArrayLike, degree: int) -> np.ndarray:
        """Return h_0(b), …, h_degree(b), of shape (degree + 1, *b.shape).

        For degree ≤ 8 and |b| ≤ 4 each is accurate to 1e-12·max(1, |h_j(b)|).
        """
        b, degree = checked(b, degree)
        return self.scaled(b, np.ones_like(b), degree)

    def scaled(self, b: np.ndarray, s: np.ndarray, degree: int) -> np.ndarray:
        """Return F_j(b, s) = E[act(s g + b) He_j(g)], j = 0 … degree, for an act that is not homogeneous."""
        return gaussian_means(self, b, s, degree, self.growth)

    @staticmethod
    def from_function(
        f: Scalar,
        derivative: Scalar | None = None,
        inverse: Scalar | None = None,
        name: str | None = None,
    ) -> Activation:
        """Make an activation from any function that acts on an array entry by entry.

        Parameters
        ----------
        f : act(z), as `lambda z: np.maximum(np.expm1(z), 0.0)` or, for a table, `lambda z: np.interp(z, at, values)`.
        derivative : act′(z). If it is not given, differences of five values are used. Their error is about 1e-11 of act
            where act is smooth; within 2e-3 of a kink other than z = 0 they are useless.
        inverse : the z with act(z) = y. If it is not given, bisection finds it for an act that increases on z ≥ 0.
        name : for summaries and files; by default the name of f.

        Symmetries are found by testing them on values. A file holds only the name: read a network with such an
        activation by `neurecover.load(path, activation=…)`.
        """
        from neurecover.activations.functions import Function

        return Function.of(f, derivative, inverse, name)

    def _invertible(self, y: ArrayLike, condition: str, holds: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        y = np.asarray(y, dtype=float)
        bad = y[~holds(y)]
        if bad.size:
            raise ValueError(
                f"The output y of {self} determines its input only where {condition}. "
                f"Got {bad[0]:g} instead ({bad.size} such of {y.size}). Leave those samples out."
            )
        return y


def scaled_hermite(activation: Activation, b: np.ndarray, s: np.ndarray, degree: int) -> np.ndarray:
    """Return F_j(b, s) = E[act(s g + b) He_j(g)], j = 0 … degree, at every pair of b and s > 0: (degree + 1, k)."""
    if activation.homogeneity is not None:
        return s**activation.homogeneity * activation.hermite(b / s, degree)
    return activation.scaled(b, s, degree)


def checked(b: ArrayLike, degree: int) -> tuple[np.ndarray, int]:
    """Return the bias as an array, and the degree; refuse a negative degree."""
    if degree < 0:
        raise ValueError(f"The degree of a Hermite coefficient is at least 0. Got {degree} instead.")
    return np.asarray(b, dtype=float), degree


def increasing_inverse(f: Scalar, y: np.ndarray) -> np.ndarray:
    """Find the z ≥ 0 with f(z) = y for every entry of y ≥ f(0), f increasing there: doubling, then bisection.

    Bisection ends when there is no floating-point number between the two ends.
    """
    low, high = np.zeros_like(y), np.ones_like(y)
    for _ in range(1024):
        short = f(high) < y
        if not short.any():
            break
        low, high = np.where(short, high, low), np.where(short, 2.0 * high, high)
    for _ in range(1100):
        middle = 0.5 * (low + high)
        if np.all((middle == low) | (middle == high)):
            break
        below = f(middle) < y
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return high
