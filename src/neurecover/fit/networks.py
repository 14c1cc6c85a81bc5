"""Units that no sample switches, and students of one layer as `search.gates` reads them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from neurecover.activations import Activation
from neurecover.fit.point import Point
from neurecover.models import DeepNetwork, Network, WideStudent, as_network, network_of, with_constant


def away_from_samples(network: Network | DeepNetwork, lowest: np.ndarray, highest: np.ndarray) -> Network | DeepNetwork:
    """Return the network with units that no sample switches moved so far that others will not either.

    lowest and highest are the ends of every unit's preactivations, layer by layer. Where the kink of such a unit lies
    is unknown. One that is on for every sample is a linear function of them: its bias grows by t, and the constant of
    what reads it shrinks by its weight times t. One that is off for every sample adds nothing, and the weights that
    read it become zero.
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
        constant -= above @ shift  # act(z + t) = act(z) + t where z > 0
        if act.odd_slope == 1.0:
            above[:, off[own]] = 0.0
    return network_of(layers, act, network.C)


def fitted_network(point: Point) -> Network | DeepNetwork:
    """Return the network of a fit, units that no sample switches moved away from them."""
    network = as_network(point.student)
    if not point.student.bias:
        return network
    F = point.samples.F
    Z = np.hstack([np.zeros((len(F), 0)), *network.preactivations(F[:, 1:])])
    return away_from_samples(network, Z.min(axis=0, initial=np.inf), Z.max(axis=0, initial=-np.inf))


@dataclass(frozen=True)
class OneLayer:
    """y ≈ A·act(V x̃) + L x + c, x̃ = (x, 1), as `search.gates` reads a student of one layer: V (m, D) with biases last,
    readout (q, p) the rows of Aᵀ, then of Lᵀ if `affine`, then c if `bias`.
    """

    activation: Activation
    V: np.ndarray
    readout: np.ndarray
    bias: bool
    affine: bool

    @property
    def n_hidden(self) -> int:
        return len(self.V)

    @property
    def n_inputs(self) -> int:
        return self.V.shape[1] - self.bias

    @property
    def A(self) -> np.ndarray:
        """The output weights of the hidden units, (p, m)."""
        return self.readout[: self.n_hidden].T

    def extended(self, X: np.ndarray) -> np.ndarray:
        """x̃ of every sample."""
        return np.hstack([X, np.ones((len(X), 1))]) if self.bias else X

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return wide(self)(with_constant(X, self.bias))


def wide(student: OneLayer) -> WideStudent:
    """Return a student of one layer as the engine has it."""
    k, d, bias = student.n_hidden, student.n_inputs, int(student.bias)
    V = np.hstack([student.V[:, d:], student.V[:, :d]])
    constant, linear = student.readout[len(student.readout) - bias :], student.readout[k : k + d * student.affine]
    theta = np.vstack([constant, linear, student.readout[:k]])
    return WideStudent(student.activation, (V,), theta, d + bias, bias, skips=student.affine)


def one_layer(student: WideStudent) -> OneLayer:
    """Return a student of the engine, of one layer, with biases last and the affine part behind the units."""
    bias, base = student.bias, student.reads(1)[0]
    V = np.hstack([student.V[0][:, bias:], student.V[0][:, :bias]])
    readout = np.vstack([student.theta[base:], student.theta[bias:base], student.theta[:bias]])
    return OneLayer(student.activation, V, readout, bool(bias), affine=base > bias)
