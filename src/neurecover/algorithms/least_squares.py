"""Least squares from random starts: the finisher by itself.

No assumption on the distribution of the inputs and no guarantee either; what it returns is certified like every other
answer.
"""

from neurecover.algorithms.base import Algorithm
from neurecover.search import Task


def _refuse(task: Task) -> str | None:
    if not task.activation.differentiable:
        return f"least_squares needs an activation with a derivative. Got {task.activation} instead."
    return None


ALGORITHM = Algorithm(
    name="least_squares",
    paper="none: least squares from random starts",
    assumes="any inputs; a differentiable activation; more samples than parameters",
    refuse=_refuse,
    weighs=True,
)
