"""A student with the readout that is best for its hidden layers, and the equations of the next step.

Variable projection [Golub & Pereyra 1973]: for given V the readout Θ is a linear least-squares solution, so the problem
is one in V alone. With B the columns that the readout reads, F Fᵀ = BᵀB and P the projector on B, the step is [Kaufman
1975]

    (S + λD) δ = Jᵀr,        S = Jᵀ(I − P)J,        D = diag JᵀJ.

With weights w every row of B, J and r is multiplied by √w.

Up to some size S = Σ JᵀJ − EᵀE with E = F⁻¹BᵀJ is formed and factorised. For one layer and several outputs its blocks
are (AᵀA)_ij times those of one Gram matrix; otherwise outputs add up. Far from the end S is formed in single precision:
the residual and the gradient, which decide where the descent ends, are always double.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from neurecover.fit import FitOptions
from neurecover.fit.samples import Samples
from neurecover.models.student import Student, Values
from neurecover.solve import Deadline, DenseSystem, Direction, Readout, damping_diagonal
from neurecover.statistics.fits.gate_pairs import add_gate_pairs, feature_products, gated_products, no_pairs

if TYPE_CHECKING:
    from neurecover.fit.products import UnitBlocks


class Point:
    """A student on samples: `loss` is Σ w r², `R` (n, p) holds √w r, `gram` is BᵀB and `values` the forward pass."""

    def __init__(
        self,
        samples: Samples,
        student: Student,
        options: FitOptions,
        deadline: Deadline | None = None,
        before: Point | None = None,
    ) -> None:
        self.samples, self.options, self.deadline = samples, options, deadline or Deadline()
        self.student, self.loss, self.scale = student, np.inf, samples.total
        self.tolerance = options.loose
        self.blocks: UnitBlocks | None = None if before is None else before.blocks
        base, hidden = student.reads(student.depth)
        with np.errstate(over="ignore", invalid="ignore"):  # a step too long for exp or a power is rejected
            self.values = student.forward(samples.F)
            F, H = samples.weigh(samples.F[:, :base]), samples.weigh(self.values.H[:, hidden])
            self.gram = np.empty((len(student.theta),) * 2)
            self.gram[:base, :base] = samples.moments[:base, :base]
            self.gram[base:, :base] = H.T @ F
            self.gram[:base, base:] = self.gram[base:, :base].T
            self.gram[base:, base:] = H.T @ H
            if not np.isfinite(self.gram).all():
                return
            self.readout = Readout(self.gram, options.equal)
            R = samples.weigh(samples.Y) - F @ student.theta[:base] - H @ student.theta[base:]
            step = self.readout.solve(np.vstack([F.T @ R, H.T @ R]))
            R -= F @ step[:base]
            R -= H @ step[base:]
        self.R, self.loss = R, float(np.vdot(R, R))
        self.student = replace(student, theta=student.theta + step)
        if before is not None:
            # The error left in a step bounds the next decrease: it should be no larger than the last one, |r′|/|r|.
            fall = np.sqrt(self.loss / before.loss) if before.loss > 0.0 else 0.0
            self.tolerance = float(min(max(fall, options.tight), options.loose))

    @property
    def relative(self) -> float:
        """Σr²/total."""
        return self.loss / self.scale if self.scale > 0.0 and np.isfinite(self.loss) else float(self.loss != 0.0)

    @property
    def share(self) -> float:
        """Σr² per remaining degree of freedom."""
        return self.loss / max(self.samples.n_equations - self.student.n_parameters, 1)

    @cached_property
    def gradient(self) -> np.ndarray:
        """Jᵀr, flat."""
        return self.student.gradient(self.values, self.samples.weigh(self.R))

    @cached_property
    def fits_single(self) -> bool:
        """Whether products stay within the range of single precision; values of e^z may not."""
        gates = max((float(np.abs(gate).max(initial=0.0)) for gate in self.values.gates), default=0.0)
        largest = max(float(np.abs(self.values.H).max(initial=0.0)), gates, float(np.abs(self.student.theta).max()))
        return largest * max(float(np.abs(self.samples.F).max(initial=0.0)), 1.0) < self.options.single_range

    @property
    def large(self) -> bool:
        """Whether S is too large to be formed."""
        limit = self.options.dense if self.student.depth == 1 else self.options.dense_deep
        return self.student.size > limit and self.fits_single

    def system(self) -> Direction:
        """Return the equations of the next step."""
        from neurecover.fit.products import ProductSystem

        return ProductSystem(self) if self.large else dense_system(self)

    def moved(self, step: np.ndarray) -> Point | None:
        """Return the point after a step; None if its values are not finite."""
        trial = Point(self.samples, self.student.moved(step), self.options, self.deadline, self)
        return trial if np.isfinite(trial.loss) else None


BLOCK_BYTES = 2**22  # of the rows of J formed at a time, so that what is multiplied stays near: speed alone


def dense_system(point: Point) -> DenseSystem:
    """Return the equations of the step at a point."""
    student, samples = point.student, point.samples
    single = point.relative > point.options.double and point.fits_single
    dtype: type = np.float32 if single else np.float64
    values = point.values.cast(samples.single if single else samples.F)
    together = student.depth == 1 and student.n_outputs > 1
    if together:
        # One unit weight in place of A: the outputs' part of every block is AᵀA.
        parts = [replace(student, theta=np.ones((len(student.theta), 1)))]
    else:
        parts = [replace(student, theta=student.theta[:, o : o + 1]) for o in range(student.n_outputs)]
    S, D = np.zeros((student.size, student.size)), np.zeros(student.size)
    for part in parts:
        JJ, BJ = curvature_sums(point, part.cast(dtype), values)
        D += JJ.diagonal()
        S += JJ
        E: np.ndarray = point.readout.whiten(BJ).astype(dtype, copy=False)
        S -= E.T @ E
    if together:
        weights, width = student.top @ student.top.T, student.V[0].shape[1]
        S.reshape(len(weights), width, len(weights), width)[...] *= weights[:, None, :, None]
        D *= np.repeat(weights.diagonal(), width)
    least = point.options.single if single else point.options.least
    return DenseSystem(S.T, point.gradient, damping_diagonal(D, max(least, point.options.diagonal)), least=least)


def curvature_sums(point: Point, student: Student, values: Values) -> tuple[np.ndarray, np.ndarray]:
    """Return Σ JᵀJ and Σ BᵀJ of a student with one output."""
    dtype, n, P, degree = values.F.dtype, len(values.F), student.size, student.activation.homogeneity
    if student.depth == 1 and degree:
        m, D = student.V[0].shape
        pairs = no_pairs(m, D, dtype)
        add_gate_pairs(pairs, values.gates[0], point.samples.weigh(values.F), None)
        mm, on = gated_products(pairs, m, D)
        by = np.repeat(student.top[:, 0], D)
        return by * mm * by[:, None], by * feature_products(student, mm, on, degree)
    rows = max(BLOCK_BYTES // (dtype.itemsize * max(P, 1)), 64)
    both = np.empty((P + len(student.theta), min(rows, n)), dtype=dtype)  # Jᵀ above Bᵀ
    seed, total = point.samples.weigh(np.ones((n, 1), dtype=dtype)), np.zeros((len(both),) * 2, dtype=dtype)
    for start in range(0, n, rows):
        part = slice(start, min(start + rows, n))
        own, block = both[:, : part.stop - start], values.rows(part)
        student.jacobian(block, seed[part], own[:P])
        own[P:] = (seed[part] * student.columns(block)).T
        total += own @ own.T
    return total[:P, :P], total[P:, :P]
