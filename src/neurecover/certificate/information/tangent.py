"""J δ and Jᵀg over all parameters of a network at some samples, without forming J if the model has only layers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from neurecover.models import Composite, Model, Student, as_student, jacobian, with_constant


def tangent_at(model: Model) -> Callable[[np.ndarray], Tangent | Formed]:
    """Return a function that gives the Jacobian at any inputs: as products if the model has only layers, else as an
    array.
    """
    if isinstance(model, Composite):
        return lambda X: Formed(model, X)
    student = as_student(model, True)
    return lambda X: Tangent(student, X)


class Tangent:
    """The Jacobian J of a network at samples X, known by its products with vectors; parameters in the order of
    `models`.
    """

    def __init__(self, student: Student, X: np.ndarray) -> None:
        self.X, self.student = X, student
        self.values = student.forward(with_constant(X, student.bias))

    def backward(self, g: np.ndarray) -> np.ndarray:
        """Return Jᵀ g for g (draws, n, p), a row each."""
        columns, order = self.student.columns(self.values), self.student.parameter_order
        rows = np.empty((len(g), len(order)))
        for row, G in zip(rows, g):
            row[:] = np.concatenate([self.student.gradient(self.values, G), (G.T @ columns).ravel()])[order]
        return rows

    def forward(self, steps: np.ndarray) -> np.ndarray:
        """Return J δ for every row δ of `steps`, (draws, n, p)."""
        student, columns = self.student, self.student.columns(self.values)
        flat, moved = np.empty(student.n_parameters), []
        for step in steps:
            flat[student.parameter_order] = step
            hidden, readout = flat[: student.size], flat[student.size :].reshape(student.theta.T.shape)
            moved.append(student.tangent(self.values, student.split(hidden)) + columns @ readout.T)
        return np.array(moved)


class Formed:
    """J of any model at samples X, as an array."""

    def __init__(self, model: Model, X: np.ndarray) -> None:
        self.X, self.J = X, jacobian(model, X)

    def backward(self, g: np.ndarray) -> np.ndarray:
        """Return Jᵀ g for g (draws, n, p), a row each."""
        return np.tensordot(g, self.J, axes=2)

    def forward(self, steps: np.ndarray) -> np.ndarray:
        """Return J δ for every row δ of `steps`, (draws, n, p)."""
        return np.moveaxis(self.J @ steps.T, 2, 0)
