"""Step 2 of [GP18, §2.2] as the paper has it: the angle to a unit from samples in slabs, and searches that reduce it.

For a unit w at angle α to z, and t its threshold, the unit is active in a thin slab z·x ∈ [s − ε, s] with probability
Φ((s cos α − t) / sin α) [GP18, Lemma 4]. Let it be 0.4 at s = t₁ and 0.6 at s = t₂; then

    tan α = (t₂ − t₁) / (Φ⁻¹(0.6) − Φ⁻¹(0.4)).

The box of EstimateTanAlpha is missing from the paper's text; this is what its Lemmas 3 to 6 use. RefineEstimate is
printed with the test α′ ≤ 0.01 α/d, which no small perturbation can pass; Lemma 7 supports α′ ≤ (1 − c/d) α.
"""

from dataclasses import dataclass
from math import atan, cos, exp, nan, pi, sin, sqrt

import numpy as np
from scipy.special import ndtri

LOW, HIGH = 0.4, 0.6  # shares of active samples in the two slabs, on either side of one half
# Samples of a slab whose share of active ones is known to a quarter of what lies between: m (0.2/4)² = 0.24.
FEWEST = round(16.0 * HIGH * LOW / (HIGH - LOW) ** 2)


@dataclass(frozen=True)
class Angle:
    """tan α with the slabs t₁ < t₂ it came from; NaN where no slab of enough samples crosses 0.4 or 0.6.

    `count` is the number of samples in the smaller of both slabs.
    """

    tan: float
    t1: float
    t2: float
    count: int = 0

    @property
    def alpha(self) -> float:
        return atan(self.tan)

    @property
    def threshold(self) -> float:
        """t = cos α (t₁ + t₂)/2, the middle being where the activity is one half."""
        return cos(self.alpha) * 0.5 * (self.t1 + self.t2)

    @property
    def relative_error(self) -> float:
        """The standard error of tan α over tan α, 3.5/√m for slabs of m samples.

        A share p has the error √(p(1 − p)/m) and rises by φ(Φ⁻¹(p)) cot α per unit of s, so that either crossing is off
        by √(0.24/m) tan α/0.386, and tan α by √2 times that over Φ⁻¹(0.6) − Φ⁻¹(0.4) = 0.507.
        """
        crossing = sqrt(LOW * (1.0 - LOW) / self.count) / _DENSITY if self.count else nan
        return sqrt(2.0) * crossing / _BETWEEN


_BETWEEN = float(ndtri(HIGH) - ndtri(LOW))  # the distance of the two slabs over tan α
_DENSITY = exp(-0.5 * float(ndtri(HIGH)) ** 2) / sqrt(2.0 * pi)  # of N(0, 1) at either


@dataclass(frozen=True)
class Search:
    """A direction z with its angle, and how many angles were estimated to find it."""

    z: np.ndarray
    angle: Angle
    estimates: int


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
        return Angle(nan, nan, nan)
    fewest = min(high - low for low, high in (slab(t1), slab(t2)))
    # The slab [s − ε, s] stands for its middle.
    return Angle(abs(t2 - t1) / _BETWEEN, t1 - 0.5 * eps, t2 - 0.5 * eps, fewest)


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
    eps: float = 0.05,
    target: float = 0.01,
    max_estimates: int = 1_000,
    decrease: float = 0.04,
) -> Search:
    """Run RefineEstimate(ε₁, ε₂) [GP18, Alg. 1]: random perturbations of z, kept if they reduce the estimated angle.

    A step is kept for a decrease of c/d, c = `decrease` [GP18, Lemma 7], and the estimate has a relative error of
    3.5/√m: it takes slabs of m ≈ (88 d)² samples, some d² 10⁶ in all, for most of the steps that are kept to be good
    ones. With fewer the search picks what noise favours and refines little: d = 5, from 0.15 rad with 600 estimates, to
    0.13 and 0.16 at n = 10⁵ and to 0.12 at 4·10⁵. The search therefore looks at half of the samples, and the other
    half, which has had no part in the choice, gives the angle that is reported.
    """
    d, half = len(z), len(X) // 2
    seen, kept = (X[:half], active[:half]), (X[half:], active[half:])
    best = estimate_tan_alpha(z, *seen, eps)
    estimates = 1
    while estimates < max_estimates and best.alpha > target:
        step = rng.standard_normal(d)
        step -= (step @ z) * z
        trial = z + 0.1 * sin(best.alpha) / d * step
        trial /= np.linalg.norm(trial)
        angle = estimate_tan_alpha(trial, *seen, eps)
        estimates += 1
        if angle.alpha <= (1.0 - decrease / d) * best.alpha:
            z, best = trial, angle
    return Search(z, estimate_tan_alpha(z, *kept, eps), estimates + 1)


def turn_estimate(
    z: np.ndarray,
    X: np.ndarray,
    active: np.ndarray,
    *,
    eps: float = 0.05,
    target: float = 0.01,
    max_estimates: int = 30,
) -> Search:
    """Turn z by the estimated α towards w as long as α falls: the paper's estimate, with a direction.

    In a slab the part x⊥ of x normal to z is Gaussian and the unit is active where x⊥·w⊥ is large, so that the means
    of x⊥ over active and over idle samples differ along w⊥.
    """
    best = estimate_tan_alpha(z, X, active, eps)
    estimates, share = 1, 1.0
    while estimates < max_estimates and best.alpha > target and share > 0.1:
        width = max(abs(best.t2 - best.t1), eps)
        middle = 0.5 * (best.t1 + best.t2)
        slab = np.abs(X @ z - middle) < width
        on, off = X[slab & active], X[slab & ~active]
        if len(on) < 2 or len(off) < 2:
            break
        v = on.mean(axis=0) - off.mean(axis=0)
        v -= (v @ z) * z
        v /= np.linalg.norm(v)
        trial = cos(share * best.alpha) * z + sin(share * best.alpha) * v
        angle = estimate_tan_alpha(trial, X, active, eps)
        estimates += 1
        if angle.alpha < best.alpha:
            z, best, share = trial, angle, 1.0
        else:
            share *= 0.5
    return Search(z, best, estimates)
