"""The sums behind the pure-neuron detector [GKLW19, §3.2], from one product of packed second-order features.

Write act(z) = h z + g |z| (ReLU: h = g = ½; leaky ReLU of slope s: h = (1 + s)/2, g = (1 − s)/2). Under inputs with x
~ −x the least-squares map of y = A act(W x) on x is L = h A W, so every sample splits into

    O = L x / h = A W x,        E = (y − L x) / g = A |W x|.

A direction u with uᵀA = λ eᵢᵀ sees one unit only, and there |z|² = z² sample by sample: the symmetric matrix

    φ = E Eᵀ − O Oᵀ = −4 Σ_{i<j} sym(aᵢ aⱼᵀ) zᵢ zⱼ 1{zᵢ zⱼ ≤ 0},     sym(M) = (M + Mᵀ)/2, z = W x,

has uᵀφu = 0. For a ReLU φ is 4 sym(y ⊗ (y − A W x)), and the paper's detector is its cross-moment with x ⊗ x,
f(u) = −¼ E[(uᵀφu)(x ⊗ x)], with noise its cross-covariance [GKLW19, Lemmas 3 and 9].
"""

import numpy as np

from neurecover.statistics.base import Statistic, add_gram, float64, row_products, row_sums, setting, symmetric


class PureNeuronSums(Statistic):
    """Σ ψ, Σ φ, Σ ψ φᵀ and, if `pointwise`, Σ φ φᵀ, for ψ = packed x xᵀ (D₂ = d(d+1)/2) and φ packed (K₂ = r(r+1)/2).

    `projection` (r, p) reduces the outputs first, `linear` (r, d) is the projected L, and `gains` are (h, g).

    Time is n·K₂·(D₂ + K₂/2) multiply–adds in two matrix products, memory 8·K₂·(D₂ + K₂) bytes, whatever n is: 4.5 MB
    for d = r = 32.
    """

    def __init__(
        self, projection: np.ndarray, linear: np.ndarray, gains: tuple[float, float], pointwise: bool = True
    ) -> None:
        self.projection, self.linear = np.array(projection, dtype=float), np.array(linear, dtype=float)
        r, d = self.linear.shape
        if self.projection.shape[0] != r:
            raise ValueError(f"projection needs {r} rows, as linear has. Got shape {self.projection.shape} instead.")
        self.gains = setting("gains", np.asarray(gains), np.zeros(2))
        self.settings = {"projection": self.projection, "linear": self.linear, "gains": self.gains}
        self.pointwise = pointwise
        D2, K2 = d * (d + 1) // 2, r * (r + 1) // 2
        self.sums = {
            "n": np.zeros((), dtype=np.int64),
            "psi": np.zeros(D2),
            "phi": np.zeros(K2),
            "cross": np.zeros((D2, K2)),
        }
        if pointwise:
            self.sums["gram"] = np.zeros((K2, K2), order="F")  # the lower triangle
        self.row_bytes = 8 * (D2 + 2 * K2 + d + 3 * r + self.projection.shape[1])

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, Y = float64(X, Y)
        h, g = self.gains
        through = self.linear @ X.T
        phi = row_products((self.projection @ Y.T - through) / g)
        phi -= row_products(through / h)
        psi = row_products(np.ascontiguousarray(X.T))
        self._count(len(X), weight)
        self.sums["psi"] += row_sums(psi, weight)
        self.sums["phi"] += row_sums(phi, weight)
        if weight is not None:
            psi *= np.sqrt(weight)
            phi *= np.sqrt(weight)
        self.sums["cross"] += psi @ phi.T
        if self.pointwise:
            self.sums["gram"] = add_gram(self.sums["gram"], phi)

    def cross_moment(self, centred: bool) -> np.ndarray:
        """Return E[ψ φᵀ], or the covariance of ψ and φ if `centred`, (D₂, K₂)."""
        cross = self.average("cross")
        return cross - np.outer(self.average("psi"), self.average("phi")) if centred else cross

    def gram(self) -> np.ndarray:
        """Return E[φ φᵀ], (K₂, K₂)."""
        return symmetric(self.average("gram"))
