"""A piecewise linear function by its hyperplanes: what is known before the signs of the units are.

    f(x) = L x + c + Σ_j J_j relu(w_j·x + b_j),      w_j a unit vector,

with L (p, d), c (p,), J (p, k), W (k, d), b (k,). The gradient of f jumps by J_j w_jᵀ across hyperplane j. Reversing
w_j changes only L and c, because relu(z) = relu(−z) + z.

A network whose activation is α z + κ relu(z) (ReLU: α = 0, κ = 1; leaky ReLU: α = slope, κ = 1 − slope; |z|: α = −1, κ
= 2) has J_j = κ A_j for either direction of unit j, and

    L = α Σ_j A_j w_jᵀ − (2α + κ) Σ_j s_j A_j w_jᵀ,       s_j = 1 if unit j has to be reversed, else 0.

So the signs solve a linear system in bits. For |z| the factor is zero and every sign is free.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.activations import Activation
from neurecover.exceptions import UnsolvableError
from neurecover.models import Network
from neurecover.models.signs import DEFAULTS as SIGNS
from neurecover.models.signs import find_flips
from neurecover.queries.shallow.lattice import subset_by_lattice
from neurecover.queries.shallow.options import ShallowOptions


class AffinePartError(UnsolvableError):
    """No signs of the units explain the affine part."""


@dataclass(frozen=True, eq=False)
class Planes:
    """L x + c + Σ_j J_j relu(w_j·x + b_j), and `error` (k,), the expected error of every w_j."""

    W: np.ndarray
    b: np.ndarray
    J: np.ndarray
    L: np.ndarray
    c: np.ndarray
    error: np.ndarray

    def __len__(self) -> int:
        return len(self.W)

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return np.maximum(X @ self.W.T + self.b, 0.0) @ self.J.T + X @ self.L.T + self.c

    @classmethod
    def empty(cls, d: int, p: int) -> Planes:
        """Return no hyperplanes, of d inputs and p outputs."""
        return cls(np.zeros((0, d)), np.zeros(0), np.zeros((p, 0)), np.zeros((p, d)), np.zeros(p), np.zeros(0))

    def take(self, units: np.ndarray) -> Planes:
        """Return some of the units, by number or by mask."""
        return replace(self, W=self.W[units], b=self.b[units], J=self.J[:, units], error=self.error[units])

    @classmethod
    def join(cls, parts: list[Planes]) -> Planes:
        """Return all units of the parts, and the sum of their affine parts."""
        return cls(
            np.concatenate([part.W for part in parts]),
            np.concatenate([part.b for part in parts]),
            np.concatenate([part.J for part in parts], axis=1),
            np.sum([part.L for part in parts], axis=0),
            np.sum([part.c for part in parts], axis=0),
            np.concatenate([part.error for part in parts]),
        )

    def with_affine(self, point: np.ndarray, value: np.ndarray, gradient: np.ndarray) -> Planes:
        """Return the units with L and c such that f has this value (p,) and gradient (p, d) at a point in a region."""
        z = self.W @ point + self.b
        L = gradient - (self.J * (z > 0)) @ self.W
        return replace(self, L=L, c=value - L @ point - self.J @ np.maximum(z, 0.0))


def slopes_of(activation: Activation) -> tuple[float, float]:
    """Return the α and κ of act(z) = α z + κ relu(z); raise ValueError for an activation of another shape."""
    right, left = (float(activation(np.array(z))) for z in (1.0, -1.0))
    z = np.array([-3.0, -0.5, 0.0, 0.25, 7.0])
    alpha, kappa = -left, right + left
    if kappa == 0.0 or not np.allclose(activation(z), alpha * z + kappa * np.maximum(z, 0.0), rtol=1e-12):
        raise ValueError(f"expected an activation with two linear pieces, such as relu. Got {activation} instead.")
    return alpha, kappa


def orient(planes: Planes, activation: Activation, tolerance: float, options: ShallowOptions) -> Network:
    """Return the network of these hyperplanes, with signs of the units for which no affine part remains.

    `tolerance` is the relative misfit ‖L − Σ …‖ up to which an assignment of signs is accepted.
    """
    alpha, kappa = slopes_of(activation)
    A, m = planes.J / kappa, 2.0 * alpha + kappa
    excess = alpha * (A @ planes.W) - planes.L
    size = max(float(np.linalg.norm(A, axis=0).sum()), float(np.linalg.norm(planes.L)), 1e-300)
    if m == 0.0:
        flips = np.zeros(len(planes), dtype=bool)
        misfit = float(np.linalg.norm(excess)) / size
    else:
        flips = _find_flips(A, planes.W, excess, m, tolerance, float(planes.error.max(initial=0.0)), options)
        misfit = float(np.linalg.norm(m * (A * flips) @ planes.W - excess)) / size
    if misfit > tolerance:
        raise AffinePartError(
            f"No signs of the {len(planes)} units make the oracle a network with one hidden layer of {activation}: "
            f"an affine part of relative size {misfit:.1e} remains, as from units whose kinks are too far away, or "
            "from two units on one hyperplane with opposite directions."
        )
    sign = np.where(flips, -1.0, 1.0)
    # To κ relu(z) a unit adds α z as it stands, and −(α + κ) z when reversed.
    extra = A * np.where(flips, -(alpha + kappa), alpha)
    c = planes.c - extra @ planes.b
    return Network(planes.W * sign[:, None], planes.b * sign, A, c, activation)


def _find_flips(
    A: np.ndarray, W: np.ndarray, excess: np.ndarray, m: float, tolerance: float, error: float, options: ShallowOptions
) -> np.ndarray:
    """Return which units (k,) have to be reversed: by search, or by lattice reduction if there are many."""
    k, equations = len(W), A.shape[0] * W.shape[1]
    if k <= equations + SIGNS.enumerated or k <= SIGNS.meet // 2:
        return find_flips(A, W, excess, m, tolerance).flips[0]
    columns = m * np.einsum("oj,jd->odj", A, W).reshape(-1, k)
    return subset_by_lattice(columns, excess.ravel(), error, options)
