"""A network with a first layer of units and an upper part that may be any function,

    y = upper(u(W x − t)),        W (k, d), t (k,),

the model of [GP18]. The upper part is a polynomial of the hidden values, their OR, a `Network`, a `DeepNetwork`,
or any callable that maps hidden values (n, k) to outputs (n, p).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neurecover.activations import Activation, get
from neurecover.models import checks
from neurecover.models.deep import DeepNetwork
from neurecover.models.formats.files import header, write_npz
from neurecover.models.layered import Layered
from neurecover.models.network import Network

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
        """The largest total degree of a monomial with a coefficient other than zero."""
        used = np.any(self.coefficients != 0.0, axis=0)
        return int(self.exponents[used].sum(axis=1).max(initial=0))

    def name_of(self, term: int) -> str:
        """Return the name of a monomial, such as h0²·h1; 1 for the constant."""
        powers = self.exponents[term]
        return "·".join(f"h{j}" + ("" if powers[j] == 1 else f"^{powers[j]}") for j in np.flatnonzero(powers)) or "1"

    @property
    def linear(self) -> np.ndarray:
        """The coefficients cᵢ of the linear terms, (p, k)."""
        k = self.exponents.shape[1]
        return self.coefficients @ np.all(self.exponents[:, None, :] == np.eye(k), axis=2)

    def __call__(self, H: np.ndarray) -> np.ndarray:
        return monomials(H, self.exponents) @ self.coefficients.T

    def derivatives(self, H: np.ndarray) -> np.ndarray:
        """Return ∂P_o/∂hⱼ, (n, p, k)."""
        columns = []
        for j in range(H.shape[1]):
            lowered = self.exponents.copy()
            lowered[:, j] = np.maximum(lowered[:, j] - 1, 0)
            columns.append((monomials(H, lowered) * self.exponents[:, j]) @ self.coefficients.T)
        return np.stack(columns, axis=2)


def monomials(H: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """Return ∏ⱼ hⱼ^e_j for every row of exponents (M, k): (n, M)."""
    out = np.ones((len(H), len(exponents)))
    for j in range(H.shape[1]):
        for m in np.unique(exponents[:, j]):
            if m:
                out[:, exponents[:, j] == m] *= H[:, j, None] ** m
    return out


@dataclass(frozen=True)
class Or:
    """1 if any hidden value is positive, else 0: 1 − ∏(1 − hⱼ) for step units."""

    def __call__(self, H: np.ndarray) -> np.ndarray:
        return np.any(H > 0.0, axis=1, keepdims=True).astype(float)


@dataclass(frozen=True, eq=False, init=False)
class Composite:
    """A first layer with thresholds and any function above it: y = upper(u(W x − t)).

    Parameters
    ----------
    W : array_like of shape (k, d)
        The weights of the first layer.
    threshold : float or array_like of shape (k,)
        The thresholds t, one number for all units or one each.
    upper : Polynomial, Network, DeepNetwork or callable
        The function above the first layer.
    activation : str or Activation, default="relu"
        The function u of the first layer.

    References
    ----------
    .. [GP18] The model of the paper.

    Examples
    --------
    >>> import numpy as np
    >>> import neurecover as nr
    >>> net = nr.Composite(np.eye(2), 1.0, nr.Network(np.eye(2), None, [[1.0, 2.0]]))
    >>> net([[3.0, 0.0], [3.0, 2.0]])
    array([[2.],
           [4.]])
    """

    W: NDArray[np.float64]
    threshold: NDArray[np.float64]
    upper: Upper
    activation: Activation

    def __init__(self, W: ArrayLike, threshold: ArrayLike, upper: Upper, activation: str | Activation = "relu") -> None:
        given = np.asarray(threshold, dtype=np.float64)
        t = np.broadcast_to(given, (np.shape(W)[0],)) if given.ndim == 0 else given
        weights = checks.matrix("W", W)
        if not callable(upper):
            raise ValueError(f"The upper part must be callable on hidden values (n, k). Got {upper!r} instead.")
        thresholds = checks.vector("threshold", t, len(weights))
        for name, value in (("W", weights), ("threshold", thresholds), ("upper", upper)):
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

    def hidden(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return u(W x − t), (n, k)."""
        return self.activation(checks.inputs(X, self.n_inputs) @ self.W.T - self.threshold)

    def __call__(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the outputs (n, p) for inputs X (n, d)."""
        return self.upper(self.hidden(X))

    @property
    def hidden_weights(self) -> tuple[NDArray[np.float64], ...]:
        """The weights of the first layer, then of the hidden layers of an upper network."""
        return (self.W, *getattr(self.upper, "hidden_weights", ()))

    @property
    def hidden_activations(self) -> tuple[Activation, ...]:
        """The activations of the first layer and of the hidden layers of an upper network, which may differ."""
        return (self.activation, *getattr(self.upper, "hidden_activations", ()))

    def preactivations(self, X: ArrayLike) -> list[NDArray[np.float64]]:
        """Return W x − t, (n, k), and the preactivations of the hidden layers of an upper network."""
        Z = checks.inputs(X, self.n_inputs) @ self.W.T - self.threshold
        if isinstance(self.upper, Layered):
            return [Z, *self.upper.preactivations(self.activation(Z))]
        return [Z]

    @property
    def n_parameters(self) -> int:
        """The number of parameters in W, the thresholds and, if its form is known, the upper part."""
        upper = self.upper
        above = upper.coefficients.size if isinstance(upper, Polynomial) else getattr(upper, "n_parameters", 0)
        return self.W.size + self.threshold.size + above

    @property
    def lower(self) -> Network:
        """The first layer as a `Network` that sums its units, which `compare` can match."""
        return Network(self.W, -self.threshold, np.ones((1, self.n_hidden)), activation=self.activation)

    def normal_form(self) -> Composite:
        """Return the same function in a form where no scale is free, with an upper network in its normal form.

        act(s z) = s^h act(z) allows unit rows of W, and e^{z − t} = e^{−t} e^z thresholds of zero. The factor is moved
        into the upper part. If its form is unknown this is impossible, and the first layer stays unchanged.
        """
        h, W, t, upper = self.activation.homogeneity, self.W, self.threshold, self.upper
        norm = np.linalg.norm(W, axis=1)
        norm = np.where(norm > 0.0, norm, 1.0)
        exponential = self.activation.name == "exp"
        taken = _scaled(upper, np.exp(-t)) if exponential else None if h is None else _scaled(upper, norm**h)
        if taken is not None:
            W, t, upper = (W, np.zeros_like(t), taken) if exponential else (W / norm[:, None], t / norm, taken)
        if isinstance(upper, Layered):
            upper = upper.normal_form()
        return Composite(W, t, upper, self.activation)

    def take(self, units: ArrayLike) -> Composite:
        """Return the network with only the given units of the first layer, in that order."""
        units = np.asarray(units)
        units = units.astype(int) if units.size == 0 else units
        upper, k = self.upper, self.n_hidden

        def among_all(H: np.ndarray) -> np.ndarray:
            every = np.zeros((len(H), k))
            every[:, units] = H
            return upper(every)

        if isinstance(upper, Polynomial):
            silent = np.all(np.delete(upper.exponents, units, axis=1) == 0, axis=1)
            part: Upper = Polynomial(upper.exponents[silent][:, units], upper.coefficients[:, silent])
        elif isinstance(upper, Layered):
            (W, b), *above = upper.layers
            part = upper.with_layers([(W[:, units], b), *above], None if upper.C is None else upper.C[:, units])
        else:
            part = upper if isinstance(upper, Or) else among_all
        return Composite(self.W[units], self.threshold[units], part, self.activation)

    def to_deep(self) -> DeepNetwork | None:
        """Return the same function as a `DeepNetwork`; None unless the upper part is a network of the same activation.

        None too if the upper part has an affine term, because that is affine in the hidden values and not in x.
        """
        upper = self.upper
        if not isinstance(upper, Layered) or upper.activation != self.activation or upper.C is not None:
            return None
        return DeepNetwork([(self.W, -self.threshold), *upper.layers], self.activation)

    @property
    def can_be_saved(self) -> bool:
        """Whether the upper part is of a kind that can be saved as plain arrays."""
        return isinstance(self.upper, Polynomial | Or | Layered)

    def save(self, path: str | Path) -> None:
        """Write an `.npz` file of plain arrays; refuse an upper part that cannot be saved as arrays."""
        write_npz(path, self.to_arrays())

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that `save` writes, by name."""
        upper, parts = self.upper, {}
        if isinstance(upper, Polynomial):
            parts = {"exponents": upper.exponents, "coefficients": upper.coefficients}
        elif isinstance(upper, Layered):
            parts = {f"upper_{name}": array for name, array in upper.to_arrays().items()}
        elif not self.can_be_saved:
            raise ValueError(
                "Only a Polynomial, Or, Network or DeepNetwork can be saved as the upper part without pickle. "
                f"Got {type(upper).__name__} instead."
            )
        own = {"W": self.W, "threshold": self.threshold, "upper": np.array(type(upper).__name__)}
        affine = isinstance(upper, Layered) and upper.C is not None
        return header("composite", str(self.activation), affine) | own | parts

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], activation: Activation | None = None) -> Composite:
        """Build the network from the arrays of `to_arrays`; KeyError for a missing array.

        `activation` replaces the first layer's activation, which is otherwise found by name.
        """
        kind = str(arrays["upper"])
        above = {n.removeprefix("upper_"): array for n, array in arrays.items() if n.startswith("upper_")}
        if kind == "Polynomial":
            upper: Upper = Polynomial(arrays["exponents"], arrays["coefficients"])
        elif kind in ("Network", "DeepNetwork"):
            upper = (Network if kind == "Network" else DeepNetwork).from_arrays(above)
        elif kind == "Or":
            upper = Or()
        else:
            raise ValueError(f"upper needs to be Polynomial, Or, Network or DeepNetwork. Got {kind!r} instead.")
        return cls(arrays["W"], arrays["threshold"], upper, activation or str(arrays["activation"]))

    def _repr_html_(self) -> str | None:
        from neurecover.report import in_notebook

        return in_notebook("network", self)

    def __repr__(self) -> str:
        upper = type(self.upper).__name__
        return (
            f"Composite(n_inputs={self.n_inputs}, n_hidden={self.n_hidden}, activation={str(self.activation)!r}, "
            f"upper={upper})"
        )


def _scaled(upper: Upper, factor: np.ndarray) -> Upper | None:
    """Return the upper part for hidden values that were divided by `factor`; None if its form is unknown."""
    if isinstance(upper, Polynomial):
        return Polynomial(upper.exponents, upper.coefficients * np.prod(factor**upper.exponents, axis=1))
    if isinstance(upper, Layered):
        (W, b), *above = upper.layers
        return upper.with_layers([(W * factor, b), *above], None if upper.C is None else upper.C * factor)
    return upper if isinstance(upper, Or) and np.all(factor > 0.0) else None
