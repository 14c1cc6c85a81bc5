"""Damped least squares, and the time there is for it. Nothing here knows of networks, tensors or samples."""

from neurecover.solve.conjugate import ConjugateSystem, Solution, conjugate_gradients
from neurecover.solve.deadline import Deadline, within
from neurecover.solve.dense import DenseSystem, damping_diagonal
from neurecover.solve.limits import FLOPS, afford, limit, time_limit
from neurecover.solve.loop import Damping, Direction, Loop, Outcome, Point, Tolerances

__all__ = [
    "FLOPS",
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
    "afford",
    "conjugate_gradients",
    "damping_diagonal",
    "limit",
    "time_limit",
    "within",
]
