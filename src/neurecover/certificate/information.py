"""What the samples say about each parameter: the Fisher information of a network, its inverse, and a test for more.

With noise of variance σ² the estimates have covariance σ² F⁻¹, F = Σ JᵀJ over the free parameters in the order of
`models.parameters`. The function leaves the scale of every unit open (`models.free_directions`): F is zero along these
directions G, which are filled in before it is inverted. In normal form every row keeps its length (for exp, every bias
its value zero), whose gradients are the columns of N, so that there the covariance is

    Q F⁻¹ Qᵀ,        Q = I − G (NᵀG)⁻¹ Nᵀ.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri
from scipy.special import chdtrc

from neurecover.data import Whitening, unwhitened
from neurecover.models import (
    Composite,
    DeepNetwork,
    Model,
    Network,
    Polynomial,
    are_biases,
    free_directions,
    parameters,
)
from neurecover.solve import afford
from neurecover.statistics import GaussNewtonSums, ModelSums


@dataclass(frozen=True, eq=False)
class Information:
    """F (P, P) at a network, over its `free` parameters (indices); the others are fixed.

    `cross` (P, E) and `own` (E, E) are the same sums for E columns of probes, units that the network lacks, and `score`
    (P + E,) is Σ r times all of these columns.
    """

    model: Model
    free: np.ndarray
    F: np.ndarray
    cross: np.ndarray
    own: np.ndarray
    score: np.ndarray

    @classmethod
    def of_model(cls, sums: ModelSums, bias: bool = True) -> Information:
        """From the Jacobian of any network; bias=False fixes its biases."""
        P, gram, score = sums.n_parameters, sums.curvature(), sums.sums["jr"]
        free = np.flatnonzero(np.ones(P, dtype=bool) if bias else ~are_biases(sums.model))
        cross, right = gram[free][:, P:], np.concatenate([score[free], score[P:]])
        return cls(sums.model, free, gram[np.ix_(free, free)], cross, gram[P:, P:], right)

    @classmethod
    def of_network(cls, network: Network, sums: GaussNewtonSums) -> Information:
        """For one hidden layer, from sums that do not grow with the number of outputs.

        The block (V, V) is (AᵀA ⊗ 1) ∘ Σ m mᵀ, (Θ_o, V_j) is A_oj Σ h m_jᵀ and (Θ_o, Θ_o) is Σ h hᵀ.
        """
        student, s = sums.student, sums.sums
        (m, D), (q, p), A = student.V.shape, student.readout.shape, student.A
        n_probes, size = len(s["hh"]) - q, m * D
        width = q + n_probes
        afford(100.0 * (size + p * width) ** 2)  # F is written and read a few times, which is slower than arithmetic
        F = np.zeros((size + p * width, size + p * width))
        F[:size, :size], hm = sums.curvature()
        F[:size, :size].reshape(m, D, m, D)[...] *= (A.T @ A)[:, None, :, None]
        F[size:, :size] = (np.repeat(A, D, axis=1)[:, None] * hm).reshape(p * width, size)
        F[:size, size:] = F[size:, :size].T
        for o in range(p):
            rows = slice(size + o * width, size + (o + 1) * width)
            F[rows, rows] = s["hh"]
        hidden = np.einsum("jdo,oj->jd", s["mr"].reshape(m, D, -1), A)
        score = np.concatenate([hidden.ravel(), s["hr"].T.ravel()])
        free, order, probes = _student_order(network, student.bias, n_probes)
        score = score[np.concatenate([order, probes])]
        known, missing = F[order], F[probes]
        return cls(network, free, known[:, order], known[:, probes], missing[:, probes], score)

    @cached_property
    def scale(self) -> np.ndarray:
        scale = np.sqrt(np.diag(self.F))
        return np.where(scale > 0.0, scale, 1.0)

    @cached_property
    def gauge(self) -> np.ndarray:
        """The directions that change no output, among the free parameters, (P, g)."""
        G = free_directions(self.model)
        inside = np.ones(len(G), dtype=bool)
        inside[self.free] = False
        return G[self.free][:, ~np.any(G[inside] != 0.0, axis=0)]

    @property
    def n_determinable(self) -> int:
        """The parameters that samples can determine: all but the free scales."""
        return len(self.free) - self.gauge.shape[1]

    @cached_property
    def _scaled_root(self) -> np.ndarray | None:
        """The lower K with F⁻¹ = KᵀK for F scaled to unit diagonal, its free directions filled in; None if singular."""
        afford(len(self.F) ** 3)
        G = self.gauge * self.scale[:, None]
        G = G / np.maximum(np.linalg.norm(G, axis=0), 1e-300)
        factor, info = dpotrf(self.F / self.scale / self.scale[:, None] + G @ G.T, lower=1)
        if info:
            return None
        K, info = dtrtri(factor, lower=1, overwrite_c=1)
        return None if info else K

    @cached_property
    def weakest(self) -> float:
        """A lower bound on the smallest eigenvalue of F scaled to unit diagonal, the free scales apart: 1/tr F⁻¹.

        At the level of rounding, or zero, where some parameter is not determined.
        """
        return 0.0 if self._scaled_root is None else 1.0 / float(np.sum(self._scaled_root**2))

    @cached_property
    def root(self) -> np.ndarray:
        """R (P, P) with R Rᵀ a generalised inverse of F; what that holds along the free directions is arbitrary."""
        assert self._scaled_root is not None
        return self._scaled_root.T / self.scale[:, None]

    @cached_property
    def inverse(self) -> np.ndarray:
        return self.root @ self.root.T

    @cached_property
    def explained(self) -> np.ndarray:
        """F⁻¹ Σ Jᵀe: by how much the parameters make up for each probe, (P, E)."""
        return self.root @ (self.root.T @ self.cross)

    def score_test(self, noise_variance: float) -> float:
        """The probability, if the residual is noise of this variance, of correlating with the probes as it does.

        Rao's test for adding the probes to the readout: S = gᵀ (F_ee − F_eθ F⁻¹ F_θe)⁻¹ g / σ² is χ² with one degree of
        freedom per probe and output. g is the part of Σ h_e r that no change of the parameters explains.
        """
        if noise_variance <= 0.0:
            return 1.0
        P, solved = len(self.F), self.explained
        schur = self.own - self.cross.T @ solved
        g = self.score[P:] - solved.T @ self.score[:P]
        scale = np.sqrt(np.maximum(np.diag(self.own), 1e-300))
        values, vectors = np.linalg.eigh(schur / scale / scale[:, None])
        kept = values > 1e-8
        along = vectors[:, kept].T @ (g / scale)
        return float(chdtrc(np.count_nonzero(kept), np.sum(along**2 / values[kept]) / noise_variance))


def aligned(model: Model, whitening: Whitening) -> tuple[Model, Model]:
    """The network on whitened inputs with the scales of its normal form on the inputs, and that normal form."""
    final = unwhitened(model, whitening)
    normal = final.normal_form()
    length = np.linalg.norm(final.hidden_weights[0], axis=1)
    factor = np.where(length > 0.0, length, 1.0) if model.activation.homogeneity is not None else np.ones(len(length))
    if not isinstance(model, Composite) and model.activation.reflection is not None:
        rows = np.einsum("ji,ji->j", final.hidden_weights[0], normal.hidden_weights[0])
        factor = np.where(rows < 0.0, -factor, factor)  # the normal form has turned these
    V = model.hidden_weights[0] / factor[:, None]
    if isinstance(normal, Composite):
        assert isinstance(model, Composite)
        return Composite(V, model.threshold / factor, normal.upper, model.activation), normal
    if isinstance(normal, Network):
        assert isinstance(model, Network)
        # exp has its biases in the weights above, and no bias on the inputs is one of w·mean on whitened ones.
        b = normal.W @ whitening.mean if model.activation.name == "exp" else model.b / factor
        return Network(V, b, normal.A, normal.c, model.activation), normal
    assert isinstance(model, DeepNetwork)
    return DeepNetwork([(V, model.layers[0][1] / factor), *normal.layers[1:]], model.activation), normal


class ToNormalForm:
    """T with δθ = T δθ_z: from the free parameters on whitened inputs to all of the normal form on the inputs.

    T = Q L, L linear in the first layer and Q the projection along the free scales; applied, and never formed.
    """

    def __init__(self, white: Model, free: np.ndarray, normal: Model, whitening: Whitening) -> None:
        self.k, (d, r) = len(normal.hidden_weights[0]), whitening.matrix.shape
        self.whitening = whitening
        self.sign = 1.0 if isinstance(normal, Composite) else -1.0  # t = t_z + w·mean, b = b_z − w·mean
        after_W = np.zeros(len(parameters(white)) - self.k * r, dtype=bool)
        after_W[free[self.k * r :] - self.k * r] = True
        self.varies = np.concatenate([np.ones(self.k * d, dtype=bool), after_W])
        G = free_directions(normal)
        open_scales = ~np.any(G[~self.varies] != 0.0, axis=0)
        self.G, N = G[:, open_scales], _fixed_by_normal_form(normal)[:, open_scales]
        self.K = np.linalg.solve(N.T @ self.G, N.T)

    def __call__(self, M: np.ndarray) -> np.ndarray:
        """T M for M (free parameters, q)."""
        moved = self._on_inputs(M)
        moved -= self.G @ (self.K @ moved)
        return moved

    def _on_inputs(self, M: np.ndarray) -> np.ndarray:
        """L M: w = M w_z and b = b_z ∓ w·mean, b where it is free; the weights above stay as they are."""
        (d, r), k, q = self.whitening.matrix.shape, self.k, M.shape[1]
        moved = np.zeros((len(self.varies), q))
        W, b = moved[: k * d].reshape(k, d, q), moved[k * d : k * (d + 1)]
        np.matmul(self.whitening.matrix, M[: k * r].reshape(k, r, q), out=W)
        moved[k * d :][self.varies[k * d :]] = M[k * r :]
        if self.varies[k * d : k * (d + 1)].any():
            b += self.sign * (self.whitening.mean @ W)
        return moved


def by_name(normal: Model, flat: np.ndarray) -> dict[str, np.ndarray]:
    """A flat vector in the order of `models.parameters` as arrays by the names of the network's file."""
    arrays, start, named = normal.to_arrays(), 0, {}
    for name in array_names(normal):
        size = arrays[name].size
        named[name] = flat[start : start + size].reshape(arrays[name].shape)
        start += size
    return named


