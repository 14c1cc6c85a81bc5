"""What noise leaves open of a fitted student with skips, and with it the likeliest signs of its units.

Whatever reads h_l and c_{l−1} with rows (A, B) has after turning the units s of layer l the skips

    B_s = B + m Σ_j s_j A_j v_jᵀ,

which are zero for the right signs. With H = Σ JᵀJ over all weights φ of the student, the readout included, noise of
variance σ² leaves φ the covariance Σ = σ²H⁻¹, so that zero is as far away as

    W(s) = b_sᵀ (D_s Σ D_sᵀ)⁻¹ b_s,        b_s = B_s row by row,    D_s = ∂b_s/∂φ,        [Wald 1943]

which is also what Σr²/σ² is going to grow by, to second order, when the skips are taken away. The student that is
nearest among those without skips is φ − Σ D_sᵀ (D_s Σ D_sᵀ)⁻¹ b_s. Directions in which H says nothing, as where a unit
above never bends within the samples that a unit below is on for, have a variance without bound: skips along them count
for nothing and go at no cost. The scales that a unit can hand to those above are held where they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from neurecover.fit.dense import curvature_sums
from neurecover.fit.point import Point
from neurecover.models.signs import nearest_subsets
from neurecover.models.student import Student

RIDGE = 1e-10  # on H scaled to unit diagonal: between its rounding and the least curvature that samples show
ROUNDS = 4  # of signs for a covariance and the covariance for those signs, and of steps to where skips vanish


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


class Covariance:
    """Σ = σ²H⁻¹ of a fitted student; φ as `Student.weights`."""

    def __init__(self, point: Point) -> None:
        student = self.student = point.student
        H = self.information(point)
        diagonal = H.diagonal()
        scale = np.sqrt(np.maximum(diagonal, RIDGE * diagonal.max(initial=1e-300)))
        N = _scales(student) * scale[:, None]
        N /= np.maximum(np.linalg.norm(N, axis=0), 1e-300)
        factor = cho_factor(H / scale / scale[:, None] + N @ N.T + RIDGE * np.eye(len(H)), lower=True)
        variance = max(point.loss, 1e-30 * point.scale) / max(point.R.size, 1)
        self.matrix = variance * cho_solve(factor, np.eye(len(H))) / scale / scale[:, None]

    @staticmethod
    def information(point: Point) -> np.ndarray:
        """Return H at a student with or without skips."""
        student = point.student
        (q, p), P = student.theta.shape, student.size
        H = np.zeros((P + q * p, P + q * p))
        for output in range(p):
            part = replace(student, theta=student.theta[:, output : output + 1])
            JJ, BJ = curvature_sums(point, part, point.values)
            own = slice(P + output * q, P + (output + 1) * q)
            H[:P, :P] += JJ
            H[own, own] = point.gram
            H[own, :P] = BJ
            H[:P, own] = BJ.T
        return H

    def likely(self, turning: Turning, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the likeliest choices of a layer's units to be turned, (s, k), and W of each, the least first.

        The covariance depends on the signs, and the signs that are nearest by it are found among all: in turns. For the
        right choice W has a χ² distribution of as many degrees of freedom as there are skips.
        """
        columns, target = turning.columns, turning.target
        known: dict[bytes, tuple[np.ndarray, float]] = {}
        flip = nearest_subsets(columns, target, 1)[0]
        for _ in range(ROUNDS):
            root = self._root(self._by(turning, flip))
            near = nearest_subsets(_whitened(root, columns), _whitened(root, target), count)
            fresh = [other for other in (flip, *near) if other.tobytes() not in known]
            for other in fresh:
                left = _whitened(self._root(self._by(turning, other)), columns @ other - target)
                known[other.tobytes()] = other, float(left @ left)
            best = min(known.values(), key=lambda pair: pair[1])[0]
            if np.array_equal(best, flip) or not fresh:
                break
            flip = best
        flips, misfits = zip(*sorted(known.values(), key=lambda pair: pair[1])[:count])
        return np.array(flips), np.array(misfits)

    def nearest_without(self, flips: list[np.ndarray], affine: bool) -> Student:
        """Return the likeliest student whose skips vanish, all but rounding, when these units are turned."""
        student = self.student
        for _ in range(ROUNDS):
            turnings = [Turning.of(student, layer, affine) for layer in range(student.depth)]
            D = np.vstack([self._by(turning, flip) for turning, flip in zip(turnings, flips)])
            b = np.concatenate([turning.columns @ flip - turning.target for turning, flip in zip(turnings, flips)])
            root = self._root(D)
            step = _whitened(root, D @ self.matrix).T @ _whitened(root, b)
            student = student.with_weights(student.weights - step)
        return student

    def _by(self, turning: Turning, flip: np.ndarray) -> np.ndarray:
        """Return D_s (equations, P)."""
        starts = np.cumsum([0, *(V.size for V in self.student.V)])
        (k, D), (r, width) = turning.V.shape, turning.rows.shape
        kept, start, layer = turning.kept, turning.start, turning.layer
        turned = turning.slope * flip
        row, unit, column = np.ogrid[:r, :k, : start - kept]
        by = np.zeros((r, start - kept, len(self.matrix)))
        above = starts[layer + 1] + row * width  # where the rows that read the layer begin in φ
        by[row[:, 0], column[0], above[:, 0] + kept + column[0]] = 1.0
        by[row, column, above + start + unit] = turned[unit] * turning.V[unit, kept + column]
        by[row, column, starts[layer] + unit * D + kept + column] = turned[unit] * turning.A[row, unit]
        return by.reshape(-1, len(self.matrix))

    def _root(self, by: np.ndarray) -> np.ndarray:
        """Return the Cholesky factor of D Σ Dᵀ."""
        covariance = by @ self.matrix @ by.T
        covariance.flat[:: len(covariance) + 1] *= 1.0 + 1e-10
        return np.linalg.cholesky(covariance)


def _whitened(root: np.ndarray, right: np.ndarray) -> np.ndarray:
    return solve_triangular(root, right, lower=True)


def _scales(student: Student) -> np.ndarray:
    """Return the directions of φ, one per unit, along which its row grows and the columns that read it shrink."""
    directions: list[np.ndarray] = []
    if student.activation.homogeneity is None:  # as softplus, whose slope is a weight like any other
        return np.zeros((student.n_parameters, 0))
    for layer, V in enumerate(student.V):
        for unit in range(len(V)):
            parts = [np.zeros_like(rows) for rows in student.V] + [np.zeros_like(student.theta.T)]
            parts[layer][unit] = V[unit]
            at = student.n_base + student.own(layer).start + unit
            for higher in range(layer + 1, student.depth):
                parts[higher][:, at] = -student.V[higher][:, at]
            parts[-1][:, at] = -student.theta[at]
            directions.append(np.concatenate([part.ravel() for part in parts]))
    return np.array(directions).reshape(-1, student.n_parameters).T
