"""The likelihood of a union of soft halfspaces, with its gradient and Fisher information.

A sample x is inside (y = 1) when at least one of k halfspaces contains it. With unit vectors zᵢ at angles αᵢ to the
true normals and x ~ N(0, I), the chance that x lies outside halfspace i, seen from zᵢ·x alone, is
Φ((tᵢ − zᵢ·x cos αᵢ) / sin αᵢ) [GP18, Lemma 4]. Treated as independent, all k of them give

    Pr[y = 0 | x] = q = ∏ᵢ Φ(−mᵢ),      mᵢ = vᵢ·x − τᵢ,      ‖vᵢ‖ = 1 / tan αᵢ,

so that maximising the likelihood over (vᵢ, τᵢ) turns zᵢ, finds tᵢ and estimates the angle at once. With
λᵢ = φ(mᵢ)/Φ(−mᵢ) the score in mᵢ is −λᵢ outside and λᵢ q/(1 − q) inside; the information of one sample is
q/(1 − q)·λλᵀ, of rank one.
"""

import numpy as np
from scipy.special import log_ndtr

from neurecover.statistics.base import Statistic, add_gram, symmetric

_LOG_ROOT_TWO_PI = 0.5 * np.log(2.0 * np.pi)
_NEGLIGIBLE = 1e-14


class UnionScore(Statistic):
    """Sums of log-likelihood, score (k, d + 1) and Fisher information at V (k, d), tau (k,), for one output y ∈ {0, 1}.

    Time is n·k·(d + 1)·(1 + k(d + 1)/2) multiply–adds at most; samples far from every boundary add nothing to the
    information and are left out of the product.
    """

    def __init__(self, V: np.ndarray, tau: np.ndarray, curvature: bool = True) -> None:
        self.V, self.tau, self.curvature = np.array(V, dtype=float), np.array(tau, dtype=float), curvature
        self.settings = {"V": self.V, "tau": self.tau}
        k, d = self.V.shape
        size = k * (d + 1)
        self.sums = {
            "n": np.zeros((), dtype=np.int64),
            "log_likelihood": np.zeros(()),
            "errors": np.zeros((), dtype=np.int64),
            "score": np.zeros((k, d + 1)),
            "information": np.zeros((size, size) if curvature else (0, 0), order="F"),  # the lower triangle
        }
        self.row_bytes = 8 * ((size if curvature else 0) + 6 * k + 2 * d)

    def update(self, X: np.ndarray, Y: np.ndarray) -> None:
        X, inside = np.asarray(X, dtype=np.float64), Y[:, 0] > 0.5
        m = X @ self.V.T - self.tau
        log_outside = log_ndtr(-m)
        L = log_outside.sum(axis=1)
        log_inside = np.log(-np.expm1(np.minimum(L, -np.finfo(float).tiny)))
        self.sums["n"] += len(X)
        self.sums["log_likelihood"] += np.where(inside, log_inside, L).sum()
        self.sums["errors"] += np.count_nonzero((m.max(axis=1) > 0.0) != inside)
        if not self.curvature:
            return
        rate = np.exp(-0.5 * m * m - _LOG_ROOT_TWO_PI - log_outside)  # λ
        odds = np.exp(L - log_inside)  # q / (1 − q)
        score = rate * np.where(inside, odds, -1.0)[:, None]
        root = rate * np.sqrt(odds)[:, None]
        seen = (np.abs(score).max(axis=1) > _NEGLIGIBLE) | (root.max(axis=1) > _NEGLIGIBLE)
        ones = np.column_stack([X[seen], -np.ones(np.count_nonzero(seen))])
        self.sums["score"] += score[seen].T @ ones
        features = (root[seen].T[:, None, :] * ones.T[None]).reshape(-1, len(ones))
        self.sums["information"] = add_gram(self.sums["information"], features)

    @property
    def information(self) -> np.ndarray:
        """Σ of the Fisher information, (k(d + 1), k(d + 1)), parameters (v₁, τ₁), (v₂, τ₂), …"""
        return symmetric(self.sums["information"])
