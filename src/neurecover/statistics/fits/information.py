"""Sums for least squares over the free parameters θ of a network: with J = ∂y/∂θ and the residual r = y − f(x),

    F = Σ JᵀJ,    g = Σ Jᵀr,    Σ r²  per output.

`probes` are hidden units that the network does not have, (e, d) or with biases last (e, d + 1). Their values on every
output, and the columns of `lacks`, are further columns of J that do not enter the residual. The residual is formed
sample by sample, never as a difference of sums, so that even a residual near rounding keeps its digits.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from neurecover.activations import Activation
from neurecover.models import (
    Composite,
    Layered,
    Model,
    as_student,
    free_parameters,
    jacobian,
    parameters,
    with_constant,
)
from neurecover.statistics.base import Statistic, add_gram, by_root, float64, symmetric
from neurecover.statistics.fits.gate_pairs import PIECE, add_gate_pairs, feature_products, gated_products, no_pairs
from neurecover.statistics.fits.regions import Regions, can_divide, divide


class Lacks(Protocol):
    """Columns that a network may lack, as a function of its inputs."""

    def __len__(self) -> int: ...
    def __call__(self, X: np.ndarray) -> np.ndarray: ...


class InformationSums(Statistic):
    """The sums for any network, formed from the rows of J.

    The columns of J are the `free` parameters in the order of `models.parameters`, then the probes and the columns of
    `lacks`, output by output.
    """

    def __init__(
        self, model: Model, bias: bool = True, probes: np.ndarray | None = None, lacks: Lacks | None = None
    ) -> None:
        self.model, self.free, self.lacks = model, free_parameters(model, bias), lacks
        self.probes = np.empty((0, model.n_inputs + 1)) if probes is None else probes
        self.settings = {"theta": parameters(model), "probes": self.probes}
        self.n_further = len(self.probes) + (0 if lacks is None else len(lacks))
        self.size = len(self.free) + model.n_outputs * self.n_further
        self.sums = {"n": np.zeros((), dtype=np.int64), "rr": np.zeros(model.n_outputs)}
        self._begin(bias)

    @staticmethod
    def of(
        model: Model, bias: bool = True, probes: np.ndarray | None = None, lacks: Lacks | None = None
    ) -> InformationSums:
        """Return empty sums; bias=False fixes the biases. One hidden layer gets `GatedSums`, whose cost is lower."""
        gated = not isinstance(model, Composite) and model.depth == 1 and len(model.hidden_weights[0]) > 0
        return (GatedSums if gated else InformationSums)(model, bias, probes, lacks)

    def _begin(self, bias: bool) -> None:
        self.sums |= {"jj": np.zeros((self.size, self.size), order="F"), "jr": np.zeros(self.size)}  # lower triangle
        self.row_bytes = 24 * self.model.n_outputs * self.size

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, Y = float64(X, Y)
        R, J = Y - self.model(X), jacobian(self.model, X)
        if len(self.free) < J.shape[2]:
            J = J[:, :, self.free]
        if self.n_further:
            values = self._further(X)
            own = np.einsum("ne,oq->noqe", values, np.eye(R.shape[1])).reshape(*R.shape, -1)
            J = np.concatenate([J, own], axis=2)
        J, R = by_root(weight, J, R)
        rows = np.ascontiguousarray(J.reshape(R.size, -1).T)
        self._count(len(X), weight)
        self.sums["jj"] = add_gram(self.sums["jj"], rows)
        self.sums["jr"] += rows @ R.ravel()
        self.sums["rr"] += np.einsum("ij,ij->j", R, R)

    def _further(self, X: np.ndarray) -> np.ndarray:
        """Return the columns that the network lacks, (n, e)."""
        values = probe_values(self.model.activation, self.probes, X)
        return values if self.lacks is None else np.hstack([values, self.lacks(X)])

    def information(self) -> tuple[np.ndarray, np.ndarray]:
        """Return F and g, including the further columns."""
        return symmetric(self.sums["jj"]), self.sums["jr"]


class GatedSums(InformationSums):
    """The sums for one hidden layer, y = Θᵀh with h = (1, x if there is an affine term C, act(V x̃), probes).

    ∂y_o/∂v_j = A_oj·act'(v_j·x̃)·x̃, so with the gated inputs m = (act'(v_j·x̃) x̃)_j everything is a sum without A,

        Σ h hᵀ,    Σ h rᵀ,    Σ m rᵀ,    Σ h mᵀ    and, packed,    Σ m mᵀ  (`gate_pairs`),

    whose cost does not grow with the number of outputs: block (i, j) of F is (A_i·A_j) times that of Σ m mᵀ. If the
    activation is homogeneous, Σ h mᵀ follows from Σ m mᵀ, except for the probes.
    """

    def _begin(self, bias: bool) -> None:
        assert isinstance(self.model, Layered)
        self.student = student = as_student(self.model, bias)
        (m, D), p = student.V[0].shape, student.n_outputs
        q = len(student.theta) + self.n_further
        self.degree = None if self.n_further else student.activation.homogeneity or None
        self.sums |= {"hh": np.zeros((q, q)), "hr": np.zeros((q, p)), "mr": np.zeros((m * D, p))}
        self.sums["pairs"] = no_pairs(m, D)
        self._divides = can_divide(student.activation, m)
        self.row_bytes = 8 * (3 * q + (D + 2) * p)
        self.row_bytes += 8 * (2 * D + q) if self._divides else 8 * sum(self.sums["pairs"].shape)
        if self.degree is None:
            self.sums["hm"] = np.zeros((q, m * D))
            self.row_bytes += 8 * q if self._divides else 8 * m * D

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, Y = float64(X, Y)
        student, sums, (V,) = self.student, self.sums, self.student.V
        F = with_constant(X, student.bias)
        Z = F @ V.T
        h, gates = student.activation.with_derivative(Z)
        h = np.hstack([F[:, : student.reads(1)[0]], h])
        R = Y - h @ student.theta
        if self.n_further:
            h = np.hstack([h, self._further(X)])
        F, h, R = by_root(weight, F, h, R)
        self._count(len(X), weight)
        sums["hh"] += h.T @ h
        sums["hr"] += h.T @ R
        sums["rr"] += np.einsum("ij,ij->j", R, R)
        regions = divide(Z, F.shape[1]) if self._divides else None
        add_gate_pairs(sums["pairs"], gates, F, regions)
        inputs_by_residuals = (F[:, :, None] * R[:, None, :]).reshape(len(F), -1)
        sums["mr"] += (gates.T @ inputs_by_residuals).reshape(V.size, -1)
        if self.degree is None:
            self._add_features(h, gates, F, regions)

    def _add_features(self, h: np.ndarray, gates: np.ndarray, F: np.ndarray, regions: Regions | None) -> None:
        """Add the part of Σ h mᵀ that does not follow from the pairs."""
        q, size = self.sums["hm"].shape
        if regions is not None:
            for own, moments in regions.products(h, F):
                hm = np.tensordot(moments, gates[regions.members[own]], (0, 0))  # (q, D, m)
                self.sums["hm"] += hm.transpose(0, 2, 1).reshape(q, size)
            return
        rows = max(1, PIECE // (8 * size))
        for first in range(0, len(F), rows):
            own = slice(first, first + rows)
            M = gates[own, :, None] * F[own, None, :]
            self.sums["hm"] += h[own].T @ M.reshape(-1, size)

    def information(self) -> tuple[np.ndarray, np.ndarray]:
        """Return F and g: the block (V, V) is (AᵀA ⊗ 1) ∘ Σ m mᵀ, (Θ_o, V_j) is A_oj Σ h m_jᵀ, (Θ_o, Θ_o) is Σ h hᵀ."""
        student, s = self.student, self.sums
        (m, D), (q, p), A, size = student.V[0].shape, student.theta.shape, student.top.T, student.size
        mm, on = gated_products(s["pairs"], m, D)
        hm = s["hm"] if self.degree is None else feature_products(student, mm, on, self.degree)
        F, g = np.zeros((self.size, self.size)), np.empty(self.size)
        F[:size, :size] = mm
        F[:size, :size].reshape(m, D, m, D)[...] *= (A.T @ A)[:, None, :, None]
        g[:size] = np.einsum("jdo,oj->jd", s["mr"].reshape(m, D, -1), A).ravel()
        e, probes = self.n_further, student.n_parameters
        for o in range(p):
            own = np.r_[size + o * q : size + (o + 1) * q, probes + o * e : probes + (o + 1) * e]
            F[np.ix_(own, own)], g[own] = s["hh"], s["hr"][:, o]
            F[own, :size] = hm * np.repeat(A[o], D)
        F[:size, size:] = F[size:, :size].T
        order = np.concatenate([student.parameter_order, np.arange(probes, self.size)])
        return F[np.ix_(order, order)], g[order]


def probe_values(activation: Activation, probes: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return act(v·x̃) (n, e) of units (e, d), or with biases last (e, d + 1)."""
    d = X.shape[1]
    return activation(X @ probes[:, :d].T + (probes[:, d] if probes.shape[1] > d else 0.0))
