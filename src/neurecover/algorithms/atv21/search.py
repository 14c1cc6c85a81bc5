"""The search for units in moment space: fits of any number of units to one set of Hermite coefficients.

    χ² = Σ_j ‖T_j(θ) − T̂_j‖² / (j! σ_j²)                                                            [ATV21, Prop. 3.6]

falls near the degrees of freedom when the model is right. The joint decomposition sees the orders from 2 (ℓ = 1) or 4
(ℓ = 2) on together, so that a unit which one order misses is seen in another; its directions, with the b that explains
their weights best, are the first start. Random ones follow where it does not suffice.

With more units than dimensions the optima are many, and a wrong one with two units out of place may leave no more than
the errors do. There the least χ² has to be reached twice: measured at d = 12, k = 16 to 24, one start in four leads to
the right one, always to the same χ², and wrong ones are all different.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import factorial, log

import numpy as np

from neurecover.activations import Activation, scaled_hermite
from neurecover.algorithms.atv21.coefficients import Coefficients
from neurecover.algorithms.atv21.options import HermiteOptions
from neurecover.exceptions import UnsolvableError
from neurecover.solve import Deadline
from neurecover.tensors import (
    best_weights,
    decompose,
    fit_moments,
    fit_power_sum,
    inner,
    n_packed,
    network_moments,
)
from neurecover.tensors.moment_fit import scaled_profile

# Biases and norms to start a unit from: beyond 3.5 a unit is nearly affine, and fits move a norm by a factor of 1.4.
GRID, NORMS = np.linspace(-3.5, 3.5, 57), np.geomspace(0.3, 4.0, 9)


@dataclass(frozen=True)
class Point:
    """Units W (k, r), b (k,), A (p, k) in the coefficients' coordinates, and their χ²."""

    W: np.ndarray
    b: np.ndarray
    A: np.ndarray
    loss: float

    def turned(self, signs: np.ndarray) -> Point:
        """Return the point with every (w, b) multiplied by its sign; χ² stays that of the orders from 2 on."""
        return replace(self, W=self.W * signs[:, None], b=self.b * signs)


def usable_orders(activation: Activation, bias: bool, degree: int) -> tuple[int, ...]:
    """Return the orders from 2 on whose coefficient h_j does not vanish for every admissible b."""
    b = GRID if bias else np.zeros(1)
    h = np.abs(activation.hermite(b, degree)).max(axis=1)
    return tuple(j for j in range(2, degree + 1) if h[j] > 1e-9 * h.max())


