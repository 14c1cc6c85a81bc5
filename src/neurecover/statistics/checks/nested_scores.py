"""Test whether the residuals depend on further columns that a larger model would have, for noise of any variance per
row.

The columns e(x) may enter every output; T selects the combinations e T to be tested. Part of these can be imitated by
changing the parameters, by c = F⁻¹ Σ Jᵀ e T. A row has the score u = Σ_o r_o e T_o − g c, where g = Σ_o J_oᵀ r_o is its
score in the parameters. Σu is tested against Σuuᵀ, which is its covariance for noise of any kind [White 1980].
"""

from __future__ import annotations

import numpy as np

from neurecover.models import Model, jacobian, parameters
from neurecover.statistics.base import Statistic, by_root, float64
from neurecover.statistics.checks.influence import hotelling
from neurecover.statistics.checks.shape_scores import Features


class NestedScores(Statistic):
    """Sums of the score u and of u uᵀ, for columns `lacks` in the combinations T (p·e, q).

    `explained` (P, q) is F⁻¹ Σ Jᵀ e T, the part that the parameters imitate.
    """

    def __init__(
        self, model: Model, free: np.ndarray, lacks: Features, combine: np.ndarray, explained: np.ndarray
    ) -> None:
        self.model, self.free, self.lacks, self.combine, self.explained = model, free, lacks, combine, explained
        self.settings = {"theta": parameters(model), "combine": combine, "explained": explained}
        q = combine.shape[1]
        self.sums = {"n": np.zeros((), dtype=np.int64), "score": np.zeros(q), "covariance": np.zeros((q, q))}
        self.row_bytes = 8 * (2 * model.n_outputs * len(free) + 3 * len(combine))

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, Y = float64(X, Y)
        J = jacobian(self.model, X)[:, :, self.free]
        J, R, E = by_root(weight, J, Y - self.model(X), self.lacks(X))
        combine = self.combine.reshape(R.shape[1], -1, self.combine.shape[1])
        u = np.einsum("no,ne,oeq->nq", R, E, combine, optimize=True)
        u -= np.einsum("nop,no->np", J, R) @ self.explained
        self._count(len(X), weight)
        self.sums["score"] += u.sum(axis=0)
        self.sums["covariance"] += u.T @ u

    def p_value(self, further: np.ndarray | float = 0.0) -> float:
        """Return the p-value of these scores under noise of any kind, independent from row to row.

        If the fit contains the columns already, Σu = 0. `further` (q,) is then Σu of a fit without them, and Σuuᵀ
        grows by the square of such a mean.
        """
        g = self.sums["score"] + further
        V = self.sums["covariance"] + (np.outer(g, g) - np.outer(self.sums["score"], self.sums["score"])) / max(
            self.n, 1
        )
        return hotelling(g, V, self.n)
