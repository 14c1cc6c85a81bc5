"""Step 1 of [GP18, §2.1 and B.4] by landscape design: objectives whose only local minima are the units.

Above a high threshold f(x) ≈ Σᵢ cᵢ u(wᵢ·x) in mean, so that T₂ = E[f He₂(x)] ≈ Σ aᵢ wᵢwᵢᵀ and
T₄ = E[f He₄(x)] ≈ Σ eᵢ wᵢ^{⊗4} with aᵢ = cᵢ h₂, eᵢ = cᵢ h₄. With s₂, s₄ their signs and T = diag(√|aᵢ|),

    G(z) = −s₄ T₄(z, z, z, z) + λ (s₂ T₂(z, z) − 1)²
    G(Z) = Σ_{j≠l} s₄ T₄(zⱼ, zⱼ, z_l, z_l) − γ Σⱼ s₄ T₄(zⱼ, zⱼ, zⱼ, zⱼ) + λ Σⱼ (s₂ T₂(zⱼ, zⱼ) − 1)²

have their local minima at multiples of the columns of (TW)⁻¹, G(Z) at all of them at once. The inverse of these columns
has the wᵢ in its rows, up to scale and sign. Everything here is a function of the two moments: its cost does not
depend on the number of samples.

û₂ and û₄ of the paper are those of normalised polynomials, h₂/√2 and h₄/√24; here they are absorbed into T₂ and T₄,
which changes λ by a factor and the minima by none. The ψ that the paper prints for G(Z) has +4(v·x)(w·x)(v·w), where
He₄(v, v, w, w) = 2H₂(v·x)H₂(w·x) + 2(v·w)² − 4(v·x)(w·x)(v·w); only with the minus is its mean Σ eᵢ(v·wᵢ)²(w·wᵢ)².
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from neurecover.exceptions import UnsolvableError
from neurecover.tensors import whitening
from neurecover.tensors.packing import checked, unpack

Objective = Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Landscape:
    """s₂T₂ as a matrix M (r, r), s₄T₄ in full (r, r, r, r) and the weight λ of the constraint."""

    M: np.ndarray
    fourth: np.ndarray
    weight: float

    @classmethod
    def of(cls, second: np.ndarray, fourth: np.ndarray, weight: float | None = None) -> Landscape:
        """Return the landscape of T₂ (r, r) and packed T₄, with both signs; λ is twice what keeps G bounded below.

        In coordinates with M = I, T₄ = Σ (eᵢ/aᵢ²) yᵢ^{⊗4} with orthonormal yᵢ, and G is bounded below
        for λ > max |eᵢ|/aᵢ², the norm of T₄ as an r² × r² matrix: the λ = Θ(|û₄|/û₂²) of [GP18, Claim 2].
        """
        r = len(second)
        M, T4 = np.asarray(second, dtype=float), unpack(checked(fourth, r, 4), r, 4)
        values = np.linalg.eigvalsh(M)
        s2 = 1.0 if abs(values[-1]) >= abs(values[0]) else -1.0
        B = _whitening(s2 * M)
        white = _turn(T4, B)
        s4 = 1.0 if np.einsum("aabb", white) >= 0.0 else -1.0
        norm = float(np.linalg.norm(white.reshape(r * r, r * r), 2))
        if norm == 0.0:
            raise UnsolvableError("The fourth Hermite coefficients are zero, so no direction can be read from them.")
        return cls(s2 * M, s4 * T4, 2.0 * norm if weight is None else weight)

    def one(self, z: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Return G(z), its gradient (r,) and its Hessian (r, r)."""
        twice = np.tensordot(np.tensordot(self.fourth, z, 1), z, 1)
        thrice, Mz = twice @ z, self.M @ z
        excess = z @ Mz - 1.0
        value = -thrice @ z + self.weight * excess**2
        gradient = -4.0 * thrice + 4.0 * self.weight * excess * Mz
        hessian = -12.0 * twice + 4.0 * self.weight * (excess * self.M + 2.0 * np.outer(Mz, Mz))
        return float(value), gradient, hessian

    def all(self, Z: np.ndarray, gamma: float = 0.01) -> tuple[float, np.ndarray, np.ndarray]:
        """Return G(Z) for rows zⱼ of Z (k, r), its gradient (k, r) and its Hessian (k·r, k·r).

        γ = 0.01 suffices [GP18, Theorem 11].
        """
        k, r = Z.shape
        contracted = np.einsum("abcd,jc,jd->jab", self.fourth, Z, Z, optimize=True)  # T₄(·, ·, zⱼ, zⱼ)
        others = contracted.sum(axis=0) - contracted
        mixed = np.einsum("jab,jb->ja", others, Z)
        own = np.einsum("jab,jb->ja", contracted, Z)
        MZ = Z @ self.M
        excess = np.einsum("ja,ja->j", MZ, Z) - 1.0
        value = np.vdot(mixed, Z) - gamma * np.vdot(own, Z) + self.weight * excess @ excess
        gradient = 4.0 * mixed - 4.0 * gamma * own + 4.0 * self.weight * excess[:, None] * MZ
        hessian = 8.0 * np.einsum("abcd,jc,ld->jalb", self.fourth, Z, Z, optimize=True)
        for j in range(k):
            outer = 2.0 * np.outer(MZ[j], MZ[j])
            hessian[j, :, j, :] = 4.0 * others[j] - 12.0 * gamma * contracted[j]
            hessian[j, :, j, :] += 4.0 * self.weight * (excess[j] * self.M + outer)
        return float(value), gradient, hessian.reshape(k * r, k * r)


