"""How far apart the functions of two networks are under Gaussian inputs.

The mean of (f(x) − g(x))² under x ~ N(0, I) is Σ_j ‖T_j(f) − T_j(g)‖² / j! [ATV21, Prop. 3.6]. For act(z) = z₊^n + λ
z₋^n with a whole number n it is a finite expression in bivariate normal probabilities; for other activations the
series is summed and Parseval's identity bounds what is left.

For two networks that nearly agree, the large terms of that quadratic form would cancel and leave their rounding. The
small differences are therefore taken first. With θ = (w, b) and x̃ = (x, 1), f − g is a sum Σ_i a_i act(θ_i·x̃) over the
units of both. A spanning forest joins units that are near each other, after scaling and mirroring where act allows it.
With p(i) the neighbour of i on the way to the root and s_i = Σ a over the branch that begins with i,

    f − g = Σ_roots s_i act(θ_i·x̃) + Σ_others s_i [act(θ_i·x̃) − act(θ_p(i)·x̃)] + L·x + c,

where equal units leave s = 0 at a root or a zero bracket. With δ = θ_i − θ_p and the midpoint θ̄, a bracket is

    act(θ_i·x̃) − act(θ_p·x̃) = act′(θ̄·x̃) (δ·x̃),

for a linear or quadratic act exactly on every side of the kink, for others up to δ²/24 of it. Between the two kinks
the rule is wrong by as much as the bracket, and there a relu is alone in mattering: that strip has a probability of the
order of δ. Every mean of products of these terms then has the factors δ outside, and only they carry the digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import erf, gammaln, ndtr, owens_t

from neurecover.activations import Activation, SidedPower, scaled_hermite
from neurecover.models.network import Network

LARGEST_POWER = 6
SERIES = 160  # the degree of the series; √j! overflows beyond 300
# The midpoint rule errs by about δ/6 of a relu's risk, the plain quadratic form by 1e-16/δ²: they meet here.
NEAR = 1e-5

Kernel = Callable[[int, int], np.ndarray]


def population_risk(network: Network, truth: Network) -> float:
    """E[(f(x) − g(x))²] for x ~ N(0, I), the mean over outputs [ATV21, Prop. 3.6].

    The error is about 1e-15 of the squared size of the terms that f − g consists of, see above, and for units that
    moved by less than NEAR up to NEAR of the square of their change. For powers other than 0 … 6 only equal units are
    taken together. ValueError where the series of a rough activation does not reach 1e-9 of the size of the terms;
    `risk_bounds` then gives what is known.
    """
    difference = _difference(network, truth)
    act = difference.act
    if _closed(act):
        products = _step_products(difference) if act.exponent == 0.0 else _products(difference, _ClosedForm)
        return max(_mean_square(difference, products), 0.0)
    products = _products(difference, _Series)
    risk = max(_mean_square(difference, products), 0.0)
    squares = np.concatenate([_second_moments(act, difference.units), _second_moments(act, difference.moves)])
    size, rest = np.abs(difference.A), np.maximum(squares - np.diag(products.gram), 0.0)
    tail, scale = np.mean((size @ np.sqrt(rest)) ** 2), float(np.sum(size @ np.sqrt(squares))) ** 2
    if tail > 1e-9 * max(scale, 1e-300):
        raise ValueError(f"The series for {act} leaves {risk:.6g} unsure by {tail:.6g}; see risk_bounds.")
    return risk


def risk_bounds(network: Network, truth: Network, degree: int = SERIES) -> tuple[float, float]:
    """The partial sum of [ATV21, Prop. 3.6] up to the degree, and what it can at most be short of.

    E[act(w·x + b)²] less the squares of its first coefficients is the rest of one unit's series; the rest of the
    difference is at most the sum of the units' own, by the triangle inequality. Both are right to about 1e-15 of the
    squared size of the networks, however small their difference is.
    """
    units, constant = _joined(network, truth)
    s = np.linalg.norm(units.W, axis=1)
    j = np.arange(degree + 1)[:, None]
    F = scaled_hermite(units.activation, units.b, s, degree) / np.exp(0.5 * gammaln(j + 1.0))
    rho = Correlation.between(units.W / s[:, None], units.W / s[:, None]).rho
    kernel = np.einsum("ji,jl,jil->il", F, F, rho ** j[:, :, None])
    values = np.einsum("oi,il,ol->o", units.A, kernel, units.A) + 2.0 * constant * (units.A @ F[0]) + constant**2
    partial = max(float(values.mean()), 0.0)
    squares = _second_moments(units.activation, _Terms.of_units(units.A, units.W, units.b))
    rest = np.maximum(squares - np.sum(F * F, axis=0), 0.0)
    return partial, partial + float(np.mean((np.abs(units.A) @ np.sqrt(rest)) ** 2))


def _closed(act: Activation) -> bool:
    return isinstance(act, SidedPower) and act.exponent in range(LARGEST_POWER + 1)


def _joined(network: Network, truth: Network) -> tuple[Network, np.ndarray]:
    """f − g as one network of the units of both that depend on x, and its constant."""
    for what in ("n_inputs", "n_outputs", "activation"):
        ours, theirs = getattr(network, what), getattr(truth, what)
        if ours != theirs:
            raise ValueError(f"The risk needs two networks of the same {what}. Got {ours} and {theirs} instead.")
    both = Network(
        np.vstack([network.W, truth.W]),
        np.concatenate([network.b, truth.b]),
        np.hstack([network.A, -truth.A]),
        network.c - truth.c,
        network.activation,
    )
    live = np.linalg.norm(both.W, axis=1) > 0.0
    constant = both.c + both.A[:, ~live] @ both.activation(both.b[~live])
    return both.take(np.flatnonzero(live & np.any(both.A != 0.0, axis=0))), constant


@dataclass(frozen=True)
class _Terms:
    """Σ_i A_i act(w_i·x + b_i), or with moves Σ_i A_i act′(w_i·x + b_i)(u_i·x + v_i)."""

    A: np.ndarray
    W: np.ndarray
    b: np.ndarray
    U: np.ndarray
    v: np.ndarray
    moved: bool

    @classmethod
    def of_units(cls, A: np.ndarray, W: np.ndarray, b: np.ndarray) -> _Terms:
        return cls(A, W, b, np.zeros_like(W), np.zeros_like(b), False)

    @property
    def own(self) -> np.ndarray:
        """u_i·w_i"""
        return np.einsum("ij,ij->i", self.U, self.W)


@dataclass(frozen=True)
class _Difference:
    """f − g = units + moves + L·x + c, all rows w of length one where act is homogeneous."""

    act: Activation
    units: _Terms
    moves: _Terms
    L: np.ndarray
    c: np.ndarray

    @property
    def A(self) -> np.ndarray:
        return np.hstack([self.units.A, self.moves.A])


def _difference(network: Network, truth: Network) -> _Difference:
    """f − g by small differences, as at the head of this file.

    Unit i in the scale of p is act(θ_i·x̃) = κ^{−n} act(y·x̃), y = κ θ_i; for its mirror image see `_mirror`. Sums and
    differences of weights are formed in the longest float there is, and κ is a power of two where that is near enough,
    so that δ = y − θ_p is exact.
    """
    act = network.activation
    if act.homogeneity is None:
        network, truth = network.normal_form(), truth.normal_form()
    both, constant = _joined(network, truth)
    theta = np.column_stack([both.W, both.b]).astype(np.longdouble)
    n = 0.0 if act.homogeneity is None else act.homogeneity
    scale = np.ones(len(theta)) if act.homogeneity is None else np.linalg.norm(both.W, axis=1)
    forest = _forest(np.asarray(theta / scale[:, None], dtype=float), act)
    child = np.flatnonzero(forest.parent >= 0)
    parent, turned = forest.parent[child], forest.turned[child]
    sign, kappa_0, slope = _mirror(act) or (1.0, 0.0, 0.0)

    ratio = scale[parent] / scale[child]
    power = np.exp2(np.rint(np.log2(ratio)))
    kappa = np.where(np.abs(ratio / power - 1.0) <= NEAR, power, ratio).astype(np.longdouble)
    delta = np.where(turned, -kappa, kappa)[:, None] * theta[child] - theta[parent]
    factor = np.zeros(len(theta), dtype=np.longdouble)
    factor[child] = np.where(turned, sign, 1.0) * kappa**-n

    s = both.A.T.astype(np.longdouble)
    affine = np.zeros((len(constant), theta.shape[1]), dtype=np.longdouble)
    affine[:, -1] = constant
    for i in reversed(forest.order):
        if forest.parent[i] >= 0:
            if forest.turned[i]:
                affine += slope * np.outer(s[i], theta[i])
                affine[:, -1] += kappa_0 * s[i]
            s[i] *= factor[i]
            s[forest.parent[i]] += s[i]

    root = np.flatnonzero(forest.parent < 0)
    units = _scaled(s[root], theta[root], np.zeros_like(theta[root]), act)
    moved = np.any(delta != 0.0, axis=1) & (_near(act) > 0.0)
    middle = theta[parent] + delta / 2.0
    moves = _scaled(s[child][moved], middle[moved], delta[moved], act)
    L, c = np.asarray(affine[:, :-1], dtype=float), np.asarray(affine[:, -1], dtype=float)
    return _Difference(act, _Terms.of_units(units.A, units.W, units.b), moves, L, c)


def _scaled(s: np.ndarray, theta: np.ndarray, delta: np.ndarray, act: Activation) -> _Terms:
    """The terms with ‖w‖ = 1: s act′(θ·x̃)(δ·x̃) is s r^n act′(θ/r·x̃)(δ/r·x̃) where act is homogeneous of degree n."""
    theta, delta = np.asarray(theta, dtype=float), np.asarray(delta, dtype=float)
    A = np.asarray(s, dtype=float).T
    if act.homogeneity is not None:
        r = np.linalg.norm(theta[:, :-1], axis=1)
        A, theta, delta = A * r**act.homogeneity, theta / r[:, None], delta / r[:, None]
    return _Terms(A, theta[:, :-1], theta[:, -1], delta[:, :-1], delta[:, -1], True)


def _near(act: Activation) -> float:
    return NEAR if _closed(act) or not isinstance(act, SidedPower) else 0.0


def _mirror(act: Activation) -> tuple[float, float, float] | None:
    """(σ, κ, m) of act(z) = σ act(−z) + κ + m z, if there are such."""
    if act.reflection is not None:
        return *act.reflection, 0.0
    return None if act.odd_slope is None else (1.0, 0.0, act.odd_slope)


@dataclass(frozen=True)
class _Forest:
    """The parent of every unit, −1 for a root; whether it is the parent's mirror image; an order, parents first."""

    parent: np.ndarray
    turned: np.ndarray
    order: list[int]


