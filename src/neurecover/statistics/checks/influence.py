"""Measure how far single samples move an estimate, and whether successive residuals are correlated.

With scores g_i = Σ_o J_ioᵀ r_io the estimate moves by F⁻¹ g_i when sample i is added, so that

    Σ_i (M g_i)²,        M = T F⁻¹,

are the variances of T θ̂ whatever the variances of the noise [White 1980]. The fit makes a residual smaller than its
noise, depending on the sample's leverage h_io = J_io F⁻¹ J_ioᵀ. Dividing by √(1 − h) corrects this on average (HC2)
[MacKinnon & White 1985], and r/(1 − h) is the residual of the sample if it is left out of the fit.

With weights w, the residuals √w r and derivatives √w J replace r and J. Scores are then w Jᵀr, and F is that of
weighted least squares. The variances hold whether or not w is the inverse variance of the noise.

The same sums test for units that the network lacks. If a unit e(x) is added on one output, its score is Σ_i u_i with
u = Σ_o z_o r_o, where z is the part of e that no change of the parameters explains, and Σ u uᵀ is its covariance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import fdtrc

from neurecover.models import Model, jacobian, parameters
from neurecover.statistics.base import Statistic, by_root, float64
from neurecover.statistics.fits.information import probe_values


@dataclass(frozen=True)
class Influence:
    """The variance of every parameter with its degrees of freedom, and the mean leave-one-out error over n samples.

    `left_out` and `left_out_squared` are the means of s and s², with s the squared residual of a sample at a fit
    without it.
    """

    variances: np.ndarray
    carried_by: np.ndarray
    left_out: float
    left_out_squared: float
    n: int

    @property
    def freedom(self) -> float:
        """2 E[s]²/Var[s], the degrees of freedom of a χ² with this spread: p for Gaussian noise on p outputs."""
        return 2.0 * self.left_out**2 / max(self.left_out_squared - self.left_out**2, 1e-300)


SKETCH = 64  # columns of a random sketch of a larger matrix: a leverage then has a relative error of √(2/64)


def sketch(root: np.ndarray) -> np.ndarray:
    """Replace R (P, P) by the narrower R Ξ/√m with Ξ (P, m) standard normal: norms ‖J R‖² stay the same on average.

    An R with at most m columns is returned as it is.
    """
    if root.shape[1] <= 4 * SKETCH:
        return root
    return root @ (np.random.default_rng(0).standard_normal((root.shape[1], SKETCH)) / np.sqrt(SKETCH))


class InfluenceSums(Statistic):
    """Σ (M g)² and Σ (M g)⁴ for M = `moves` (q, P) over the `free` parameters of a network.

    `root` (P, m) is an R with F⁻¹ = R Rᵀ, so that h = ‖J R‖²; for a `sketch` with fewer columns this holds on average.
    The other sums are Σ s and Σ s², with s the squared residual of a sample, over all outputs, if it is left out.
    """

    def __init__(self, model: Model, free: np.ndarray, moves: np.ndarray, root: np.ndarray) -> None:
        self.model, self.free, self.moves, self.root = model, free, moves, root
        self.settings = {"theta": parameters(model), "moves": moves}
        self.sums = {"n": np.zeros((), dtype=np.int64), "squares": np.zeros(len(moves))}
        self.sums |= {"fourths": np.zeros(len(moves)), "left_out": np.zeros(()), "left_out_squared": np.zeros(())}
        self.row_bytes = 8 * (2 * model.n_outputs * len(free) + len(moves))

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, Y = float64(X, Y)
        J, R = by_root(weight, jacobian(self.model, X), Y - self.model(X))
        J = J if len(self.free) == J.shape[2] else J[:, :, self.free]  # indexing would copy all of J
        along = J @ self.root
        leverage = np.einsum("nop,nop->no", along, along)
        share = np.clip(1.0 - leverage, 1e-3, 1.0)
        R = R / np.sqrt(share)
        left_out = np.sum(R**2 / share, axis=1)
        scores = np.einsum("nop,no->np", J, R)
        moved = scores @ self.moves.T
        self._count(len(X), weight)
        moved *= moved
        self.sums["squares"] += moved.sum(axis=0)
        self.sums["fourths"] += np.einsum("nq,nq->q", moved, moved)
        self.sums["left_out"] += left_out.sum()
        self.sums["left_out_squared"] += left_out @ left_out

    def influence(self) -> Influence:
        squares, left_out = self.sums["squares"], float(self.per_row("left_out"))
        carried_by = freedom(squares, self.sums["fourths"])
        return Influence(squares, carried_by, left_out, float(self.per_row("left_out_squared")), self.n)


def freedom(squares: np.ndarray, fourths: np.ndarray) -> np.ndarray:
    """Return ν = 2 (Σ m²)²/Σ m⁴, the degrees of freedom of a variance Σ m², whose own variance is at most Σ m⁴."""
    return np.divide(2.0 * squares**2, fourths, out=np.full_like(squares, np.inf), where=fourths > 0.0)


def hotelling(g: np.ndarray, V: np.ndarray, n: int) -> float:
    """Return the p-value of scores g = Σu (q,) with V = Σuuᵀ over n rows, for noise of any kind [Hotelling 1931].

    S = gᵀV⁻¹g lies below n, and S (n − q)/(q (n − S)) has about the F distribution with q and n − q degrees of freedom.
    With few rows only the directions of largest variance count, a fifth as many as rows.
    """
    scale = np.sqrt(np.maximum(np.diag(V), 1e-300))
    values, vectors = np.linalg.eigh(V / scale / scale[:, None])
    kept = np.flatnonzero(values > 1e-10 * len(values))[-max(n // 5, 1) :]
    q = len(kept)
    if q == 0 or n <= q:
        return 1.0
    S = float(np.sum((vectors[:, kept].T @ (g / scale)) ** 2 / values[kept]))
    return float(fdtrc(q, n - q, S * (n - q) / (q * max(n - S, 1e-300))))


class ProbeScores(Statistic):
    """Per output Σ u and Σ u uᵀ for `probes` (e, D): hidden units that the network lacks, added to that output.

    `explained` (P, p·e) is F⁻¹ Σ Jᵀe: the change of the `free` parameters that best imitates each probe.
    """

    def __init__(self, model: Model, free: np.ndarray, probes: np.ndarray, explained: np.ndarray) -> None:
        self.model, self.free, self.probes, self.explained = model, free, probes, explained
        self.settings = {"theta": parameters(model), "probes": probes, "explained": explained}
        p, e = model.n_outputs, len(probes)
        self.sums = {"n": np.zeros((), dtype=np.int64), "score": np.zeros((p, e)), "covariance": np.zeros((p, e, e))}
        self.row_bytes = 8 * (2 * p * len(free) + 4 * p * e)

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, Y = float64(X, Y)
        values = probe_values(self.model.activation, self.probes, X)
        J = jacobian(self.model, X)[:, :, self.free]
        J, R, values = by_root(weight, J, Y - self.model(X), values)
        made_up = np.einsum("nop,no->np", J, R) @ self.explained
        self._count(len(X), weight)
        for o, u in enumerate(np.split(made_up, R.shape[1], axis=1)):
            u = values * R[:, o : o + 1] - u
            self.sums["score"][o] += u.sum(axis=0)
            self.sums["covariance"][o] += u.T @ u

    def p_value(self) -> float:
        """Return the p-value of the most significant output's scores, for noise of any kind."""
        values = [hotelling(g, V, self.n) for g, V in zip(self.sums["score"], self.sums["covariance"])]
        return min(1.0, len(values) * min(values))