def one_by_one(second: np.ndarray, fourth: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the r units as unit rows (r, r), up to sign, one local minimum of G(z) after the other [GP18, §2.1].

    Each search starts at random in the complement of the minima found so far.
    A trust-region method with exact Hessians leaves every strict saddle.
    """
    flat, B = _flat(second, fourth)
    r = len(B)
    found = np.empty((0, r))
    point = rng.standard_normal(r)
    for _ in range(20 * r):
        y = _minimum(flat.one, point)
        direction = y / np.linalg.norm(y)
        # Distinct minima are orthogonal in these coordinates.
        if not np.any(np.abs(found @ direction) > 0.9):
            found = np.concatenate([found, direction[None]])
        if len(found) == r:
            return units_of(found @ B.T)
        point = rng.standard_normal(r)
        point -= found.T @ np.linalg.lstsq(found.T, point, rcond=None)[0]
        point /= np.linalg.norm(point)
    raise UnsolvableError(
        f"The landscape shows {len(found)} distinct minima where {r} units were expected. The threshold may be too low "
        "for the linear part to stand out, or the samples too few; the tensor path needs less of both."
    )


def simultaneous(second: np.ndarray, fourth: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the r units as unit rows (r, r), up to sign, from one local minimum of G(Z) [GP18, B.4]."""
    flat, B = _flat(second, fourth)
    r = len(B)
    Y = rng.standard_normal((r, r)) / np.sqrt(r)

    def objective(v: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        value, gradient, hessian = flat.all(v.reshape(r, r))
        return value, gradient.ravel(), hessian

    return units_of(_minimum(objective, Y.ravel()).reshape(r, r) @ B.T)


def units_of(Z: np.ndarray) -> np.ndarray:
    """Return the unit vectors wᵢ from rows zᵢ that are multiples of the columns of (TW)⁻¹: those of Z⁻ᵀ, normalised."""
    if np.linalg.cond(Z) > 1e8:
        raise UnsolvableError("The minima found are linearly dependent, so they cannot be turned into units.")
    W = np.linalg.inv(Z).T
    return W / np.linalg.norm(W, axis=1, keepdims=True)


def _flat(second: np.ndarray, fourth: np.ndarray) -> tuple[Landscape, np.ndarray]:
    """Return the landscape in coordinates y, z = B y and BᵀMB = I, with λ = 1: the same minima, well conditioned."""
    landscape = Landscape.of(second, fourth)
    B = _whitening(landscape.M)
    white = _turn(landscape.fourth, B) / landscape.weight
    return Landscape(np.eye(len(B)), white, 1.0), B


def _whitening(M: np.ndarray) -> np.ndarray:
    try:
        return whitening(M, len(M))
    except UnsolvableError:
        values = np.linalg.eigvalsh(M)
        raise UnsolvableError(
            "The landscape needs second Hermite coefficients of one sign, as positive linear terms give. Got "
            f"eigenvalues from {values[0]:.3g} to {values[-1]:.3g}. Use the tensors instead; if k < d, "
            "project the inputs first."
        ) from None


def _turn(tensor: np.ndarray, B: np.ndarray) -> np.ndarray:
    for _ in range(4):
        tensor = np.tensordot(tensor, B, axes=(0, 0))
    return tensor


def _minimum(objective: Objective, start: np.ndarray) -> np.ndarray:
    """Return a local minimum by a trust-region Newton method, whose exact steps follow negative curvature."""
    from scipy.optimize import minimize

    # scipy's stubs know this call only with literal options.
    search: Any = minimize
    return search(
        lambda v: objective(v)[:2],
        start,
        jac=True,
        hess=lambda v: objective(v)[2],
        method="trust-exact",
        options={"gtol": 1e-12, "maxiter": 2_000},
    ).x
