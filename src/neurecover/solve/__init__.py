"""Damped least squares, and the time there is for it. Nothing here knows of networks, tensors or samples."""

from neurecover.solve.conjugate import ConjugateSystem, Solution, conjugate_gradients
from neurecover.solve.deadline import Deadline
from neurecover.solve.dense import DenseSystem, damping_diagonal
from neurecover.solve.loop import Damping, Direction, Loop, Outcome, Point, Tolerances

__all__ = [
    "ConjugateSystem",
    "Damping",
    "Deadline",
    "DenseSystem",
    "Direction",
    "Loop",
    "Outcome",
    "Point",
    "Solution",
    "Tolerances",
    "conjugate_gradients",
    "damping_diagonal",
]
