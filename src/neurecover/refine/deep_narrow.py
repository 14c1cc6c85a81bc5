"""Fewer and more units for a student of several layers with skips.

A unit i of layer l is taken away by putting in its place what the other features of c_l say about it,

    h_i ≈ Σ_j β_j c_j  over the other features,    so that every layer above has its columns moved by β.

With ρ_i the residual of that regression the outputs change, to first order, by ∂y/∂h_i · ρ_i, and the unit is worth

    cost_i = Σ_samples |∂y/∂h_i|² ρ_i².

A unit that repeats another one, looks the other way, or is on for every sample has ρ = 0 and costs nothing. For the top
layer the cost is exactly the increase of Σ r² when the readout is solved again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from neurecover.models.deep_student import DeepStudent
from neurecover.solve import afford
from neurecover.statistics.base import symmetric

RIDGE = 1e-12  # per feature, on Σ c cᵀ scaled to unit diagonal


@dataclass(frozen=True)
class Worth:
    """What the units of one layer cost to take away (m,), and the regressions (q_l, m): column i holds β, −1 at i."""

    cost: np.ndarray
    regression: np.ndarray


def worth(student: DeepStudent, X: np.ndarray, layer: int) -> Worth:
    """The worth of every unit of a layer, on samples X (n, d)."""
    values = student.forward(X)
    C = values.features[:, student.own(layer).start :]
    scale = np.sqrt(np.einsum("nj,nj->j", C, C))
    scale = np.where(scale > 0, scale, 1.0)
    C = C / scale
    inverse = _inverse(C.T @ C)
    m = student.widths[layer]
    regression = -inverse[:, :m] / np.diag(inverse)[:m]
    rho = (C @ regression) * scale[:m]
    cost = np.zeros(m)
    for output in range(student.n_outputs):
        afford(2.0 * len(X) * (student.n_hidden_weights + m * sum(student.widths[layer + 1 :])))
        G = _by_values(student, student.backward(values, output), layer, output)
        cost += np.einsum("nj,nj->j", G * rho, G * rho)
    return Worth(cost, regression * scale[:m] / scale[:, None])


def without(student: DeepStudent, layer: int, unit: int, regression: np.ndarray) -> DeepStudent:
    """The student without that unit; regression (q_l,) says what stands in for it."""
    hidden = list(student.hidden)
    hidden[layer] = np.delete(hidden[layer], unit, axis=0)
    first = student.own(layer).start
    for above in range(layer + 1, student.depth):
        hidden[above] = _replaced(hidden[above], first - student.below(above).start, unit, regression)
    readout = _replaced(student.readout.T, first, unit, regression).T
    return replace(student, hidden=tuple(hidden), readout=readout)


def with_fresh_units(student: DeepStudent, widths: tuple[int, ...], rng: np.random.Generator) -> DeepStudent:
    """The student with random units added up to these widths; nothing above sees them yet."""
    for layer, wanted in enumerate(widths):
        missing = wanted - student.widths[layer]
        if missing <= 0:
            continue
        D, d = student.hidden[layer].shape[1], student.n_inputs
        fresh = rng.standard_normal((missing, D))
        if layer == 0:
            fresh /= np.linalg.norm(fresh[:, :d], axis=1, keepdims=True)
        else:
            fresh /= np.sqrt(max(student.widths[layer - 1], 1))
        hidden = list(student.hidden)
        hidden[layer] = np.vstack([hidden[layer], fresh])
        end = student.own(layer).stop
        for above in range(layer + 1, student.depth):
            at = end - student.below(above).start
            hidden[above] = np.insert(hidden[above], [at] * missing, 0.0, axis=1)
        readout = np.insert(student.readout, [end] * missing, 0.0, axis=0)
        student = replace(student, hidden=tuple(hidden), readout=readout)
    return student


def _by_values(student: DeepStudent, U: tuple[np.ndarray, ...], layer: int, output: int) -> np.ndarray:
    """∂y_o/∂h of a layer, (n, m), from the ∂y_o/∂z of those above."""
    own = student.own(layer)
    G = np.tile(student.readout[own, output], (len(U[0]), 1))
    for above in range(layer + 1, student.depth):
        at = own.start - student.below(above).start
        G += U[above] @ student.hidden[above][:, at : at + student.widths[layer]]
    return G


def _replaced(rows: np.ndarray, first: int, unit: int, regression: np.ndarray) -> np.ndarray:
    """Rows of weights on features of which those from `first` on are c_l, after unit i has gone."""
    rows = rows.copy()
    rows[:, first:] += np.outer(rows[:, first + unit], regression)
    return np.delete(rows, first + unit, axis=1)


def _inverse(scaled: np.ndarray) -> np.ndarray:
    ridge = RIDGE * len(scaled)
    while True:
        factor, failed = dpotrf(scaled + ridge * np.eye(len(scaled)), lower=1, clean=1)
        if not failed:
            return symmetric(dpotri(factor, lower=1)[0])
        ridge *= 100.0
