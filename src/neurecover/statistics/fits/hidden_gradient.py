"""The gradient of the squared error with respect to the hidden weights, with the output weights held fixed."""

import numpy as np

from neurecover.models import Student, with_constant
from neurecover.statistics.base import Statistic, by_root, float64


class HiddenGradient(Statistic):
    """Σ |r|² and Σ Jᵀr for the residual r of a student, J = ∂y/∂V: −½ of the gradient of Σ |r|² in V, flat."""

    def __init__(self, student: Student) -> None:
        self.student = student
        self.settings = {"hidden": np.concatenate([V.ravel() for V in student.V]), "theta": student.theta}
        self.sums = {"n": np.zeros((), dtype=np.int64), "rr": np.zeros(()), "descent": np.zeros(student.size)}
        self.row_bytes = 8 * (4 * sum(student.widths) + 2 * student.n_outputs + student.n_base)

    def update(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None = None) -> None:
        X, Y = float64(X, Y)
        values = self.student.forward(with_constant(X, self.student.bias))
        R = Y - self.student.outputs(values)
        (weighed,) = by_root(weight, R)
        self._count(len(X), weight)
        self.sums["rr"] += np.vdot(weighed, weighed)
        self.sums["descent"] += self.student.gradient(values, R if weight is None else weight[:, None] * R)
