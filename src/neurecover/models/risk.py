"""The mean squared difference of two networks under Gaussian inputs.

The mean of (f(x) − g(x))² under x ~ N(0, I) is Σ_j ‖T_j(f) − T_j(g)‖² / j! [ATV21, Prop. 3.6]. For act(z) = z₊^n + λ
z₋^n with a whole number n it is a finite expression in bivariate normal probabilities. For other activations the
series is summed, and Parseval's identity bounds the remainder.

For two networks that nearly agree, the quadratic form in all units of f and g would cancel to its rounding errors. So
`differences` first writes f − g as a sum of units with small factors s and of act′(θ̄·x̃)(δ·x̃) with small moves δ. In
the mean of a product of two such terms, s and δ are outer factors, so its error is relative to them. The affine terms
leave L·x + c, of mean square ‖L‖² + c², and by Stein's identity E[act(w·x + b) (L·x)] = (L·w) E[act′(w·x + b)].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import erf, gammaln, poch

from neurecover.activations import Activation, SidedPower, scaled_hermite
from neurecover.activations.quadrature import STEEPEST, panels, reach
from neurecover.models.differences import Difference, Terms, difference, has_closed_form, joined, unit_rows
from neurecover.models.network import Network
from neurecover.models.orthants import Correlation, bivariate, density, ratio, rectified_moments, rectified_product

__all__ = ["bivariate", "population_risk", "rectified_product", "risk_bounds"]

SERIES = 160  # the degree of the series; no more terms are known for rough activations, and √j! overflows beyond 300
LONG_SERIES = (SERIES, 640, 2560)  # for a sigmoid of slope s the coefficients fall like exp(−π√(2j)/s)

Kernel = Callable[[Activation, Terms, Terms], Callable[[int, int], np.ndarray]]


def population_risk(network: Network, truth: Network) -> float:
    """Return E[(f(x) − g(x))²] for x ~ N(0, I), the mean over outputs [ATV21, Prop. 3.6].

    Parameters
    ----------
    network, truth : Network
        f and g, of the same activation.

    Returns
    -------
    float
        The risk. Its error is about 1e-15 times the squared size of the terms of f − g, after near units of f and g
        were replaced by their difference; the midpoint rule adds about 1e-6 of the risk. For powers other than 0 … 6
        only equal units are combined.

    Raises
    ------
    ValueError
        If the series of a rough activation does not reach 1e-9 of the squared size; `models.risk.risk_bounds` then
        gives bounds.

    References
    ----------
    .. [ATV21] Proposition 3.6.

    Examples
    --------
    >>> import neurecover as nr
    >>> relu = nr.Network([[1.0]], None, [[1.0]])
    >>> round(nr.population_risk(relu, nr.Network([[1.0]], None, [[0.0]])), 12)  # E[relu(g)²]
    0.5
    """
    change = difference(network, truth)
    act = change.act
    if isinstance(act, SidedPower) and has_closed_form(act):
        products = _step_products(change) if act.exponent == 0.0 else _products(change, _ClosedForm)
        return max(_mean_square(change, products), 0.0)
    squares = np.concatenate([_second_moments(act, change.units), _second_moments(act, change.moves)])
    size, both = np.abs(change.A), joined(network, truth)[0]
    whole = np.abs(both.A) @ np.sqrt(_second_moments(act, Terms.of_units(both.A, both.W, both.b)))
    # Below the rounding of the weights the risk is undefined.
    enough = max(1e-9 * np.sum(size @ np.sqrt(squares)) ** 2, (np.finfo(float).eps * np.sum(whole)) ** 2)
    for degree in LONG_SERIES[: None if act.analytic else 1]:
        products = _products(change, partial(_Series, degree))
        risk = max(_mean_square(change, products), 0.0)
        tail = np.mean((size @ np.sqrt(np.maximum(squares - np.diag(products.gram), 0.0))) ** 2)
        if tail <= enough:
            return risk
        # The tail falls like e^{−c√j} at best: quadrupling the degree squares its ratio to the total.
        total = np.mean((size @ np.sqrt(squares)) ** 2)
        if act.analytic and total * (tail / total) ** math.sqrt(LONG_SERIES[-1] / degree) > 10.0 * enough:
            break
    raise ValueError(f"The series for {act} leaves {risk:.6g} unsure by {tail:.6g}; see risk_bounds.")


def risk_bounds(network: Network, truth: Network, degree: int = SERIES) -> tuple[float, float]:
    """Return the partial sum of [ATV21, Prop. 3.6] up to the degree, and an upper bound for the remainder.

    The remainder of one unit's series is E[act(w·x + b)²] minus the squares of its first coefficients. By the triangle
    inequality, the remainder of the difference is at most the sum of those of the units. Both values have errors of
    about 1e-15 of the squared size of the networks, however small their difference is. Affine terms have degree 1; with
    them at least that degree is summed.
    """
    units, long_affine = joined(network, truth)
    L, constant = np.asarray(long_affine[:, :-1], dtype=float), np.asarray(long_affine[:, -1], dtype=float)
    degree = max(degree, int(np.any(L != 0.0)))
    s = np.linalg.norm(units.W, axis=1)
    F = _coefficients(units.activation, units.b, s, degree)
    terms = Terms.of_units(units.A, units.W, units.b)
    kernel = _Series(degree, units.activation, terms, terms)(0, 0)
    values = np.einsum("oi,il,ol->o", units.A, kernel, units.A) + 2.0 * constant * (units.A @ F[0]) + constant**2
    if np.any(L != 0.0):
        values += np.sum(L * L, axis=1) + 2.0 * np.sum(units.A * (L @ (units.W / s[:, None]).T) * F[1], axis=1)
    low = max(float(values.mean()), 0.0)
    rest = np.maximum(_second_moments(units.activation, terms) - np.sum(F * F, axis=0), 0.0)
    return low, low + float(np.mean((np.abs(units.A) @ np.sqrt(rest)) ** 2))


@dataclass(frozen=True)
class _Products:
    """gram = E[t_i t_l] of all terms t, and lines = E[t_i (L·x + c)] for every output."""

    gram: np.ndarray
    lines: np.ndarray


def _mean_square(change: Difference, products: _Products) -> float:
    """Return the mean over outputs of E[(Σ_i A_i t_i + L·x + c)²]."""
    A, L, c = change.A, change.L, change.c
    values = np.einsum("oi,il,ol->o", A, products.gram, A) + 2.0 * np.sum(A * products.lines, axis=1)
    return float(np.mean(values + np.sum(L * L, axis=1) + c * c))


def _products(change: Difference, kernel: Kernel) -> _Products:
    """Return all products by Stein's identity E[(u·x) F(x)] = E[u·∇F]. With K_pq = E[act⁽ᵖ⁾(z₁) act⁽q⁾(z₂)], e.g.,

        E[act(z₁) act′(z₂)(u₂·x + v₂)] = v₂ K₀₁ + (u₂·w₁) K₁₁ + (u₂·w₂) K₀₂,

    and the product with L·x + c is the same with L·x + c in place of act(z₁). `kernel` makes the function K(p, q).
    """
    act, units, moves = change.act, change.units, change.moves
    L, c = change.L, change.c[:, None]
    between = kernel(act, units, moves)
    mixed = moves.v * between(0, 1) + (units.W @ moves.U.T) * between(1, 1) + moves.own * between(0, 2)
    gram = np.block([[kernel(act, units, units)(0, 0), mixed], [mixed.T, _moved_products(act, moves, kernel)]])

    k, m = _means(act, units), _means(act, moves)
    along = L @ moves.W.T
    lines = (L @ moves.U.T + c * moves.v) * m[1] + (c * moves.own + along * moves.v) * m[2] + along * moves.own * m[3]
    return _Products(gram, np.hstack([c * k[0] + (L @ units.W.T) * k[1], lines]))


def _means(act: Activation, terms: Terms) -> np.ndarray:
    """Return E[act⁽ᵖ⁾(w·x + b)] for p = 0 … 3: the p-th Hermite coefficient divided by ‖w‖ᵖ."""
    s = np.linalg.norm(terms.W, axis=1)
    return scaled_hermite(act, terms.b, s, 3) / s ** np.arange(4)[:, None]


def _moved_products(act: Activation, moves: Terms, kernel: Kernel) -> np.ndarray:
    """Return E[act′(z₁)(u₁·x + v₁) act′(z₂)(u₂·x + v₂)] by Stein's identity, applied twice:

        (u₁·u₂ + v₁v₂) K₁₁ + [(u₁·w₁)(u₂·w₂) + (u₁·w₂)(u₂·w₁)] K₂₂ + H + Hᵀ,
        H = [v₁(u₂·w₁) + v₂(u₁·w₁)] K₂₁ + (u₁·w₁)(u₂·w₁) K₃₁.

    For n = 1, act″ = J δ(z) with the jump J of the slope, and K₃₁, K₂₂ have poles at ρ = ±1 that cancel. Let
    rᵢ = uᵢ·w₂ − ρ uᵢ·w₁, σ² = 1 − ρ², and D/σ the density of (z₁, z₂) at 0. After cancellation K₃₁ is replaced by
    −b₁ K₂₁, and the term with K₂₂ by

        J² D {σ [(u₁·w₁) r₂ + (u₂·w₁) r₁] + ρ [σ (u₁·w₁)(u₂·w₁) − r₁r₂/σ]}.
    """
    K = kernel(act, moves, moves)
    own, other, v = moves.own[:, None], moves.W @ moves.U.T, moves.v[:, None]  # other: w₁·u₂
    result = (moves.U @ moves.U.T + v * v.T) * K(1, 1)
    K21 = K(2, 1)
    half = (v * other + v.T * own) * K21
    if isinstance(act, SidedPower) and act.exponent == 1.0:
        half -= own * other * moves.b[:, None] * K21
        at = Correlation.between(moves.W, moves.W)
        h, k = np.broadcast_arrays(moves.b[:, None], moves.b)
        r1, r2 = other.T - at.rho * own, own.T - at.rho * other
        D = density(h) * density(ratio(at.offset(h, k), at.sigma))
        curved = own * r2 + other * r1
        # |r₁r₂|/σ ≤ σ|u₁||u₂|, which is negligible if σ is only rounding.
        straight = at.sigma * own * other - r1 * ratio(r2, np.where(at.sigma > 1e-15, at.sigma, np.inf))
        result += (1.0 + act.left) ** 2 * D * (at.sigma * curved + at.rho * straight)
    else:
        half += own * other * K(3, 1)
        result += (own * own.T + other * other.T) * K(2, 2)
    return result + half + half.T


def _step_products(change: Difference) -> _Products:
    """Return the products for a step, where t = act(z) − act(y) is ±J in the strip between two planes and 0 elsewhere.

    E[t²] = J² P(strip). If δ·x̃ has mean m and standard deviation s on the plane in the middle, P(strip) is
    φ(b̄) E|m + s g|, with a relative error of δ². Other products are differences of orthant probabilities. The product
    of two strips, about δ₁δ₂/σ, is left out if it is below the rounding of such a difference.
    """
    act, units, moves = change.act, change.units, change.moves
    assert isinstance(act, SidedPower)
    theta, delta = np.column_stack([moves.W, moves.b]), np.column_stack([moves.U, moves.v])
    ends = [unit_rows(moves.A.T, theta + side * delta / 2.0, delta, act) for side in (1.0, -1.0)]
    W, b = np.vstack([units.W, *(end.W for end in ends)]), np.concatenate([units.b, *(end.b for end in ends)])
    every = Terms.of_units(np.zeros((1, len(b))), W, b)
    r, m = len(units.b), len(moves.b)
    combine = np.zeros((r + m, r + 2 * m))
    combine[:r, :r] = np.eye(r)
    combine[r:, r:] = np.hstack([np.eye(m), -np.eye(m)])
    gram = combine @ _ClosedForm(act, every, every)(0, 0) @ combine.T

    length = np.linalg.norm(delta, axis=1)
    unseen = np.outer(length, length) <= np.finfo(float).eps * Correlation.between(moves.W, moves.W).sigma
    gram[r:, r:][unseen] = 0.0
    mean, s = moves.v - moves.b * moves.own, np.linalg.norm(moves.U - moves.own[:, None] * moves.W, axis=1)
    t = ratio(mean, s)
    strip = density(moves.b) * (2.0 * s * density(t) + mean * erf(t / math.sqrt(2.0)))
    gram[np.arange(r, r + m), np.arange(r, r + m)] = (1.0 - act.left) ** 2 * strip
    means = _means(act, every)
    return _Products(gram, (change.c[:, None] * means[0] + (change.L @ W.T) * means[1]) @ combine.T)


def _second_moments(act: Activation, terms: Terms) -> np.ndarray:
    """Return E[t²] of every term t."""
    s = np.linalg.norm(terms.W, axis=1)
    if isinstance(act, SidedPower):
        # act² = z₊^2n + λ² z₋^2n is itself such a power.
        square = SidedPower(f"{act}²", 2.0 * act.exponent, act.left**2)
        return scaled_hermite(square, terms.b, s, 0)[0]
    g, w = panels(terms.b, s, reach(4.0) + min(2.0 * act.growth * float(s.max(initial=0.0)), STEEPEST))
    weights, z = w * density(g), s * g + terms.b
    if not terms.moved:
        return np.sum(weights * act(z) ** 2, axis=0)
    along = terms.own / s
    across = np.linalg.norm(terms.U - (along / s)[:, None] * terms.W, axis=1)
    return np.sum(weights * act.derivative(z) ** 2 * ((g * along + terms.v) ** 2 + across**2), axis=0)


class _Series:
    """The function K(p, q) = Σ_j E[act⁽ᵖ⁾ He_j] E[act⁽q⁾ He_j] ρʲ / j!, for all pairs of terms [ATV21, Prop. 3.6]."""

    def __init__(self, degree: int, act: Activation, first: Terms, second: Terms) -> None:
        self._lengths = [np.linalg.norm(terms.W, axis=1) for terms in (first, second)]
        directions = [terms.W / s[:, None] for terms, s in zip((first, second), self._lengths)]
        self._rho = Correlation.between(directions[0], directions[1]).rho
        self._F = [_coefficients(act, terms.b, s, degree) for terms, s in zip((first, second), self._lengths)]

    def __call__(self, p: int, q: int) -> np.ndarray:
        j = np.arange(len(self._F[0]) - max(p, q))
        value = np.zeros_like(self._rho)
        for f, h in zip(self._derived(0, p, j)[::-1], self._derived(1, q, j)[::-1]):
            value = value * self._rho + np.multiply.outer(f, h)
        return value

    def _derived(self, side: int, p: int, j: np.ndarray) -> np.ndarray:
        """Return E[act⁽ᵖ⁾(s g + b) He_j(g)] / √j!, from the coefficient of degree j + p divided by sᵖ."""
        return self._F[side][j + p] * np.sqrt(poch(j + 1.0, p))[:, None] / self._lengths[side] ** p


def _coefficients(act: Activation, b: np.ndarray, s: np.ndarray, degree: int) -> np.ndarray:
    """Return E[act(s g + b) He_j(g)] / √j! for j = 0 … degree.

    For a smooth act, integrate with the functions He_j √φ / √j!, which have size one and frequencies up to √j: no
    factor overflows, and a panel of the quadrature rule holds fewer than two of their waves.
    """
    if act.homogeneity is not None:
        return scaled_hermite(act, b, s, degree) / np.exp(0.5 * gammaln(np.arange(1.0, degree + 2.0)))[:, None]
    # √φ is below 1e-18 beyond 13, and e^{sg} √φ peaks at g = 2s
    outermost = 13.0 + min(2.0 * act.growth * float(s.max(initial=0.0)), STEEPEST)
    g, w = panels(b, s, outermost, min(1.0, 10.0 / math.sqrt(degree + 1.0)))
    root = np.sqrt(density(g))
    mass = w * root * act(s * g + b)
    before, function = np.zeros_like(g), root
    coefficients = np.empty((degree + 1, len(b)))
    for j in range(degree + 1):
        coefficients[j] = np.einsum("nk,nk->k", mass, function)
        before, function = function, (g * function - math.sqrt(j) * before) / math.sqrt(j + 1.0)
    return coefficients


class _ClosedForm:
    """The function K(p, q) for act(z) = z₊ⁿ + λ z₋ⁿ and ‖w‖ = 1, in closed form: a sum over the sides of both kinks."""

    def __init__(self, act: Activation, first: Terms, second: Terms) -> None:
        assert isinstance(act, SidedPower)
        self._n, self._left = int(act.exponent), act.left
        at = Correlation.between(first.W, second.W)
        h, k = np.broadcast_arrays(first.b[:, None], second.b)
        sides = (1, -1) if act.left else (1,)
        self._moments = {
            (s, t): rectified_moments(s * h, t * k, at if s == t else at.opposite(), self._n)
            for s in sides
            for t in sides
        }

    def __call__(self, p: int, q: int) -> np.ndarray:
        return sum(
            (x * y * self._moments[s, t][a, b] for s, a, x in self._sides(p) for t, b, y in self._sides(q)),
            start=np.zeros(()),
        )

    def _sides(self, p: int) -> list[tuple[int, int, float]]:
        """Return (side, power, factor) of act⁽ᵖ⁾; the power −1 stands for δ(z), the derivative of a step."""
        n, left = self._n, self._left
        if p == n + 1:
            return [(1, -1, math.factorial(n) * (1.0 - (-1.0) ** n * left))]
        falling = float(math.perm(n, p))
        return [(1, n - p, falling)] + ([(-1, n - p, (-1.0) ** p * left * falling)] if left else [])
