"""Test whether the residual contains one of many given functions of x ("shapes"), each one separately.

A function e(x) added to output o has the score Σ_i u_i with u = e r_o − c·g. Here g = Σ_o Jᵀr_o is the sample's score
in the parameters, and c = F⁻¹ Σ Jᵀe is the part of e that a change of the parameters explains. For any noise that is
independent between samples,

    z = Σ u / √(Σ u²),        t = z √((n − 1)/(n − z²)),

is about Student's t, with only ν = 2 (Σ u²)²/Σ u⁴ degrees of freedom if few samples carry it [Rao 1948; White 1980].
The derivative with respect to a fixed parameter, such as a bias held at zero, is a shape on all outputs at once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import stdtr

from neurecover.models import Model, jacobian, parameters
from neurecover.statistics.base import Statistic, by_root, float64

Features = Callable[[np.ndarray], np.ndarray]
EXPLAINED = 1e-8  # if less than this share of Σ (e r)² is left, the parameters explain the shape


class ShapeCross(Statistic):
    """Σ Jᵀe, (P, Q), for the P `free` parameters and Q shapes e.

    The Q shapes are every given shape on every output, then the derivatives by the parameters that are not free.
    """

    def __init__(self, model: Model, free: np.ndarray, shapes: Features, n_shapes: int) -> None:
        self.model, self.free, self.shapes = model, free, shapes
        self.held = np.setdiff1d(np.arange(len(parameters(model))), free)
        self.settings = {"theta": parameters(model)}
        p = model.n_outputs
        cross = np.zeros((len(free), p * n_shapes + len(self.held)))
        self.sums = {"n": np.zeros((), dtype=np.int64), "cross": cross}
        self.row_bytes = 8 * (2 * p * len(free) + 3 * n_shapes)

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, Y = float64(X, Y)
        J, E = by_root(weight, jacobian(self.model, X), self.shapes(X))
        held, J = J[:, :, self.held], J[:, :, self.free]
        parts = [J[:, o].T @ E for o in range(Y.shape[1])]
        self._count(len(X), weight)
        self.sums["cross"] += np.hstack([*parts, np.tensordot(J, held, axes=([0, 1], [0, 1]))])


class ShapeScores(Statistic):
    """Σ u, Σ u², Σ u⁴ and Σ (e r)² of every shape, (Q,) each, in the order of `ShapeCross`.

    `explained` (P, Q) is F⁻¹ Σ Jᵀe, the part of every shape that the parameters imitate.
    """

    def __init__(self, model: Model, free: np.ndarray, shapes: Features, explained: np.ndarray) -> None:
        self.model, self.free, self.shapes, self.explained = model, free, shapes, explained
        self.held = np.setdiff1d(np.arange(len(parameters(model))), free)
        self.settings = {"theta": parameters(model), "explained": explained}
        P, n_shapes = explained.shape
        names = ("score", "squares", "fourths", "whole")
        self.sums = {"n": np.zeros((), dtype=np.int64)} | {name: np.zeros(n_shapes) for name in names}
        self.row_bytes = 8 * (2 * model.n_outputs * P + 4 * n_shapes)

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, Y = float64(X, Y)
        R, E, J = by_root(weight, Y - self.model(X), self.shapes(X), jacobian(self.model, X))
        own = np.einsum("nop,no->np", J, R)
        u = np.hstack([*(E * r[:, None] for r in R.T), own[:, self.held]])
        self._count(len(X), weight)
        self.sums["whole"] += np.einsum("nq,nq->q", u, u)
        u -= own[:, self.free] @ self.explained
        self.sums["score"] += u.sum(axis=0)
        u *= u
        self.sums["squares"] += u.sum(axis=0)
        self.sums["fourths"] += np.einsum("nq,nq->q", u, u)

    def worst(self) -> tuple[float, int]:
        """Return the p-value of the most significant shape, corrected by Bonferroni, and its index."""
        s, n = self.sums, self.n
        tried = s["squares"] > EXPLAINED * s["whole"]
        if n < 2 or not tried.any():
            return 1.0, 0
        squares = np.where(tried, s["squares"], 1.0)
        z2 = np.minimum(s["score"] ** 2 / squares, n * (1.0 - 1e-12))
        t = np.sqrt(z2 * (n - 1) / (n - z2))
        freedom = np.minimum(2.0 * squares**2 / np.where(tried, np.maximum(s["fourths"], 1e-300), 1.0), n - 1)
        p_values = np.where(tried, 2.0 * stdtr(np.maximum(freedom, 1.0), -t), 1.0)
        return min(1.0, np.count_nonzero(tried) * float(p_values.min())), int(np.argmin(p_values))
