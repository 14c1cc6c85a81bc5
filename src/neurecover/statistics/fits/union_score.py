"""The likelihood of a union of soft halfspaces under noisy labels, with its gradient and Fisher information.

A sample x is inside when at least one of k halfspaces contains it. With unit vectors zᵢ at angles αᵢ to the true
normals and x ~ N(0, I), the probability that x lies outside halfspace i, given zᵢ·x alone, is
Φ((tᵢ − zᵢ·x cos αᵢ) / sin αᵢ) [GP18, Lemma 4]. Treated as independent, all k of them give

    Pr[outside | x] = q = ∏ᵢ Φ(−mᵢ),      mᵢ = vᵢ·x − τᵢ,      ‖vᵢ‖ = 1 / tan αᵢ,

so that maximising the likelihood over (vᵢ, τᵢ) improves zᵢ and estimates tᵢ and the angle at once. Labels are flipped
with probability η₀ outside and η₁ inside [GP18, §2.3 has none]:

    p₁ = Pr[y = 1 | x] = η₀ q + (1 − η₁)(1 − q),        p₀ = 1 − p₁.

With λᵢ = φ(mᵢ)/Φ(−mᵢ) and s = 1 − η₀ − η₁ the score in mᵢ is s λᵢ q/p₁ for y = 1 and −s λᵢ q/p₀ for y = 0; in (η₀, η₁)
it is (q, q − 1)/p₁ and (−q, 1 − q)/p₀. The information of one sample is that of (s q λ, q, q − 1)/√(p₀p₁), of rank one.
"""

import numpy as np
from scipy.special import log_ndtr

from neurecover.statistics.base import Statistic, add_gram, by_root, row_sums, symmetric

_LOG_ROOT_TWO_PI = 0.5 * np.log(2.0 * np.pi)  # of the normal density
_NEGLIGIBLE = 1e-14  # a sample with a smaller contribution to the score is lost to rounding
_FAR = 100.0  # for larger m the error 10/m⁵ of the series is below 1e-9


class UnionScore(Statistic):
    """Sums of log-likelihood, score and Fisher information at V (k, d), tau (k,), for one output y ∈ {0, 1}.

    `flips` is (η₀, η₁); with None labels have no noise and there is no score in η. Time is at most
    n·k·(d + 1)·(1 + k(d + 1)/2) multiply–adds; samples far from every boundary add nothing to the information
    of V and tau and are left out of that product.
    """

    def __init__(self, V: np.ndarray, tau: np.ndarray, curvature: bool = True, flips: np.ndarray | None = None) -> None:
        self.V, self.tau, self.curvature = np.array(V, dtype=float), np.array(tau, dtype=float), curvature
        self.flips = None if flips is None else np.array(flips, dtype=float)
        self.settings = {"V": self.V, "tau": self.tau, "flips": np.zeros(2) if self.flips is None else self.flips}
        k, d = self.V.shape
        size = k * (d + 1)
        self.sums = {
            "n": np.zeros((), dtype=np.int64),
            "log_likelihood": np.zeros(()),
            "errors": np.zeros((), dtype=np.int64),
            "score": np.zeros((k, d + 1)),
            "information": np.zeros((size, size) if curvature else (0, 0), order="F"),  # the lower triangle
            "flip_score": np.zeros(2),
            "flip_information": np.zeros((2, 2)),
            "cross": np.zeros((size if curvature else 0, 2)),
        }
        self.row_bytes = 8 * ((size if curvature else 0) + 6 * k + 2 * d)

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, inside = np.asarray(X, dtype=np.float64), Y[:, 0] > 0.5
        m = X @ self.V.T - self.tau
        log_outside = log_ndtr(-m)
        L = log_outside.sum(axis=1)
        log_p0, log_p1 = self._chances(L)
        self._count(len(X), weight)
        self.sums["log_likelihood"] += row_sums(np.where(inside, log_p1, log_p0)[None], weight)[0]
        self.sums["errors"] += np.count_nonzero((m.max(axis=1) > 0.0) != inside)
        if not self.curvature:
            return
        slope = 1.0 if self.flips is None else 1.0 - float(self.flips.sum())
        rate = _rate(m, log_outside)
        score = slope * rate * np.where(inside, np.exp(L - log_p1), -np.exp(L - log_p0))[:, None]
        log_root = 0.5 * (log_p0 + log_p1)
        root = slope * rate * np.exp(L - log_root)[:, None]
        if weight is not None:
            score *= weight[:, None]
            (root,) = by_root(weight, root)
        seen = (np.abs(score).max(axis=1) > _NEGLIGIBLE) | (root.max(axis=1) > _NEGLIGIBLE)
        ones = np.column_stack([X[seen], -np.ones(np.count_nonzero(seen))])
        self.sums["score"] += score[seen].T @ ones
        features = (root[seen].T[:, None, :] * ones.T[None]).reshape(self.V.size + self.tau.size, len(ones))
        self.sums["information"] = add_gram(self.sums["information"], features)
        if self.flips is not None:
            self._update_flips(inside, L, np.where(inside, log_p1, log_p0), log_root, features, seen, weight)

    def _chances(self, L: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log p₀ and log p₁ for L = log q."""
        log_inside = np.log(-np.expm1(np.minimum(L, -np.finfo(float).tiny)))
        if self.flips is None:
            return L, log_inside
        flip, keep = np.log(self.flips), np.log1p(-self.flips)
        return np.logaddexp(keep[0] + L, flip[1] + log_inside), np.logaddexp(flip[0] + L, keep[1] + log_inside)

    def _update_flips(
        self,
        inside: np.ndarray,
        L: np.ndarray,
        log_seen: np.ndarray,
        log_root: np.ndarray,
        features: np.ndarray,
        seen: np.ndarray,
        weight: np.ndarray | None,
    ) -> None:
        derivative = np.stack([np.exp(L), np.expm1(L)])  # of p₁ in (η₀, η₁)
        if weight is not None:
            derivative *= np.sqrt(weight)
            log_seen = log_seen - 0.5 * np.log(weight)
        self.sums["flip_score"] += derivative @ (np.where(inside, 1.0, -1.0) * np.exp(-log_seen))
        root = derivative * np.exp(-log_root)
        self.sums["flip_information"] += root @ root.T
        self.sums["cross"] += features @ root[:, seen].T

    @property
    def information(self) -> np.ndarray:
        """The sum of the Fisher information of (v₁, τ₁), (v₂, τ₂), … and, with flips, (η₀, η₁), in this order."""
        whole = symmetric(self.sums["information"])
        if self.flips is None:
            return whole
        cross = self.sums["cross"]
        return np.block([[whole, cross], [cross.T, self.sums["flip_information"]]])


def _rate(m: np.ndarray, log_outside: np.ndarray) -> np.ndarray:
    """Return λ = φ(m)/Φ(−m); for large m, where both underflow, the series m + 1/m − 2/m³."""
    near, far = np.minimum(m, _FAR), np.maximum(m, _FAR)
    inner = np.exp(-0.5 * near * near - _LOG_ROOT_TWO_PI - np.where(m < _FAR, log_outside, 0.0))
    return np.where(m < _FAR, inner, far + 1.0 / far - 2.0 / far**3)