class SerialResiduals(Statistic):
    """Per output Σ r and Σ r², and the sums over successive residuals a, b from which Σ (a − m)(b − m) follows for any
    m.

    Pairs across the border of two blocks are left out, so the sums depend slightly on the block size.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.settings = {"theta": parameters(model)}
        names = ("total", "squared", "ends", "ends_squared", "products", "mixed", "products_squared")
        self.sums = {"n": np.zeros((), dtype=np.int64), "pairs": np.zeros((), dtype=np.int64)}
        self.sums |= {name: np.zeros(model.n_outputs) for name in names}
        self.row_bytes = 8 * (5 * model.n_outputs + 2 * int(np.sum(model.n_hidden)))

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, Y = float64(X, Y)
        (R,) = by_root(weight, Y - self.model(X))
        a, b = R[1:], R[:-1]
        pairs = a * b
        self._count(len(X), weight)
        self.sums["pairs"] += len(pairs)
        self.sums["total"] += R.sum(axis=0)
        self.sums["squared"] += np.einsum("no,no->o", R, R)
        self.sums["ends"] += a.sum(axis=0) + b.sum(axis=0)
        self.sums["ends_squared"] += np.einsum("no,no->o", a, a) + np.einsum("no,no->o", b, b)
        self.sums["products"] += pairs.sum(axis=0)
        self.sums["mixed"] += np.einsum("no,no->o", pairs, a + b)
        self.sums["products_squared"] += np.einsum("no,no->o", pairs, pairs)

    def z(self) -> np.ndarray:
        """Return Σ (a − m)(b − m), (p,), in units of its standard deviation under independence, for any variances.

        m is the mean of all residuals: residuals of a wrong network without biases may have a mean other than zero
        and still be independent.
        """
        s, m, count = self.sums, self.sums["total"] / max(self.n, 1), float(self.sums["pairs"])
        products = s["products"] - m * s["ends"] + count * m**2
        # (a − m)²(b − m)² = a²b² − 2m ab(a + b) + m²(a² + b² + 4ab) − 2m³(a + b) + m⁴
        squared = s["products_squared"] - 2.0 * m * s["mixed"] + m**2 * (s["ends_squared"] + 4.0 * s["products"])
        squared += count * m**4 - 2.0 * m**3 * s["ends"]
        return np.asarray(products / np.sqrt(np.maximum(squared, 1e-300)))

    def mean_z(self) -> np.ndarray:
        """Return the mean residual in units of its standard error, (p,)."""
        m = self.sums["total"] / max(self.n, 1)
        return np.asarray(self.sums["total"] / np.sqrt(np.maximum(self.sums["squared"] - self.n * m**2, 1e-300)))
