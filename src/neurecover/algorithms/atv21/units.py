"""Find units from estimated Hermite coefficients: their number, the units, their signs, and an affine part."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import chdtri

from neurecover.activations import Activation, scaled_hermite
from neurecover.algorithms.atv21.coefficients import Coefficients
from neurecover.algorithms.atv21.search import Point, Search, usable_orders
from neurecover.models.signs import find_flips
from neurecover.solve import Deadline
from neurecover.tensors import n_packed

NEVER = Deadline()


@dataclass(frozen=True)
class HermiteFit:
    """Units W (k, r), b (k,), A (p, k), the affine part L (p, r) that they leave, zero if none is seen, and c (p,).

    chi_squared on `freedom` degrees, at most `expected` for right units. `sign_choices` assignments of signs fit order
    1 equally well. `unexplained` is what order 1 adds to χ² without an affine part, on p·r degrees. `asked` (m, r + 1)
    are rows (w, b) of a fit of all the units that were asked for, where fewer are seen.
    """

    W: np.ndarray
    b: np.ndarray
    A: np.ndarray
    L: np.ndarray
    c: np.ndarray
    chi_squared: float
    freedom: int
    expected: float
    sign_choices: int
    unexplained: float
    orders: tuple[int, ...]
    asked: np.ndarray | None = None

    @property
    def affine(self) -> bool:
        return bool(np.any(self.L))

    @property
    def misfit(self) -> float:
        """χ² per degree of freedom."""
        return self.chi_squared / self.freedom

    @property
    def explained(self) -> bool:
        """Whether χ² is what the errors explain."""
        return self.chi_squared <= self.expected


def seen_units(
    coefficients: Coefficients,
    activation: Activation,
    rng: np.random.Generator,
    *,
    most: int | None = None,
    bias: bool = True,
    starts: int | None = None,
    deadline: Deadline = NEVER,
) -> HermiteFit:
    """Return at most `most` units that stand out of the errors: the group G of [ATV21, (16)]."""
    orders = usable_orders(activation, bias, max(coefficients.tensors))
    search = Search(coefficients, activation, bias, orders, rng, starts or coefficients.options.starts, deadline)
    if most is None:
        return _finish(search, count_units(search))
    everything = search.best(most)
    point = _without_spare(search, everything)
    fit = _finish(search, point)
    asked = np.column_stack([everything.W, everything.b]) if len(point.W) < most else None
    return replace(fit, asked=asked)


def settled_units(
    coefficients: Coefficients, activation: Activation, rng: np.random.Generator, start: HermiteFit, *, bias: bool
) -> HermiteFit:
    """Fit units that are already known to other coefficients, without a search."""
    orders = usable_orders(activation, bias, max(coefficients.tensors))
    search = Search(coefficients, activation, bias, orders, rng, coefficients.options.starts, NEVER)
    return replace(_finish(search, search.fit(start.W, start.b, orders)), asked=start.asked)


def count_units(search: Search) -> Point:
    """Find how many units are real: upwards from the rank of the flattenings until χ² is explained, then downwards."""
    c = search.coefficients
    limit = n_packed(c.r, 2) if max(search.orders) >= 6 else 2 * c.r
    k = c.count(search.orders, 1, search.rng)
    if k == c.r and max(search.orders) >= 6:
        k = max(k, c.count(search.orders, 2, search.rng))
    few = replace(search, starts=search.options.counting_starts)
    point = few.best(min(k, limit))
    while len(point.W) < limit and not search.explained(point) and not search.deadline.passed:
        more = few.best(len(point.W) + 1)
        if point.loss - more.loss <= search.price:
            break
        point = more
    point = min(point, search.best(len(point.W)), key=lambda point: point.loss)
    return _without_spare(search, point)


def _without_spare(search: Search, point: Point) -> Point:
    """Return the point without its least useful unit, repeatedly, while that unit is not worth its price."""
    while len(point.W) and not search.deadline.passed:
        fewer = search.one_less(point)
        if fewer.loss - point.loss > search.price:
            break
        point = fewer
    return point


def _finish(search: Search, point: Point) -> HermiteFit:
    """Return the fit with signs chosen by order 1, refitted with that order, and the affine part that is left."""
    c, act = search.coefficients, search.activation
    if 1 not in c.tensors or len(point.W) == 0:
        return _result(search, point, search.orders, 1, 0.0, affine=len(point.W) == 0 and 1 in c.tensors)
    turned, choices = _signs(search, point)
    orders = (1, *search.orders)
    whole = min((search.fit(start.W, start.b, orders, 60) for start in turned), key=lambda fit: fit.loss)
    whole = search.fit(whole.W, whole.b, orders)
    allowed = search.options.heavy * float(chdtri(len(c.scale) * c.r, 1e-6))
    allowed = 1e-20 * search.empty(orders).loss if c.known_exactly else allowed
    if not act.odd_slope:
        return _result(search, whole, orders, choices, whole.loss - point.loss, affine=False)
    if whole.loss - point.loss > allowed:
        whole = _turn_one_by_one(search, whole, point.loss + allowed)
    unexplained = max(whole.loss - point.loss, 0.0)
    if unexplained <= allowed or not (c.known_exactly or _affine_is_real(search, whole, point)):
        return _result(search, whole, orders, choices, unexplained, affine=False)
    return _result(search, turned[0], search.orders, choices, unexplained, affine=True)


def _affine_is_real(search: Search, whole: Point, point: Point) -> bool:
    """Return whether each half predicts the other better with an affine part of its own than without.

    With one, the half's T_1 is its prediction for the other's.
    """
    orders = (1, *search.orders)
    weight = search.coefficients.half(0).weights()[1]
    first, second = (half[1] for half in search.coefficients.halves)
    free = search.across(point) + 2.0 * weight * float(np.sum((first - second) ** 2))
    return free < replace(search, orders=orders).across(whole)


def _signs(search: Search, point: Point) -> tuple[list[Point], int]:
    """Return the point with its units turned as order 1 asks, best first, and how many assignments fit [ATV21, Alg. 3].

    For dependent rows, where the paper leaves the signs open, T_1 is a subset sum of the A_i w_iᵀ.
    """
    m, exact = search.activation.odd_slope, search.coefficients.known_exactly
    if not m:
        return [point], 1
    left = _order_one(search, point) - search.coefficients.tensors[1]
    tolerance = search.options.exact_signs if exact else search.options.rough_signs
    found = find_flips(point.A, point.W, left, m, tolerance)
    points = [point.turned(np.where(flips, -1.0, 1.0)) for flips in found.flips[: search.options.sign_choices]]
    if not exact:
        return points, 1
    return points, int(np.count_nonzero(found.misfit <= tolerance)) if found.complete else 0


def _turn_one_by_one(search: Search, whole: Point, enough: float) -> Point:
    """Turn the unit whose turning lowers χ² the most, while that helps.

    Under errors the least-squares bits of Algorithm 3 can be wrong where the A_i w_iᵀ are nearly dependent.
    """
    orders = (1, *search.orders)
    while whole.loss > enough and not search.deadline.passed:
        sign = np.where(np.eye(len(whole.W), dtype=bool), -1.0, 1.0)
        trials = [whole.turned(s) for s in sign]
        best = search.best_of([(trial.W, trial.b) for trial in trials], orders)
        if not best.loss < 0.99 * whole.loss:
            break
        whole = best
    return whole


def _order_one(search: Search, point: Point) -> np.ndarray:
    """Return the T_1 of the units, (p, r)."""
    norms = np.linalg.norm(point.W, axis=1)
    h = scaled_hermite(search.activation, point.b, norms, 1)[1]
    return (point.A * h) @ (point.W / norms[:, None])


def _result(
    search: Search, point: Point, orders: tuple[int, ...], choices: int, unexplained: float, affine: bool
) -> HermiteFit:
    c = search.coefficients
    k, (p, r) = len(point.W), (len(c.scale), c.r)
    L = c.tensors[1] - (_order_one(search, point) if k else 0.0) if affine else np.zeros((p, r))
    constant = np.zeros(p)
    if search.bias and 0 in c.tensors:
        norms = np.linalg.norm(point.W, axis=1)
        h = scaled_hermite(search.activation, point.b, norms, 0)[0] if k else np.zeros(0)
        constant = c.tensors[0][:, 0] - point.A @ h
    s = c.scale[:, None]
    return HermiteFit(
        point.W,
        point.b,
        s * point.A,
        s * L,
        c.scale * constant,
        point.loss,
        search.freedom(k, orders),
        search.expected(k, orders),
        choices,
        unexplained,
        orders,
    )
