"""The model that is fitted on the way to a network of any depth L ≥ 1. Every layer reads all layers below it,

    c₀ = (1, x),    h_l = act(V_l c_{l−1}),    c_l = (c_{l−1}, h_l),    y ≈ Θᵀ c_L.

The constant is the first column, so a bias is a weight like any other. Columns are ordered from the lowest layer up.
The input of layer l + 1 is thus a leading block of c_L, and the part above layer l is a student with inputs c_l. With
one layer the skip connections are the affine term. With `skips=False` the model is an ordinary network: layer l reads
(1, h_{l−1}), the readout reads (1, h_L), and with `affine` also x.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np

from neurecover.activations import Activation
from neurecover.models.deep import DeepNetwork, network_of
from neurecover.models.network import Network


@dataclass(frozen=True, eq=False)
class Values:
    """One forward pass: c₀ as F (n, n_base), all h_l side by side as H (n, Σm), the gates act′(z_l) (n, m_l)."""

    F: np.ndarray
    H: np.ndarray
    gates: tuple[np.ndarray, ...]

    def cast(self, F: np.ndarray) -> Values:
        """Return the same values in the precision of F, which is c₀ in that precision."""
        dtype = F.dtype
        return Values(F, self.H.astype(dtype, copy=False), tuple(gate.astype(dtype, copy=False) for gate in self.gates))

    def rows(self, part: slice) -> Values:
        """Return the values of some of the rows."""
        return Values(self.F[part], self.H[part], tuple(gate[part] for gate in self.gates))


@dataclass(frozen=True, eq=False)
class Student:
    """V_l (m_l, columns read), lowest layer first, and Θ (columns read, p), on c₀ of `n_base` columns.

    The first column of c₀ is the constant if `bias` is 1; there is no constant if it is 0.
    """

    activation: Activation
    V: tuple[np.ndarray, ...]
    theta: np.ndarray
    n_base: int
    bias: int
    skips: bool = True
    affine: bool = False

    @property
    def depth(self) -> int:
        return len(self.V)

    @property
    def n_outputs(self) -> int:
        return self.theta.shape[1]

    @cached_property
    def widths(self) -> tuple[int, ...]:
        return tuple(map(len, self.V))

    @cached_property
    def size(self) -> int:
        """The number of hidden weights."""
        return sum(V.size for V in self.V)

    @property
    def n_parameters(self) -> int:
        return self.size + self.theta.size

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        """The number of columns of H up to each layer, from 0."""
        return tuple(accumulate(self.widths, initial=0))

    def own(self, layer: int) -> slice:
        """Return the columns of H that hold h_{layer + 1}."""
        return slice(self._ends[layer], self._ends[layer + 1])

    def reads(self, layer: int) -> tuple[int, slice]:
        """Return how many columns of c₀, and which columns of H, layer + 1 reads; layer = L is the readout."""
        if self.skips or layer == 0:
            return self.n_base, slice(0, self._ends[layer])
        return self.n_base if self.affine and layer == self.depth else self.bias, self.own(layer - 1)

    @cached_property
    def parameter_order(self) -> np.ndarray:
        """The positions in V₁, …, V_L, Θᵀ of the network's free parameters, in the order of `models.parameters`.

        Without skips a row of V is (b | W), and a row of the readout is (c | C | A).
        """
        parts, start = [], 0
        for layer, rows in enumerate((*self.V, self.theta.T)):
            own = start + np.arange(rows.size).reshape(rows.shape)
            base = self.reads(layer)[0]
            parts += [own[:, base:], own[:, self.bias : base], own[:, : self.bias]]
            start += rows.size
        return np.concatenate([part.ravel() for part in parts])

    @property
    def top(self) -> np.ndarray:
        """The output weights of the top layer's units, (m_L, p)."""
        return self.theta[len(self.theta) - self.widths[-1] :]

    def forward(self, F: np.ndarray) -> Values:
        """Return the values for base features F (n, n_base), in the precision of F."""
        H = np.empty((len(F), self._ends[-1]), dtype=F.dtype)
        gates = []
        for layer, V in enumerate(self.V):
            base, below = self.reads(layer)
            V = V.astype(F.dtype, copy=False)
            Z = F[:, :base] @ V[:, :base].T
            if layer:
                Z += H[:, below] @ V[:, base:].T
            H[:, self.own(layer)], gate = self.activation.with_derivative(Z)
            gates.append(gate.astype(F.dtype, copy=False))
        return Values(F, H, tuple(gates))

    def columns(self, values: Values) -> np.ndarray:
        """Return the inputs of the readout, (n, q)."""
        base, hidden = self.reads(self.depth)
        return np.hstack([values.F[:, :base], values.H[:, hidden]])

    def outputs(self, values: Values) -> np.ndarray:
        """Return Θᵀ c_L, (n, p)."""
        base, hidden = self.reads(self.depth)
        return values.F[:, :base] @ self.theta[:base] + values.H[:, hidden] @ self.theta[base:]

    def tangent(self, values: Values, step: Sequence[np.ndarray]) -> np.ndarray:
        """Return J δ (n, p):  ż_l = V_l ċ_{l−1} + δ_l c_{l−1},   ḣ_l = act′(z_l) ∘ ż_l,   ẏ = Θᵀ ċ_L."""
        if self.depth == 1:
            return ((values.F @ step[0].T) * values.gates[0]) @ self.top
        dH = np.empty_like(values.H)
        for layer, gate in enumerate(values.gates):
            base, below = self.reads(layer)
            dZ = values.F[:, :base] @ step[layer][:, :base].T
            if layer:
                dZ += values.H[:, below] @ step[layer][:, base:].T
                dZ += dH[:, below] @ self.V[layer][:, base:].T
            dH[:, self.own(layer)] = gate * dZ
        base, hidden = self.reads(self.depth)
        return dH[:, hidden] @ self.theta[base:]

    def backward(self, values: Values, G: np.ndarray) -> list[np.ndarray]:
        """Return u_l = ∂/∂z_l (n, m_l) for G = ∂/∂y (n, p), lowest layer first; ∂/∂V_l is then u_lᵀ c_{l−1}."""
        if self.depth == 1:
            return [(G @ self.top.T) * values.gates[0]]
        by_layer, dH = [], self.by_values(values, G)
        for layer, gate in enumerate(values.gates):
            by_layer.append(dH[:, self.own(layer)] * gate)
        return by_layer

    def by_values(self, values: Values, G: np.ndarray) -> np.ndarray:
        """Return ∂/∂H (n, Σm), including the paths through higher layers, for G = ∂/∂y (n, p)."""
        base, hidden = self.reads(self.depth)
        dH = np.zeros_like(values.H)
        dH[:, hidden] = G @ self.theta[base:].T
        for layer in range(self.depth - 1, 0, -1):
            base, below = self.reads(layer)
            dH[:, below] += (dH[:, self.own(layer)] * values.gates[layer]) @ self.V[layer][:, base:]
        return dH

    def gradient(self, values: Values, G: np.ndarray) -> np.ndarray:
        """Return Jᵀ G, flat."""
        parts = []
        for layer, u in enumerate(self.backward(values, G)):
            base, below = self.reads(layer)
            part = u.T @ values.F[:, :base]
            parts.append((np.hstack([part, u.T @ values.H[:, below]]) if layer else part).ravel())
        return np.concatenate(parts)

    def jacobian(self, values: Values, G: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Write G_n · ∂y_n/∂V into the columns of `out` (size, n), for a student with one output."""
        n, start = len(values.F), 0
        F, H = np.ascontiguousarray(values.F.T), np.ascontiguousarray(values.H.T)  # the long side is the inner one
        for layer, u in enumerate(self.backward(values, G)):
            base, below = self.reads(layer)
            stop = start + self.V[layer].size
            block, u = out[start:stop].reshape(*self.V[layer].shape, n), np.ascontiguousarray(u.T)
            np.multiply(u[:, None], F[:base], out=block[:, :base])
            if layer:
                np.multiply(u[:, None], H[below], out=block[:, base:])
            start = stop
        return out

    def split(self, flat: np.ndarray) -> list[np.ndarray]:
        """Return views of a flat vector of hidden weights, one per layer."""
        ends = accumulate(V.size for V in self.V)
        return [flat[end - V.size : end].reshape(V.shape) for end, V in zip(ends, self.V)]

    def moved(self, step: np.ndarray) -> Student:
        """Return the student with its hidden weights moved by a flat step."""
        return replace(self, V=tuple(V + part for V, part in zip(self.V, self.split(step))))

    @property
    def weights(self) -> np.ndarray:
        """All weights, flat: V_1 row by row, then V_2 and so on, then the readout, output by output."""
        return np.concatenate([*(V.ravel() for V in self.V), self.theta.T.ravel()])

    def with_weights(self, flat: np.ndarray) -> Student:
        """Return the student with other weights, in the order of `weights`."""
        theta = flat[self.size :].reshape(self.theta.T.shape).T
        return replace(self, V=tuple(self.split(flat[: self.size])), theta=theta)

    def cast(self, dtype: type) -> Student:
        """Return the student with its weights in another precision."""
        V: tuple[np.ndarray, ...] = tuple(V.astype(dtype, copy=False) for V in self.V)
        return replace(self, V=V, theta=self.theta.astype(dtype, copy=False))

    def __call__(self, F: np.ndarray) -> np.ndarray:
        return self.outputs(self.forward(F))


def with_constant(X: np.ndarray, bias: int) -> np.ndarray:
    """Return (1, x) of every sample, or x without biases."""
    return np.hstack([np.ones((len(X), 1)), X]) if bias else X


def as_student(network: Network | DeepNetwork, bias: bool, skips: bool = False) -> Student:
    """Return the network as a student; with `skips`, add skip connections, zero except for the affine term."""
    d, rows, columns = network.n_inputs, [], bias + network.n_inputs
    for number, (W, b) in enumerate(network.layers):
        last = number == network.depth
        constant = [b[:, None]] if bias else []
        if number == 0 and not last:
            rows.append(np.hstack([*constant, W]))
        elif skips:
            linear = network.C if last and network.C is not None else np.zeros((len(W), d))
            zeros = np.zeros((len(W), columns - bias - d - W.shape[1]))
            rows.append(np.hstack([*constant, linear, zeros, W]))
        else:
            affine_part = [network.C] if last and network.C is not None else []
            rows.append(np.hstack([*constant, *affine_part, W]))
        columns += len(W)
    affine = network.C is not None
    return Student(network.activation, tuple(rows[:-1]), rows[-1].T.copy(), bias + d, int(bias), skips, affine)


def as_network(student: Student) -> Network | DeepNetwork:
    """Return a student as a network: a `Network` for one hidden layer, else a `DeepNetwork`.

    Skip connections of one layer that are not kept as an affine term become pairs of units, m z = act(z) − act(−z).
    """
    bias, d = student.bias, student.n_base - student.bias
    layers = [(V[:, bias:], _constant(V, bias)) for V in student.V]
    rows = student.theta.T
    base = student.reads(student.depth)[0]
    C = rows[:, bias:base] if base > bias else None
    A = rows[:, base:]
    if C is not None and not student.affine:
        assert student.depth == 1
        (W, b), C_left = layers[0], C
        left, values, right = np.linalg.svd(C_left, full_matrices=False)
        rank = int(np.count_nonzero(values > 1e-12 * values.max(initial=1e-300)))
        part = left[:, :rank] * values[:rank] / (student.activation.odd_slope or 1.0)
        layers = [(np.vstack([W, right[:rank], -right[:rank]]), np.concatenate([b, np.zeros(2 * rank)]))]
        A, C = np.hstack([A, part, -part]), None
    assert d == layers[0][0].shape[1]
    return network_of([*layers, (A, _constant(rows, bias))], student.activation, C)


def _constant(rows: np.ndarray, bias: int) -> np.ndarray:
    return rows[:, 0] if bias else np.zeros(len(rows))


def away_from_samples(network: Network | DeepNetwork, lowest: np.ndarray, highest: np.ndarray) -> Network | DeepNetwork:
    """Move the kink of every unit that is on (or off) for all samples away from the samples, and return the network.

    lowest and highest bound every unit's preactivations, layer by layer. The samples do not show where the kink of such
    a unit lies. A unit that is on for every sample is linear there: its bias grows by t, and the constant above it
    shrinks by t times the weight. A unit that is off for every sample adds nothing, and its output weights become zero.
    """
    act = network.activation
    on, off = lowest > 0.0, highest <= 0.0
    if act.homogeneity != 1.0 or not act.odd_slope or not (on | off).any():
        return network
    layers, start = [(W.copy(), b.copy()) for W, b in network.layers], 0
    for (W, b), (above, constant) in pairwise(layers):
        own = slice(start, start + len(W))
        start = own.stop
        shift = np.where(on[own], highest[own], 0.0)
        b += shift
        constant -= above @ shift  # act(z + t) = act(z) + t if z > 0
        if act.odd_slope == 1.0:
            above[:, off[own]] = 0.0
    return network_of(layers, act, network.C)
