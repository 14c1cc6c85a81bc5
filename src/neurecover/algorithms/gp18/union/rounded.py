"""Compare a union of halfspaces with rounded corners and bent faces: are its boundaries flat, and its corners sharp?"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from neurecover.algorithms.gp18.union.deviance import deviance_of, rates_of
from neurecover.algorithms.gp18.union.fit import UnionFit
from neurecover.certificate.from_labels import Corners
from neurecover.certificate.options import LabelOptions
from neurecover.data import Source

_PROBIT = 1.7  # Φ(z) is σ(1.7 z) to within 0.01
_SOFT = np.exp(-3.0)  # of the largest s: labels that a flat face has called flipped are near enough to draw a bent one
_FIRST_BEND = 0.3  # of q: (q·x)² is then 0.1 at one standard deviation
_NARROWEST, _WIDEST = 1e-3, 5.0  # of a rounding, in standard deviations of the inputs


@dataclass(frozen=True, eq=False)
class _Labels:
    """Inputs (n, d), labels (n,), and the largest s, at which a boundary is as sharp as labels show it."""

    X: np.ndarray
    inside: np.ndarray
    sharpest: float


@dataclass(frozen=True, eq=False)
class _Rounded:
    """Unit normals (k, d), thresholds (k,), the rounding, 0 for corners, and rates r; the deviance after a fit.

    The margin of the face `bent` has sign·(q·x)² beside it, q being `along` (d,). If `bowed`, margins of all faces have
    c ‖Pᵢx‖² beside them, one c for all and Pᵢ the projector on what the normals span across the i-th.
    """

    W: np.ndarray
    threshold: np.ndarray
    rounding: float
    rates: np.ndarray
    deviance: float = np.inf
    bent: int = 0
    sign: float = 0.0
    along: np.ndarray = field(default_factory=lambda: np.zeros(0))
    bowed: bool = False

    def contains(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(_joined(X @ self.W.T - self.threshold, self.rounding)[0] > 0.0)


def corners(labels: Source, fit: UnionFit, rng: np.random.Generator, options: LabelOptions) -> Corners:
    """Return the comparison with rounded corners and bent faces; halfspaces that do not meet among the inputs have no
    corners.
    """
    (k, d), n = fit.W.shape, labels.count()
    seen, sharp = _sharp(labels, fit)
    bent = _bent(seen, sharp) + d * np.log(n) if d > 1 else np.inf
    if k < 2:
        return Corners(0.0, np.inf, np.inf, bent, np.inf)
    bowed = _fitted(seen, replace(sharp, bowed=True)).deviance - sharp.deviance + np.log(n) if d > 1 else np.inf
    free = min((_fitted(seen, _with(sharp, r), free=True) for r in (0.1, 0.4)), key=lambda found: found.deviance)
    chamfer = np.inf
    # Two boundaries and a chamfer make one corner.
    for i in range(k if k > 2 else 0):
        fewer = _Rounded(np.delete(sharp.W, i, axis=0), np.delete(sharp.threshold, i), 0.4, sharp.rates)
        gap = _fitted(seen, fewer, free=True).deviance - sharp.deviance - d * np.log(n)
        chamfer = min(chamfer, float(gap))
        if chamfer < options.curved:
            break
    drawn = rng.standard_normal((options.rows, d))
    least, material = _rounding_that_turns(sharp, drawn, options.rounded), np.inf
    if least is not None:
        rival = _fitted(seen, _with(sharp, least))
        # Two parallel boundaries have no corner: whatever ρ is, moved apart they are what they were.
        if np.mean(rival.contains(drawn) != sharp.contains(drawn)) > 0.5 * options.rounded:
            material = rival.deviance - sharp.deviance
    return Corners(sharp.deviance - free.deviance, chamfer, material, bent, float(bowed))


def _sharp(labels: Source, fit: UnionFit) -> tuple[_Labels, _Rounded]:
    """Return the labels and the union with corners and flat faces, fitted to them."""
    X, Y = labels.collect()
    assert fit.flips is not None
    seen = _Labels(X, Y[:, 0] > 0.5, _PROBIT / float(np.median(fit.tan_alpha)))
    return seen, _fitted(seen, _Rounded(fit.W, fit.threshold, 0.0, rates_of(fit.flips)))


def _bent(seen: _Labels, sharp: _Rounded) -> float:
    """Return the deviance of the best union with one bent face minus that with flat ones.

    The direction to begin with is the eigenvector of the derivative in Q, at 0, of a margin with xᵀQx beside it.
    """
    m = seen.X @ sharp.W.T - sharp.threshold
    value, part, _ = _joined(m, 0.0)
    slope = deviance_of(seen.sharpest * _SOFT * value, seen.inside, sharp.rates).by_odds
    least = 0.0
    for i in range(len(sharp.W)):
        values, vectors = np.linalg.eigh(seen.X.T @ (seen.X * (slope * part[:, i])[:, None]))
        at = int(np.abs(values).argmax())
        start = replace(sharp, bent=i, sign=-float(np.sign(values[at])), along=_FIRST_BEND * vectors[:, at])
        least = min(least, _fitted(seen, start).deviance - sharp.deviance)
    return least


def _with(corner: _Rounded, rounding: float) -> _Rounded:
    return replace(corner, rounding=rounding)


def _rounding_that_turns(corner: _Rounded, X: np.ndarray, share: float) -> float | None:
    """Return the least rounding that takes a given share of X into the rounded corners; None if corners lie too far out
    for that.
    """
    m = X @ corner.W.T - corner.threshold
    m = m[m.max(axis=1) < 0.0]

    def turns(rounding: float) -> bool:
        return bool(np.count_nonzero(_joined(m, rounding)[0] > 0.0) >= share * len(X))

    low, high = _NARROWEST, _WIDEST
    if not turns(high):
        return None
    while high > 1.01 * low:
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if turns(middle) else (middle, high)
    return high


def _joined(m: np.ndarray, rounding: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ρ log Σ exp(mᵢ/ρ) of margins (n, k), with its derivatives in m (n, k) and in log ρ (n,)."""
    top = m.max(axis=1)
    if rounding == 0.0:
        first = np.zeros_like(m)
        first[np.arange(len(m)), m.argmax(axis=1)] = 1.0
        return top, first, np.zeros(len(m))
    part = np.exp((m - top[:, None]) / rounding)
    total = part.sum(axis=1)
    part /= total[:, None]
    value = top + rounding * np.log(total)
    return value, part, value - np.einsum("nk,nk->n", part, m)


