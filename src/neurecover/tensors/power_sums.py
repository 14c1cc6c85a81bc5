"""Least squares for sums of symmetric powers of unit vectors.

Given symmetric tensors T̂ⱼ of one or several orders, each with p outputs, find unit vectors wᵢ, scalars sᵢ and A with

    L = Σⱼ cⱼ ‖T̂ⱼ − Tⱼ‖_F²  smallest,     Tⱼ[o] = Σᵢ A_oi hⱼ(sᵢ) wᵢ^{⊗j}.

With h ≡ 1 and one order this is the symmetric CP decomposition of a tensor (p = 1), and for order 2 the
simultaneous diagonalisation of p matrices; with h the Hermite coefficients of an activation it is the
population risk of a network [ATV21, Prop. 3.6].

All inner products of the features depend on the angles ρᵢₗ = wᵢ·wₗ alone, ⟨wᵢ^{⊗j}, wₗ^{⊗j}⟩ = ρᵢₗʲ and derivatives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from neurecover.solve import DenseSystem
from neurecover.tensors.packing import (
    checked,
    flatten,
    ladder,
    monomials,
    multiplicities,
    n_packed,
    root_multiplicities,
)
from neurecover.tensors.separable import Inner, descend, readout, step_system


class Profile(Protocol):
    """The scalar factors hⱼ(s) of the powers."""

    def __call__(self, scalars: np.ndarray, orders: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Return h (J, k) and its derivatives (J, k, m) at scalars (k, m)."""


