"""Sums for least squares on networks of several hidden layers.

With J = ∂y/∂θ and r = y − f(x), a Gauss–Newton step on all parameters θ needs

    Σ Jᵀ J,    Σ Jᵀ r,    Σ |r|².

A student with skips (`DeepStudent`) is linear in its readout Θ. Its step needs, with the features c and the Jacobian
J_o of output o by the hidden weights alone,

    Σ c cᵀ,   Σ c rᵀ,   Σ |r|²,   Σ c J_o  for every output,   Σ_o J_oᵀ J_o,   Σ_o J_oᵀ r_o.

The residual is formed sample by sample, so that steps stay accurate when it is at the level of rounding.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.blas import dsyrk, ssyrk

from neurecover.models.deep_student import DeepStudent, Pass
from neurecover.solve.limits import afford
from neurecover.statistics.base import Statistic, by_root, float64, no_readout, symmetric


class DeepReadoutSums(Statistic):
    """Σ c cᵀ, Σ c rᵀ, Σ |r|² at a student with skips: what the best readout for its hidden layers needs."""

    def __init__(self, student: DeepStudent) -> None:
        self.student = student
        self.settings = {f"V{layer}": V for layer, V in enumerate(student.hidden)} | {"readout": student.readout}
        q, p = student.readout.shape
        self.sums = no_readout(q, p)
        self.row_bytes = 8 * (3 * q + 2 * p)

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        self._readout(X, Y, weight)

    def _readout(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None) -> tuple[Pass, np.ndarray]:
        X, Y = float64(X, Y)
        values = self.student.forward(X)
        C = values.features
        R = Y - C @ self.student.readout
        self._count(len(X), weight)
        C, R = by_root(weight, C, R)
        self.sums["hh"] += C.T @ C
        self.sums["hr"] += C.T @ R
        self.sums["rr"] += np.vdot(R, R)
        return values, R


class DeepGaussNewtonSums(DeepReadoutSums):
    """The readout sums and the curvature of the hidden weights, V_1 row by row, then V_2, and so on.

    `scale` is the size of a residual. With `single` the products of a block are formed in single precision, twice as
    fast, and added up in double; residuals are divided by `scale` first, so that they keep their digits.
    """

    def __init__(self, student: DeepStudent, scale: float = 1.0, single: bool = False) -> None:
        super().__init__(student)
        self.scale, self.dtype = scale, np.float32 if single else np.float64
        P, (q, p) = student.n_hidden_weights, student.readout.shape
        self.sums |= {"hj": np.zeros((p, q, P)), "jj": np.zeros((P, P), order="F"), "jr": np.zeros(P)}
        self.row_bytes += np.dtype(self.dtype).itemsize * (2 * P + 3 * q)

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        values, R = self._readout(X, Y, weight)
        R = (R / self.scale).astype(self.dtype)
        weight = None if weight is None else weight.astype(self.dtype)
        low = Pass(
            values.features.astype(self.dtype, copy=False),
            tuple(gate.astype(self.dtype, copy=False) for gate in values.gates),
        )
        for output in range(self.student.n_outputs):
            afford(float(len(X)) * self.student.n_hidden_weights**2)
            J, C = by_root(weight, self._jacobian(low, output), low.features)
            self.sums["hj"][output] += C.T @ J
            self.sums["jr"] += self.scale * (R[:, output] @ J).astype(np.float64)
            _add_gram(self.sums, J)

    def _jacobian(self, values: Pass, output: int) -> np.ndarray:
        """∂y_o / ∂(V_1, V_2, …), (n, P)."""
        n, student = len(values.features), self.student
        J = np.empty((n, student.n_hidden_weights), dtype=self.dtype)
        start = 0
        for layer, U in enumerate(student.backward(values, output)):
            size = student.hidden[layer].size
            below = values.features[:, student.below(layer)]
            block = J[:, start : start + size].reshape(n, *student.hidden[layer].shape)
            np.multiply(U[:, :, None], below[:, None, :], out=block)
            start += size
        return J

    def curvature(self) -> np.ndarray:
        """Σ_o J_oᵀ J_o, (P, P)."""
        return symmetric(self.sums["jj"])


def _add_gram(sums: dict[str, np.ndarray], J: np.ndarray) -> None:
    """Add JᵀJ to the lower triangle of sums["jj"], for samples in the rows of J."""
    if J.size == 0:
        return
    if J.dtype == np.float32:
        sums["jj"] += ssyrk(1.0, J.T, lower=1)
    else:
        sums["jj"] = dsyrk(1.0, J.T, beta=1.0, c=sums["jj"], lower=1, overwrite_c=1)