def array_names(model: Model) -> tuple[str, ...]:
    """The arrays of a network in the order of `models.parameters`."""
    if isinstance(model, Network):
        return ("W", "b", "A", "c")
    if isinstance(model, DeepNetwork):
        return tuple(f"{letter}{i}" for i in range(1, len(model.layers) + 1) for letter in "Wb")
    above = model.upper
    upper = tuple(f"upper_{name}" for name in array_names(above)) if isinstance(above, Network | DeepNetwork) else ()
    return ("W", "threshold", *(("coefficients",) if isinstance(above, Polynomial) else upper))


def in_network_order(network: Network, bias: bool, of_student: np.ndarray) -> np.ndarray:
    """A matrix over the parameters of a network's student, in the order of its free parameters."""
    _, order, _ = _student_order(network, bias, 0)
    return of_student[order][:, order]


def _student_order(network: Network, bias: bool, n_probes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The free parameters of the network, where each stands among those of its student, and where the probes stand."""
    (k, d), p = network.W.shape, network.n_outputs
    D, q = d + bias, k + bias
    width = q + n_probes
    unit, output = np.arange(k)[:, None], np.arange(p)[:, None]
    in_W = (unit * D + np.arange(d)).ravel()
    in_b = (unit * D + d).ravel() if bias else np.zeros(0, dtype=int)
    in_A = (k * D + output * width + np.arange(k)).ravel()
    in_c = (k * D + output * width + k).ravel() if bias else np.zeros(0, dtype=int)
    probes = (k * D + output * width + q + np.arange(n_probes)).ravel()
    starts = np.cumsum([0, k * d, k, p * k])
    free = np.concatenate([np.arange(k * d), starts[2] + np.arange(p * k)])
    if bias:
        free = np.arange(network.n_parameters)
    return free, np.concatenate([in_W, in_b, in_A, in_c]), probes


def _fixed_by_normal_form(normal: Model) -> np.ndarray:
    """The gradient of what the normal form fixes for every unit, one column each, in the order of free_directions."""
    size, columns, start = len(parameters(normal)), [], 0
    for W in normal.hidden_weights:
        k, m = W.shape
        for j in range(k):
            column = np.zeros(size)
            if normal.activation.name == "exp":
                column[start + k * m + j] = 1.0
            else:
                column[start + j * m : start + (j + 1) * m] = W[j]
            columns.append(column)
        start += k * (m + 1)
    return np.array(columns).reshape(-1, size).T