def _forest(points: np.ndarray, act: Activation) -> _Forest:
    """The shortest spanning tree of the points (w, b), by Prim's algorithm, without its edges longer than `_near`.

    Lengths are relative to the points where act is homogeneous: a unit far from the inputs changes its answers less.
    """
    from scipy.spatial.distance import cdist

    distance = cdist(points, points)
    turned = np.zeros(distance.shape, dtype=bool)
    if _mirror(act) is not None:
        mirrored = cdist(points, -points)
        turned = mirrored < distance
        distance = np.minimum(distance, mirrored)
    if act.homogeneity is not None:
        size = np.linalg.norm(points, axis=1)
        distance /= np.maximum.outer(size, size)
    k = len(points)
    waiting, nearest, link = np.ones(k, dtype=bool), np.full(k, np.inf), np.full(k, -1)
    parent, order = np.full(k, -1), []
    for _ in range(k):
        i = int(np.flatnonzero(waiting)[np.argmin(nearest[waiting])])
        waiting[i] = False
        order.append(i)
        if nearest[i] <= _near(act):
            parent[i] = link[i]
        closer = waiting & (distance[i] < nearest)
        nearest[closer], link[closer] = distance[i, closer], i
    return _Forest(parent, turned[np.arange(k), parent], order)


@dataclass(frozen=True)
class _Products:
    """gram = E[t_i t_l] of all terms t, and lines = E[t_i (L·x + c)] for every output."""

    gram: np.ndarray
    lines: np.ndarray


