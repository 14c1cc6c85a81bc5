"""Fisher scoring for a union of soft halfspaces, at fixed angles: min of the deviance −2 log L over directions,
thresholds and rates of flipped labels, by the loop `solve.Loop`.

With the score g and the information S of (z, t, log η), tangent to the unit vectors z,

    (S + λ diag S) δ = g,        −2 log L falls by about 2 δ·g − δ·S δ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from neurecover.algorithms.gp18.options import DEFAULTS, UnionOptions
from neurecover.data import Source, reduce
from neurecover.solve import Damping, DenseSystem, Loop, Tolerances, damping_diagonal
from neurecover.statistics.fits.union_score import UnionScore

_FARTHEST = 20.0  # a threshold, in standard deviations of the inputs, at which a unit has no samples
_LONGEST = 1e100  # of a step; its square is still a number


@dataclass(frozen=True, eq=False)
class AscentPoint:
    """The deviance −2 log L at a likelihood that was summed over the labels; rows of V keep their lengths 1/tan α."""

    labels: Source
    tan: np.ndarray
    score: UnionScore
    most_flipped: float = DEFAULTS.union.most_flipped

    @property
    def loss(self) -> float:
        return -2.0 * float(self.score.sums["log_likelihood"])

    @property
    def scale(self) -> float:
        """The deviance of labels that are drawn at random."""
        return 2.0 * np.log(2.0) * float(self.score.n)

    @cached_property
    def _ways(self) -> np.ndarray:
        B = tangents(self.score)
        if self.score.flips is not None:
            B[-2:] *= self.score.flips[:, None]  # in (log η₀, log η₁) derivatives are multiplied by η
        return B

    def system(self) -> DenseSystem:
        sums, B = self.score.sums, self._ways
        score = sums["score"].ravel()
        if self.score.flips is not None:
            score = np.concatenate([score, sums["flip_score"]])
        S = B.T @ self.score.information @ B
        return DenseSystem(np.asfortranarray(S), B.T @ score, damping_diagonal(np.diag(S)))

    def moved(self, step: np.ndarray) -> AscentPoint | None:
        here, step = self.score, self._ways @ step
        k, d = here.V.shape
        turn = step[: k * (d + 1)].reshape(k, d + 1)
        # Nothing bounds the step of a unit that no sample tells anything of; where a long one leads is where it points.
        V = here.V + np.clip(turn[:, :d], -_LONGEST, _LONGEST)
        V /= np.linalg.norm(V, axis=1, keepdims=True) * self.tan[:, None]
        flips = here.flips
        if flips is not None:
            moved = flips * np.exp(np.clip(step[-2:] / flips, -1.0, 1.0))
            flips = np.clip(moved, 0.5 / max(here.n, 1), self.most_flipped)
        tau = np.clip(here.tau + turn[:, d], -_FARTHEST / self.tan, _FARTHEST / self.tan)
        score = reduce(self.labels, UnionScore(V, tau, flips=flips))
        return replace(self, score=score) if np.isfinite(score.sums["log_likelihood"]) else None


def ascend(
    labels: Source, likelihood: UnionScore, tan: np.ndarray, options: UnionOptions = DEFAULTS.union
) -> Loop[AscentPoint]:
    """Take steps of Fisher scoring from a likelihood with nothing added yet, at fixed angles."""
    start = AscentPoint(labels, tan, reduce(labels, likelihood), options.most_flipped)
    small = 2.0 * options.gain / max(start.loss, 2.0 * options.gain)
    tolerances = Tolerances(promise=small, gain=small)
    return Loop(start, tolerances, Damping(1e-3, smallest=1e-9)).advance(options.steps)


def tangents(here: UnionScore) -> np.ndarray:
    """Return a basis of the steps that keep the lengths of V's rows: v moves orthogonally to itself, τ and η freely."""
    k, d = here.V.shape
    size = k * (d + 1) + (0 if here.flips is None else 2)
    B = np.zeros((size, size - k))
    for i in range(k):
        rows, columns = i * (d + 1), i * d
        B[rows : rows + d, columns : columns + d - 1] = np.linalg.svd(here.V[i : i + 1])[2][1:].T
        B[rows + d, columns + d - 1] = 1.0
    B[k * (d + 1) :, k * d :] = np.eye(size - k * (d + 1))
    return B
