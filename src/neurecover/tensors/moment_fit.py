"""Fit a network to Hermite moments by minimising the population risk of [ATV21, Prop. 3.6].

For x ~ N(0, I) and y = Σᵢ A_oi act(wᵢ·x + bᵢ), with s = ‖w‖ and ŵ = w/s,

    Tⱼ[o] = E[yₒ Heⱼ(x)] = Σᵢ A_oi Fⱼ(bᵢ, sᵢ) ŵᵢ^{⊗j},      Fⱼ(b, s) = E[act(s g + b) Heⱼ(g)] = sʲ E[act⁽ʲ⁾(s g + b)],

and the squared distance of two networks is  L = Σⱼ ‖Tⱼ − T̂ⱼ‖_F² / j!, whatever the number of samples behind T̂.
Orders up to 4 determine a network whose rows are independent. The derivatives come from the coefficients themselves,

    ∂Fⱼ/∂b = Fⱼ₊₁ / s,        ∂Fⱼ/∂(log s) = j Fⱼ + Fⱼ₊₂        (heat equation).

If act(s z) = s^h act(z), the norm is only a factor of A and b: Fⱼ(b, s) = s^h hⱼ(b/s), and the rows have unit norm in
the fit. For other activations the norm is a parameter like b.

Orders 0 and 1 also contain any affine part that is added to the network; leave them out if there is one. Without
them a relu's (w, b) is determined up to its sign [ATV21, Theorem 3.4], and the search from random starts is easier: a
unit with the wrong sign is a local minimum only with them. Measured for relu from random starts, exact moments,
k = r = 16, p = 4: 10 of 10 succeed with orders (2, 3, 4), 5 of 10 with (0, …, 4).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import factorial

import numpy as np

from neurecover.activations import Activation, scaled_hermite
from neurecover.tensors.packing import rank_one
from neurecover.tensors.power_sums import Profile, fit_power_sum, unit_rows

# Beyond |b| = 5 or |log s| = 2 a search cannot return: a unit adds almost nothing to orders above 1, φ(5) < 2e-6.
_LIMITS = np.array([5.0, 2.0])


@dataclass(frozen=True)
class MomentFit:
    """W (k, r), b (k,), A (p, k), and the remaining L; √L is a root mean square of outputs."""

    W: np.ndarray
    b: np.ndarray
    A: np.ndarray
    loss: float
    iterations: int


def fit_moments(
    moments: Mapping[int, np.ndarray],
    W: np.ndarray,
    b: np.ndarray,
    activation: Activation,
    *,
    weights: Mapping[int, float] | None = None,
    max_iterations: int = 300,
) -> MomentFit:
    """Minimise Σⱼ (weightⱼ / j!) ‖Tⱼ − T̂ⱼ‖_F² from the start W (k, r), b (k,).

    moments maps the orders used to packed T̂ⱼ, (p, n_packed(r, j)); a missing weight is 1. A needs no start, because
    the problem is linear in A. W is returned with unit rows if the activation is positively homogeneous.
    """
    W, b = np.asarray(W, dtype=float), np.asarray(b, dtype=float)
    norms = np.linalg.norm(W, axis=1)
    directions = unit_rows(W)
    homogeneous = activation.homogeneity is not None
    scalars = (b / norms)[:, None] if homogeneous else np.column_stack([b, np.log(norms)])
    fit = fit_power_sum(
        moments,
        directions,
        scalars=scalars,
        profile=unit_profile(activation) if homogeneous else scaled_profile(activation),
        limits=np.maximum(_LIMITS[: scalars.shape[1]], np.abs(scalars).max(axis=0)),
        weights={j: (weights or {}).get(j, 1.0) / factorial(j) for j in moments},
        max_iterations=max_iterations,
    )
    scale = np.ones(len(W)) if homogeneous else np.exp(fit.scalars[:, 1])
    return MomentFit(fit.W * scale[:, None], fit.scalars[:, 0], fit.A, fit.loss, fit.iterations)


def network_moments(
    W: np.ndarray, b: np.ndarray, A: np.ndarray, activation: Activation, orders: tuple[int, ...]
) -> dict[int, np.ndarray]:
    """Return the packed Tⱼ (p, n_packed) of a network under x ~ N(0, I) [ATV21, Lemma 3.5], for W of any row norms."""
    F = scaled_hermite(activation, b, np.linalg.norm(W, axis=1), max(orders))
    directions = unit_rows(W)
    return {j: rank_one(directions, j, A * F[j]) for j in orders}


def unit_profile(activation: Activation) -> Profile:
    def profile(scalars: np.ndarray, orders: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        h = activation.hermite(scalars[:, 0], max(orders) + 1)
        j = np.array(orders)
        return h[j], h[j + 1][..., None]

    return profile


def scaled_profile(activation: Activation) -> Profile:
    def profile(scalars: np.ndarray, orders: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        s = np.exp(scalars[:, 1])
        F = scaled_hermite(activation, scalars[:, 0], s, max(orders) + 2)
        j = np.array(orders)
        by_scale = j[:, None] * F[j] + F[j + 2]
        return F[j], np.stack([F[j + 1] / s, by_scale], axis=2)

    return profile