def _fitted(seen: _Labels, start: _Rounded, free: bool = False) -> _Rounded:
    """Fit normals, thresholds, sharpness and rates from a start, and its rounding too if it is free."""
    from scipy.optimize import minimize

    (k, d), size = start.W.shape, start.W.size
    X, top = seen.X, float(np.log(seen.sharpest))
    softest = top + float(np.log(_SOFT))
    at = softest if len(start.along) or start.bowed else top
    across = _squares_across(start.W, X) if start.bowed else None

    def read(v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        U = v[:size].reshape(k, d)
        norm = np.linalg.norm(U, axis=1, keepdims=True)
        return U / norm, norm, v[size : size + k], float(np.exp(v[-1])) if free else start.rounding

    def deviance(v: np.ndarray) -> tuple[float, np.ndarray]:
        W, norm, t, rounding = read(v)
        m, bend = X @ W.T - t, X @ v[-len(start.along) :] if len(start.along) else None
        if bend is not None:
            m[:, start.bent] += start.sign * bend**2
        if across is not None:
            m += v[-1] * across
        value, part, by_log = _joined(m, rounding)
        s = float(np.exp(v[size + k]))
        here = deviance_of(s * value, seen.inside, v[size + k + 1 : size + k + 3])
        slope = s * here.by_odds
        G = slope[:, None] * part
        by_w = G.T @ X
        by_u = (by_w - np.sum(by_w * W, axis=1, keepdims=True) * W) / norm
        parts = [by_u.ravel(), -G.sum(axis=0), [float(slope @ value)], here.by_rates, [float(slope @ by_log)]]
        if not free:
            parts.pop()
        if bend is not None:
            parts.append(X.T @ (2.0 * start.sign * bend * G[:, start.bent]))
        if across is not None:
            parts.append([float(np.vdot(G, across))])
        return here.value, np.concatenate(parts)

    rounding = np.log([start.rounding] * free)
    extra = np.append(start.along, [0.0] * start.bowed)
    v = np.concatenate([start.W.ravel(), start.threshold, [at], start.rates, rounding, extra])
    bounds = [(None, None)] * (size + k) + [(softest, top), (-12.0, 6.0), (-12.0, 6.0)]
    bounds += [(float(np.log(_NARROWEST)), float(np.log(_WIDEST)))] * free + [(None, None)] * len(extra)
    # Every fit begins where the union's own has ended, so that 300 steps are ample.
    found = minimize(deviance, v, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 300})
    W, _, t, ends = read(found.x)
    rates = found.x[size + k + 1 : size + k + 3]
    return replace(start, W=W, threshold=t, rounding=ends, rates=rates, deviance=float(found.fun))


def _squares_across(W: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return ‖Pᵢx‖² (n, k), Pᵢ the projector on the part of the span of the normals that is orthogonal to the i-th."""
    _, s, right = np.linalg.svd(W, full_matrices=False)
    inside = X @ right[s > 1e-6 * s[0]].T  # an angle below that is below the error of any normal
    return np.asarray(np.sum(inside**2, axis=1)[:, None] - (X @ W.T) ** 2)