def constant(scalars: np.ndarray, orders: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return h ≡ 1, without scalars."""
    k = len(scalars)
    return np.ones((len(orders), k)), np.zeros((len(orders), k, 0))


@dataclass(frozen=True)
class PowerSum:
    """Unit vectors W (k, r), scalars (k, m) and weights A (p, k), with the remaining error of the tensors.

    `loss` is L; `relative_error` is √(L / Σ cⱼ‖T̂ⱼ‖²).
    """

    W: np.ndarray
    scalars: np.ndarray
    A: np.ndarray
    loss: float
    relative_error: float
    iterations: int


def fit_power_sum(
    tensors: Mapping[int, np.ndarray],
    W: np.ndarray,
    *,
    scalars: np.ndarray | None = None,
    profile: Profile = constant,
    limits: np.ndarray | None = None,
    weights: Mapping[int, float] | None = None,
    max_iterations: int = 200,
) -> PowerSum:
    """Minimise L from the starting directions W (k, r), normalised on entry, and scalars (k, m).

    tensors maps an order j to the packed T̂ⱼ, (p, n_packed(r, j)); weights maps j to cⱼ, 1 if it is missing.
    The scalars stay within ±limits (m,), because an unlimited search may send h to zero and A to infinity.
    max_iterations = 0 gives the best A for the start.
    """
    W = unit_rows(W)
    scalars = np.zeros((len(W), 0)) if scalars is None else np.asarray(scalars, dtype=float)
    target = Target.of(tensors, W.shape[1], weights or {})
    limits = np.full(scalars.shape[1], np.inf) if limits is None else np.asarray(limits, dtype=float)
    start = PowerPoint(target, profile, W, scalars, limits)
    end, iterations = descend(start, max_iterations)
    relative = float(np.sqrt(end.loss / end.scale)) if end.scale > 0.0 else 0.0
    return PowerSum(end.W, end.scalars, end.A, end.loss, relative, iterations)


def unit_rows(W: np.ndarray) -> np.ndarray:
    """Return every row divided by its norm."""
    norms = np.linalg.norm(W, axis=-1, keepdims=True)
    if not np.all(norms > 0.0):
        raise ValueError(f"Directions need to be finite and not zero. Got norms {norms.ravel()} instead.")
    return np.asarray(W, dtype=float) / norms


@dataclass(frozen=True)
class Target:
    """The tensors to be fitted, side by side in `coordinates` (p, N).

    The coordinates are orthonormal ones times √cⱼ, so that L is a plain sum of squares.
    """

    r: int
    orders: tuple[int, ...]
    c: np.ndarray
    coordinates: np.ndarray
    scale: float

    @classmethod
    def of(cls, tensors: Mapping[int, np.ndarray], r: int, weights: Mapping[int, float]) -> Target:
        orders = tuple(sorted(tensors))
        if not orders or orders[0] < 0:
            raise ValueError(f"At least one tensor of order 0 or more is needed. Got orders {orders} instead.")
        c = np.array([weights.get(j, 1.0) for j in orders])
        if not np.all(c > 0.0):
            raise ValueError(f"The weights of the orders need to be positive. Got {dict(weights)} instead.")
        packed = [np.atleast_2d(checked(tensors[j], r, j)) for j in orders]
        if not all(np.all(np.isfinite(T)) for T in packed):
            raise ValueError("The tensors need to be finite. Got NaN or infinite entries instead.")
        parts = [np.sqrt(cj * multiplicities(r, j)) * T for cj, j, T in zip(c, orders, packed)]
        coordinates = np.concatenate(parts, axis=1)
        return cls(r, orders, c, coordinates, float(np.vdot(coordinates, coordinates)))

    def split(self, coordinates: np.ndarray) -> list[np.ndarray]:
        """Convert coordinates (p, N) to packed tensors, times √cⱼ."""
        sizes = [n_packed(self.r, j) for j in self.orders]
        parts = np.split(coordinates, np.cumsum(sizes)[:-1], axis=1)
        return [part / root_multiplicities(self.r, j) for part, j in zip(parts, self.orders)]


@dataclass(frozen=True)
class PowerPoint:
    """One (W, scalars) with its best A. A step has, for every unit, its scalars and then its w."""

    target: Target
    profile: Profile
    W: np.ndarray
    scalars: np.ndarray
    limits: np.ndarray

    @classmethod
    def plain(cls, target: Target, W: np.ndarray) -> PowerPoint:
        """Return a point without scalars, h ≡ 1."""
        return cls(target, constant, unit_rows(W), np.zeros((len(W), 0)), np.zeros(0))

    @cached_property
    def h(self) -> tuple[np.ndarray, np.ndarray]:
        h, dh = self.profile(self.scalars, self.target.orders)
        root = np.sqrt(self.target.c)[:, None]
        return h * root, dh * root[..., None]

    @cached_property
    def powers(self) -> list[np.ndarray]:
        """w^{⊗j} in orthonormal coordinates for every order up to the highest, each (k, n_packed)."""
        r, steps = self.target.r, ladder(self.W, self.target.orders[-1])
        return [step * root_multiplicities(r, j) for j, step in enumerate(steps)]

    @cached_property
    def features(self) -> np.ndarray:
        """Φ (k, N), in the coordinates of the target."""
        parts = [h[:, None] * self.powers[j] for h, j in zip(self.h[0], self.target.orders)]
        return np.concatenate(parts, axis=1)

    @cached_property
    def A(self) -> np.ndarray:
        return readout(self.target.coordinates, self.features)

    @cached_property
    def residual(self) -> np.ndarray:
        return self.target.coordinates - self.A @ self.features

    @property
    def loss(self) -> float:
        return float(np.vdot(self.residual, self.residual))

    @property
    def scale(self) -> float:
        return self.target.scale

    def moved(self, step: np.ndarray) -> PowerPoint:
        m = self.scalars.shape[1]
        step = step.reshape(len(self.W), -1)
        scalars = np.clip(self.scalars + step[:, :m], -self.limits, self.limits)
        return replace(self, W=unit_rows(self.W + step[:, m:]), scalars=scalars)

    def system(self) -> DenseSystem:
        k, m = self.scalars.shape
        radius = np.concatenate([np.zeros((k, m)), self.W], axis=1)[:, None, :]
        return step_system(self.inner_products(), self.A, self.gradient(), radius)

    def gradient(self) -> np.ndarray:
        """Return −½ ∂L/∂(scalars, w), (k, m + r), without the part along w, which changes nothing."""
        h, dh = self.h
        k, m = self.scalars.shape
        g = np.zeros((k, m + self.target.r))
        for h_j, dh_j, j, R in zip(h, dh, self.target.orders, self.target.split(self.residual)):
            if j == 0:
                g[:, :m] += (self.A.T @ R) * dh_j
                continue
            # ⟨Rₒ, w^{⊗j−1} ⊗ ·⟩ for every output and unit, (p, k, r)
            mixed = self.powers[j - 1] @ flatten(R, self.target.r, (j - 1, 1))
            along = np.einsum("oi,oir->ir", self.A, mixed)
            g[:, :m] += np.einsum("ir,ir->i", along, self.W)[:, None] * dh_j
            g[:, m:] += j * h_j[:, None] * along
        g[:, m:] -= np.einsum("ir,ir->i", g[:, m:], self.W)[:, None] * self.W
        return g

    def inner_products(self) -> Inner:
        h, dh = self.h
        W, (k, m), r = self.W, self.scalars.shape, self.target.r
        rho = W @ W.T
        j = np.array(self.target.orders, dtype=float)[:, None, None]
        # ρʲ and its first two derivatives in ρ, (J, k, k), without negative powers where the factor is zero
        p0 = rho**j
        p1 = j * rho ** np.maximum(j - 1.0, 0.0)
        p2 = j * (j - 1.0) * rho ** np.maximum(j - 2.0, 0.0)
        both = h[:, :, None] * h[:, None, :]
        first, second = np.sum(both * p1, axis=0), np.sum(both * p2, axis=0)
        # tilt[i, l] = wₗ − ρᵢₗ wᵢ, the part of wₗ that is tangent to the sphere at wᵢ
        tilt = W[None, :, :] - rho[:, :, None] * W[:, None, :]
        C = np.empty((k, k, m + r))
        C[:, :, :m] = np.einsum("ji,jla,jil->ila", h, dh, p0)
        C[:, :, m:] = first[:, :, None] * tilt.transpose(1, 0, 2)
        B = np.empty((k, m + r, k, m + r))
        B[:, :m, :, :m] = np.einsum("jia,jlb,jil->ialb", dh, dh, p0)
        cross = np.einsum("jia,jl,jil->ial", dh, h, p1)
        B[:, :m, :, m:] = np.einsum("ial,lib->ialb", cross, tilt)
        B[:, m:, :, :m] = B[:, :m, :, m:].transpose(2, 3, 0, 1)
        projector = np.eye(r) - W[:, :, None] * W[:, None, :]
        both_tangent = np.einsum("iab,lbc->ialc", projector, projector, optimize=True)
        B[:, m:, :, m:] = first[:, None, :, None] * both_tangent
        B[:, m:, :, m:] += np.einsum("il,ila,lic->ialc", second, tilt, tilt, optimize=True)
        return Inner(np.sum(both * p0, axis=0), C, B)


def best_weights(tensors: np.ndarray, W: np.ndarray, order: int) -> np.ndarray:
    """Return the a (p, k) of Σᵢ aᵢ wᵢ^{⊗order} ≈ T for given directions, by linear least squares.

    `tensors` is packed, (p, n_packed). These are the linear systems of [ATV21, Alg. 2].
    """
    root = root_multiplicities(W.shape[1], order)
    features = monomials(W, order) * root
    return np.linalg.lstsq(features.T, (np.atleast_2d(tensors) * root).T, rcond=None)[0].T