def _mean_square(difference: _Difference, products: _Products) -> float:
    """The mean over outputs of E[(Σ_i A_i t_i + L·x + c)²]."""
    A, L, c = difference.A, difference.L, difference.c
    values = np.einsum("oi,il,ol->o", A, products.gram, A) + 2.0 * np.sum(A * products.lines, axis=1)
    return float(np.mean(values + np.sum(L * L, axis=1) + c * c))


def _products(difference: _Difference, kernel: Callable[[Activation, _Terms, _Terms], Kernel]) -> _Products:
    """With K_pq = E[act⁽ᵖ⁾(z₁) act⁽q⁾(z₂)] for all pairs, Stein's identity E[(u·x) F(x)] = E[u·∇F] gives

    E[act(z₁) act′(z₂)(u₂·x + v₂)] = v₂ K₀₁ + (u₂·w₁) K₁₁ + (u₂·w₂) K₀₂,
    """
    act, units, moves = difference.act, difference.units, difference.moves
    L, c = difference.L, difference.c[:, None]
    between = kernel(act, units, moves)
    mixed = moves.v * between(0, 1) + (units.W @ moves.U.T) * between(1, 1) + moves.own * between(0, 2)
    gram = np.block([[kernel(act, units, units)(0, 0), mixed], [mixed.T, _moved_products(act, moves, kernel)]])

    k, m = _means(act, units), _means(act, moves)
    along = L @ moves.W.T
    lines = (L @ moves.U.T + c * moves.v) * m[1] + (c * moves.own + along * moves.v) * m[2] + along * moves.own * m[3]
    return _Products(gram, np.hstack([c * k[0] + (L @ units.W.T) * k[1], lines]))


