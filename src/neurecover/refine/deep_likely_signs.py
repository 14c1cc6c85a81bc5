"""Which signs of the units noise leaves likely, for a student of several layers with skips.

Whatever reads h_l and c_{l−1} with the weights (A, B) has after turning the units s of layer l the skips

    B_s = B + m Σ_j s_j A_j v_jᵀ,

which are zero for the right signs. With H = Σ JᵀJ over all weights φ of the student, the readout included, noise of
variance σ² leaves φ the covariance σ²H⁻¹, so that zero is as far away as

    W(s) = b_sᵀ (σ² D_s H⁻¹ D_sᵀ)⁻¹ b_s,        b_s = B_s row by row,    D_s = ∂b_s/∂φ,        [Wald 1943]

which is also what Σ r²/σ² is going to grow by, to second order, when the skips are taken away. H says nothing about the
scales that a unit can hand to those above; they are held where they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from neurecover.data import Source, reduce
from neurecover.models.deep_student import DeepStudent
from neurecover.refine.signs import nearest_subsets
from neurecover.statistics.deep_gauss_newton import DeepGaussNewtonSums

RIDGE = 1e-10  # on H scaled to unit diagonal
ROUNDS = 4  # of signs for a covariance and the covariance for those signs


@dataclass(frozen=True)
class LikelySigns:
    """Choices `flips` (s, k) of the units of one layer to be turned, and W of each, the least first.

    For the right choice W has a χ² distribution of `n_skips` degrees of freedom.
    """

    flips: np.ndarray
    misfit: np.ndarray
    n_skips: int


class Information:
    """σ²H⁻¹ of a fitted student; φ is V_1 row by row, then V_2 and so on, then the readout, output by output."""

    def __init__(self, source: Source, student: DeepStudent) -> None:
        self.student = student
        sums = reduce(source, DeepGaussNewtonSums(student))
        q, p = student.readout.shape
        P = student.n_hidden_weights
        H = np.zeros((P + q * p, P + q * p))
        H[:P, :P] = sums.curvature()
        for output in range(p):
            own = slice(P + output * q, P + (output + 1) * q)
            H[own, own] = sums.sums["hh"]
            H[own, :P] = sums.sums["hj"][output]
            H[:P, own] = H[own, :P].T
        diagonal = np.diag(H)
        scale = np.sqrt(np.maximum(diagonal, RIDGE * diagonal.max(initial=1e-300)))
        N = _scales(student) * scale[:, None]
        N /= np.maximum(np.linalg.norm(N, axis=0), 1e-300)
        factor = cho_factor(H / scale / scale[:, None] + N @ N.T + RIDGE * np.eye(len(H)), lower=True)
        variance = float(sums.sums["rr"]) / max(int(sums.sums["n"]) * p, 1)
        self.covariance = variance * cho_solve(factor, np.eye(len(H))) / scale / scale[:, None]

    def likely(self, layer: int, count: int) -> LikelySigns:
        """The likeliest signs of a layer's units.

        The covariance depends on the signs, and the signs that are nearest by it are found among all: in turns.
        """
        student = self.student
        V, above = student.hidden[layer], _above(student, layer)
        k, inputs = len(V), slice(0, V.shape[1] - student.bias)
        slope = student.activation.odd_slope or 0.0
        columns = slope * np.einsum("rj,ji->rij", above[:, :k], V[:, inputs]).reshape(-1, k)
        target = -above[:, k:][:, inputs].ravel()
        known: dict[bytes, tuple[np.ndarray, float]] = {}
        flip = nearest_subsets(columns, target, 1)[0]
        for _ in range(ROUNDS):
            root = self._root(layer, flip, slope)
            near = nearest_subsets(solve_triangular(root, columns, lower=True), _whitened(root, target), count)
            fresh = [other for other in (flip, *near) if other.tobytes() not in known]
            for other in fresh:
                left = _whitened(self._root(layer, other, slope), columns @ other - target)
                known[other.tobytes()] = other, float(left @ left)
            best = min(known.values(), key=lambda pair: pair[1])[0]
            if np.array_equal(best, flip) or not fresh:
                break
            flip = best
        ordered = sorted(known.values(), key=lambda pair: pair[1])[:count]
        flips, misfits = zip(*ordered)
        return LikelySigns(np.array(flips), np.array(misfits), len(target))

    def _root(self, layer: int, flip: np.ndarray, slope: float) -> np.ndarray:
        """The Cholesky factor of σ² D_s H⁻¹ D_sᵀ."""
        student = self.student
        V, above = student.hidden[layer], _above(student, layer)
        (k, D), r = V.shape, len(above)
        m = D - student.bias
        turned = slope * flip
        starts = np.cumsum([0, *(rows.size for rows in student.hidden)])
        by = np.zeros((r, m, len(self.covariance)))
        equation, unit, column = np.ogrid[:r, :k, :m]
        by[equation[:, 0], column[0], starts[layer + 1] + equation[:, 0] * (k + D) + k + column[0]] = 1.0
        by[equation, column, starts[layer + 1] + equation * (k + D) + unit] = turned[unit] * V[unit, column]
        by[equation, column, starts[layer] + unit * D + column] = turned[unit] * above[equation, unit]
        by = by.reshape(r * m, -1)
        covariance = by @ self.covariance @ by.T
        covariance.flat[:: len(covariance) + 1] *= 1.0 + 1e-10
        return np.linalg.cholesky(covariance)


def _whitened(root: np.ndarray, vector: np.ndarray) -> np.ndarray:
    return solve_triangular(root, vector, lower=True)


def _above(student: DeepStudent, layer: int) -> np.ndarray:
    """The rows (r, k + D) that read a layer and what is below it: those of the next one, or the readout."""
    return student.hidden[layer + 1] if layer + 1 < student.depth else student.readout.T


def _scales(student: DeepStudent) -> np.ndarray:
    """Directions of φ, one per unit, along which its row grows and the columns that read it shrink."""
    directions = []
    for layer in range(student.depth):
        for unit in range(student.widths[layer]):
            parts = [np.zeros_like(V) for V in student.hidden] + [np.zeros_like(student.readout.T)]
            parts[layer][unit] = student.hidden[layer][unit]
            at = student.own(layer).start + unit
            for higher in range(layer + 1, student.depth):
                column = at - student.below(higher).start
                parts[higher][:, column] = -student.hidden[higher][:, column]
            parts[-1][:, at] = -student.readout[at]
            directions.append(np.concatenate([part.ravel() for part in parts]))
    return np.array(directions).reshape(-1, student.n_hidden_weights + student.readout.size).T
