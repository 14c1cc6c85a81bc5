"""The checks of sizes and parameters that every simulator shares."""

from collections.abc import Callable
from math import isfinite
from numbers import Integral, Real


def positive_integer(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be a positive integer. Got {value!r} instead.")
    return int(value)


def number(name: str, value: float, expected: str, allowed: Callable[[float], bool]) -> float:
    """Return value as a finite float for which `allowed` holds; `expected` says the same in words."""
    if not isinstance(value, Real) or not isfinite(value) or not allowed(float(value)):
        raise ValueError(f"{name} must be {expected}. Got {value!r} instead.")
    return float(value)


def non_negative(name: str, value: float) -> float:
    return number(name, value, "a finite number, zero or more", lambda v: v >= 0)
