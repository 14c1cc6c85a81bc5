"""Descent on the exact population risk: how often does it end at a spurious minimum? [ATV21] asks after Prop. 3.6.

Under Gaussian inputs the risk of f = Σ α_i relu(v_i·x + h_i) + c against g, another such sum, is a quadratic form in
K = E[relu(z_i) relu(z_l)], and by Stein's identity its derivatives need E[relu′ relu] and E[relu′ relu′] alone:

    ∂/∂α_i = 2 E[(f − g) relu(z_i)],   ∂/∂h_i = 2 α_i E[(f − g) relu′(z_i)],
    ∂/∂v_i = 2 α_i Σ_l α_l E[relu′(z_i) relu′(z_l)] v_l  along the sphere,

all in closed form. So nothing here depends on samples. Students have as many units as the teacher, start like it, and
descend by L-BFGS until the gradient is 1e-9 or 2,000 steps are made.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from neurecover.experiment import Experiment, Row, Track, fresh_seeds, picture
from neurecover.models.orthants import Correlation, density, rectified_moments
from neurecover.simulate import matrices

D, UNITS, BIASES = 6, (3, 6, 9, 12), (0.0, 0.5, 1.0, 2.0)
TEACHERS, STARTS = 3, 6
GLOBAL, FLAT = 1e-8, 1e-6  # over the variance: risk at the teacher, gradient of a stationary point


class Risk:
    """E[(f − g)²] for x ~ N(0, I), with its derivative by w = v‖w‖, h, α and c of f."""

    def __init__(self, V: np.ndarray, h: np.ndarray, alpha: np.ndarray) -> None:
        self.V, self.h, self.alpha = V, h, alpha
        self.k, self.d = V.shape
        self.variance = self._risk(np.zeros((0, self.d)), np.zeros(0), np.zeros(0), -self.mean)[0]

    @property
    def mean(self) -> float:
        return float(self.alpha @ _means(self.h)[0])

    def __call__(self, v: np.ndarray) -> tuple[float, np.ndarray]:
        k, d = self.k, self.d
        W, h, alpha, c = v[: k * d].reshape(k, d), v[k * d : k * d + k], v[k * d + k : -1], float(v[-1])
        length = np.linalg.norm(W, axis=1)
        V = W / length[:, None]
        value, (by_V, by_h, by_alpha, by_c) = self._risk(V, h, alpha, c)
        by_W = (by_V - np.sum(by_V * V, axis=1)[:, None] * V) / length[:, None]
        return value, np.concatenate([by_W.ravel(), by_h, by_alpha, [by_c]])

    def _risk(self, V: np.ndarray, h: np.ndarray, alpha: np.ndarray, c: float) -> tuple[float, tuple]:  # type: ignore[type-arg]
        k = len(V)
        rows, shifts = np.vstack([V, self.V]), np.concatenate([h, self.h])
        weights = np.concatenate([alpha, -self.alpha])
        first, second = np.broadcast_arrays(shifts[:, None], shifts)
        moments = rectified_moments(first, second, Correlation.between(rows, rows), 1)
        mean, share = _means(shifts)
        products = moments[1, 1] @ weights + c * mean  # E[(f − g) relu(z)]
        value = float(weights @ products + c * (weights @ mean + c))
        own = alpha[:, None]
        by_V = 2.0 * own * ((moments[0, 0][:k] * weights) @ rows)
        by_h = 2.0 * alpha * (moments[0, 1][:k] @ weights + c * share[:k])
        return value, (by_V, by_h, 2.0 * products[:k], 2.0 * float(weights @ mean + c))


def _means(h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return E[relu(g + h)] and P(g + h > 0)."""
    from scipy.special import ndtr

    return h * ndtr(h) + density(h), ndtr(h)


def draw_units(rng: np.random.Generator, k: int, bias: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return matrices.unit_rows(rng, k, D), bias * rng.choice([-1.0, 1.0], k), rng.choice([-1.0, 1.0], k)


def run_spurious(track: Track) -> Iterator[Row]:
    """Measure d = 6, output weights ±1, biases ±|b|, three teachers and six starts each."""
    for k in UNITS:
        for bias in track(BIASES, f"population risk, k = {k}"):
            for seed in fresh_seeds(TEACHERS):
                rng = np.random.default_rng([seed, k, int(10 * bias)])
                risk = Risk(*draw_units(rng, k, bias))
                ends = []
                for _ in range(STARTS):
                    V, h, alpha = draw_units(rng, k, bias)
                    start = np.concatenate([V.ravel(), h + 0.1 * rng.standard_normal(k), alpha, [0.0]])
                    options = {"maxiter": 2_000, "maxfun": 4_000, "ftol": 1e-16, "gtol": 1e-9}
                    end = minimize(risk, start, jac=True, method="L-BFGS-B", options=options)
                    ends.append((end.fun / risk.variance, np.abs(end.jac).max() / risk.variance))
                value, slope = np.transpose(ends)
                there = value < GLOBAL
                row: Row = {"d": D, "k": k, "k/d": round(k / D, 3), "|b|": bias, "seed": seed, "starts": STARTS}
                row |= {"at the teacher": int(there.sum()), "spurious": int(np.sum(~there & (slope < FLAT)))}
                yield row | {"still moving": int(np.sum(~there & (slope >= FLAT))), "median risk": np.median(value)}


def draw_spurious(rows: list[dict[str, str]], path: Path) -> None:
    """Draw the share of starts that end at a spurious minimum against |b|, a line per k/d."""
    with picture(path, size=(6, 4)) as (_, axes):
        for k in dict.fromkeys(row["k"] for row in rows):
            mine = [row for row in rows if row["k"] == k]
            biases = list(dict.fromkeys(row["|b|"] for row in mine))
            share = [
                sum(int(r["spurious"]) for r in mine if r["|b|"] == b)
                / sum(int(r["starts"]) for r in mine if r["|b|"] == b)
                for b in biases
            ]
            axes.plot([float(b) for b in biases], share, "o-", label=f"k/d = {int(k) / D:.2g}")
        axes.set(xlabel="|b|", ylabel="starts that end at a spurious minimum", ylim=(-0.02, 1.02))
        axes.legend()


EXPERIMENTS = (
    Experiment("atv21-spurious", "[ATV21] Descent on the exact population risk", run_spurious, draw_spurious),
)
