"""The gradient of the squared error with respect to the hidden weights, with the output weights held fixed."""

import numpy as np

from neurecover.models import Student
from neurecover.statistics.base import Statistic, by_root, float64


class HiddenGradient(Statistic):
    """Σ |r|² and Σ (act′(z) ∘ Aᵀr) x̃ᵀ for the residual r of a student, z = V x̃: −½ of the gradient of Σ |r|² in V."""

    def __init__(self, student: Student) -> None:
        self.student = student
        self.settings = {"V": student.V, "readout": student.readout}
        self.sums = {"n": np.zeros((), dtype=np.int64), "rr": np.zeros(()), "descent": np.zeros(student.V.shape)}
        self.row_bytes = 8 * (4 * student.n_hidden + 2 * student.n_outputs + student.V.shape[1])

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, Y = float64(X, Y)
        X_extended = self.student.extended(X)
        Z = X_extended @ self.student.V.T
        R = Y - self.student.features(X_extended, Z) @ self.student.readout
        X_extended, R = by_root(weight, X_extended, R)
        self._count(len(X), weight)
        self.sums["rr"] += np.vdot(R, R)
        self.sums["descent"] += (self.student.activation.derivative(Z) * (R @ self.student.A)).T @ X_extended
