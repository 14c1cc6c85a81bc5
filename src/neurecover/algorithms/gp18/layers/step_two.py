"""Step 2 of [GP18, §2.2]: from units up to a small angle to the boundary of the samples with an active unit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from neurecover.algorithms.gp18.layers.tan_alpha import Search, clear_of, refine_estimate
from neurecover.algorithms.gp18.options import DEFAULTS, LayerOptions
from neurecover.algorithms.gp18.union.fit import UnionFit, fit_union, missed_samples
from neurecover.algorithms.gp18.union.search import find_union
from neurecover.data import ArraySource, split
from neurecover.solve import Deadline

SEARCHES = ("likelihood", "paper")
NEVER = Deadline()


@dataclass(frozen=True)
class Boundary:
    """Units W (k, d), unit rows, thresholds (k,), the estimated tan α (k,) that is left, and the held-out agreement.

    `by` is the fit it came from: of all units at once, or one search per unit (None where no angle could be seen).
    """

    W: np.ndarray
    threshold: np.ndarray
    tan_alpha: np.ndarray
    agreement: float
    n_holdout: int
    by: UnionFit | tuple[Search | None, ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        """What the layer predicts, and where a search was held up by its samples."""
        found = f"The layer predicts the activity of {self.agreement:.2%} of {self.n_holdout} held-out samples."
        doubts = [search.doubt for search in self.by if search is not None] if isinstance(self.by, tuple) else []
        if not doubts or max(doubts) <= 1.0:
            return (found,)
        return (
            found,
            "RefineEstimate ended where its samples did not tell better directions from worse: noise of "
            f"{max(doubts):.2g} times the decrease it looks for. `tan_alpha` is what was left.",
        )


def boundary(
    X: np.ndarray,
    active: np.ndarray,
    W: np.ndarray,
    rng: np.random.Generator,
    search: str = "likelihood",
    *,
    noisy: bool = False,
    counted: bool = False,
    deadline: Deadline = NEVER,
    options: LayerOptions = DEFAULTS,
) -> Boundary:
    """Return the boundary from samples X (n, d) with activity (n,), starting at directions W (k, d).

    search is "likelihood" for all units at once, "paper" for one at a time. The first begins anew where it
    leaves samples unexplained; noisy lets it take some labels for wrong, and counted lets it choose another number of
    units. After the deadline no unit is searched for and nothing is begun anew.
    """
    k = len(W)
    # 1 − ∏Φ(tᵢ) is the share of active samples for orthogonal units with one threshold.
    threshold = np.full(k, float(ndtri((1.0 - min(float(active.mean()), 0.999)) ** (1.0 / k))))
    train, holdout = split(ArraySource(X, active.astype(float)), options.held_out, int(rng.integers(2**31)))
    Xt, at = train.collect()
    by: UnionFit | tuple[Search | None, ...]
    if search == "likelihood":
        by = _likelihood(ArraySource(Xt, at), W, threshold, rng, noisy, counted, deadline, options)
        W, t, tan = by.W, by.threshold, by.tan_alpha
    else:
        by = _one_at_a_time(Xt, at[:, 0] > 0.5, W, threshold, rng, deadline)
        W = np.array([w if s is None else s.z for w, s in zip(W, by)])
        t = np.array([ti if s is None else s.angle.threshold for ti, s in zip(threshold, by)])
        tan = np.array([np.nan if s is None else s.angle.tan for s in by])
    Xh, ah = holdout.collect()
    agreement = float(np.mean(np.any(Xh @ W.T > t, axis=1) == (ah[:, 0] > 0.5)))
    return Boundary(W, t, tan, agreement, len(Xh), by)


def _likelihood(
    labels: ArraySource,
    W: np.ndarray,
    t: np.ndarray,
    rng: np.random.Generator,
    noisy: bool,
    counted: bool,
    deadline: Deadline,
    options: LayerOptions,
) -> UnionFit:
    flips = np.array(options.noisy_flips) if noisy else None
    fit = fit_union(labels, W, t, flips=flips, options=options.union)
    # Noise blurs the boundary, so that what is missed there is not by chance even where all units are right.
    good = fit.error <= (options.noisy_good if noisy else options.good)
    if good or (noisy and missed_samples(labels, fit).by_chance) or deadline.passed:
        return fit
    again = find_union(labels, rng, None if counted else len(W), options.union).fit
    return again if again.error < fit.error else fit


def _one_at_a_time(
    X: np.ndarray,
    active: np.ndarray,
    W: np.ndarray,
    t: np.ndarray,
    rng: np.random.Generator,
    deadline: Deadline,
) -> tuple[Search | None, ...]:
    """Run RefineEstimate for every unit on the samples clear of the others, twice: units help each other."""
    W, t = W.copy(), t.copy()
    best: list[Search | None] = [None] * len(W)
    for _ in range(2):
        for i in range(len(W)):
            if deadline.passed:
                return tuple(best)
            kept = clear_of(X, W, t, i)
            found = refine_estimate(W[i], X[kept], active[kept], rng)
            if np.isfinite(found.angle.tan):
                W[i], t[i], best[i] = found.z, found.angle.threshold, found
    return tuple(best)
