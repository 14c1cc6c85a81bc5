"""Solve (S + λD) δ = g by conjugate gradients, for an S that is given only by its products with vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigvalsh_tridiagonal

from neurecover.solve.deadline import Deadline

Operator = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Solution:
    """x with its residual b − M x, and the step lengths α and ratios β of the iteration."""

    x: np.ndarray
    residual: np.ndarray
    lengths: tuple[float, ...]
    ratios: tuple[float, ...]

    @property
    def n_products(self) -> int:
        return len(self.lengths)

    @property
    def ritz_values(self) -> np.ndarray:
        """The roots θ of the polynomial q, q(0) = 1, with x* − x = q(C⁻¹M) x*: eigenvalues of Lanczos' matrix.

        Its diagonal is 1/α_j + β_{j−1}/α_{j−1}, and its off-diagonal √β_j/α_j.
        """
        alpha, beta = np.array(self.lengths), np.array(self.ratios[: len(self.lengths) - 1])
        if not len(alpha):
            return np.zeros(0)
        diagonal = 1.0 / alpha
        diagonal[1:] += beta / alpha[:-1]
        return eigvalsh_tridiagonal(diagonal, np.sqrt(beta) / alpha[:-1])


def conjugate_gradients(
    product: Operator,
    right: np.ndarray,
    precondition: Operator,
    *,
    tolerance: float,
    max_products: int,
    deadline: Deadline | None = None,
    start: tuple[np.ndarray, np.ndarray] | None = None,
) -> Solution:
    """Solve M x = b for a symmetric positive definite M, from x = 0, in the precision of `right`.

    `precondition` is C⁻¹ for some C near M. The iteration ends when √(r·C⁻¹r) has fallen to `tolerance` of its value at
    x = 0, after `max_products`, at the deadline, or if rounding leaves no direction of positive curvature. Every
    iterate lowers ½ x·M x − b·x, so even an early one is a step downhill. `start` is another x to begin at, with its
    residual b − M x; it is ignored if its residual is larger than that of x = 0.
    """
    x, r = np.zeros_like(right), right.copy()
    z = precondition(r)
    rz = float(np.vdot(r, z))
    goal = tolerance**2 * rz
    if start is not None:
        closer = precondition(start[1])
        if (left := float(np.vdot(start[1], closer))) < rz:
            x, r, z, rz = start[0].copy(), start[1].copy(), closer, left
    direction = z.copy()
    lengths: list[float] = []
    ratios: list[float] = []
    while rz > goal and len(lengths) < max_products and not (deadline is not None and deadline.passed):
        image = product(direction)
        curvature = float(np.vdot(direction, image))
        if not curvature > 0.0:
            break
        lengths.append(rz / curvature)
        length = right.dtype.type(lengths[-1])
        x += length * direction
        r -= length * image
        z = precondition(r)
        rz, before = float(np.vdot(r, z)), rz
        ratios.append(rz / before)
        direction = z + right.dtype.type(ratios[-1]) * direction
    return Solution(x, r, tuple(lengths), tuple(ratios))


class ConjugateSystem:
    """The equations (S + λD) δ = g with S as an operator.

    `preconditioner(λ)` returns C⁻¹ for a C near S + λD. Both operators take and return vectors in the precision
    `dtype`; g is first scaled to unit length, so that single precision does not underflow if g is small.
    `offset` is a decrease that every step adds. `cut_short` says that the last solution ended at `max_products`.

    After a rejected step the same S is solved with another λ′. From (S + λD) δ = g − r, the residual of the last δ at
    λ′ is r − (λ′ − λ) D δ; if that is small, no product is needed.
    """

    def __init__(
        self,
        product: Operator,
        g: np.ndarray,
        D: np.ndarray,
        preconditioner: Callable[[float], Operator],
        *,
        tolerance: float,
        max_products: int,
        offset: float = 0.0,
        deadline: Deadline | None = None,
        dtype: type[np.floating] = np.float64,
    ) -> None:
        self.product, self.g, self.preconditioner = product, g, preconditioner
        self.D = D.astype(dtype)
        self.tolerance, self.max_products = tolerance, max_products
        self.offset, self.deadline, self.dtype = offset, deadline, dtype
        self.n_products, self.cut_short = 0, False
        self._length = float(np.linalg.norm(g)) or 1.0
        self._left = np.zeros_like(g)
        self._last: tuple[np.ndarray, np.ndarray, float] | None = None  # δ and r at unit length of g, λ

    def solve(self, damping: float) -> np.ndarray | None:
        """Return δ to the tolerance; None if not even one product was made before the deadline."""
        damped, start = self.dtype(damping) * self.D, None
        if self._last is not None:
            x, r, before = self._last
            start = x, r - self.dtype(damping - before) * self.D * x
        solution = conjugate_gradients(
            lambda v: self.product(v) + damped * v,
            (self.g / self._length).astype(self.dtype),
            self.preconditioner(damping),
            tolerance=self.tolerance,
            max_products=self.max_products,
            deadline=self.deadline,
            start=start,
        )
        self._last = solution.x, solution.residual, damping
        self.n_products += solution.n_products
        self.cut_short = solution.n_products >= self.max_products
        self._left = self._length * solution.residual.astype(np.float64)
        return self._length * solution.x.astype(np.float64) if solution.x.any() else None

    def predicted_decrease(self, step: np.ndarray, damping: float) -> float:
        """Return 2 δ·g − δ·S δ plus the offset for the last δ, which satisfies (S + λD) δ = g − r with a residual r."""
        return float(step @ (self.g + self._left + damping * self.D * step)) + self.offset
