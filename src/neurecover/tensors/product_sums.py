"""Least squares for sums of products: unit uᵢ, vᵢ and free tᵢ with ‖T̂ − Σᵢ uᵢ ⊗ vᵢ ⊗ tᵢ‖_F² smallest.

The tᵢ are linear and eliminated; the inner products of uᵢ ⊗ vᵢ and their derivatives follow from the angles
uᵢ·uₗ and vᵢ·vₗ.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from neurecover.solve import DenseSystem
from neurecover.tensors.power_sums import unit_rows
from neurecover.tensors.separable import Inner, readout, step_system


@dataclass(frozen=True)
class ProductPoint:
    """One (U, V), rows uᵢ and vᵢ of unit length, with the best t; the step's parameters per unit are u, then v."""

    tensor: np.ndarray
    U: np.ndarray
    V: np.ndarray

    @cached_property
    def features(self) -> np.ndarray:
        return (self.U[:, :, None] * self.V[:, None, :]).reshape(len(self.U), -1)

    @cached_property
    def A(self) -> np.ndarray:
        """The tᵢ as columns, (d₃, k)."""
        return readout(self._target, self.features)

    @cached_property
    def residual(self) -> np.ndarray:
        return self._target - self.A @ self.features

    @property
    def loss(self) -> float:
        return float(np.vdot(self.residual, self.residual))

    @cached_property
    def scale(self) -> float:
        return float(np.vdot(self.tensor, self.tensor))

    @property
    def _target(self) -> np.ndarray:
        return self.tensor.reshape(-1, self.tensor.shape[2]).T

    def moved(self, step: np.ndarray) -> ProductPoint:
        du, dv = np.split(step.reshape(len(self.U), -1), [self.U.shape[1]], axis=1)
        return ProductPoint(self.tensor, unit_rows(self.U + du), unit_rows(self.V + dv))

    def system(self) -> DenseSystem:
        (k, d1), d2 = self.U.shape, self.V.shape[1]
        radii = np.zeros((k, 2, d1 + d2))
        radii[:, 0, :d1], radii[:, 1, d1:] = self.U, self.V
        return step_system(self.inner_products(), self.A, self.gradient(), radii)

    def gradient(self) -> np.ndarray:
        R = (self.A.T @ self.residual).reshape(len(self.U), self.U.shape[1], self.V.shape[1])
        gu, gv = np.einsum("iab,ib->ia", R, self.V), np.einsum("iab,ia->ib", R, self.U)
        return np.concatenate([_tangent(gu, self.U), _tangent(gv, self.V)], axis=1)

    def inner_products(self) -> Inner:
        (k, d1), d2 = self.U.shape, self.V.shape[1]
        rho_u, rho_v = self.U @ self.U.T, self.V @ self.V.T
        tilt_u, tilt_v = _tilt(self.U, rho_u), _tilt(self.V, rho_v)
        C = np.concatenate(
            [rho_v[..., None] * tilt_u.transpose(1, 0, 2), rho_u[..., None] * tilt_v.transpose(1, 0, 2)], axis=2
        )
        B = np.empty((k, d1 + d2, k, d1 + d2))
        B[:, :d1, :, :d1] = rho_v[:, None, :, None] * _both_tangent(self.U)
        B[:, d1:, :, d1:] = rho_u[:, None, :, None] * _both_tangent(self.V)
        B[:, :d1, :, d1:] = np.einsum("ila,lib->ialb", tilt_u, tilt_v)
        B[:, d1:, :, :d1] = B[:, :d1, :, d1:].transpose(2, 3, 0, 1)
        return Inner(rho_u * rho_v, C, B)


def _tangent(g: np.ndarray, U: np.ndarray) -> np.ndarray:
    return g - np.einsum("ia,ia->i", g, U)[:, None] * U


def _tilt(U: np.ndarray, rho: np.ndarray) -> np.ndarray:
    """tilt[i, l] = uₗ − ρᵢₗ uᵢ"""
    return U[None, :, :] - rho[:, :, None] * U[:, None, :]


def _both_tangent(U: np.ndarray) -> np.ndarray:
    """(I − uᵢuᵢᵀ)(I − uₗuₗᵀ), (k, d, k, d)"""
    projector = np.eye(U.shape[1]) - U[:, :, None] * U[:, None, :]
    return np.einsum("iab,lbc->ialc", projector, projector, optimize=True)