def _means(act: Activation, terms: _Terms) -> np.ndarray:
    """E[act⁽ᵖ⁾(w·x + b)] for p = 0 … 3: the p-th Hermite coefficient over ‖w‖ᵖ."""
    s = np.linalg.norm(terms.W, axis=1)
    return scaled_hermite(act, terms.b, s, 3) / s ** np.arange(4)[:, None]


def _moved_products(
    act: Activation, moves: _Terms, kernel: Callable[[Activation, _Terms, _Terms], Kernel]
) -> np.ndarray:
    """E[act′(z₁)(u₁·x + v₁) act′(z₂)(u₂·x + v₂)] by Stein's identity, applied twice:

        (u₁·u₂ + v₁v₂) K₁₁ + [v₁(u₂·w₁) + v₂(u₁·w₁)] K₂₁ + (u₁·w₁)(u₂·w₁) K₃₁ + the same with 1 and 2 exchanged
            + [(u₁·w₁)(u₂·w₂) + (u₁·w₂)(u₂·w₁)] K₂₂.

    For n = 1, act″ = J δ(z) with the jump J of the slope, and K₃₁, K₂₂ have poles at ρ = ±1 that cancel. What they
    leave, with rᵢ = uᵢ·w₂ − ρ uᵢ·w₁, σ² = 1 − ρ² and the density D/σ of (z₁, z₂) at 0, is −b₁ K₂₁ in place of K₃₁ and

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
        density = _density(h) * _density(_ratio(at.offset(h, k), at.sigma))
        curved = own * r2 + other * r1
        # |r₁r₂|/σ ≤ σ|u₁||u₂|, of which nothing is left where σ is rounding.
        straight = at.sigma * own * other - np.where(at.sigma > 1e-15, r1 * _ratio(r2, at.sigma), 0.0)
        result += (1.0 + act.left) ** 2 * density * (at.sigma * curved + at.rho * straight)
    else:
        half += own * other * K(3, 1)
        result += (own * own.T + other * other.T) * K(2, 2)
    return result + half + half.T


def _step_products(difference: _Difference) -> _Products:
    """For a step, whose bracket t = act(z) − act(y) is ±J in the strip between two planes and 0 elsewhere.

    Its square has the mean J² P(strip). With δ·x̃ of mean m and deviation s on the plane in the middle that is
    φ(b̄) E|m + s g|, up to δ² of it. Other products are differences of orthant probabilities; those of two strips, about
    δ₁δ₂/σ, are left out where that is below the rounding of the difference.
    """
    act, units, moves = difference.act, difference.units, difference.moves
    assert isinstance(act, SidedPower)
    theta, delta = np.column_stack([moves.W, moves.b]), np.column_stack([moves.U, moves.v])
    ends = [_scaled(moves.A.T, theta + side * delta / 2.0, delta, act) for side in (1.0, -1.0)]
    W, b = np.vstack([units.W, *(end.W for end in ends)]), np.concatenate([units.b, *(end.b for end in ends)])
    every = _Terms.of_units(np.zeros((1, len(b))), W, b)
    r, m = len(units.b), len(moves.b)
    change = np.zeros((r + m, r + 2 * m))
    change[:r, :r] = np.eye(r)
    change[r:, r:] = np.hstack([np.eye(m), -np.eye(m)])
    gram = change @ _ClosedForm(act, every, every)(0, 0) @ change.T

    length = np.linalg.norm(delta, axis=1)
    unseen = np.outer(length, length) <= np.finfo(float).eps * Correlation.between(moves.W, moves.W).sigma ** 2
    gram[r:, r:][unseen] = 0.0
    mean, s = moves.v - moves.b * moves.own, np.linalg.norm(moves.U - moves.own[:, None] * moves.W, axis=1)
    t = _ratio(mean, s)
    strip = _density(moves.b) * (2.0 * s * _density(t) + mean * erf(t / math.sqrt(2.0)))
    gram[np.arange(r, r + m), np.arange(r, r + m)] = (1.0 - act.left) ** 2 * strip
    return _Products(gram, difference.c[:, None] * (change @ _means(act, every)[0]))


def _second_moments(act: Activation, terms: _Terms) -> np.ndarray:
    """E[t²] of every term t."""
    s = np.linalg.norm(terms.W, axis=1)
    if isinstance(act, SidedPower):
        # act² = z₊^2n + λ² z₋^2n is a power itself.
        square = SidedPower(f"{act}²", 2.0 * act.exponent, act.left**2)
        return scaled_hermite(square, terms.b, s, 0)[0]
    steepest = s.max(initial=1.0)
    g = np.arange(-14.0 - steepest * 2.0, 14.0 + steepest * 2.0, 0.1 / steepest)
    weights = _density(g) * (g[1] - g[0])
    z = np.multiply.outer(g, s) + terms.b
    if not terms.moved:
        return weights @ act(z) ** 2
    along = terms.own / s
    across = np.linalg.norm(terms.U - (along / s)[:, None] * terms.W, axis=1)
    return weights @ (act.derivative(z) ** 2 * ((np.multiply.outer(g, along) + terms.v) ** 2 + across**2))


class _Series:
    """K_pq = Σ_j E[act⁽ᵖ⁾ He_j] E[act⁽q⁾ He_j] ρʲ / j! for all pairs of terms [ATV21, Prop. 3.6]."""

    def __init__(self, act: Activation, first: _Terms, second: _Terms) -> None:
        self._lengths = [np.linalg.norm(terms.W, axis=1) for terms in (first, second)]
        directions = [terms.W / s[:, None] for terms, s in zip((first, second), self._lengths)]
        self._rho = Correlation.between(directions[0], directions[1]).rho
        self._F = [scaled_hermite(act, terms.b, s, SERIES) for terms, s in zip((first, second), self._lengths)]

    def __call__(self, p: int, q: int) -> np.ndarray:
        j = np.arange(SERIES + 1 - max(p, q))
        root = np.exp(0.5 * gammaln(j + 1.0))[:, None]
        # E[act⁽ᵖ⁾(s g + b) He_j(g)] is the coefficient of degree j + p over sᵖ.
        F, H = (self._F[side][j + m] / root / self._lengths[side] ** m for side, m in ((0, p), (1, q)))
        value = np.zeros_like(self._rho)
        for f, h in zip(F[::-1], H[::-1]):
            value = value * self._rho + np.multiply.outer(f, h)
        return value


class _ClosedForm:
    """K_pq for act(z) = z₊ⁿ + λ z₋ⁿ and ‖w‖ = 1: a sum over the sides of both kinks."""

    def __init__(self, act: Activation, first: _Terms, second: _Terms) -> None:
        assert isinstance(act, SidedPower)
        self._n, self._left = int(act.exponent), act.left
        at = Correlation.between(first.W, second.W)
        h, k = np.broadcast_arrays(first.b[:, None], second.b)
        sides = (1, -1) if act.left else (1,)
        self._moments = {
            (s, t): _rectified_moments(s * h, t * k, at if s == t else at.opposite(), self._n)
            for s in sides
            for t in sides
        }

    def __call__(self, p: int, q: int) -> np.ndarray:
        return sum(
            (x * y * self._moments[s, t][a, b] for s, a, x in self._sides(p) for t, b, y in self._sides(q)),
            start=np.zeros(()),
        )

    def _sides(self, p: int) -> list[tuple[int, int, float]]:
        """(side, power, factor) of act⁽ᵖ⁾, where the power −1 stands for δ(z), what is left of a step."""
        n, left = self._n, self._left
        if p == n + 1:
            return [(1, -1, math.factorial(n) * (1.0 - (-1.0) ** n * left))]
        falling = float(math.perm(n, p))
        return [(1, n - p, falling)] + ([(-1, n - p, (-1.0) ** p * left * falling)] if left else [])


@dataclass(frozen=True)
class Correlation:
    """ρ = cos γ with 1 − ρ, 1 + ρ and σ = sin γ, none of which is to be formed from a rounded ρ."""

    rho: np.ndarray
    near: np.ndarray
    far: np.ndarray
    sigma: np.ndarray

    @classmethod
    def of(cls, rho: np.ndarray | float) -> Correlation:
        rho = np.asarray(rho, dtype=float)
        return cls(rho, 1.0 - rho, 1.0 + rho, np.sqrt((1.0 - rho) * (1.0 + rho)))

    @classmethod
    def between(cls, first: np.ndarray, second: np.ndarray) -> Correlation:
        """Of all pairs of rows of length one: sin γ/2 and cos γ/2 are half the lengths of w₁ − w₂ and w₁ + w₂."""
        from scipy.spatial.distance import cdist

        sine, cosine = cdist(first, second), cdist(first, -second)
        whole = sine**2 + cosine**2
        near, far = 2.0 * sine**2 / whole, 2.0 * cosine**2 / whole
        return cls((far - near) / 2.0, near, far, 2.0 * sine * cosine / whole)

    def opposite(self) -> Correlation:
        return Correlation(-self.rho, self.far, self.near, self.sigma)

    def offset(self, h: np.ndarray, k: np.ndarray) -> np.ndarray:
        """k − ρh, from the small one of k − h and k + h."""
        return np.where(self.rho >= 0.0, (k - h) + self.near * h, (k + h) - self.far * h)


def rectified_product(h: np.ndarray, k: np.ndarray, rho: np.ndarray | Correlation, power: int) -> np.ndarray:
    """E[(u + h)₊ⁿ (v + k)₊ⁿ], n = power, for standard normal u and v of correlation ρ; z₊⁰ is the step."""
    at = rho if isinstance(rho, Correlation) else Correlation.of(rho)
    h, k, _ = np.broadcast_arrays(np.asarray(h, dtype=float), np.asarray(k, dtype=float), at.rho)
    return _rectified_moments(h, k, at, power)[power, power]


def _rectified_moments(h: np.ndarray, k: np.ndarray, at: Correlation, power: int) -> dict[tuple[int, int], np.ndarray]:
    """I_mn = E[(u + h)₊^m (v + k)₊^n] for m, n = 0 … power, and with δ(u + h) or δ(v + k) for m = −1 or n = −1.

    Stein's identity applied to the factor u of (u + h)₊^m = u(…)₊^{m−1} + h(…)₊^{m−1} gives

        I_mn = h I_{m−1,n} + (m − 1) I_{m−2,n} + ρ n I_{m−1,n−1},

    where for m = 1 the second term is I_{−1,n}, the derivative of a step, and for n = 0 so is the last one, I_{m−1,−1}.
    I_00 is the bivariate normal probability. I_{−1,−1} has a pole and is left out.
    """
    at_h = _density(h) * _conditional(at.offset(h, k), at.sigma, power)  # φ(h) E[(v + k)₊^n | u = −h], n = 0 … power
    at_k = _density(k) * _conditional(at.offset(k, h), at.sigma, power)
    I = {(0, 0): bivariate(h, k, at)} | {(-1, n): at_h[n] for n in range(power + 1)}
    I |= {(m, -1): at_k[m] for m in range(power + 1)}
    for m in range(power + 1):
        for n in range(power + 1):
            if m > 0:
                I[m, n] = h * I[m - 1, n] + max(m - 1, 1) * I[m - 2, n] + at.rho * (max(n, 1) * I[m - 1, n - 1])
            elif n > 0:
                I[m, n] = k * I[0, n - 1] + max(n - 1, 1) * I[0, n - 2] + at.rho * I[-1, n - 1]
    return I


def bivariate(h: np.ndarray, k: np.ndarray, rho: np.ndarray | Correlation) -> np.ndarray:
    """P(u < h, v < k) for standard normal u, v of correlation ρ, by Owen's T function [Owen 1956].

    The error is some 1e-16 also at ρ = ±1, given a `Correlation` that knows 1 − |ρ|.
    """
    at = rho if isinstance(rho, Correlation) else Correlation.of(rho)
    h, k = np.asarray(h) + 0.0, np.asarray(k) + 0.0  # −0.0 + 0.0 is 0.0, and the signs of zeros decide below
    # 0/0: h = k = 0 has its own formula, and so has ρ = ±1.
    first, second = _ratio(at.offset(h, k), h * at.sigma), _ratio(at.offset(k, h), k * at.sigma)
    apart = (h * k < 0.0) | ((h * k == 0.0) & (h + k < 0.0))
    value = 0.5 * (ndtr(h) + ndtr(k)) - owens_t(h, first) - owens_t(k, second) - 0.5 * apart
    angle = 2.0 * np.arctan2(np.sqrt(at.near), np.sqrt(at.far))
    value = np.where((h == 0.0) & (k == 0.0), 0.5 - angle / (2.0 * np.pi), value)
    value = np.where(at.near <= 0.0, ndtr(np.minimum(h, k)), value)
    return np.where(at.far <= 0.0, np.maximum(ndtr(h) - ndtr(-k), 0.0), value)


def _conditional(mean: np.ndarray, s: np.ndarray, power: int) -> np.ndarray:
    """E[(mean + s g)₊ⁿ] for n = 0 … power; with s = 0 and mean = 0 the step counts one half."""
    t = _ratio(mean, s)
    moments = [ndtr(t), mean * ndtr(t) + s * _density(t)]
    for n in range(2, power + 1):
        moments.append(mean * moments[n - 1] + (n - 1) * s**2 * moments[n - 2])
    return np.array(moments[: power + 1])


def _ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a / b, where a / 0 is infinite and 0 / 0 is 0."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.nan_to_num(a / b, nan=0.0, posinf=np.inf, neginf=-np.inf)


def _density(t: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", under="ignore"):
        return np.exp(-0.5 * t * t) / np.sqrt(2.0 * np.pi)
