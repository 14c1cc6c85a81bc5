"""The conditions of [GP18] as functions: how high thresholds need to be, and which upper parts are within reach.

With ρ(t, σ) = E[u(σ g − t)] and μ = κ(W) ρ(t, ‖W‖) a product of m units has a mean of at most μ^m: their inputs
b = W_S x have the density

    (2π)^{−m/2} det(W_S W_Sᵀ)^{−1/2} e^{−bᵀ(W_S W_Sᵀ)⁻¹b/2} ≤ (σ_min √2π)^{−m} e^{−‖b‖²/(2‖W‖²)}.

All products of k units with coefficients up to C then add at most

    E|f − f_lin| ≤ C Σ_{m ≥ 2} (k over m) μ^m

to the linear part, whose terms have the mean cᵢ ρ(t, 1). This is Lemma 1 and Lemma 2 put right. The paper has
ρ(t, 1) μ^{m−1}, whose proof splits e^{−b₁²/2} from the other factors as if these did not depend on b₁; two ReLU units
at a cosine of 0.6 and t = 1.2 have a mean of 0.0202, and it gives 0.0130.
"""

from __future__ import annotations

from math import comb, sqrt

import numpy as np
from numpy.typing import ArrayLike

from neurecover import activations
from neurecover.activations import Activation
from neurecover.models import Polynomial


def mean_activation(threshold: float, scale: float = 1.0, activation: str | Activation = "relu") -> float:
    """Return ρ(t, σ) = E[u(σ g − t)] of a unit whose row has the length σ."""
    act = activations.get(activation)
    return float(activations.scaled_hermite(act, np.array([-threshold]), np.array([scale]), 0)[0, 0])


def product_bound(W: ArrayLike, threshold: float, size: int, activation: str | Activation = "relu") -> float:
    """Return the bound (κ(W) ρ(t, ‖W‖))^m on the mean of a product of m units [GP18, Lemma 1, put right].

    The rows of W are unit vectors and independent; otherwise κ is infinite, and so is the bound.
    """
    return _decay(W, threshold, activation) ** size


def nonlinear_share(
    W: ArrayLike, threshold: float, activation: str | Activation = "relu", largest: float = 1.0
) -> float:
    """Return the bound on E|f − f_lin| over the mean of one unit, for products with coefficients up to `largest`."""
    mu, k = _decay(W, threshold, activation), len(np.asarray(W))
    alone = mean_activation(threshold, 1.0, activation)
    return largest * sum(comb(k, m) * mu**m for m in range(2, k + 1)) / max(alone, np.finfo(float).tiny)


def planned_threshold(
    W: ArrayLike, activation: str | Activation = "relu", share: float = 0.5, largest: float = 1.0
) -> float:
    """Return the least t at which products add at most `share` of the mean of one linear term, by Lemmas 1 and 2.

    That is where Step 1 rests on solid ground; it works below, where the bound says nothing.
    """
    if not share > 0.0:
        raise ValueError(f"share needs to be a positive number. Got {share} instead.")
    low, high = 0.0, 20.0  # where no unit of a unit row is ever active
    if np.isinf(_decay(W, 1.0, activation)) or nonlinear_share(W, high, activation, largest) > share:
        raise ValueError("No threshold will do: the rows of W are dependent, or nearly so.")
    if nonlinear_share(W, low, activation, largest) <= share:
        return 0.0
    while high - low > 1e-9:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if nonlinear_share(W, middle, activation, largest) <= share else (middle, high)
    return high


def linear_coefficients(upper: Polynomial, mean: float) -> np.ndarray:
    """Return the coefficients (p, k) of Xᵢ in P(μ(X₁ + 1), …, μ(X_k + 1)), μ ∂P/∂Xᵢ at (μ, …, μ) [GP18, Corollary 1].

    Step units with orthogonal rows can be found where these exceed ε₃ μ, the mean μ = E[Xⱼ] of a unit, whether P has
    linear terms or not.
    """
    k = upper.exponents.shape[1]
    return mean * upper.derivatives(np.full((1, k), mean))[0]


def even_margins(upper: Polynomial, activation: str | Activation) -> np.ndarray:
    """Return αᵢ + αⱼ − γᵢⱼ (k, k), positive for all i ≠ j where Theorem 10 finds the units; the diagonal is inf.

    On the sphere T₄(z⁴)/√24 = Σ αᵢ zᵢ⁴ + Σ_{i<j} γᵢⱼ zᵢ² zⱼ², with C(S, μ) = Σ_{S ⊆ S′} c_{S′} μ^{|S′|},

        αᵢ = û₄ C({i}, û₀)/û₀,        γᵢⱼ = √6 û₂² C({i, j}, û₀)/û₀²,

    for P of degree one in each variable, one output and normalised Hermite coefficients û. (The paper prints 6 for √6:
    E[h₂(x₁) h₂(x₂) h₄(z·x)] = √(4!/(2! 2!)) z₁² z₂².) Both carry the sign of û₄, towards which the search climbs.
    """
    act = activations.get(activation)
    if act.reflection != (1.0, 0.0):
        raise ValueError(f"Theorem 10 is for activations with u(−z) = u(z), such as abs. Got {act} instead.")
    if len(upper.coefficients) != 1 or upper.exponents.max(initial=0) > 1:
        raise ValueError("Theorem 10 is for one output and a polynomial of degree one in each variable.")
    h = np.asarray(act.hermite(0.0, 4))
    u0, u2, u4 = float(h[0]), float(h[2]) / sqrt(2.0), float(h[4]) / sqrt(24.0)
    used, c = upper.exponents > 0, upper.coefficients[0]
    size = used.sum(axis=1)
    # C({i}, û₀)/û₀ and C({i, j}, û₀)/û₀², without a division by û₀ = 0
    single = np.where(used, c[:, None] * u0 ** np.maximum(size - 1, 0)[:, None], 0.0).sum(axis=0)
    both = used[:, :, None] & used[:, None, :]
    double = np.where(both, (c * u0 ** np.maximum(size - 2, 0))[:, None, None], 0.0).sum(axis=0)
    alpha, gamma = u4 * single, sqrt(6.0) * u2**2 * double
    margins = np.sign(u4) * (alpha[:, None] + alpha[None, :] - gamma)
    np.fill_diagonal(margins, np.inf)
    return margins


def _decay(W: ArrayLike, threshold: float, activation: str | Activation) -> float:
    """Return μ = κ(W) ρ(t, ‖W‖)."""
    values = np.linalg.svd(np.atleast_2d(np.asarray(W, dtype=float)), compute_uv=False)
    if values[-1] <= 0.0 or len(values) < len(np.asarray(W)):
        return np.inf
    return float(values[0] / values[-1]) * mean_activation(threshold, float(values[0]), activation)
