"""A chain of affine maps and activations, as other libraries store them, converted to the layers of a network:

    x ↦ M₁ x + m₁ ↦ act(·) ↦ M₂ · + m₂ ↦ …

Successive affine maps become one, M₂ M₁ x + (M₂ m₁ + m₂), so that a scaler before a network becomes part of its first
layer. A single affine map is copied without rounding. A second, affine chain may be added to the last map; it becomes
the network's affine term.
"""

from __future__ import annotations

from copy import copy

import numpy as np
from numpy.typing import ArrayLike

from neurecover.activations import Activation, get
from neurecover.models.deep import DeepNetwork, network_of
from neurecover.models.layered import Layer
from neurecover.models.network import Network


class Chain:
    """Steps are added in the order in which x passes them; `network` returns the result. `origin` is for messages."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self._layers: tuple[Layer, ...] = ()
        self._pending: Layer | None = None
        self._activation: Activation | None = None
        self._skip: np.ndarray | None = None

    def affine(self, M: ArrayLike, m: ArrayLike | None = None) -> None:
        """Add x ↦ M x + m to the chain, with M (rows, columns) and m (rows,), or zero."""
        matrix = np.asarray(M, dtype=np.float64)
        if matrix.ndim != 2:
            raise ValueError(f"{self.origin}: expected weights with two dimensions. Got shape {matrix.shape} instead.")
        shift = np.zeros(len(matrix)) if m is None else np.asarray(m, dtype=np.float64)
        below = self._width
        if below not in (None, matrix.shape[1]) or shift.shape != (len(matrix),):
            raise ValueError(
                f"{self.origin}: expected weights that fit the {'inputs' if below is None else below} below them. "
                f"Got weights {matrix.shape} and a bias {shift.shape} instead."
            )
        if self._pending is not None:
            first, offset = self._pending
            if self._skip is not None:
                self._skip = matrix @ self._skip
            matrix, shift = matrix @ first, matrix @ offset + shift
        self._pending = matrix, shift

    def scale(self, factor: ArrayLike, shift: ArrayLike) -> None:
        """Add x ↦ factor ∘ x + shift, entry by entry; either may be one number if the width is known."""
        width = self._width or max(np.size(factor), np.size(shift))
        if not {np.size(factor), np.size(shift)} <= {1, width}:
            raise ValueError(
                f"{self.origin}: expected one number for each of the {width} values. Got {np.size(factor)} to multiply "
                f"with and {np.size(shift)} to add instead."
            )
        factor = np.broadcast_to(np.asarray(factor, dtype=np.float64), (width,))
        shift = np.broadcast_to(np.asarray(shift, dtype=np.float64), (width,))
        if self._pending is None:
            return self.affine(np.diag(factor), shift)
        M, m = self._pending
        self._pending = factor[:, None] * M, factor * m + shift
        if self._skip is not None:
            self._skip = factor[:, None] * self._skip
        return None

    def activation(self, spec: str | Activation) -> None:
        """Add x ↦ act(x), entry by entry."""
        try:
            act = get(spec)
        except ValueError as error:
            raise ValueError(f"{self.origin}: {error}") from None
        if str(act) == "identity":
            return
        if self._skip is not None:
            raise ValueError(
                f"{self.origin}: expected a skip connection that leads x straight to the outputs. Got one "
                f"through {act}."
            )
        if self._activation not in (None, act):
            raise ValueError(
                f"{self.origin}: expected one activation in all hidden layers. Got {self._activation} and then {act}; "
                "an activation of the outputs is left out, as in the logits of a classifier."
            )
        if self._pending is None and self._layers:
            self.affine(np.eye(len(self._layers[-1][0])))
        if self._pending is None:
            raise ValueError(f"{self.origin}: expected a linear layer first. Got the activation {act} instead.")
        self._layers = (*self._layers, self._pending)
        self._activation, self._pending = act, None

    def split(self) -> Chain:
        """Return a copy of the chain so far, to be continued independently."""
        return copy(self)

    def add(self, other: Chain) -> None:
        """Add the output of another chain from the same x; one of the two must be affine."""
        curved, straight = (other, self) if other._layers else (self, other)
        if straight._layers:
            raise ValueError(f"{self.origin}: expected an affine map beside the layers. Got two that are not instead.")
        A, c = curved._last()
        width = (curved._layers[0][0] if curved._layers else A).shape[1]
        M, m = straight._pending or (np.eye(width), np.zeros(width))
        if M.shape != (len(A), width):
            raise ValueError(
                f"{self.origin}: expected {len(A)} values of {width} inputs to be added. Got {M.shape[0]} of "
                f"{M.shape[1]} instead."
            )
        skip = None
        if curved._layers:
            skip = M if curved._skip is None else curved._skip + M
        self._layers, self._activation, self._skip = curved._layers, curved._activation, skip
        self._pending = (A if curved._layers else A + M), c + m

    def network(self) -> Network | DeepNetwork:
        """Return a `Network` for one hidden layer, a `DeepNetwork` for none or several."""
        last = self._last()
        try:
            return network_of([*self._layers, last], self._activation or get("relu"), self._skip)
        except ValueError as error:
            raise ValueError(f"{self.origin}: {error}") from None

    def _last(self) -> Layer:
        """Return the last affine map; the identity if the chain ends with an activation."""
        if self._pending is None and not self._layers:
            raise ValueError(f"{self.origin}: expected at least one linear layer. Got none instead.")
        if self._pending is None:
            self.affine(np.eye(len(self._layers[-1][0])))
        assert self._pending is not None
        return self._pending

    @property
    def _width(self) -> int | None:
        if self._pending is not None:
            return len(self._pending[0])
        return len(self._layers[-1][0]) if self._layers else None