@dataclass(frozen=True)
class Search:
    """Fits to `coefficients` of the given orders, from at most `starts` starts."""

    coefficients: Coefficients
    activation: Activation
    bias: bool
    orders: tuple[int, ...]
    rng: np.random.Generator
    starts: int
    deadline: Deadline

    @property
    def options(self) -> HermiteOptions:
        return self.coefficients.options

    @property
    def total(self) -> float:
        """χ² of the network without units."""
        return self.empty(self.orders).loss

    def freedom(self, k: int, orders: tuple[int, ...]) -> int:
        p, r = len(self.coefficients.scale), self.coefficients.r
        scaled = self.activation.homogeneity is None
        return max(self.coefficients.n_coordinates(orders) - k * (r - 1 + p + self.bias + scaled), 1)

    def expected(self, k: int, orders: tuple[int, ...]) -> float:
        """Return the largest χ² of k right units: mean plus three standard deviations, times `heavy`."""
        freedom = self.freedom(k, orders)
        return self.options.heavy * (freedom + 3.0 * float(np.sqrt(2.0 * freedom)))

    def explained(self, point: Point) -> bool:
        """Return whether the errors of the coefficients explain χ²."""
        if self.coefficients.known_exactly:
            return point.loss <= 1e-22 * self.total  # (1e-11)²: rounding of the tensors
        return point.loss <= self.expected(len(point.W), self.orders)

    def plainly_explained(self, point: Point) -> bool:
        """Return whether χ² is that of a right model, for errors that do not lie along the units."""
        return point.loss <= self.expected(len(point.W), self.orders) / self.options.heavy

    @property
    def price(self) -> float:
        """The decrease of χ² that a further unit must bring to count as real: 2 D log N for its D = r + p parameters.

        A spare unit fits noise too. Measured, one output and d = 5 to 8: spare units gain 7 to 96, real ones 73 to
        36,000, at prices of 57 to 111. In directions that noise has chosen spare units gain up to 180: four times the
        price.
        """
        c = self.coefficients
        if c.known_exactly:
            return 1e-18 * self.total
        factor = 8.0 if c.chosen_by_noise else 2.0
        return factor * (c.r + len(c.scale)) * log(c.n_coordinates(self.orders))

    def across(self, point: Point) -> float:
        """Return the sum of both halves' χ², each under the fit to the other half of the samples."""
        total = 0.0
        for own, other in ((0, 1), (1, 0)):
            here = replace(self, coefficients=self.coefficients.half(own))
            fit = here.fit(point.W, point.b, self.orders, 50) if len(point.W) else point
            total += replace(self, coefficients=self.coefficients.half(other)).loss(fit, self.orders)
        return total

    def loss(self, point: Point, orders: tuple[int, ...]) -> float:
        """Return χ² of the given units."""
        c, weights = self.coefficients, self.coefficients.weights()
        ours = network_moments(point.W, point.b, point.A, self.activation, orders) if len(point.W) else {}
        gaps = {j: c.tensors[j] - ours.get(j, 0.0) for j in orders}
        return sum(float(inner(gap, gap, c.r, j).sum()) * weights[j] / factorial(j) for j, gap in gaps.items())

    def best(self, k: int) -> Point:
        """Return the best fit from several starts; stop when the errors explain χ² or when the best one was reached
        twice.

        Both where there are more units than dimensions.
        """
        if k == 0:
            return self.empty(self.orders)
        crowded = k > self.coefficients.r and not self.coefficients.known_exactly
        best: Point | None = None
        for W in self._directions(k):
            point = self.fit(*self._with_scalars(W), self.orders)
            again = best is not None and abs(point.loss - best.loss) <= 1e-6 * best.loss
            best = point if best is None or point.loss < best.loss else best
            # Wrong optima are many and right ones few: one that is reached twice is taken for the best.
            enough = again and self.plainly_explained(best) if crowded else again or self.explained(best)
            if enough or self.deadline.passed:
                break
        assert best is not None
        return best

    def one_less(self, point: Point) -> Point:
        """Return the best fit with one unit removed, tried for the two units whose removal costs least."""
        k = len(point.W)
        if k == 1:
            return self.empty(self.orders)
        others = [(np.delete(point.W, i, axis=0), np.delete(point.b, i)) for i in range(k)]
        return self.best_of(others, self.orders)

    def best_of(self, starts: list[tuple[np.ndarray, np.ndarray]], orders: tuple[int, ...]) -> Point:
        """Return the better fit from the two starts (W, b) with the lowest χ² at their own best A."""
        left = [self.fit(W, b, orders, max_iterations=0).loss for W, b in starts]
        fits = []
        for i in np.argsort(left)[:2]:
            W, b = starts[i]
            fits.append(self.fit(W, b, orders))
        return min(fits, key=lambda fit: fit.loss)

    def fit(self, W: np.ndarray, b: np.ndarray, orders: tuple[int, ...], max_iterations: int | None = None) -> Point:
        """Descend from a start and return where it ends: at the optimum if the coefficients are exact, else near it."""
        if max_iterations is None:
            max_iterations = 300 if self.coefficients.known_exactly else 100
        tensors = {j: self.coefficients.tensors[j] for j in orders}
        weights = self.coefficients.weights()
        if self.bias:
            fit = fit_moments(tensors, W, b, self.activation, weights=weights, max_iterations=max_iterations)
            return Point(fit.W, fit.b, fit.A, fit.loss)
        return self._fit_without_bias(tensors, W, {j: weights[j] / factorial(j) for j in orders}, max_iterations)

    def _fit_without_bias(
        self, tensors: dict[int, np.ndarray], W: np.ndarray, weights: dict[int, float], max_iterations: int
    ) -> Point:
        act, k = self.activation, len(W)
        norms = np.linalg.norm(W, axis=1)
        if act.homogeneity is not None:
            h = act.hermite(np.zeros(k), max(tensors))

            def fixed(scalars: np.ndarray, orders: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
                return h[list(orders)], np.zeros((len(orders), k, 0))

            fit = fit_power_sum(tensors, W, profile=fixed, weights=weights, max_iterations=max_iterations)
            return Point(fit.W, np.zeros(k), fit.A, fit.loss)
        both = scaled_profile(act)

        def scaled(scalars: np.ndarray, orders: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
            value, slope = both(np.column_stack([np.zeros(k), scalars[:, 0]]), orders)
            return value, slope[:, :, 1:]

        fit = fit_power_sum(
            tensors,
            W,
            scalars=np.log(norms)[:, None],
            profile=scaled,
            limits=np.array([2.0]),
            weights=weights,
            max_iterations=max_iterations,
        )
        return Point(fit.W * np.exp(fit.scalars), np.zeros(k), fit.A, fit.loss)

    def _directions(self, k: int) -> Iterator[np.ndarray]:
        """Yield starts: the joint decomposition of all orders, of the highest alone, then random ones."""
        r = self.coefficients.r
        ell = next((ell for ell in (1, 2) if n_packed(r, ell) >= k), 3)
        orders = [j for j in self.orders if j >= 2 * ell]
        for chosen in (orders, [j for j in orders if j > 2 * ell]):
            # A single matrix, order 2ℓ of one output, has no unique decomposition.
            if chosen and (len(self.coefficients.scale) > 1 or max(chosen) > 2 * ell or k == 1):
                scaled = {j: T / np.sqrt(factorial(j)) for j, T in self.coefficients.standardised(chosen).items()}
                try:
                    yield decompose(scaled, r, k, self.rng).W
                except UnsolvableError:
                    continue
        for _ in range(max(self.starts * (self.options.crowded if k > r else 1) - 2, 1)):
            yield self.rng.standard_normal((k, r))

    def _with_scalars(self, W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the directions scaled and signed, with the b, that best explain their weights ζ_j, each unit by
        itself.

        For given directions T_j = Σ_i ζ_j(i) w_i^{⊗j} is linear in ζ_j; the scalars of unit i maximise the part of
        Σ_j ζ_j²/(j! σ_j²) along h_j(b). A grid is surer than [ATV21, Alg. 2] where ζ_2 is within its error.
        """
        c, act = self.coefficients, self.activation
        W = W / np.linalg.norm(W, axis=1, keepdims=True)
        homogeneous = act.homogeneity is not None
        biases, norms = GRID if self.bias else np.zeros(1), np.ones(1) if homogeneous else NORMS
        b, s = np.repeat(biases, len(norms)), np.tile(norms, len(biases))
        F = scaled_hermite(act, b, s, max(self.orders))
        weight = c.weights()
        root = {j: np.sqrt(weight[j] / factorial(j)) for j in self.orders}
        profile = np.array([F[j] * root[j] for j in self.orders])
        profile /= np.maximum(np.linalg.norm(profile, axis=0), 1e-300)
        # Where there are more units than entries ζ_j is not determined; the shortest solution still starts the fit.
        zeta = np.array([best_weights(c.tensors[j], W, j) * root[j] for j in self.orders])
        parity = np.array([(-1.0) ** j for j in self.orders])[:, None, None]
        score = np.array(
            [np.sum(np.einsum("joi,jg->oig", sign, profile) ** 2, axis=0) for sign in (zeta, parity * zeta)]
        )
        turn = score[1].max(axis=1) > score[0].max(axis=1) * (1.0 + 1e-9)
        at = np.where(turn, score[1].argmax(axis=1), score[0].argmax(axis=1))
        return np.where(turn, -1.0, 1.0)[:, None] * W * s[at][:, None], b[at]

    def empty(self, orders: tuple[int, ...]) -> Point:
        """Return the point without units."""
        c = self.coefficients
        nothing = Point(np.zeros((0, c.r)), np.zeros(0), np.zeros((len(c.scale), 0)), 0.0)
        return replace(nothing, loss=self.loss(nothing, orders))
