"""The signs of a student's units: act(z) − act(−z) = m z, so a unit that looks the other way leaves skips behind.

Whatever reads h_l and c_{l−1} with rows (A, B) has after turning the units s of layer l the skips

    B_s = B + m Σ_j s_j A_j v_jᵀ,

which are zero for the right signs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.models.student import Student


@dataclass(frozen=True, eq=False)
class Turning:
    """The equations of a layer's signs: rows (r, columns) that read it, V below, and which columns have to vanish."""

    layer: int
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
        return cls(layer, rows, student.V[layer], kept, start, student.activation.odd_slope or 0.0)

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
        """Whether there are signs to be found: equations, and an activation that can be turned."""
        return bool(self.slope) and self.target.size > 0

    def turned(self, flip: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows above without skips, (constant, kept inputs, units), and the layer with units turned."""
        base = self.rows[:, : self.kept] + self.slope * (self.A[:, flip] @ self.V[flip, : self.kept])
        return np.hstack([base, self.A]), np.where(flip[:, None], -self.V, self.V)


def without_skips(student: Student, flips: list[np.ndarray], affine: bool) -> Student:
    """Return the network that is left of a student when units are turned, layer by layer, and the skips dropped."""
    V = [student.V[0], *(Turning.of(student, layer, affine).turned(flip)[0] for layer, flip in enumerate(flips))]
    turned = tuple(np.where(flip[:, None], -rows, rows) for flip, rows in zip(flips, V))
    return replace(student, V=turned, theta=V[-1].T, skips=False, affine=affine)
