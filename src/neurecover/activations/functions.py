"""An activation from any function: its derivative, inverse, symmetries and coefficients follow from its values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from neurecover.activations.base import Activation, Scalar, increasing_inverse

STEP = 7e-4  # h = ε^{1/5} of a difference: the rounding ε/h of five values then equals their error h⁴
HOLDS = 1e-10  # largest relative misfit of a valid symmetry
CENTRAL = np.array([1.0, -8.0, 0.0, 8.0, -1.0]) / 12.0  # the slope in the middle of a quartic through five values
FORWARD = np.array([-25.0, 48.0, -36.0, 16.0, -3.0]) / 12.0  # the same at its first value


@dataclass(frozen=True)
class Function(Activation):
    """act(z) = f(z), its derivative and inverse if they are known, and its symmetries as they were found."""

    f: Scalar
    slope: Scalar | None
    back: Scalar | None
    homogeneity: float | None = None
    reflection: tuple[float, float] | None = None
    odd_slope: float | None = None
    rectified: bool = False
    analytic = False
    growth = 1.0  # at most like e^z; faster growth is not supported

    @classmethod
    def of(cls, f: Scalar, slope: Scalar | None, back: Scalar | None, name: str | None) -> Function:
        """Build the activation after evaluating f on both sides of zero to find its symmetries."""
        title = name or getattr(f, "__name__", type(f).__name__).strip("<>")
        for what, part in (("f", f), ("derivative", slope)):
            if part is not None:
                _check(part, what)
        z = np.geomspace(0.01, 8.0, 60)
        right, left = f(z), f(-z)
        return cls(
            f"function({title})",
            f,
            slope,
            back,
            _homogeneity(z, right, left),
            _reflection(right, left),
            _odd_slope(z, right, left),
            bool(np.all(left == 0.0) and f(np.zeros(1))[0] == 0.0 and _increases(np.concatenate([[0.0], right]), z)),
        )

    @property
    def differentiable(self) -> bool:
        return bool(np.any(self.derivative(np.linspace(-3.0, 3.0, 24)) != 0.0))

    def __call__(self, z: ArrayLike) -> np.ndarray:
        return np.asarray(self.f(np.asarray(z, dtype=float)), dtype=float)

    def derivative(self, z: ArrayLike) -> np.ndarray:
        z = np.asarray(z, dtype=float)
        if self.slope is not None:
            return np.asarray(self.slope(z), dtype=float)
        h = STEP * np.maximum(1.0, np.abs(z))
        # Near zero, where there may be a kink, take the five points on one side.
        near = np.abs(z) < 2.0 * h
        h = np.where(near & (z <= 0.0), -h, h)
        total = np.zeros_like(z)
        for i in range(5):
            total += np.where(near, FORWARD[i], CENTRAL[i]) * self(z + h * np.where(near, i, i - 2))
        return total / h

    def inverse(self, y: ArrayLike) -> np.ndarray:
        if self.back is not None:
            y = self._invertible(y, "y is a number", lambda y: ~np.isnan(y))
            return np.asarray(self.back(y), dtype=float)
        zero = float(self(0.0))
        z = np.geomspace(0.01, 8.0, 60)
        if not _increases(np.concatenate([[zero], self(z)]), z):
            raise ValueError(f"{self} does not increase on z ≥ 0. Give its inverse: from_function(f, inverse=…).")
        return increasing_inverse(self, self._invertible(y, f"y > {zero:g}", lambda y: y > zero))


def _check(f: Scalar, what: str) -> None:
    """Refuse f unless it acts on arrays entry by entry and has finite values near zero."""
    z = np.linspace(-3.0, 3.0, 12)
    try:
        value = np.asarray(f(z), dtype=float)
    except Exception as error:  # whatever the caller's function raises
        raise ValueError(f"{what} needs to take an array of numbers. It raised {error!r} instead.") from None
    if value.shape != z.shape or not np.isfinite(value).all():
        raise ValueError(
            f"{what} needs to give one finite number for each of an array. Got shape {value.shape} for {z.shape} with "
            f"{np.count_nonzero(~np.isfinite(value))} not finite; numpy.vectorize helps a function of one number."
        )
    if not np.array_equal(np.asarray(f(z[::-1].copy()), dtype=float), value[::-1]):
        raise ValueError(f"{what} needs to act on each number by itself. Reversing the array changed its values.")


def _increases(values: np.ndarray, z: np.ndarray) -> bool:
    """Return whether values increase strictly up to z = 3 and never decrease after it, where a table may be flat."""
    steps = np.diff(values)
    return bool(np.all(steps[z <= 3.0] > 0.0) and np.all(steps >= 0.0))


def _holds(left: np.ndarray, right: np.ndarray) -> bool:
    size = float(np.max(np.abs(right), initial=1e-300))
    return bool(np.all(np.abs(left - right) <= HOLDS * size))


def _homogeneity(z: np.ndarray, right: np.ndarray, left: np.ndarray) -> float | None:
    """Return the h of act(s z) = s^h act(z) if it holds on a geometric grid, else None."""
    side = right if np.any(right != 0.0) else left
    if not side[0] * side[-1] > 0.0:
        return None
    h = round(float(np.log(side[-1] / side[0]) / np.log(z[-1] / z[0])), 9)
    power = z**h
    fits = all(_holds(values / power, np.full_like(z, values[-1] / power[-1])) for values in (right, left))
    return h + 0.0 if fits else None


def _reflection(right: np.ndarray, left: np.ndarray) -> tuple[float, float] | None:
    """Return (±1, κ) of act(−z) = ±act(z) + κ if it holds, else None. No other factor is possible, as −(−z) = z."""
    for sign in (1.0, -1.0):
        constant = float(np.mean(left - sign * right))
        constant = 0.0 if abs(constant) <= HOLDS * np.max(np.abs(right)) else constant
        if (sign < 0.0 or constant == 0.0) and _holds(sign * right + constant, left):
            return sign, constant
    return None


def _odd_slope(z: np.ndarray, right: np.ndarray, left: np.ndarray) -> float | None:
    odd = right - left
    slope = float(odd @ z / (z @ z))
    size = np.max(np.abs(right)) + np.max(np.abs(left))
    slope = 0.0 if abs(slope) <= HOLDS * size else slope
    return slope if np.all(np.abs(odd - slope * z) <= HOLDS * size) else None
