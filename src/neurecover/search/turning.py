"""The signs of a student's units: act(z) − act(−z) = m z, so a unit with the wrong sign needs skip connections.

Let a layer above read h_l and c_{l−1} with the rows (A, B). After negating the units s of layer l its skip weights are

    B_s = B + m Σ_j s_j A_j v_jᵀ,

which are zero for the right signs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.models.student import Student


@dataclass(frozen=True, eq=False)
class Turning:
    """What decides a layer's signs: its weights V, and the rows (r, columns) of the layer above that read it."""

    rows: np.ndarray
    V: np.ndarray
    kept: int
    start: int
    slope: float

    @classmethod
    def of(cls, student: Student, layer: int, affine: bool) -> Turning:
        """Return the equations of a layer."""
        top = layer == student.depth - 1
        rows = student.theta.T if top else student.V[layer + 1]
        kept = student.n_base if affine and top else student.bias
        start = student.n_base + student.own(layer).start
        return cls(rows, student.V[layer], kept, start, student.activation.odd_slope or 0.0)

    @property
    def A(self) -> np.ndarray:
        """The weights (r, k) on the layer's units."""
        return self.rows[:, self.start : self.start + len(self.V)]

    @property
    def columns(self) -> np.ndarray:
        """m A_j v_jᵀ for every unit j, (equations, k)."""
        products = np.einsum("rj,ji->rij", self.A, self.V[:, self.kept :])
        return self.slope * products.reshape(len(self.A) * products.shape[1], len(self.V))

    @property
    def target(self) -> np.ndarray:
        """−B, (equations,)."""
        return -self.rows[:, self.kept : self.start].ravel()

    @property
    def open(self) -> bool:
        """Whether signs can be found: there are equations for them, and act(z) − act(−z) = m z for the activation."""
        return bool(self.slope) and self.target.size > 0

    def turned(self, flip: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows above without skips, (constant, kept inputs, units), and the layer with units negated."""
        base = self.rows[:, : self.kept] + self.slope * (self.A[:, flip] @ self.V[flip, : self.kept])
        return np.hstack([base, self.A]), np.where(flip[:, None], -self.V, self.V)


def without_skips(student: Student, flips: list[np.ndarray], affine: bool) -> Student:
    """Negate units of a student, layer by layer, drop its skip connections, and return the result."""
    V = [student.V[0], *(Turning.of(student, layer, affine).turned(flip)[0] for layer, flip in enumerate(flips))]
    turned = tuple(np.where(flip[:, None], -rows, rows) for flip, rows in zip(flips, V))
    return replace(student, V=turned, theta=V[-1].T, skips=False, affine=affine)
