"""How far apart the functions of two networks are under Gaussian inputs.

The mean of (f(x) − g(x))² under x ~ N(0, I) is Σ_j ‖T_j(f) − T_j(g)‖² / j! [ATV21, Prop. 3.6]. For act(z) = z₊^c + λ
z₋^c with a whole number c it is a finite expression in bivariate normal probabilities; for other activations the
series is summed and Parseval's identity bounds what is left.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, ndtr, owens_t

from neurecover.activations import SidedPower, scaled_hermite
from neurecover.models.network import Network

LARGEST_POWER = 6
SERIES = 160  # the degree of the series; √j! overflows beyond 300


def population_risk(network: Network, truth: Network) -> float:
    """E[(f(x) − g(x))²] for x ~ N(0, I), the mean over outputs [ATV21, Prop. 3.6].

    The error is about 1e-15 of the squared size of the terms, so that a risk far below that reads as zero. ValueError
    where the series of a rough activation does not reach 1e-9 of that size; `risk_bounds` then gives what is known.
    """
    units, constant = _difference(network, truth)
    act = units.activation
    if isinstance(act, SidedPower) and act.exponent in range(LARGEST_POWER + 1):
        return max(_quadratic(units.A, constant, _kernel(units, act), _means(units, act)), 0.0)
    low, high = risk_bounds(network, truth)
    scale = float(np.sum(np.abs(units.A) @ np.sqrt(_second_moments(units)))) ** 2
    if high - low > 1e-9 * max(scale, 1e-300):
        raise ValueError(f"The series for {act} leaves the risk between {low:.6g} and {high:.6g}; see risk_bounds.")
    return low


def risk_bounds(network: Network, truth: Network, degree: int = SERIES) -> tuple[float, float]:
    """The partial sum of [ATV21, Prop. 3.6] up to the degree, and what it can at most be short of.

    E[act(w·x + b)²] less the squares of its first coefficients is the rest of one unit's series; the rest of the
    difference is at most the sum of the units' own, by the triangle inequality.
    """
    units, constant = _difference(network, truth)
    s = np.linalg.norm(units.W, axis=1)
    directions = units.W / s[:, None]
    j = np.arange(degree + 1)[:, None]
    F = scaled_hermite(units.activation, units.b, s, degree) / np.exp(0.5 * gammaln(j + 1.0))
    rho = np.clip(directions @ directions.T, -1.0, 1.0)
    kernel = np.einsum("ji,jl,jil->il", F, F, rho ** j[:, :, None])
    partial = _quadratic(units.A, constant, kernel, F[0])
    rest = np.maximum(_second_moments(units) - np.sum(F * F, axis=0), 0.0)
    tail = np.mean((np.abs(units.A) @ np.sqrt(rest)) ** 2)
    return max(partial, 0.0), max(partial, 0.0) + float(tail)


def _difference(network: Network, truth: Network) -> tuple[Network, np.ndarray]:
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
    return both.take(np.flatnonzero(live)), constant


def _quadratic(A: np.ndarray, constant: np.ndarray, kernel: np.ndarray, means: np.ndarray) -> float:
    """The mean over outputs of E[(Σ_i A_i act_i + c)²]."""
    values = np.einsum("oi,il,ol->o", A, kernel, A) + 2.0 * constant * (A @ means) + constant**2
    return float(values.mean())


def _means(units: Network, act: SidedPower) -> np.ndarray:
    s = np.linalg.norm(units.W, axis=1)
    return scaled_hermite(act, units.b, s, 0)[0]


def _second_moments(units: Network) -> np.ndarray:
    """E[act(w·x + b)²] of every unit."""
    act, s = units.activation, np.linalg.norm(units.W, axis=1)
    if isinstance(act, SidedPower):
        # act² = z₊^2c + λ² z₋^2c is a power itself.
        square = SidedPower(f"{act}²", 2.0 * act.exponent, act.left**2)
        return scaled_hermite(square, units.b, s, 0)[0]
    g = np.arange(-14.0 - s.max(initial=1.0) * 2.0, 14.0 + s.max(initial=1.0) * 2.0, 0.1 / max(s.max(initial=1.0), 1.0))
    weights = np.exp(-0.5 * g * g) * (g[1] - g[0]) / np.sqrt(2.0 * np.pi)
    return weights @ act(np.multiply.outer(g, s) + units.b) ** 2


def _kernel(units: Network, act: SidedPower) -> np.ndarray:
    """E[act(z_i) act(z_l)] for all pairs, z_i = w_i·x + b_i."""
    s = np.linalg.norm(units.W, axis=1)
    directions = units.W / s[:, None]
    rho = np.clip(directions @ directions.T, -1.0, 1.0)
    np.fill_diagonal(rho, 1.0)
    h, k = np.broadcast_arrays((units.b / s)[:, None], (units.b / s)[None, :])
    n, left = int(act.exponent), act.left
    value = rectified_product(h, k, rho, n)
    if left:
        value = value + left**2 * rectified_product(-h, -k, rho, n)
        value += left * (rectified_product(h, -k, -rho, n) + rectified_product(-h, k, -rho, n))
    return value * np.multiply.outer(s**n, s**n)


def rectified_product(h: np.ndarray, k: np.ndarray, rho: np.ndarray, power: int) -> np.ndarray:
    """E[(u + h)₊ⁿ (v + k)₊ⁿ], n = power, for standard normal u and v of correlation ρ; z₊⁰ is the step.

    With I_mn = E[(u + h)₊^m (v + k)₊^n], Stein's identity applied to the factor u of (u + h)₊^m = u(…)₊^{m−1} +
    h(…)₊^{m−1} gives

        I_mn = h I_{m−1,n} + (m − 1) I_{m−2,n} + ρ n I_{m−1,n−1},

    where for m = 1 the second term is φ(h) E[(v + k)₊^n | u = −h], the derivative of a step, and for n = 0 so is the
    last one with u and v exchanged. I_00 is the bivariate normal probability.
    """
    h, k, rho = np.broadcast_arrays(*(np.asarray(value, dtype=float) for value in (h, k, rho)))
    s = np.sqrt((1.0 - rho) * (1.0 + rho))
    at_h = _density(h) * _conditional(k - rho * h, s, power)  # φ(h) E[(v + k)₊^n | u = −h], n = 0 … power
    at_k = _density(k) * _conditional(h - rho * k, s, power)
    moments = {(0, 0): bivariate(h, k, rho)}
    for m in range(power + 1):
        for n in range(power + 1):
            if m > 0:
                step = at_h[n] if m == 1 else (m - 1) * moments[m - 2, n]
                last = n * moments[m - 1, n - 1] if n > 0 else (at_k[m - 1] if m >= 1 else 0.0)
                moments[m, n] = h * moments[m - 1, n] + step + rho * last
            elif n > 0:
                step = at_k[0] if n == 1 else (n - 1) * moments[0, n - 2]
                moments[0, n] = k * moments[0, n - 1] + step + rho * at_h[n - 1]
    return moments[power, power]


def bivariate(h: np.ndarray, k: np.ndarray, rho: np.ndarray) -> np.ndarray:
    """P(u < h, v < k) for standard normal u, v of correlation ρ, by Owen's T function [Owen 1956]."""
    s = np.sqrt((1.0 - rho) * (1.0 + rho))
    with np.errstate(divide="ignore", invalid="ignore"):
        first, second = (k - rho * h) / (h * s), (h - rho * k) / (k * s)
    # 0/0: h = k = 0 has its own formula, and for ρ = ±1 with h = ±k the limit of the sum of both terms is used below.
    first, second = (
        np.nan_to_num(first, posinf=np.inf, neginf=-np.inf),
        np.nan_to_num(second, posinf=np.inf, neginf=-np.inf),
    )
    apart = (h * k < 0.0) | ((h * k == 0.0) & (h + k < 0.0))
    value = 0.5 * (ndtr(h) + ndtr(k)) - owens_t(h, first) - owens_t(k, second) - 0.5 * apart
    value = np.where((h == 0.0) & (k == 0.0), 0.25 + np.arcsin(rho) / (2.0 * np.pi), value)
    value = np.where(rho >= 1.0, ndtr(np.minimum(h, k)), value)
    return np.where(rho <= -1.0, np.maximum(ndtr(h) - ndtr(-k), 0.0), value)


def _conditional(mean: np.ndarray, s: np.ndarray, power: int) -> np.ndarray:
    """E[(mean + s g)₊ⁿ] for n = 0 … power; with s = 0 and mean = 0 the step counts one half."""
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(s > 0.0, mean / s, np.where(mean == 0.0, 0.0, np.copysign(np.inf, mean)))
    moments = [ndtr(t), mean * ndtr(t) + s * _density(t)]
    for n in range(2, power + 1):
        moments.append(mean * moments[n - 1] + (n - 1) * s**2 * moments[n - 2])
    return np.array(moments[: power + 1])


def _density(t: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * t * t) / np.sqrt(2.0 * np.pi)
