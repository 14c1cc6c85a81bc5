"""The signs of a fitted student's units where its equations (`models.turning`) do not give them.

With B_s the skips that are left when the units s are turned, H = Σ JᵀJ over all weights φ of the student and
Σ = σ²H⁻¹ their covariance, B_s = 0 is as far away as

    W(s) = b_sᵀ (D_s Σ D_sᵀ)⁻¹ b_s,        b_s = B_s row by row,    D_s = ∂b_s/∂φ,        [Wald 1943]

which is also what Σr²/σ² is going to grow by, to second order, when the skips are taken away. The student that is
nearest among those without skips is φ − Σ D_sᵀ (D_s Σ D_sᵀ)⁻¹ b_s. Directions in which H says nothing, as where a unit
above never bends within the samples that a unit below is on for, have a variance without bound: skips along them count
for nothing and go at no cost. The scales that a unit can hand to those above are held where they are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from neurecover.fit.point import Point, curvature_sums
from neurecover.models.signs import nearest_subsets
from neurecover.models.student import Student
from neurecover.models.turning import Turning
from neurecover.search import SignOptions


class Covariance:
    """Σ = σ²H⁻¹ of a fitted student; φ as `Student.weights`."""

    def __init__(self, point: Point, how: SignOptions) -> None:
        student, self.how = point.student, how
        self.student = student
        H = self.information(point)
        diagonal = H.diagonal()
        scale = np.sqrt(np.maximum(diagonal, how.ridge * diagonal.max(initial=1e-300)))
        N = _scales(student) * scale[:, None]
        N /= np.maximum(np.linalg.norm(N, axis=0), 1e-300)
        factor = cho_factor(H / scale / scale[:, None] + N @ N.T + how.ridge * np.eye(len(H)), lower=True)
        variance = max(point.loss, point.options.rounding * point.scale) / max(point.R.size, 1)
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
        for _ in range(self.how.rounds):
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
        for _ in range(self.how.rounds):
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
        covariance.flat[:: len(covariance) + 1] *= 1.0 + self.how.ridge
        return np.linalg.cholesky(covariance)


def _whitened(root: np.ndarray, right: np.ndarray) -> np.ndarray:
    return solve_triangular(root, right, lower=True)


def _scales(student: Student) -> np.ndarray:
    """Return the directions of φ, one per unit, along which its row grows and the columns that read it shrink."""
    units, row, column = np.arange(sum(student.widths)), list[np.ndarray](), list[np.ndarray]()
    if student.activation.homogeneity is None:  # as softplus, whose slope is a weight like any other
        units = units[:0]
    for layer, rows in enumerate((*student.V, student.theta.T)):
        base, below = student.reads(layer)
        own = np.arange(len(rows)) + (student.own(layer).start if layer < student.depth else len(units))
        row.append(np.repeat(own, rows.shape[1]))
        column.append(np.tile(np.r_[np.full(base, -1), below], len(rows)))
    signs = (np.concatenate(row)[:, None] == units).astype(float) - (np.concatenate(column)[:, None] == units)
    return student.weights[:, None] * signs
