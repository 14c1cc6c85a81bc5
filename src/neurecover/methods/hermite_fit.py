"""Units from Hermite coefficients under errors: joint decomposition, then a fit in moment space, then signs.

The decomposition sees the orders from 2 (ℓ = 1) or 4 (ℓ = 2) on together, so that a unit which one order misses is seen in
another. Its directions, with the b that explains their weights best, start the fit of [ATV21, Prop. 3.6],

    χ² = Σ_j ‖T_j(θ) − T̂_j‖² / (j! σ_j²),

which falls near the degrees of freedom when the model is right: fits of k and k + 1 units are compared by it. Orders 0 and 1
stay out until the signs are fixed, because they hold whatever affine part there is. Whether there is one is decided across the
halves of the samples: an affine part that one half shows has to be there in the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import factorial, log

import numpy as np
from scipy.stats import chi2

from neurecover.activations import Activation
from neurecover.methods.hermite_coefficients import Coefficients
from neurecover.refine.search import Deadline
from neurecover.refine.signs import find_flips
from neurecover.tensors import (
    best_weights,
    decompose,
    fit_moments,
    fit_power_sum,
    inner,
    n_packed,
    network_moments,
    scaled_hermite,
)
from neurecover.tensors.moment_fit import _scaled_profile

STARTS = 8
HEAVY = 1.7  # χ² of a right model over its degrees of freedom reached this (measured): errors lie along the units
GRID = np.linspace(-3.5, 3.5, 57)
NORMS = np.geomspace(0.3, 4.0, 9)


@dataclass(frozen=True)
class HermiteFit:
    """Units W (k, r), b (k,), A (p, k), the affine part L (p, r) they leave (zero if none is seen) and the constant c (p,).

    chi_squared on `freedom` degrees. `sign_choices` assignments of signs fit order 1 equally well. `unexplained` is what order 1
    adds to χ² without an affine part, on p·r degrees. `asked` (m, r + 1) are rows (w, b) of a fit of all the units
    that were asked for, where fewer are seen.
    """

    W: np.ndarray
    b: np.ndarray
    A: np.ndarray
    L: np.ndarray
    c: np.ndarray
    chi_squared: float
    freedom: int
    sign_choices: int
    unexplained: float
    orders: tuple[int, ...]
    asked: np.ndarray | None = None

    @property
    def affine(self) -> bool:
        return bool(np.any(self.L))

    @property
    def explained(self) -> bool:
        """Whether χ² is what the errors explain."""
        return self.chi_squared <= _expected(self.freedom)


@dataclass(frozen=True)
class _Point:
    W: np.ndarray
    b: np.ndarray
    A: np.ndarray
    loss: float


def _expected(freedom: int) -> float:
    return HEAVY * (freedom + 3.0 * np.sqrt(2.0 * freedom))


def usable_orders(activation: Activation, bias: bool, degree: int) -> tuple[int, ...]:
    """The orders from 2 on whose coefficient h_j does not vanish for every admissible b."""
    b = GRID if bias else np.zeros(1)
    h = np.abs(activation.hermite(b, degree)).max(axis=1)
    return tuple(j for j in range(2, degree + 1) if h[j] > 1e-9 * h.max())


def fit_units(
    coefficients: Coefficients,
    activation: Activation,
    rng: np.random.Generator,
    *,
    n_hidden: int | None = None,
    bias: bool = True,
    starts: int = STARTS,
    deadline: Deadline = Deadline(),
) -> HermiteFit:
    """The units behind the coefficients: `n_hidden` of them, or where that is None as many as χ² asks for."""
    orders = usable_orders(activation, bias, max(coefficients.tensors))
    search = _Search(coefficients, activation, bias, orders, rng, starts, deadline)
    if n_hidden is not None:
        return search.finish(search.best(n_hidden))
    return search.finish(count_units(search))


def seen_units(
    coefficients: Coefficients,
    activation: Activation,
    rng: np.random.Generator,
    *,
    most: int | None = None,
    bias: bool = True,
    starts: int = STARTS,
    deadline: Deadline = Deadline(),
) -> HermiteFit:
    """As many units as stand out of the errors, `most` at the most: the group G of [ATV21, (16)]; the rest is affine to them."""
    orders = usable_orders(activation, bias, max(coefficients.tensors))
    search = _Search(coefficients, activation, bias, orders, rng, starts, deadline)
    if most is None:
        return search.finish(count_units(search))
    everything = search.best(most)
    point = _without_spare(search, everything)
    fit = search.finish(point)
    asked = np.column_stack([everything.W, everything.b]) if len(point.W) < most else None
    return replace(fit, asked=asked)


def count_units(search: _Search) -> _Point:
    """As many units as are real: upwards from the rank of the flattenings until χ² is explained, then downwards."""
    c = search.coefficients
    limit = n_packed(c.r, 2) if max(search.orders) >= 6 else 2 * c.r
    k = c.count(search.orders, 1, search.rng)
    if k == c.r and max(search.orders) >= 6:
        k = max(k, c.count(search.orders, 2, search.rng))
    point = search.best(min(k, limit))
    while len(point.W) < limit and not search.explained(point) and not search.deadline.passed:
        more = search.best(len(point.W) + 1)
        if point.loss - more.loss <= search.price:
            break
        point = more
    return _without_spare(search, point)


def _without_spare(search: _Search, point: _Point) -> _Point:
    """Drop the unit that is missed least, as long as it is not worth its price."""
    while len(point.W) and not search.deadline.passed:
        fewer = search.one_less(point)
        if fewer.loss - point.loss > search.price:
            break
        point = fewer
    return point


@dataclass(frozen=True)
class _Search:
    """Fits of any number of units to one set of coefficients."""

    coefficients: Coefficients
    activation: Activation
    bias: bool
    orders: tuple[int, ...]
    rng: np.random.Generator
    starts: int
    deadline: Deadline

    @property
    def total(self) -> float:
        """χ² of no units at all."""
        return self._empty(self.orders).loss

    def freedom(self, k: int, orders: tuple[int, ...]) -> int:
        p, r = len(self.coefficients.scale), self.coefficients.r
        scaled = self.activation.homogeneity is None
        return max(self.coefficients.n_coordinates(orders) - k * (r - 1 + p + self.bias + scaled), 1)

    def explained(self, point: _Point) -> bool:
        """Whether χ² is what the errors explain."""
        if self.coefficients.known_exactly:
            return point.loss <= 1e-22 * self.total
        return point.loss <= _expected(self.freedom(len(point.W), self.orders))

    @property
    def price(self) -> float:
        """By how much χ² has to fall for one unit more to be taken for real: 2 D log N for its D = r + p parameters.

        A spare unit fits noise too. Measured, one output and d = 5 to 8: spare units gain 10 to 94, real ones 84 to 27,000,
        at prices of 57 to 111.
        """
        c = self.coefficients
        if c.known_exactly:
            return 1e-18 * self.total
        return 2.0 * (c.r + len(c.scale)) * log(c.n_coordinates(self.orders))

    def across(self, point: _Point) -> float:
        """χ² of each half under the fit to the other half, the two added up."""
        total = 0.0
        for own, other in ((0, 1), (1, 0)):
            here = replace(self, coefficients=self.coefficients.half(own))
            fit = here.fit(point.W, point.b, self.orders, 50) if len(point.W) else point
            total += replace(self, coefficients=self.coefficients.half(other)).loss(fit, self.orders)
        return total

    def loss(self, point: _Point, orders: tuple[int, ...]) -> float:
        """χ² of given units."""
        c, weights = self.coefficients, self.coefficients.weights()
        ours = network_moments(point.W, point.b, point.A, self.activation, orders) if len(point.W) else {}
        gaps = {j: c.tensors[j] - ours.get(j, 0.0) for j in orders}
        return sum(float(inner(gap, gap, c.r, j).sum()) * weights[j] / factorial(j) for j, gap in gaps.items())

    def best(self, k: int) -> _Point:
        """The best of several starts, until χ² is what the errors explain or the best was reached twice."""
        if k == 0:
            return self._empty(self.orders)
        best: _Point | None = None
        for W in self._directions(k):
            point = self.fit(*self._with_scalars(W), self.orders)
            again = best is not None and abs(point.loss - best.loss) <= 1e-6 * best.loss
            best = point if best is None or point.loss < best.loss else best
            # Wrong optima are many and right ones few: one that is reached twice is taken for the best.
            if again or self.explained(best) or self.deadline.passed:
                break
        assert best is not None
        return best

    def one_less(self, point: _Point) -> _Point:
        """The best fit without one of the units, started from where the others are: from the two choices that do least harm."""
        k = len(point.W)
        if k == 1:
            return self._empty(self.orders)
        others = [(np.delete(point.W, i, axis=0), np.delete(point.b, i)) for i in range(k)]
        harm = [self.fit(W, b, self.orders, 0).loss for W, b in others]
        return min((self.fit(*others[i], self.orders) for i in np.argsort(harm)[:2]), key=lambda fit: fit.loss)

    def fit(self, W: np.ndarray, b: np.ndarray, orders: tuple[int, ...], max_iterations: int = 300) -> _Point:
        tensors = {j: self.coefficients.tensors[j] for j in orders}
        weights = self.coefficients.weights()
        if self.bias:
            fit = fit_moments(tensors, W, b, self.activation, weights=weights, max_iterations=max_iterations)
            return _Point(fit.W, fit.b, fit.A, fit.loss)
        return self._fit_without_bias(tensors, W, {j: weights[j] / factorial(j) for j in orders}, max_iterations)

    def _fit_without_bias(
        self, tensors: dict[int, np.ndarray], W: np.ndarray, weights: dict[int, float], max_iterations: int
    ) -> _Point:
        act, k = self.activation, len(W)
        norms = np.linalg.norm(W, axis=1)
        if act.homogeneity is not None:
            h = act.hermite(np.zeros(k), max(tensors))

            def fixed(scalars: np.ndarray, orders: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
                return h[list(orders)], np.zeros((len(orders), k, 0))

            fit = fit_power_sum(tensors, W, profile=fixed, weights=weights, max_iterations=max_iterations)
            return _Point(fit.W, np.zeros(k), fit.A, fit.loss)
        both = _scaled_profile(act)

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
        return _Point(fit.W * np.exp(fit.scalars), np.zeros(k), fit.A, fit.loss)

    def _directions(self, k: int) -> Iterator[np.ndarray]:
        """Starts: the joint decomposition of all orders, of the highest alone, then random ones."""
        r = self.coefficients.r
        ell = next(ell for ell in (1, 2, 3) if n_packed(r, ell) >= k)
        orders = [j for j in self.orders if j >= 2 * ell]
        several = len(self.coefficients.scale) > 1
        choices = [orders, [j for j in orders if j > 2 * ell]]
        for chosen in choices:
            if chosen and (several or max(chosen) > 2 * ell or k == 1) and k <= r ** max(ell, 1):
                scaled = {j: T / np.sqrt(factorial(j)) for j, T in self.coefficients.standardised(chosen).items()}
                try:
                    yield decompose(scaled, r, k, self.rng).W
                except (ValueError, np.linalg.LinAlgError):
                    continue
        for _ in range(max(self.starts - 2, 1)):
            yield self.rng.standard_normal((k, r))

    def _with_scalars(self, W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Directions with the norm, b and sign that explain their weights ζ_j best, each unit by itself.

        For given directions T_j = Σ_i ζ_j(i) w_i^{⊗j} is linear in ζ_j; the scalars of unit i maximise the part of
        Σ_j ζ_j²/(j! σ_j²) along h_j(b). A grid is surer than [ATV21, Alg. 2] where ζ_2 is within its error.
        """
        c, act = self.coefficients, self.activation
        W = W / np.linalg.norm(W, axis=1, keepdims=True)
        k = len(W)
        homogeneous = act.homogeneity is not None
        b, s = np.meshgrid(GRID if self.bias else np.zeros(1), np.ones(1) if homogeneous else NORMS, indexing="ij")
        b, s = b.ravel(), s.ravel()
        F = scaled_hermite(act, b, s, max(self.orders))
        weight = c.weights()
        root = {j: np.sqrt(weight[j] / factorial(j)) for j in self.orders}
        profile = np.array([F[j] * root[j] for j in self.orders])
        profile /= np.maximum(np.linalg.norm(profile, axis=0), 1e-300)
        zeta = np.array(
            [
                best_weights(c.tensors[j], W, j) * root[j] if n_packed(c.r, j) >= k else np.zeros((len(c.scale), k))
                for j in self.orders
            ]
        )
        parity = np.array([(-1.0) ** j for j in self.orders])[:, None, None]
        score = np.array(
            [np.sum(np.einsum("joi,jg->oig", sign, profile) ** 2, axis=0) for sign in (zeta, parity * zeta)]
        )
        turn = score[1].max(axis=1) > score[0].max(axis=1) * (1.0 + 1e-9)
        at = np.where(turn, score[1].argmax(axis=1), score[0].argmax(axis=1))
        return np.where(turn, -1.0, 1.0)[:, None] * W * s[at][:, None], b[at]

    def finish(self, point: _Point) -> HermiteFit:
        """Signs by order 1, the fit with it, and the affine part that is left."""
        c, act = self.coefficients, self.activation
        if 1 not in c.tensors or len(point.W) == 0:
            return self._result(point, self.orders, 1, 0.0, affine=len(point.W) == 0 and 1 in c.tensors)
        turned, choices = self._signs(point)
        orders = (1, *self.orders)
        whole = min((self.fit(start.W, start.b, orders, 60) for start in turned), key=lambda fit: fit.loss)
        whole = self.fit(whole.W, whole.b, orders)
        allowed = HEAVY * float(chi2.isf(1e-6, len(c.scale) * c.r))
        allowed = 1e-20 * self._empty(orders).loss if c.known_exactly else allowed
        if not act.odd_slope:
            return self._result(whole, orders, choices, whole.loss - point.loss, affine=False)
        if whole.loss - point.loss > allowed:
            whole = self._turn_one_by_one(whole, point.loss + allowed)
        unexplained = max(whole.loss - point.loss, 0.0)
        if unexplained <= allowed or not (c.known_exactly or self._affine_is_real(whole, point)):
            return self._result(whole, orders, choices, unexplained, affine=False)
        return self._result(turned[0], self.orders, choices, unexplained, affine=True)

    def _affine_is_real(self, whole: _Point, point: _Point) -> bool:
        """Whether each half predicts the other better with an affine part of its own than without.

        With one, the half's T_1 is its prediction for the other's.
        """
        orders = (1, *self.orders)
        weight = self.coefficients.half(0).weights()[1]
        first, second = (half[1] for half in self.coefficients.halves)
        free = self.across(point) + 2.0 * weight * float(np.sum((first - second) ** 2))
        return free < replace(self, orders=orders).across(whole)

    def _signs(self, point: _Point) -> tuple[list[_Point], int]:
        """The point with its units turned as order 1 asks, best first, and how many assignments fit [ATV21, Alg. 3].

        For dependent rows, where the paper leaves the signs open, T_1 is a subset sum of the A_i w_iᵀ.
        """
        m = self.activation.odd_slope
        if not m:
            return [point], 1
        left = self._order_one(point) - self.coefficients.tensors[1]
        tolerance = 1e-6 if self.coefficients.known_exactly else 0.1
        search = find_flips(point.A, point.W, left, m, tolerance)
        signs = np.where(search.flips, -1.0, 1.0)
        points = [replace(point, W=point.W * sign[:, None], b=point.b * sign) for sign in signs[:8]]
        if not self.coefficients.known_exactly:
            return points, 1
        return points, int(np.count_nonzero(search.misfit <= tolerance)) if search.complete else 0

    def _turn_one_by_one(self, whole: _Point, enough: float) -> _Point:
        """Turn the unit whose turning lowers χ² the most, while that helps.

        Under errors the least-squares bits of Algorithm 3 can be wrong where the A_i w_iᵀ are nearly dependent.
        """
        orders = (1, *self.orders)
        while whole.loss > enough and not self.deadline.passed:
            sign = np.where(np.eye(len(whole.W), dtype=bool), -1.0, 1.0)
            trials = [self.fit(whole.W * s[:, None], whole.b * s, orders, max_iterations=30) for s in sign]
            best = min(trials, key=lambda fit: fit.loss)
            if not best.loss < 0.99 * whole.loss:
                break
            whole = self.fit(best.W, best.b, orders)
        return whole

    def _order_one(self, point: _Point) -> np.ndarray:
        norms = np.linalg.norm(point.W, axis=1)
        h = scaled_hermite(self.activation, point.b, norms, 1)[1]
        return (point.A * h) @ (point.W / norms[:, None])

    def _result(
        self, point: _Point, orders: tuple[int, ...], choices: int, unexplained: float, affine: bool
    ) -> HermiteFit:
        c = self.coefficients
        k, (p, r) = len(point.W), (len(c.scale), c.r)
        L = c.tensors[1] - (self._order_one(point) if k else 0.0) if affine else np.zeros((p, r))
        constant = np.zeros(p)
        if self.bias and 0 in c.tensors:
            norms = np.linalg.norm(point.W, axis=1)
            h = scaled_hermite(self.activation, point.b, norms, 0)[0] if k else np.zeros(0)
            constant = c.tensors[0][:, 0] - point.A @ h
        s = c.scale[:, None]
        return HermiteFit(
            point.W,
            point.b,
            s * point.A,
            s * L,
            c.scale * constant,
            point.loss,
            self.freedom(k, orders),
            choices,
            unexplained,
            orders,
        )

    def _empty(self, orders: tuple[int, ...]) -> _Point:
        c = self.coefficients
        nothing = _Point(np.zeros((0, c.r)), np.zeros(0), np.zeros((len(c.scale), 0)), 0.0)
        return replace(nothing, loss=self.loss(nothing, orders))
