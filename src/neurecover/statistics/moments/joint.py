"""Joint moments of inputs and outputs up to order four, in packed symmetric form.

With z = (x, y) − origin in R^q, q = d + p, and φ(z) the Q = q(q+1)/2 products z_i z_j, i ≤ j (the order of
`numpy.triu_indices`), the statistic holds

    Σ z,   Σ φ(z),   Σ z φ(z)ᵀ,   Σ φ(z) φ(z)ᵀ

up to the given order. Entries are plain products, without a factor for repeated indices.
"""

import numpy as np

from neurecover.statistics.base import Statistic, add_gram, row_products, row_sums, setting, symmetric, unpack_symmetric


class Moments(Statistic):
    """Moments of (x, y) − origin; `origin` (d + p,) avoids cancellation if means are large.

    Time is n·q²/2 multiply–adds at order 2, n·q³/2 at order 3 and n·q⁴/8 at order 4, in matrix products;
    memory 8·Q² bytes at order 4.
    """

    def __init__(self, n_inputs: int, n_outputs: int, order: int = 2, origin: np.ndarray | None = None) -> None:
        if order not in (1, 2, 3, 4):
            raise ValueError(f"order needs to be 1, 2, 3 or 4. Got {order} instead.")
        self.n_inputs, self.n_outputs, self.order = n_inputs, n_outputs, order
        q = n_inputs + n_outputs
        Q = q * (q + 1) // 2
        self.origin = setting("origin", origin, np.zeros(q))
        self.settings = {"origin": self.origin}
        self.sums = {"n": np.zeros((), dtype=np.int64), "order_1": np.zeros(q)}
        if order >= 2:
            self.sums["order_2"] = np.zeros(Q)
        if order >= 3:
            self.sums["order_3"] = np.zeros((q, Q))
        if order == 4:
            self.sums["order_4"] = np.zeros((Q, Q), order="F")  # the lower triangle
        self.row_bytes = 8 * (q + (Q if order >= 3 else 0))

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        Z = np.empty((len(self.origin), len(X)))
        Z[: self.n_inputs], Z[self.n_inputs :] = X.T, Y.T
        Z -= self.origin[:, None]
        self._count(len(X), weight)
        self.sums["order_1"] += row_sums(Z, weight)
        ZW = Z if weight is None else Z * weight
        if self.order == 2:
            self.sums["order_2"] += (ZW @ Z.T)[np.triu_indices(len(Z))]
        if self.order >= 3:
            products = row_products(Z)
            self.sums["order_2"] += row_sums(products, weight)
            self.sums["order_3"] += ZW @ products.T
        if self.order == 4:
            if weight is not None:
                products *= np.sqrt(weight)
            self.sums["order_4"] = add_gram(self.sums["order_4"], products)

    def moment(self, order: int) -> np.ndarray:
        """Return E of the packed products of the given order about the origin: (q,), (Q,), (q, Q) or (Q, Q)."""
        if not 1 <= order <= self.order:
            raise ValueError(f"These sums hold orders 1 to {self.order}. Got {order} instead.")
        average = self.average(f"order_{order}")
        return symmetric(average) if order == 4 else average

    @property
    def mean(self) -> np.ndarray:
        """E[(x, y)], (d + p,)."""
        return self.origin + self.moment(1)

    @property
    def covariance(self) -> np.ndarray:
        """The covariance matrix of (x, y) with divisor n, (d + p, d + p)."""
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
