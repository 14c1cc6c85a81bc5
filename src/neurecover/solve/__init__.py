"""Damped least squares and time limits, independent of networks, tensors and samples."""

from neurecover.solve.conjugate import ConjugateSystem, conjugate_gradients
from neurecover.solve.deadline import Deadline, Watch, interrupt, within
from neurecover.solve.dense import DenseSystem, Readout, damping_diagonal
from neurecover.solve.limits import FLOPS, afford, limit, steps_within, time_limit
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
    "Readout",
    "Tolerances",
    "Watch",
    "afford",
    "conjugate_gradients",
    "damping_diagonal",
    "interrupt",
    "limit",
    "steps_within",
    "time_limit",
    "within",
]
