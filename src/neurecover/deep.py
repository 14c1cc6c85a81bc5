"""A network whose first layer is known unit by unit and whose upper part may be anything,

    y = upper(u(W x − t)),        W (k, d), t (k,),

the model of [GP18]. The upper part is a polynomial of the hidden values, the OR of them, a `Network` or a tower
of several, or any callable that maps hidden values (n, k) to outputs (n, p).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from neurecover.activations import Activation, get
from neurecover.compare import Comparison, compare
from neurecover.network import Network, from_arrays, read_npz, write_npz

FORMAT_VERSION = 1
Upper = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False, init=False)
class Polynomial:
    """P(h)_o = Σ_m coefficients_om ∏ⱼ hⱼ^exponents_mj, with exponents (M, k) whole numbers and coefficients (p, M)."""

    exponents: np.ndarray
    coefficients: np.ndarray

    def __init__(self, exponents: ArrayLike, coefficients: ArrayLike) -> None:
        powers = np.array(exponents)
        values = np.atleast_2d(np.array(coefficients, dtype=np.float64))
        if (
            powers.ndim != 2
            or values.shape[1] != len(powers)
            or np.any(powers != np.rint(powers))
            or np.any(powers < 0)
        ):
            raise ValueError(
                "A polynomial needs whole exponents (M, k) of 0 or more and coefficients (p, M). "
                f"Got shapes {powers.shape} and {values.shape} instead."
            )
        for name, array in (("exponents", powers.astype(np.int64)), ("coefficients", values)):
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @property
    def degree(self) -> int:
        """The largest total degree of a monomial with a coefficient."""
        used = np.any(self.coefficients != 0.0, axis=0)
        return int(self.exponents[used].sum(axis=1).max(initial=0))

    @property
    def linear(self) -> np.ndarray:
        """The coefficients cᵢ of the linear terms, (p, k)."""
        k = self.exponents.shape[1]
        return self.coefficients @ np.all(self.exponents[:, None, :] == np.eye(k), axis=2)

    def __call__(self, H: np.ndarray) -> np.ndarray:
        return monomials(H, self.exponents) @ self.coefficients.T

    def derivatives(self, H: np.ndarray) -> np.ndarray:
        """∂P_o/∂hⱼ, (n, p, k)."""
        columns = []
        for j in range(H.shape[1]):
            lowered = self.exponents.copy()
            lowered[:, j] = np.maximum(lowered[:, j] - 1, 0)
            columns.append((monomials(H, lowered) * self.exponents[:, j]) @ self.coefficients.T)
        return np.stack(columns, axis=2)


def monomials(H: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """∏ⱼ hⱼ^e_j for every row of exponents (M, k): (n, M)."""
    out = np.ones((len(H), len(exponents)))
    for j in range(H.shape[1]):
        for m in np.unique(exponents[:, j]):
            if m:
                out[:, exponents[:, j] == m] *= H[:, j, None] ** m
    return out


@dataclass(frozen=True)
class Or:
    """1 where any hidden value is positive, else 0: 1 − ∏(1 − hⱼ) for step units."""

    def __call__(self, H: np.ndarray) -> np.ndarray:
        return np.any(H > 0.0, axis=1, keepdims=True).astype(float)


@dataclass(frozen=True)
class Tower:
    """Networks applied one after the other."""

    networks: tuple[Network, ...]

    def __call__(self, H: np.ndarray) -> np.ndarray:
        for network in self.networks:
            H = network(H)
        return H


@dataclass(frozen=True, eq=False, init=False)
class DeepNetwork:
    """y = upper(u(W x − t)). The arrays are float64 and read-only; `threshold` may be one number for all units."""

    W: np.ndarray
    threshold: np.ndarray
    upper: Upper
    activation: Activation

    def __init__(self, W: ArrayLike, threshold: ArrayLike, upper: Upper, activation: str | Activation = "relu") -> None:
        given = np.asarray(threshold, dtype=np.float64)
        t = np.broadcast_to(given, (np.shape(W)[0],)) if given.ndim == 0 else given
        lower = Network(W, -t, np.ones((1, np.shape(W)[0])), activation=activation)  # checks shapes and values
        if not callable(upper):
            raise ValueError(f"The upper part must be callable on hidden values (n, k). Got {upper!r} instead.")
        thresholds = -lower.b
        thresholds.flags.writeable = False
        for name, value in (("W", lower.W), ("threshold", thresholds), ("upper", upper)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "activation", get(activation))

    @property
    def n_inputs(self) -> int:
        return self.W.shape[1]

    @property
    def n_hidden(self) -> int:
        """The units of the first layer."""
        return self.W.shape[0]

    @property
    def n_outputs(self) -> int:
        return self.upper(np.zeros((1, self.n_hidden))).shape[1]

    def hidden(self, X: ArrayLike) -> np.ndarray:
        """u(W x − t), (n, k)."""
        X = np.asarray(X, dtype=np.float64)
        if X.ndim != 2 or X.shape[1] != self.n_inputs:
            raise ValueError(f"X needs shape (n, {self.n_inputs}). Got {X.shape} instead.")
        return self.activation(X @ self.W.T - self.threshold)

    def __call__(self, X: ArrayLike) -> np.ndarray:
        """The outputs (n, p) for inputs X (n, d)."""
        return self.upper(self.hidden(X))

    @property
    def lower(self) -> Network:
        """The first layer as a `Network` that adds its units up: what `compare` matches."""
        return Network(self.W, -self.threshold, np.ones((1, self.n_hidden)), activation=self.activation)

    def save(self, path: str | Path) -> None:
        """Write an `.npz` file of plain arrays; a callable that is none of the kinds of this module is refused."""
        write_npz(path, _to_arrays(self))

    def __repr__(self) -> str:
        upper = type(self.upper).__name__
        return (
            f"DeepNetwork(n_inputs={self.n_inputs}, n_hidden={self.n_hidden}, activation={str(self.activation)!r}, "
            f"upper={upper})"
        )


def compare_lower(network: DeepNetwork, truth: DeepNetwork, *, up_to_sign: bool = False) -> Comparison:
    """The errors of the first layer after its units are paired with the truth's; `bias_error` is that of t.

    `output_mse` and `output_weight_error` are those of the sums of the units, not of the deep networks.
    """
    return compare(network.lower, truth.lower, up_to_sign=up_to_sign)


def load_deep(path: str | Path) -> DeepNetwork:
    """Read what `DeepNetwork.save` wrote."""
    arrays = read_npz(path)
    missing = [name for name in ("deep", "W", "threshold", "activation") if name not in arrays]
    if missing:
        raise ValueError(f"{path} is not a saved deep network: it lacks {', '.join(missing)}.")
    try:
        facts = json.loads(str(arrays["deep"]))
        if facts["format_version"] > FORMAT_VERSION:
            raise ValueError(
                f"{path} has format version {facts['format_version']}, and this release reads up to {FORMAT_VERSION}. "
                "Update neurecover to read it."
            )
        upper = _upper_from(facts["upper"], int(facts["layers"]), arrays, path)
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} holds a deep network that this release cannot read ({error}).") from None
    return DeepNetwork(arrays["W"], arrays["threshold"], upper, str(arrays["activation"]))


def _to_arrays(network: DeepNetwork) -> dict[str, np.ndarray]:
    upper, parts, layers = network.upper, {}, 0
    if isinstance(upper, Polynomial):
        parts = {"exponents": upper.exponents, "coefficients": upper.coefficients}
    elif isinstance(upper, Network | Tower):
        networks = (upper,) if isinstance(upper, Network) else upper.networks
        layers = len(networks)
        parts = {f"upper{i}_{name}": array for i, net in enumerate(networks) for name, array in net.to_arrays().items()}
    elif not isinstance(upper, Or):
        raise ValueError(
            "Only a Polynomial, Or, Network or Tower can be saved as the upper part without pickle. "
            f"Got {type(upper).__name__} instead."
        )
    facts = {"format_version": FORMAT_VERSION, "upper": type(upper).__name__, "layers": layers}
    head = {"W": network.W, "threshold": network.threshold, "activation": np.array(str(network.activation))}
    return {"deep": np.array(json.dumps(facts)), **head, **parts}


def _upper_from(kind: str, layers: int, arrays: dict[str, np.ndarray], path: str | Path) -> Upper:
    if kind == "Polynomial":
        return Polynomial(arrays["exponents"], arrays["coefficients"])
    if kind == "Or":
        return Or()
    prefixes = [f"upper{i}_" for i in range(layers)]
    networks = tuple(
        from_arrays({name.removeprefix(p): value for name, value in arrays.items() if name.startswith(p)}, path)
        for p in prefixes
    )
    return networks[0] if kind == "Network" else Tower(networks)
