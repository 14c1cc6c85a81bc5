"""Step 2 of [GP18, §2.2] as the paper has it: the angle to a unit from samples in slabs, and a search that reduces it.

For a unit w at angle α to z, and t its threshold, the unit is active in a thin slab z·x ∈ [s − ε, s] with probability
Φ((s cos α − t) / sin α) [GP18, Lemma 4]. Let it be 0.4 at s = t₁ and 0.6 at s = t₂; then

    tan α = (t₂ − t₁) / (Φ⁻¹(0.6) − Φ⁻¹(0.4)).

The box of EstimateTanAlpha is missing from the paper's text; this is what its Lemmas 3 to 6 use. In a slab that is not
thin the crossing is that of τ g + U, τ = tan α and U uniform on ±ε/2, whose density at 0 is erf(ε/√8 τ)/ε where that of
τ g is φ(0)/τ, so that

    erf(ε/√8 τ) = q,        q = ε φ(0) (Φ⁻¹(0.6) − Φ⁻¹(0.4)) / (t₂ − t₁).

RefineEstimate is printed with the test α′ ≤ 0.01 α/d, which no small perturbation can pass; Lemma 7 supports
α′ ≤ (1 − c/d) α.
"""

from dataclasses import dataclass
from math import atan, cos, exp, inf, nan, pi, sin, sqrt

import numpy as np
from scipy.special import erfinv, ndtri

LOW, HIGH = 0.4, 0.6  # shares of active samples in the two slabs, on either side of one half
# Samples of a slab whose share of active ones is known to a quarter of what lies between: m (0.2/4)² = 0.24.
FEWEST = round(16.0 * HIGH * LOW / (HIGH - LOW) ** 2)
_Q = float(ndtri(HIGH) - ndtri(LOW)) / sqrt(2.0 * pi)  # q (t₂ − t₁)/ε
# The relative error of t₂ − t₁ for slabs of one sample: of a share it is √(p (1 − p)), and shares rise by 0.2 between.
_ONE = sqrt(2.0 * LOW * (1.0 - LOW)) / (HIGH - LOW)


@dataclass(frozen=True)
class Angle:
    """The crossings t₁ < t₂ of 0.4 and 0.6, in the middle of slabs of width `eps`; NaN where samples show none.

    `count` is the number of samples in the smaller of both slabs.
    """

    t1: float
    t2: float
    eps: float
    count: int = 0

    @property
    def _share(self) -> float:
        """q; it is 1 for an angle of 0."""
        return self.eps * _Q / abs(self.t2 - self.t1) if self.t2 != self.t1 else inf

    @property
    def _largest(self) -> float:
        """The q of the least angle that is told from 0: t₂ − t₁ one standard error above that of an angle of 0."""
        return 1.0 / (1.0 + _ONE * sqrt(_Q / self.count))

    @property
    def tan(self) -> float:
        """The tangent of α, or of the least angle told from 0 where that is larger; NaN where no slab of enough samples
        crosses 0.4 or 0.6.
        """
        return self.eps / (sqrt(8.0) * float(erfinv(min(self._share, self._largest)))) if self.count else nan

    @property
    def alpha(self) -> float:
        return atan(self.tan)

    @property
    def threshold(self) -> float:
        """t = cos α (t₁ + t₂)/2, the middle being where the activity is one half."""
        return cos(self.alpha) * 0.5 * (self.t1 + self.t2)

    @property
    def relative_error(self) -> float:
        """The standard error of tan α over tan α: 3.5/√m for thin slabs of m samples; 1 for an angle not told from 0.

        That of t₂ − t₁ is √2 √(0.24/m) over 0.2, but for the samples that slabs wider than t₂ − t₁ share, and
        ∂ log τ/∂ log (t₂ − t₁) = ½√π q exp(y²)/y with y = erfinv q.
        """
        if not self.count:
            return nan
        if self._share >= self._largest:
            return 1.0
        q, y = self._share, float(erfinv(self._share))
        own = min(1.0, _Q / q)
        return sqrt(own / self.count) * _ONE * 0.5 * sqrt(pi) * q * exp(y * y) / y


@dataclass(frozen=True)
class Search:
    """A direction z with its angle, and how many angles were estimated to find it.

    `doubt` is the standard error of the difference of two angles that the search compared last, over the difference
    for which it keeps a trial: above about 1 it follows noise.
    """

    z: np.ndarray
    angle: Angle
    estimates: int
    doubt: float


