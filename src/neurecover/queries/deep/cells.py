"""The known layers of a network, as a piecewise linear map of the inputs.

With layers 1 … m known, h_m(x) is known everywhere, and a unit of layer m + 1 has its boundary where

    w·h_m(x) + b = 0.

The rows of one further layer may be known only up to sign, q_i(x) = ±(w_i·h_m(x) + b_i): it is `unsigned`. A unit above
it then has its boundary where Σ_i v_i |q_i(x)| + r·h_m(x) + β = 0, because 2 relu(q) = |q| + q. In both cases the
boundary is

    θ·φ(x) = 0,    φ = (h_m, 1)    or    φ = (|q|, h_m, 1),

with φ known, and linear in the unknown θ. Inside a cell, where no known unit changes sign, φ is affine.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from neurecover.queries.box.limits import EVERYWHERE, Limits
from neurecover.queries.deep.options import DeepOptions

Layer = tuple[np.ndarray, np.ndarray]

_RECENT = 64  # cells kept: a walk along a boundary returns to the last few


@dataclass(frozen=True, eq=False)
class Cell:
    """In one cell: q(x) = Q x + q₀ of all known units (K, d), and φ(x) = Φ x + φ₀, (f, d)."""

    Q: np.ndarray
    q0: np.ndarray
    Phi: np.ndarray
    phi0: np.ndarray


@dataclass(frozen=True, eq=False)
class KnownLayers:
    """Known layers (W, b), and at most one further layer, `unsigned`, whose rows are known up to sign.

    `limits` say where the oracle may be queried, and `options` how. `errors` (units,) are the standard errors of the
    features that the highest known layer adds, relative to the size 1 + ‖x‖ of a point; without them there are none.
    """

    n_inputs: int
    layers: tuple[Layer, ...] = ()
    unsigned: Layer | None = None
    limits: Limits = EVERYWHERE
    options: DeepOptions = field(default_factory=DeepOptions)
    errors: np.ndarray = field(default_factory=lambda: np.zeros(0))
    _recent: OrderedDict[bytes, Cell] = field(default_factory=OrderedDict, init=False, repr=False)

    @property
    def error(self) -> float:
        """The root mean square of the errors of the features."""
        return float(np.sqrt(np.mean(self.errors**2))) if len(self.errors) else 0.0

    def spread(self, theta: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return the standard errors (n,) of θ·φ(x) that come from those of the known layers."""
        if not len(self.errors):
            return np.zeros(len(X))
        k = len(self.errors)
        active = self.features(X)[:, :k] != 0.0
        return np.sqrt(active @ (theta[:k] * self.errors) ** 2) * (1.0 + np.linalg.norm(X, axis=1))

    @property
    def n_units(self) -> int:
        """The number of units with known boundaries, in all layers."""
        return sum(len(b) for _, b in self.layers) + (0 if self.unsigned is None else len(self.unsigned[1]))

    @property
    def n_features(self) -> int:
        """The number f of features φ."""
        below = len(self.layers[-1][1]) if self.layers else self.n_inputs
        return below + 1 + (0 if self.unsigned is None else len(self.unsigned[1]))

    @property
    def n_top(self) -> int:
        """The number of units in the highest known layer, which are the first features; 0 if no layer is known."""
        if self.unsigned is not None:
            return len(self.unsigned[1])
        return len(self.layers[-1][1]) if self.layers else 0

    def hidden(self, X: np.ndarray) -> np.ndarray:
        """Return h_m(x), (n, k_m): the inputs themselves if no layer is known."""
        for W, b in self.layers:
            X = np.maximum(X @ W.T + b, 0.0)
        return X

    def features(self, X: np.ndarray) -> np.ndarray:
        """Return φ(x), (n, f)."""
        H = self.hidden(X)
        ones = np.ones((len(X), 1))
        if self.unsigned is None:
            return np.hstack([H, ones])
        W, b = self.unsigned
        return np.hstack([np.abs(H @ W.T + b), H, ones])

    def values(self, X: np.ndarray) -> np.ndarray:
        """Return q(x) of all known units, layer after layer, (n, K)."""
        values = [np.zeros((len(X), 0))]
        for W, b in self.layers:
            values.append(X @ W.T + b)
            X = np.maximum(values[-1], 0.0)
        if self.unsigned is not None:
            values.append(X @ self.unsigned[0].T + self.unsigned[1])
        return np.hstack(values)

    def cell(self, positive: np.ndarray) -> Cell:
        """Return the affine maps of the cell where exactly the units `positive` (K,) have q > 0."""
        key = positive.tobytes()
        found = self._recent.pop(key, None) or self._compute_cell(positive)
        self._recent[key] = found
        if len(self._recent) > _RECENT:
            self._recent.popitem(last=False)
        return found

    def _compute_cell(self, positive: np.ndarray) -> Cell:
        """Compute what `cell` returns."""
        M, m0 = np.eye(self.n_inputs), np.zeros(self.n_inputs)
        slopes, offsets, first = [np.zeros((0, self.n_inputs))], [np.zeros(0)], 0
        for W, b in self.layers:
            Q, q0 = W @ M, W @ m0 + b
            on = positive[first : first + len(b)]
            M, m0 = np.where(on[:, None], Q, 0.0), np.where(on, q0, 0.0)
            slopes.append(Q)
            offsets.append(q0)
            first += len(b)
        Phi, phi0 = [M, np.zeros((1, self.n_inputs))], [m0, np.ones(1)]
        if self.unsigned is not None:
            W, b = self.unsigned
            Q, q0 = W @ M, W @ m0 + b
            sign = np.where(positive[first:], 1.0, -1.0)
            Phi, phi0 = [sign[:, None] * Q, *Phi], [sign * q0, *phi0]
            slopes.append(Q)
            offsets.append(q0)
        return Cell(np.vstack(slopes), np.concatenate(offsets), np.vstack(Phi), np.concatenate(phi0))

    def cell_at(self, x: np.ndarray) -> Cell:
        """Return the cell that contains x."""
        return self.cell(self.values(x[None])[0] > 0.0)
