"""Sums for the best readout Θ of given hidden units: with h the input of the readout and r = y − Θᵀh,

Σ h hᵀ,    Σ h rᵀ,    Σ |r|².
"""

import numpy as np

from neurecover.models import Student, with_constant
from neurecover.statistics.base import Statistic, by_root, float64


class ReadoutSums(Statistic):
    """The sums for a student, with h in the order of its columns."""

    def __init__(self, student: Student) -> None:
        self.student = student
        self.settings = {"hidden": np.concatenate([V.ravel() for V in student.V]), "theta": student.theta}
        q, p = student.theta.shape
        self.sums = {
            "n": np.zeros((), dtype=np.int64),
            "hh": np.zeros((q, q)),
            "hr": np.zeros((q, p)),
            "rr": np.zeros(()),
        }
        self.row_bytes = 8 * (3 * q + 2 * p + 2 * sum(student.widths))

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, Y = float64(X, Y)
        h = self.student.columns(self.student.forward(with_constant(X, self.student.bias)))
        h, R = by_root(weight, h, Y - h @ self.student.theta)
        self._count(len(X), weight)
        self.sums["hh"] += h.T @ h
        self.sums["hr"] += h.T @ R
        self.sums["rr"] += np.vdot(R, R)
