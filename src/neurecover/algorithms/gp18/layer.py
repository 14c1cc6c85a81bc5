"""The lowest layer of y = upper(u(W x − t)) for high thresholds t, in two steps [GP18, §2].

Step 1 reads the units off Hermite coefficients, up to a small angle (`step_one`). Step 2 needs outputs that tell
whether any unit is active: with ReLU or step units, f(x) = P(0) exactly where none is. Which samples are active is a
union of halfspaces, and its boundary gives the units to an angle of about d/(n φ(t)).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from neurecover import activations
from neurecover.activations import Activation
from neurecover.algorithms.gp18.step_one import PATHS, Directions, directions, hermite_coefficients, thresholds
from neurecover.algorithms.gp18.tan_alpha import clear_of, refine_estimate, turn_estimate
from neurecover.algorithms.gp18.union import fit_union
from neurecover.data import ArraySource, Mapped, Source, Whitening, reduce, split, subsample
from neurecover.statistics import Moments

SEARCHES = ("likelihood", "turn", "paper")
_HOLDOUT = 0.1
_AGREEMENT = 0.998  # of held-out samples whose activity a correct layer predicts
_CROWDED = 0.8  # share of samples with an active unit above which thresholds are too low for Step 1


@dataclass(frozen=True)
class LowestLayer:
    """Units W (k, d) with thresholds (k,): hidden values u(W x − threshold).

    `tan_alpha` (k,) estimates the tangent of the angle that is left, NaN where Step 2 did not run. `agreement` is the
    share of held-out samples whose activity the layer predicts, None without Step 2. `certain` is whether it vouches
    for the layer; `notes` are plain sentences with the figures.
    """

    W: np.ndarray
    threshold: np.ndarray
    tan_alpha: np.ndarray
    agreement: float | None
    certain: bool
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Activity:
    """Which samples have an active unit: those whose output differs from the value `rest` by more than `tolerance`."""

    rest: float
    tolerance: float
    share: float
    below: float

    def of(self, y: np.ndarray) -> np.ndarray:
        return np.abs(y - self.rest) > self.tolerance


def recover_lowest_layer(
    source: Source,
    activation: str | Activation,
    rng: np.random.Generator,
    *,
    n_hidden: int | None = None,
    threshold: float | np.ndarray | None = None,
    path: str = "tensor",
    search: str | None = "likelihood",
    max_samples: int = 200_000,
) -> LowestLayer:
    """W and t of the first layer from samples with Gaussian inputs of any mean and covariance, and one output.

    threshold gives known tᵢ as a start; None estimates them. search is how Step 2 looks: "likelihood", all units at
    once; "turn" and "paper", one unit at a time by EstimateTanAlpha; None for Step 1 alone. Step 1 is one pass over all
    samples; Step 2 takes at most `max_samples` of them into memory.
    """
    act = activations.get(activation)
    _check(source, path, search)
    moments = reduce(source, Moments(source.n_inputs, 1))
    d = source.n_inputs
    if moments.covariance[d, d] <= 1e-26 * max(moments.mean[d] ** 2, 1e-300):
        return _nothing(d, "All outputs are equal, so no unit is ever seen to be active.")
    whitening = Whitening.of(moments.mean[:d], moments.covariance[:d, :d])
    white = Mapped(source, whitening)
    tensors, error = hermite_coefficients(white, moments.n, max(3, *PATHS[path]))
    try:
        found = directions(tensors, whitening.rank, rng, n_hidden=n_hidden, standard_error=error, path=path)
    except ValueError as reason:
        return _nothing(d, f"Step 1 found no units: {reason}")
    sample = subsample(white, max_samples, int(rng.integers(2**31)))
    layer = _second_step(sample, found, act, rng, threshold, search)
    W = layer.W @ whitening.matrix.T
    t = layer.threshold + W @ whitening.mean
    return LowestLayer(W, t, layer.tan_alpha, layer.agreement, layer.certain, layer.notes)


def activity(y: np.ndarray) -> Activity | None:
    """The output P(0) without active units, as the value most often taken; None where no value is repeated."""
    values, counts = np.unique(np.round(y, 12), return_counts=True)
    top = int(np.argmax(counts))
    if counts[top] < max(20, 0.01 * len(y)):
        return None
    rest = float(np.median(y[np.round(y, 12) == values[top]]))
    tolerance = 1e-9 * max(1.0, float(np.abs(y).max()))
    moved = y - rest
    active = np.abs(moved) > tolerance
    return Activity(rest, tolerance, float(active.mean()), float(np.mean(moved < -tolerance)))


def _second_step(
    sample: Source,
    found: Directions,
    act: Activation,
    rng: np.random.Generator,
    threshold: float | np.ndarray | None,
    search: str | None,
) -> LowestLayer:
    X, Y = sample.collect()
    y = Y[:, 0]
    W = _towards_activity(found.W, X, y)
    k = len(W)
    guess = thresholds(found, act) if threshold is None else np.broadcast_to(np.asarray(threshold, float), k)
    unsure = np.full(k, np.nan)
    if search is None:
        return LowestLayer(W, guess, unsure, None, False, ("Step 1 alone: units up to a small angle.",))
    seen = activity(y) if act.name in ("step", "relu", "power") else None
    if seen is None:
        note = (
            "Step 2 needs outputs that repeat exactly where no unit is active, as ReLU or step units without noise "
            "give; these do not, so the units are those of Step 1."
        )
        return LowestLayer(W, guess, unsure, None, False, (note,))
    notes = [f"{seen.share:.1%} of the samples have an active unit."]
    active = seen.of(y)
    if threshold is None:
        # 1 − ∏Φ(tᵢ) is the share of active samples for orthogonal units with one threshold.
        guess = np.full(k, float(ndtri((1.0 - min(seen.share, 0.999)) ** (1.0 / k))))
    source = ArraySource(X, active.astype(float))
    train, holdout = split(source, _HOLDOUT, int(rng.integers(2**31)))
    Xt, at = train.collect()
    if search == "likelihood":
        fit = fit_union(ArraySource(Xt, at), W, guess)
        W, t, tan = fit.W, fit.threshold, fit.tan_alpha
    else:
        W, t, tan = _one_at_a_time(Xt, at[:, 0] > 0.5, W, guess, rng, search)
    Xh, ah = holdout.collect()
    agreement = float(np.mean(np.any(Xh @ W.T > t, axis=1) == (ah[:, 0] > 0.5)))
    notes.append(f"The layer predicts the activity of {agreement:.2%} of {len(Xh)} held-out samples.")
    return LowestLayer(W, t, tan, agreement, _certain(seen, agreement, notes), tuple(notes))


def _certain(seen: Activity, agreement: float, notes: list[str]) -> bool:
    certain = agreement >= _AGREEMENT
    if not certain:
        notes.append(f"That is below {_AGREEMENT:.1%}, so the units are not to be relied on.")
    if seen.share > _CROWDED:
        notes.append(
            f"The thresholds are too low: above {_CROWDED:.0%} activity products of units outweigh the linear part."
        )
        certain = False
    if 0.0 < seen.below < seen.share:
        notes.append(
            f"The upper part is not monotone: {seen.below:.1%} of the outputs lie below the value {seen.rest:.4g} "
            "without active units, and Step 2 took every other value as active."
        )
        certain = False
    return certain


def _one_at_a_time(
    X: np.ndarray, active: np.ndarray, W: np.ndarray, t: np.ndarray, rng: np.random.Generator, search: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """EstimateTanAlpha's searches on the samples clear of the other units, twice, as units help each other."""
    W, t, tan = W.copy(), t.copy(), np.full(len(W), np.nan)
    for _ in range(2):
        for i in range(len(W)):
            kept = clear_of(X, W, t, i)
            Xi, ai = X[kept], active[kept]
            found = refine_estimate(W[i], Xi, ai, rng) if search == "paper" else turn_estimate(W[i], Xi, ai)
            if np.isfinite(found.angle.tan):
                W[i], t[i], tan[i] = found.z, found.angle.threshold, found.angle.tan
    return W, t, tan


def _towards_activity(W: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Every row with the sign on whose side the outputs vary more: a unit is idle far below its threshold."""
    projection = X @ W.T
    far = np.quantile(np.abs(projection), 0.94, axis=0)
    signs = [1.0 if np.var(y[p > q]) >= np.var(y[p < -q]) else -1.0 for p, q in zip(projection.T, far)]
    return W * np.array(signs)[:, None]


def _check(source: Source, path: str, search: str | None) -> None:
    if source.n_outputs != 1:
        raise ValueError(f"The lowest layer is read from one output. Got {source.n_outputs}; give one at a time.")
    if path not in PATHS:
        raise ValueError(f"path must be one of {', '.join(PATHS)}. Got {path!r} instead.")
    if search is not None and search not in SEARCHES:
        raise ValueError(f"search must be None or one of {', '.join(SEARCHES)}. Got {search!r} instead.")


def _nothing(d: int, reason: str) -> LowestLayer:
    return LowestLayer(np.zeros((0, d)), np.zeros(0), np.zeros(0), None, False, (reason,))
