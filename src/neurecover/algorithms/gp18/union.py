"""The halfspaces of a union from labels, by Fisher scoring on the likelihood of `UnionScore`.

Maximum likelihood finds what EstimateTanAlpha and the search over z find [GP18, Alg. 1], all units together and with
the others' share accounted for: 1/‖vᵢ‖ is the estimate of tan αᵢ, and every step turns all zᵢ. For labels without
noise the likelihood has no maximum at finite ‖v‖; the fit sharpens until no sample is on the wrong side, after
which the angle left is of the order of d / (n φ(t)).
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, solve

from neurecover.data import Source, reduce
from neurecover.statistics.union_score import UnionScore


@dataclass(frozen=True)
class UnionFit:
    """Normals W (k, d), unit rows, thresholds t (k,), tan α (k,) and the share of samples on the wrong side."""

    W: np.ndarray
    threshold: np.ndarray
    tan_alpha: np.ndarray
    error: float
    log_likelihood: float
    iterations: int

    def contains(self, X: np.ndarray) -> np.ndarray:
        """Whether any halfspace contains x, (n,)."""
        return np.any(self.threshold < X @ self.W.T, axis=1)


def fit_union(
    labels: Source,
    W: np.ndarray,
    threshold: np.ndarray,
    tan_alpha: float | np.ndarray = 0.3,
    *,
    max_iterations: int = 60,
    repairs: int = 4,
) -> UnionFit:
    """Maximise the likelihood of labels y ∈ {0, 1} from directions W (k, d) and thresholds (k,).

    Where samples inside the union stay unexplained, the unit that does least is sent to their mean, up to `repairs`
    times.
    """
    best = _ascend(labels, W, np.asarray(threshold, dtype=float), np.broadcast_to(tan_alpha, len(W)), max_iterations)
    for _ in range(repairs):
        if best.error <= 1e-3:
            break
        start = _moved(labels, best)
        if start is None:
            break
        again = _ascend(labels, *start, max_iterations)
        if again.log_likelihood <= best.log_likelihood:
            break
        best = again
    return best


def _ascend(labels: Source, W: np.ndarray, t: np.ndarray, tan_alpha: np.ndarray, max_iterations: int) -> UnionFit:
    d = W.shape[1]
    sharp = (1.0 / (np.linalg.norm(W, axis=1) * tan_alpha))[:, None]
    here = reduce(labels, UnionScore(W * sharp, t / tan_alpha))
    damping, done = 1e-3, 0
    while done < max_iterations:
        done += 1
        there = None
        for _ in range(12):
            step = _step(here, damping)
            trial = reduce(labels, UnionScore(here.V + step[:, :d], here.tau + step[:, d], curvature=False))
            if trial.sums["log_likelihood"] > here.sums["log_likelihood"]:
                there = reduce(labels, UnionScore(trial.V, trial.tau))
                break
            damping *= 8.0
        if there is None:
            break
        gain = float(there.sums["log_likelihood"] - here.sums["log_likelihood"])
        here, damping = there, max(damping / 8.0, 1e-9)
        loss = -float(here.sums["log_likelihood"])
        # A loss of one unit in all: the labels are separated with room to spare.
        if loss < 1.0 or gain < 1e-4 * loss:
            break
    norms = np.linalg.norm(here.V, axis=1)
    norms = np.where(norms > 0.0, norms, 1.0)
    return UnionFit(
        here.V / norms[:, None],
        here.tau / norms,
        1.0 / norms,
        float(here.sums["errors"] / here.n),
        float(here.sums["log_likelihood"]),
        done,
    )


def _step(here: UnionScore, damping: float) -> np.ndarray:
    information = here.information
    diagonal = np.diag(information)
    floor = 1e-12 * max(float(diagonal.max()), 1e-300)
    matrix = information + np.diag(damping * diagonal + floor)
    try:
        step = solve(matrix, here.sums["score"].ravel(), assume_a="pos")
    except LinAlgError:
        step = here.sums["score"].ravel() / (diagonal + floor)
    return step.reshape(here.sums["score"].shape)


def _moved(labels: Source, fit: UnionFit) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """The fit with its least useful unit at the mean of the inside samples that no unit contains."""
    k, d = fit.W.shape
    missed, count, alone = np.zeros(d), 0, np.zeros(k)
    for X, Y in labels.blocks(65_536):
        inside = Y[:, 0] > 0.5
        above = fit.threshold < X @ fit.W.T
        lost = inside & ~above.any(axis=1)
        missed += X[lost].sum(axis=0)
        count += int(lost.sum())
        only = above & (above.sum(axis=1) == 1)[:, None]
        alone += only[inside].sum(axis=0) - only[~inside].sum(axis=0)
    norm = float(np.linalg.norm(missed))
    if count < d or norm == 0.0:
        return None
    W, t, tan = fit.W.copy(), fit.threshold.copy(), np.minimum(np.maximum(fit.tan_alpha, 0.05), 1.0)
    worst = int(np.argmin(alone))
    W[worst], t[worst], tan[worst] = missed / norm, norm / count, 0.5
    return W, t, tan
