"""A piecewise linear function by its hyperplanes: what is known before the signs of the units are.

    f(x) = L x + c + Σ_j J_j relu(w_j·x + b_j),      w_j a unit vector,

with L (p, d), c (p,), J (p, k), W (k, d), b (k,). The gradient of f jumps by J_j w_jᵀ across hyperplane j. Reversing
w_j changes only L and c, because relu(z) = relu(−z) + z.

A network whose activation is α z + κ relu(z) (ReLU: α = 0, κ = 1; leaky ReLU: α = slope, κ = 1 − slope; |z|: α = −1, κ
= 2) has J_j = κ A_j for either direction of unit j, and

    L = α Σ_j A_j w_jᵀ − (2α + κ) Σ_j s_j A_j w_jᵀ,       s_j = 1 if unit j has to be reversed, else 0.

So the signs solve a linear system in bits. For |z| the factor is zero and every sign is free.

If the slope a of the left piece is not known, the right one being 1, then with signs ε_j = ±1

    2 L + Σ_j J_j w_jᵀ = μ Σ_j ε_j J_j w_jᵀ,        μ = (1 + a) / (1 − a).

Orthogonal to the left-hand side, which is known, nothing may remain: one equation fewer, with bits alone. Of ε and −ε
the one with μ > 0 is meant; the other has the pieces exchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.activations import Activation
from neurecover.exceptions import UnsolvableError
from neurecover.models import Network
from neurecover.models.signs import DEFAULTS as SIGNS
from neurecover.models.signs import find_flips, find_subsets

_DIGITS = 4  # decimals of a slope that is taken to be written down: one in five hundred others is as near at 1e-7


class AffinePartError(UnsolvableError):
    """No signs of the units explain the affine part; `candidate` is the network that has one beside its units.

    `searched` says that all signs were tried; otherwise they were too many for that.
    """

    candidate: object = None
    searched: bool = True


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


@dataclass(frozen=True, eq=False)
class Oriented:
    """A network without an affine part; `unique` says that all signs were searched and no others leave none."""

    network: Network
    unique: bool


def orient(planes: Planes, activation: Activation, tolerance: float) -> Oriented:
    """Return the network of these hyperplanes, with signs of the units for which no affine part remains.

    `tolerance` is the relative misfit ‖L − Σ …‖ up to which an assignment of signs is accepted.
    """
    alpha, kappa = slopes_of(activation)
    A, m = planes.J / kappa, 2.0 * alpha + kappa
    excess = alpha * (A @ planes.W) - planes.L
    size = max(float(np.linalg.norm(A, axis=0).sum()), float(np.linalg.norm(planes.L)), 1e-300)
    if m == 0.0:
        flips, unique, complete = np.zeros(len(planes), dtype=bool), False, True
        misfit = float(np.linalg.norm(excess)) / size
    else:
        search = find_flips(A, planes.W, excess, m, tolerance)
        flips, unique, complete = search.flips[0], search.complete and len(search.flips) == 1, search.complete
        misfit = float(np.linalg.norm(m * (A * flips) @ planes.W - excess)) / size
    if misfit > tolerance:
        error = AffinePartError(
            f"No signs of the {len(planes)} units were found that make the oracle a network with one hidden layer of "
            f"{activation}: an affine part of relative size {misfit:.1e} remains, as from units whose kinks are too "
            "far away, from two units on one hyperplane with opposite directions, or from more units than the digits "
            "of the answers tell apart."
            if complete
            else f"The signs of {len(planes)} units are too many to be searched with {excess.size} equations: the "
            "hyperplanes and their jumps are known, and in place of the signs the network has an affine term C x."
        )
        error.searched = complete
        raise error
    sign = np.where(flips, -1.0, 1.0)
    # To κ relu(z) a unit adds α z as it stands, and −(α + κ) z when reversed.
    extra = A * np.where(flips, -(alpha + kappa), alpha)
    c = planes.c - extra @ planes.b
    return Oriented(Network(planes.W * sign[:, None], planes.b * sign, A, c, activation), unique)


def find_slope(planes: Planes, tolerance: float, spare_bits: int) -> float | None:
    """Return the slope a of the left piece, the right one being 1, for which some signs leave no affine part.

    None if there is none, or if the equations do not have `spare_bits` more digits than there are signs: then some
    slope would be found for any function. `tolerance` is as in `orient`.
    """
    columns = np.einsum("oj,jd->odj", planes.J, planes.W).reshape(-1, len(planes))
    ahead = 2.0 * planes.L.ravel() + columns.sum(axis=1)
    size, length = float(np.linalg.norm(planes.J, axis=0).sum()), float(np.linalg.norm(ahead))
    if len(planes) < 2 or (len(columns) - 1) * np.log2(1.0 / tolerance) < len(planes) + spare_bits:
        return None
    if length <= tolerance * size:
        return -1.0
    along = ahead / length
    across = columns - np.outer(along, along @ columns)
    search = find_subsets(across, 0.5 * across.sum(axis=1), tolerance)
    signs = 2.0 * search.flips[0] - 1.0
    reach = float(along @ columns @ signs)
    if np.linalg.norm(across @ signs) > tolerance * size or abs(reach) <= tolerance * size:
        return None
    mu = length / abs(reach)
    slope = (mu - 1.0) / (mu + 1.0)
    # A slope that somebody wrote down has few digits; one that was learned is as measured.
    short = round(slope, _DIGITS)
    return short if abs(short - slope) <= 2.0 * tolerance * size / length else slope


def has_many_units(planes: Planes) -> bool:
    """Return whether units so outnumber equations that the choice of their signs could fit any right-hand side to all
    digits.
    """
    return len(planes) > planes.L.size + SIGNS.enumerated


def affine_error(planes: Planes) -> float:
    """Return the error √(Σ_j ‖J_j‖² δ_j²) of Σ_j s_j J_j w_jᵀ, with those of the rows, relative to the size of J."""
    size = np.linalg.norm(planes.J, axis=0)
    return float(np.linalg.norm(size * planes.error)) / max(float(np.linalg.norm(size)), 1e-300)


def with_affine_term(planes: Planes, activation: Activation) -> Network:
    """Return the hyperplanes as units of either sign beside an affine term C x, where their signs are not known."""
    alpha, kappa = slopes_of(activation)
    A = planes.J / kappa
    # act(z) = α z + κ relu(z), so that α z is subtracted again.
    C, c = planes.L - alpha * A @ planes.W, planes.c - alpha * A @ planes.b
    return Network(planes.W, planes.b, A, c, activation, C=C)
