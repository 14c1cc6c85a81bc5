"""The covariance of the scores of a network, in the same pass as its information matrix F.

With g = Σ_o J_oᵀ r_o the score of a sample, B = Σ g gᵀ gives the variances of T θ̂ for any noise of single samples,

    diag(T F⁻¹ B F⁻¹ Tᵀ),                                                                        [White 1980]

once all rows are seen. For y = A·act(V x̃) + c with homogeneous units, g has the parts Σ_o r_o A_oj γ_j x̃ and r_o h. B
then follows from the sums over pairs of gates of r_o r_o' γ_i γ_j x̃x̃ᵀ (`gate_pairs`), which for one output are no
larger than those of F. `InfluenceSums` also accounts for every sample's leverage, but takes (parameters)² operations
per row and needs F first.
"""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np

from neurecover.models import Model, Network, as_student, parameters, with_constant
from neurecover.statistics.base import Statistic, by_root, float64
from neurecover.statistics.checks.influence import Influence, freedom
from neurecover.statistics.fits.gate_pairs import add_gate_pairs, feature_products, gated_products, no_pairs
from neurecover.statistics.fits.regions import can_divide, divide

MOST_BYTES = 2**28  # limit for the sums: every thread has its own copy


class ScoreSums(Statistic):
    """Σ g gᵀ at a network without an affine term, with the sums of squares and fourth powers that degrees of freedom
    need.

    `off` is the total weight of the rows in which no unit is on.
    """

    def __init__(self, network: Network, bias: bool = True) -> None:
        self.student = student = as_student(network, bias)
        self.settings = {"theta": parameters(network)}
        (m, D), (q, p) = student.V[0].shape, student.theta.shape
        self._outputs = list(combinations_with_replacement(range(p), 2))
        self.sums = {"n": np.zeros((), dtype=np.int64), "off": np.zeros(())}
        self.sums["pairs"] = np.zeros((len(self._outputs), *no_pairs(m, D).shape))
        self.sums["hh"] = np.zeros((len(self._outputs), q, q))
        self.sums |= {name: np.zeros((m, D)) for name in ("hidden_squares", "hidden_fourths")}
        self.sums |= {name: np.zeros((q, p)) for name in ("readout_squares", "readout_fourths")}
        self.sums |= {name: np.zeros(()) for name in ("residual_squares", "residual_fourths")}
        self.row_bytes = 8 * (5 * D + 4 * q + 4 * p)

    @classmethod
    def is_for(cls, model: Model) -> bool:
        """Return whether the network is of the kind described above and the sums fit in MOST_BYTES."""
        if not isinstance(model, Network) or model.C is not None or not can_divide(model.activation, model.n_hidden):
            return False
        p = model.n_outputs
        return 8 * p * (p + 1) // 2 * no_pairs(model.n_hidden, model.n_inputs + 1).size <= MOST_BYTES

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, Y = float64(X, Y)
        student, sums = self.student, self.sums
        F = with_constant(X, student.bias)
        Z = F @ student.V[0].T
        h, gates = student.activation.with_derivative(Z)
        h, regions = np.hstack([F[:, : student.bias], h]), divide(Z, F.shape[1])
        F, h, R = by_root(weight, F, h, Y - h @ student.theta)
        self._count(len(X), weight)
        off = ~np.any(Z > 0.0, axis=1)
        sums["off"] += np.count_nonzero(off) if weight is None else weight[off].sum()
        for s, (o, other) in enumerate(self._outputs):
            both = R[:, o] * R[:, other]
            add_gate_pairs(sums["pairs"][s], gates, F, regions, both)
            sums["hh"][s] += (both[:, None] * h).T @ h
        pulled = np.square(gates * (R @ student.top.T))
        squares, R = np.square(F), np.square(R)
        h = np.square(h)
        sums["hidden_squares"] += pulled.T @ squares
        sums["hidden_fourths"] += np.square(pulled).T @ np.square(squares)
        sums["readout_squares"] += h.T @ R
        sums["readout_fourths"] += np.square(h).T @ np.square(R)
        whole = R.sum(axis=1)
        sums["residual_squares"] += whole.sum()
        sums["residual_fourths"] += whole @ whole

    def covariance(self) -> np.ndarray:
        """Return B over the free parameters, in the order of `models.parameters`."""
        (m, D), (q, p), A = self.student.V[0].shape, self.student.theta.shape, self.student.top.T
        size = m * D
        B = np.zeros((size + p * q, size + p * q))
        for s, (o, other) in enumerate(self._outputs):
            mm, on = gated_products(self.sums["pairs"][s], m, D)
            hm = feature_products(self.student, mm, on, 1.0)
            for first, second in {(o, other), (other, o)}:
                rows = slice(size + first * q, size + (first + 1) * q)
                B[:size, :size] += np.repeat(A[first], D)[:, None] * mm * np.repeat(A[second], D)
                B[rows, :size] += hm * np.repeat(A[second], D)
                B[rows, size + second * q : size + (second + 1) * q] = self.sums["hh"][s]
        B[:size, size:] = B[size:, :size].T
        order = self.student.parameter_order
        return B[np.ix_(order, order)]

    def influence(self, variances: np.ndarray, n_free: int, n_inputs: int) -> Influence:
        """Return the variances diag(M B Mᵀ) of W, b, A and c, with degrees of freedom; n_free parameters are fitted.

        The variance of a weight has the degrees of freedom of its scores, ν = 2 (Σ g²)²/Σ g⁴; a hidden unit takes the
        smallest ν of its inputs. The D weights of a unit depend on about ν samples, and the fit makes their squared
        residuals smaller than the noise by the share D/ν on average.
        """
        (_, D), p, bias = self.student.V[0].shape, self.student.n_outputs, self.student.bias
        own = freedom(self.sums["hidden_squares"], self.sums["hidden_fourths"]).min(axis=1)
        above = freedom(self.sums["readout_squares"], self.sums["readout_fourths"])
        c = above[0] if bias else np.full(p, np.inf)
        carried_by = np.concatenate([np.repeat(own, n_inputs), own, above[bias:].T.ravel(), c])
        share = np.clip(1.0 - D / carried_by, 0.1, 1.0)
        mean, square = (float(self.per_row(name)) for name in ("residual_squares", "residual_fourths"))
        apart = 1.0 / (1.0 - n_free / (self.n * p)) ** 2
        return Influence(variances / share, carried_by, apart * mean, apart**2 * square, self.n)
