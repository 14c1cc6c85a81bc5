"""Joint moments of inputs and outputs up to order four, in packed symmetric form.

With z = (x, y) − origin in R^q, q = d + p, and φ(z) the q(q+1)/2 products z_i z_j, i ≤ j (the order of
`numpy.triu_indices`), the statistic holds

    Σ z,   Σ φ(z),   Σ z φ(z)ᵀ,   Σ φ(z) φ(z)ᵀ

up to the order asked for. Entries are plain products: no factor for repeated indices.
"""

import numpy as np

from neurecover.statistics.base import Statistic, float64


class Moments(Statistic):
    """Moments of (x, y) − origin; `origin` (d + p,) keeps large means from cancelling the digits.

    Time is n·q²/2 multiplications at order 2, n·q³ at order 3 and n·q⁴/4 at order 4, in matrix products.
    """

    def __init__(
        self, n_inputs: int, n_outputs: int, order: int = 2, origin: np.ndarray | None = None
    ) -> None:
        if order not in (1, 2, 3, 4):
            raise ValueError(f"order needs to be 1, 2, 3 or 4. Got {order} instead.")
        self.n_inputs, self.n_outputs, self.order = n_inputs, n_outputs, order
        q = n_inputs + n_outputs
        Q = q * (q + 1) // 2
        self.origin = np.zeros(q) if origin is None else np.asarray(origin, dtype=np.float64)
        shapes = {1: (q,), 2: (Q,), 3: (q, Q), 4: (Q, Q)}
        self.sums = {"n": np.zeros((), dtype=np.int64)}
        self.sums |= {f"order_{j}": np.zeros(shapes[j]) for j in range(1, order + 1)}
        self.row_bytes = 8 * (q + (Q if order > 1 else 0))

    def update(self, X: np.ndarray, Y: np.ndarray) -> None:
        X, Y = float64(X, Y)
        Z = np.hstack([X, Y]) - self.origin
        self.sums["n"] += len(Z)
        self.sums["order_1"] += Z.sum(axis=0)
        if self.order < 2:
            return
        i, j = np.triu_indices(Z.shape[1])
        if self.order == 2:
            self.sums["order_2"] += (Z.T @ Z)[i, j]
            return
        products = Z[:, i] * Z[:, j]
        self.sums["order_2"] += products.sum(axis=0)
        self.sums["order_3"] += Z.T @ products
        if self.order == 4:
            self.sums["order_4"] += products.T @ products

    def moment(self, order: int) -> np.ndarray:
        """E of the packed products of the given order about the origin."""
        if not 1 <= order <= self.order:
            raise ValueError(f"These sums hold orders 1 to {self.order}. Got {order} instead.")
        return self.sums[f"order_{order}"] / max(self.n, 1)

    @property
    def mean(self) -> np.ndarray:
        """E[(x, y)], (d + p,)."""
        return self.origin + self.moment(1)

    @property
    def covariance(self) -> np.ndarray:
        """The covariance matrix of (x, y), (d + p, d + p)."""
        about_origin = self.moment(1)
        return self.second - np.outer(about_origin, about_origin)

    @property
    def second(self) -> np.ndarray:
        """E[z zᵀ] about the origin, (d + p, d + p)."""
        return unpack_symmetric(self.moment(2))

    @property
    def xx(self) -> np.ndarray:
        """E[x xᵀ] about the origin, (d, d)."""
        return self.second[: self.n_inputs, : self.n_inputs]

    @property
    def yx(self) -> np.ndarray:
        """E[y xᵀ] about the origin, (p, d)."""
        return self.second[self.n_inputs :, : self.n_inputs]

    @property
    def yy(self) -> np.ndarray:
        """E[y yᵀ] about the origin, (p, p)."""
        return self.second[self.n_inputs :, self.n_inputs :]


def unpack_symmetric(packed: np.ndarray) -> np.ndarray:
    """The symmetric (q, q) matrix whose upper triangle, row by row, is `packed`."""
    q = int((np.sqrt(8 * len(packed) + 1) - 1) / 2)
    matrix = np.zeros((q, q))
    i, j = np.triu_indices(q)
    matrix[i, j] = matrix[j, i] = packed
    return matrix