def estimate_tan_alpha(z: np.ndarray, X: np.ndarray, active: np.ndarray, eps: float = 0.05) -> Angle:
    """Run EstimateTanAlpha(z, ε) on samples X (n, d) with activity (n,), by two binary searches along z.

    t₁ and t₂ are found to within ε/100, between 0 and the outermost slab of `FEWEST` samples.
    """
    projection = X @ z
    order = np.argsort(projection)
    projection = projection[order]
    counts = np.concatenate([[0], np.cumsum(active[order])])
    # The slab [s − ε, s] at every sample, and how many it holds.
    held = np.arange(1, len(projection) + 1) - np.searchsorted(projection, projection - eps)
    enough = np.flatnonzero(held >= FEWEST)
    top = float(projection[enough[-1]]) if len(enough) else -1.0

    def slab(s: float) -> tuple[int, int]:
        low, high = np.searchsorted(projection, [s - eps, s], side="right")
        return int(low), int(high)

    def probability(s: float) -> float:
        low, high = slab(s)
        return float(counts[high] - counts[low]) / max(high - low, 1)

    def crossing(level: float) -> float:
        low, high = 0.0, top
        if high <= 0.0 or probability(low) >= level or probability(high) < level:
            return nan
        while high - low > eps / 100.0:
            middle = 0.5 * (low + high)
            low, high = (low, middle) if probability(middle) >= level else (middle, high)
        return 0.5 * (low + high)

    t1, t2 = crossing(LOW), crossing(HIGH)
    if not np.isfinite(t1 + t2):
        return Angle(nan, nan, eps)
    fewest = min(high - low for low, high in (slab(t1), slab(t2)))
    if fewest < FEWEST:
        return Angle(nan, nan, eps)
    # The slab [s − ε, s] stands for its middle.
    return Angle(t1 - 0.5 * eps, t2 - 0.5 * eps, eps, fewest)


def clear_of(X: np.ndarray, W: np.ndarray, threshold: np.ndarray, unit: int, margin: float = 0.3) -> np.ndarray:
    """Return a mask (n,) of the samples that keep `margin` below the threshold of every unit but one.

    Among them activity is that unit's alone. The paper's thresholds are so high that the others' share is small
    without this.
    """
    others = np.delete(np.arange(len(W)), unit)
    return np.all(threshold[others] - margin > X @ W[others].T, axis=1)


def refine_estimate(
    z: np.ndarray,
    X: np.ndarray,
    active: np.ndarray,
    rng: np.random.Generator,
    *,
    eps: float | None = None,
    target: float = 0.01,
    max_estimates: int = 1_000,
    decrease: float = 0.04,
    judged: float = 0.25,
) -> Search:
    """Run RefineEstimate(ε₁, ε₂) [GP18, Alg. 1]: random perturbations of z, kept if they reduce the estimated angle.

    A step of length δ = 0.1 sin α √(d − 1)/d is kept for a decrease of c/d, c = `decrease` [GP18, Lemma 7]. It changes
    the share 0.8 δ/ε of a slab's samples, so that two angles differ by noise of √(1.6 δ/ε) times their error. Their
    error over tan α is about the least for given samples at ε = 2 tan α, which is ε₁ unless it is given, and the noise
    is then below c/d for slabs of m ≈ 360 d √(d − 1) samples: m/(2 tan α p(t)) inputs, p their density along z. The
    search ends about where that is no longer so (`Search.doubt`). It looks at all samples but the share `judged`, which
    has had no part in the choice and gives the angle that is reported.
    """
    d, held = len(z), int(judged * len(X))
    seen, kept = (X[held:], active[held:]), (X[:held], active[:held])
    best = estimate_tan_alpha(z, *seen, 0.3 if eps is None else eps)
    best = _in_its_slabs(z, *seen, best) if eps is None else best
    estimates, doubt = 1, inf
    while estimates < max_estimates and best.alpha > target:
        length = 0.1 * sin(best.alpha) / d
        replaced = min(0.8 * length * sqrt(d - 1.0) / best.eps, 1.0)
        doubt = sqrt(2.0 * replaced) * best.relative_error * d / decrease
        step = rng.standard_normal(d)
        step -= (step @ z) * z
        trial = z + length * step
        trial /= np.linalg.norm(trial)
        angle = estimate_tan_alpha(trial, *seen, best.eps)
        estimates += 1
        if angle.alpha <= (1.0 - decrease / d) * best.alpha:
            z, best = trial, _in_its_slabs(trial, *seen, angle) if eps is None else angle
    left = estimate_tan_alpha(z, *kept, best.eps)
    while np.isnan(left.tan) and left.eps < 1.0:  # the share judged is smaller, so that its slabs may have to be wider
        left = estimate_tan_alpha(z, *kept, 2.0 * left.eps)
    return Search(z, left, estimates + 1, doubt)


def _in_its_slabs(z: np.ndarray, X: np.ndarray, active: np.ndarray, angle: Angle) -> Angle:
    """Return the angle from slabs of 2 tan α, if those hold enough samples."""
    again = angle if np.isnan(angle.tan) else estimate_tan_alpha(z, X, active, 2.0 * angle.tan)
    return angle if np.isnan(again.tan) else again
