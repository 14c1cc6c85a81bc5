"""Σ h hᵀ, Σ h rᵀ and Σ |r|² of a student whose Σ x̃x̃ᵀ is known: two products with the inputs, and no copy of them.

The features h = (act(V x̃), x, 1) are not formed. With H = act(X̃Vᵀ) a block X of samples is multiplied once by V and L
together and once by H and r together, so that the few columns of L and r cost little more than none:

    X (Vᵀ | Lᵀ),    (H | r)ᵀ X,    (H | r)ᵀ (H | r).

The residual is formed sample by sample, never as a difference of sums.
"""

from __future__ import annotations

import numpy as np

from neurecover.models import Student
from neurecover.statistics.base import Statistic, float64, no_readout


def forward(student: Student, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """z = V x̃ (n, m) and the part L x + c of the outputs, (n, p) or the same for all samples."""
    m, d = student.n_hidden, X.shape[1]
    if not student.affine:
        Z = X @ student.V[:, :d].T
        if student.bias:
            Z += student.V[:, d]
        return Z, student.readout[m:].sum(axis=0)  # c, where there is one
    rows = np.vstack([student.V, student.readout[m:].T])
    both = X @ rows[:, :d].T
    if student.bias:
        both += rows[:, d]
    return both[:, :m], both[:, m:]


class UnitSums(Statistic):
    """The sums of a student, but for the affine features' part of Σ h hᵀ (`with_inputs`)."""

    def __init__(self, student: Student) -> None:
        self.student = student
        self.settings = {"V": student.V, "readout": student.readout}
        q, p = student.readout.shape
        self.sums = no_readout(q, p)
        self.row_bytes = 8 * 3 * (student.n_hidden + p)

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, Y = float64(X, Y)
        student, (m, d) = self.student, (self.student.n_hidden, X.shape[1])
        self._count(len(X), weight)
        Z, rest = forward(student, X)
        H = student.activation(Z)
        both = np.hstack([H, Y - H @ student.readout[:m] - rest])
        weighted = both if weight is None else weight[:, None] * both
        inner = weighted.T @ both
        hh, hr = self.sums["hh"], self.sums["hr"]
        hh[:m, :m] += inner[:m, :m]
        hr[:m] += inner[:m, m:]
        self.sums["rr"] += np.trace(inner[m:, m:])
        if student.affine:
            outer = weighted.T @ X
            hh[:m, m : m + d] += outer[:m]
            hr[m : m + d] += outer[m:].T
        if student.bias:
            ones = weighted.sum(axis=0)
            hh[:m, -1] += ones[:m]
            hr[-1] += ones[m:]

    def with_inputs(self, second_moments: np.ndarray) -> dict[str, np.ndarray]:
        """All sums, the affine features' part of Σ h hᵀ from Σ x̃x̃ᵀ (D, D)."""
        m = self.student.n_hidden
        hh = self.sums["hh"].copy()
        D, a = len(second_moments), len(hh) - m
        hh[m:, :m] = hh[:m, m:].T
        hh[m:, m:] = second_moments[D - a :, D - a :]
        return {**self.sums, "hh": hh}
