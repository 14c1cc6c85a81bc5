"""S = Σ JᵀJ − EᵀE with E = F⁻¹BᵀJ, formed and factorised.

For one layer and several outputs its blocks are (AᵀA)_ij times those of one Gram matrix; otherwise outputs add up.
Far from the end S is formed in single precision: the residual and the gradient, which decide where the descent ends,
are always double.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from neurecover.models.student import Student, Values
from neurecover.solve import DenseSystem

if TYPE_CHECKING:
    from neurecover.fit.point import Point

BLOCK_BYTES = 2**22  # of the rows of J formed at a time: what is multiplied stays near


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
    D = np.maximum(D, (1e-6 if single else 1e-10) * D.max(initial=1e-300))
    return DenseSystem(S.T, point.gradient, D, least=1e-9 if single else 1e-14)


def curvature_sums(point: Point, student: Student, values: Values) -> tuple[np.ndarray, np.ndarray]:
    """Return Σ JᵀJ and Σ BᵀJ of a student with one output."""
    dtype, n, P = values.F.dtype, len(values.F), student.size
    base, hidden = student.reads(student.depth)
    rows = max(BLOCK_BYTES // (dtype.itemsize * max(P, 1)), 64)
    J = np.empty((min(rows, n), P), dtype=dtype)
    seed = point.samples.weigh(np.ones((n, 1), dtype=dtype))
    JJ, BJ = np.zeros((P, P), dtype=dtype), np.zeros((len(point.gram), P), dtype=dtype)
    for start in range(0, n, rows):
        part = slice(start, min(start + rows, n))
        block = values.rows(part)
        filled = student.jacobian(block, seed[part], J[: part.stop - start])
        JJ += filled.T @ filled
        if point.samples.root is not None:
            filled *= point.samples.root[part].astype(dtype)
        BJ[:base] += block.F[:, :base].T @ filled
        BJ[base:] += block.H[:, hidden].T @ filled
    return JJ, BJ
