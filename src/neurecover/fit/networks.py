"""Networks as students and back, and units that no sample switches."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from neurecover.fit.point import Point
from neurecover.models import DeepNetwork, Network, Student, network_of
from neurecover.models.wide import WideStudent


def as_student(network: Network | DeepNetwork, bias: bool, skips: bool = False) -> WideStudent:
    """Return the network as a student; with `skips`, one whose skips are zero but for the affine term."""
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
    return WideStudent(network.activation, tuple(rows[:-1]), rows[-1].T.copy(), bias + d, int(bias), skips, affine)


def as_network(student: WideStudent) -> Network | DeepNetwork:
    """Return a student as a network: a `Network` for one hidden layer, else a `DeepNetwork`.

    Skips of one layer that are no affine term become pairs of units, m z = act(z) − act(−z).
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


def wide(student: Student) -> WideStudent:
    """Return a student of one layer as the engine has it."""
    k, d, bias = student.n_hidden, student.n_inputs, int(student.bias)
    V = np.hstack([student.V[:, d:], student.V[:, :d]])
    constant, linear = student.readout[len(student.readout) - bias :], student.readout[k : k + d * student.affine]
    theta = np.vstack([constant, linear, student.readout[:k]])
    return WideStudent(student.activation, (V,), theta, d + bias, bias, skips=student.affine)


def one_layer(student: WideStudent) -> Student:
    """Return a student of the engine, of one layer, with biases last and the affine part behind the units."""
    bias, base = student.bias, student.reads(1)[0]
    V = np.hstack([student.V[0][:, bias:], student.V[0][:, :bias]])
    readout = np.vstack([student.theta[base:], student.theta[bias:base], student.theta[:bias]])
    return Student(student.activation, V, readout, bool(bias), affine=base > bias)
