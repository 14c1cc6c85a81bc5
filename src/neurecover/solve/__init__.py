"""Damped least squares, and the time there is for it."""

from neurecover.solve.deadline import Deadline

__all__ = ["Deadline"]
