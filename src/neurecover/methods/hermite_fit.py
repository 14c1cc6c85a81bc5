"""Units from Hermite coefficients under errors: joint decomposition, then a fit in moment space, then signs.

The decomposition sees the orders from 2 (ℓ = 1) or 4 (ℓ = 2) on together, so that a unit which one order misses is seen in
another. Its directions, with the b that explains their weights best, start the fit of [ATV21, Prop. 3.6],

    χ² = Σ_j ‖T_j(θ) − T̂_j‖² / (j! σ_j²),

which falls on the degrees of freedom when the model is right: the fits of k and k + 1 units, with and without an affine part,
are compared by it. Orders 0 and 1 stay out until the signs are fixed: they hold whatever affine part there is.
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
from neurecover.tensors import best_weights, decompose, fit_moments, fit_power_sum, n_packed, scaled_hermite
from neurecover.tensors.moment_fit import _scaled_profile

STARTS = 12
HEAVY = 2.0  # the errors have heavier tails than Gaussian ones: χ² bounds are taken this many times
GRID = np.linspace(-3.5, 3.5, 57)
NORMS = np.geomspace(0.3, 4.0, 9)


@dataclass(frozen=True)
class HermiteFit:
    """Units W (k, r), b (k,), A (p, k), the affine part L (p, r) they leave (zero if none is seen) and the constant c (p,).

    chi_squared on `freedom` degrees; `starts_agreeing` of `starts_tried` reached it. `sign_choices` assignments of signs fit
    order 1 equally well. `unexplained` is what order 1 adds to χ² without an affine part, on p·r degrees.
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

    @property
    def affine(self) -> bool:
        return bool(np.any(self.L))


@dataclass(frozen=True)
class _Point:
    W: np.ndarray
    b: np.ndarray
    A: np.ndarray
    loss: float


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
    k, point = count_units(search)
    return search.finish(point)


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
    return search.finish(count_units(search, most)[1])


def count_units(search: _Search, most: int | None = None) -> tuple[int, _Point]:
    """The number of units that χ² supports, from the rank of the flattenings on upwards, then downwards.

    One more unit has D = r + p parameters and fits noise too; it is taken for real if χ² falls by more than HEAVY·D·log N.
    """
    coefficients = search.coefficients
    r = coefficients.r
    limit = n_packed(r, 2) if max(search.orders) >= 6 else 2 * r
    limit = limit if most is None else min(limit, most)
    k = coefficients.count(search.orders, 1, search.rng)
    if k == r and max(search.orders) >= 6:
        k = max(k, coefficients.count(search.orders, 2, search.rng))
    k = min(k, limit)
    point = search.best(k)
    if coefficients.known_exactly and search.explained(point):
        return k, point
    price = HEAVY * (r + len(coefficients.scale)) * log(coefficients.n_coordinates(search.orders))
    price = 1e-12 * search.total if coefficients.known_exactly else price
    while k < limit and not search.explained(point) and not search.deadline.passed:
        more = search.best(k + 1)
        if point.loss - more.loss <= price:
            break
        k, point = k + 1, more
    while k > 1 and not search.deadline.passed:
        fewer = search.best(k - 1)
        if fewer.loss - point.loss > price:
            break
        k, point = k - 1, fewer
    return k, point


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
        f = self.freedom(len(point.W), self.orders)
        return point.loss <= f + HEAVY * 3.0 * np.sqrt(2.0 * f)

    def best(self, k: int) -> _Point:
        """The best of several starts; the first whose χ² the errors explain ends the search."""
        if k == 0:
            return self._empty(self.orders)
        best: _Point | None = None
        for W in self._directions(k):
            point = self.fit(*self._with_scalars(W), self.orders)
            best = point if best is None or point.loss < best.loss else best
            if self.explained(best) or self.deadline.passed:
                break
        assert best is not None
        return best

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
        zeta = np.array([best_weights(c.tensors[j], W, j) * root[j] if n_packed(c.r, j) >= k else np.zeros((len(c.scale), k)) for j in self.orders])
        parity = np.array([(-1.0) ** j for j in self.orders])[:, None, None]
        score = np.array([np.sum(np.einsum("joi,jg->oig", sign, profile) ** 2, axis=0) for sign in (zeta, parity * zeta)])
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
        whole = min((self.fit(start.W, start.b, orders) for start in turned), key=lambda fit: fit.loss)
        unexplained = max(whole.loss - point.loss, 0.0)
        p, r = len(c.scale), c.r
        if c.known_exactly:
            accepted = whole.loss <= 1e-20 * self._empty(orders).loss
        else:
            accepted = unexplained <= HEAVY * float(chi2.isf(1e-6, p * r))
        if accepted or not act.odd_slope:
            return self._result(whole, orders, choices, unexplained, affine=False)
        return self._result(turned[0], self.orders, choices, unexplained, affine=True)

    def _signs(self, point: _Point) -> tuple[list[_Point], int]:
        """The point with its units turned as order 1 asks, best first, and how many assignments fit [ATV21, Alg. 3].

        For dependent rows, where the paper leaves the signs open, T_1 is a subset sum of the A_i w_iᵀ.
        """
        m = self.activation.odd_slope
        if not m:
            return [point], 1
        left = self._order_one(point) - self.coefficients.tensors[1]
        tolerance = 1e-6 if self.coefficients.known_exactly else 1e-2
        search = find_flips(point.A, point.W, left, m, tolerance)
        signs = np.where(search.flips, -1.0, 1.0)
        points = [replace(point, W=point.W * sign[:, None], b=point.b * sign) for sign in signs[:4]]
        return points, int(np.count_nonzero(search.misfit <= tolerance)) if search.complete else 0

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
            point.W, point.b, s * point.A, s * L, c.scale * constant, point.loss, self.freedom(k, orders), choices, unexplained, orders
        )

    def _empty(self, orders: tuple[int, ...]) -> _Point:
        c = self.coefficients
        weights = c.weights()
        from neurecover.tensors import inner

        loss = sum(float(inner(c.tensors[j], c.tensors[j], c.r, j).sum()) * weights[j] / factorial(j) for j in orders)
        return _Point(np.zeros((0, c.r)), np.zeros(0), np.zeros((len(c.scale), 0)), loss)
