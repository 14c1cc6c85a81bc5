"""Activations act(z), by name or from any function: values, derivatives, inverses, symmetries, Hermite series."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from neurecover.activations.base import Activation, scaled_hermite
from neurecover.activations.powers import SidedPower
from neurecover.activations.smooth import SELU, Elu, Exp, Gelu, Sigmoid, Silu, Softplus, Tanh
from neurecover.exceptions import did_you_mean

__all__ = ["NAMES", "Activation", "SidedPower", "get", "scaled_hermite"]


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
    "tanh": Tanh(),
    "softplus": Softplus(),
    "gelu": Gelu(),
    "silu": Silu(),
    "elu": Elu(),
    "selu": SELU,
    "exp": Exp(),
    "abs": SidedPower("abs", 1.0, 1.0),
    "square": SidedPower("square", 2.0, 1.0),
    "identity": SidedPower("identity", 1.0, -1.0),
}
_PARAMETRIC: dict[str, Callable[..., Activation]] = {"leaky_relu": _leaky_relu, "power": _power}

_ALIASES = {"logistic": "sigmoid", "swish": "silu"}  # names in scikit-learn and other libraries

NAMES = (*_FIXED, *_PARAMETRIC)


def get(activation: str | Activation) -> Activation:
    """Return the activation that a spec names: "relu", "leaky_relu", "leaky_relu(0.1)", "power(3)", …"""
    if isinstance(activation, Activation):
        return activation
    match = re.fullmatch(r"(\w+)(?:\((.*)\))?", str(activation).strip())
    name, parameter = match.groups() if match else ("", None)
    if name not in _FIXED and name not in _PARAMETRIC and name not in _ALIASES:
        name = name.lower()  # "ReLU", as papers and other libraries write it
    name = _ALIASES.get(name, name)
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
    if name == "function":
        raise ValueError(
            f"{activation} is a function of your own, which its name does not bring back. "
            "Give the Activation itself, as in neurecover.load(path, activation=…)."
        )
    hint = did_you_mean(name.lower(), NAMES)
    if callable(activation):
        hint = " For a function of your own: neurecover.activations.Activation.from_function."
    raise ValueError(f"activation needs to be one of {', '.join(NAMES)}. Got {activation!r} instead.{hint}")


def _figure(value: float) -> str:
    return repr(value).removesuffix(".0")
