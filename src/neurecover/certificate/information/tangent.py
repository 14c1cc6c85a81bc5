"""J δ and Jᵀg over all parameters of a network at some samples, without forming J where it has layers alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from neurecover.fit.networks import as_student
from neurecover.models import Composite, DeepNetwork, Model, Network, jacobian, with_parameters


def student_order(network: Network | DeepNetwork, bias: bool) -> np.ndarray:
    """Return the parameters (indices) as a student has them: hidden weights layer by layer, then the readout."""
    numbered = with_parameters(network, np.arange(network.n_parameters, dtype=np.float64))  # type: ignore[type-var]
    student = as_student(numbered, bias)
    return np.concatenate([*(V.ravel() for V in student.V), student.theta.ravel()]).astype(int)


def tangent_at(model: Model) -> Callable[[np.ndarray], Tangent | Formed]:
    """Return a function from inputs to the derivative there, by products where the model has layers alone."""
    if isinstance(model, Composite):
        return lambda X: Formed(model, X)
    return Tangent.of(model)


class Tangent:
    """J of a network of any depth at samples X, known by its products; parameters in the order of `models`."""

    def __init__(self, network: Network | DeepNetwork, order: np.ndarray, X: np.ndarray) -> None:
        self.X, self.order = X, order
        self.student = as_student(network, True)
        self.values = self.student.forward(np.hstack([np.ones((len(X), 1)), X]))
        self.base, self.hidden = self.student.reads(self.student.depth)

    @classmethod
    def of(cls, network: Network | DeepNetwork) -> Callable[[np.ndarray], Tangent]:
        order = student_order(network, True)
        return lambda X: cls(network, order, X)

    def backward(self, g: np.ndarray) -> np.ndarray:
        """Return Jᵀ g for g (draws, n, p), a row each."""
        F, H = self.values.F[:, : self.base], self.values.H[:, self.hidden]
        rows = np.empty((len(g), len(self.order)))
        for row, G in zip(rows, g):
            readout = np.vstack([F.T @ G, H.T @ G])
            row[self.order] = np.concatenate([self.student.gradient(self.values, G), readout.ravel()])
        return rows

    def forward(self, steps: np.ndarray) -> np.ndarray:
        """Return J δ for every row δ of `steps`, (draws, n, p)."""
        F, H = self.values.F[:, : self.base], self.values.H[:, self.hidden]
        moved = []
        for step in steps[:, self.order]:
            hidden, readout = step[: self.student.size], step[self.student.size :].reshape(self.student.theta.shape)
            outputs = self.student.tangent(self.values, self.student.split(hidden))
            moved.append(outputs + F @ readout[: self.base] + H @ readout[self.base :])
        return np.array(moved)


class Formed:
    """J of any model at samples X, formed."""

    def __init__(self, model: Model, X: np.ndarray) -> None:
        self.X, self.J = X, jacobian(model, X)

    def backward(self, g: np.ndarray) -> np.ndarray:
        """Return Jᵀ g for g (draws, n, p), a row each."""
        return np.tensordot(g, self.J, axes=2)

    def forward(self, steps: np.ndarray) -> np.ndarray:
        """Return J δ for every row δ of `steps`, (draws, n, p)."""
        return np.moveaxis(self.J @ steps.T, 2, 0)
