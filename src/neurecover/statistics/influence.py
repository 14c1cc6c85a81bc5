"""How far single samples move an estimate, and whether their residuals follow one another.

With scores g_i = Σ_o J_ioᵀ r_io the estimate moves by F⁻¹ g_i when sample i is added, so that

    Σ_i (M g_i)²,        M = T F⁻¹,

are the variances of T θ̂ whatever the variances of the noise [White 1980]. A residual is smaller than its noise by the
sample's leverage h_io = J_io F⁻¹ J_ioᵀ; r/√(1 − h) takes that back on average (HC2) [MacKinnon & White 1985].
"""

from __future__ import annotations

import numpy as np

from neurecover.models import Model, jacobian, parameters
from neurecover.statistics.base import Statistic, float64


class InfluenceSums(Statistic):
    """Σ (M g)² for M = `moves` (q, P) over the `free` parameters of a network; `inverse` (P, P) is F⁻¹."""

    def __init__(self, model: Model, free: np.ndarray, moves: np.ndarray, inverse: np.ndarray) -> None:
        self.model, self.free, self.moves, self.inverse = model, free, moves, inverse
        self.settings = {"theta": parameters(model), "moves": moves}
        self.sums = {"n": np.zeros((), dtype=np.int64), "squares": np.zeros(len(moves))}
        self.row_bytes = 8 * (2 * model.n_outputs * len(free) + len(moves))

    def update(self, X: np.ndarray, Y: np.ndarray) -> None:
        X, Y = float64(X, Y)
        J = jacobian(self.model, X)[:, :, self.free]
        leverage = np.einsum("nop,nop->no", J @ self.inverse, J)
        R = (Y - self.model(X)) / np.sqrt(np.clip(1.0 - leverage, 1e-3, 1.0))
        scores = np.einsum("nop,no->np", J, R)
        moved = scores @ self.moves.T
        self.sums["n"] += len(X)
        self.sums["squares"] += np.einsum("nq,nq->q", moved, moved)


class SerialResiduals(Statistic):
    """Per output Σ r², and Σ r_i r_{i+1} with Σ r_i² r_{i+1}² over neighbours in the order of the rows.

    Neighbours on either side of a block are left out, so the sums depend a little on the size of the blocks.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.settings = {"theta": parameters(model)}
        names = ("squared", "products", "products_squared")
        self.sums = {"n": np.zeros((), dtype=np.int64)} | {name: np.zeros(model.n_outputs) for name in names}
        self.row_bytes = 8 * (4 * model.n_outputs + 2 * int(np.sum(model.n_hidden)))

    def update(self, X: np.ndarray, Y: np.ndarray) -> None:
        X, Y = float64(X, Y)
        R = Y - self.model(X)
        pairs = R[1:] * R[:-1]
        self.sums["n"] += len(X)
        self.sums["squared"] += np.einsum("no,no->o", R, R)
        self.sums["products"] += pairs.sum(axis=0)
        self.sums["products_squared"] += np.einsum("no,no->o", pairs, pairs)

    def z(self) -> np.ndarray:
        """Σ r_i r_{i+1} in its standard deviations under independence, whatever the variances; (p,)."""
        return self.sums["products"] / np.sqrt(np.maximum(self.sums["products_squared"], 1e-300))
