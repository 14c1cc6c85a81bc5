"""One descent: the damped loop of `solve` from a student's hidden weights downhill."""

from __future__ import annotations

from dataclasses import dataclass

from neurecover.fit import FitOptions
from neurecover.fit.point import Point
from neurecover.fit.samples import Samples
from neurecover.models.student import Student
from neurecover.solve import Damping, Deadline, Loop, Outcome, Tolerances

PATIENT = 1.0  # as `slow`: go on until nothing is gained, as under noise, where Σr² hardly falls near its optimum


@dataclass(frozen=True, eq=False)
class Fit:
    """The end of a descent, and whether the descent converged there."""

    point: Point
    converged: bool
    steps: int

    @property
    def student(self) -> Student:
        return self.point.student

    @property
    def rss(self) -> float:
        """Σr²."""
        return self.point.loss

    @property
    def relative(self) -> float:
        """Σr²/total."""
        return self.point.relative


def descend(
    samples: Samples,
    student: Student,
    options: FitOptions,
    deadline: Deadline | None = None,
    *,
    steps: int | None = None,
    target: float = 0.0,
    slow: float | None = None,
) -> Fit:
    """Descend from a student's hidden weights and return the end; if no step is made, at least the readout is solved
    for.

    The descent ends at Σr²/Σy² < target, after `steps`, where nothing is gained, or where the last `window` steps
    together lowered Σr² by less than a factor `slow`.
    """
    steps = options.max_steps if steps is None else steps
    slow = options.slow if slow is None else slow
    point = Point(samples, student, options, deadline)
    if student.size == 0 or not point.loss < float("inf"):
        return Fit(point, True, 0)
    damping = Damping(smallest=options.single_damping) if point.large else Damping()
    loop, history = Loop(point, Tolerances(max(target, options.rounding)), damping), [point.loss]
    while loop.outcome is Outcome.RUNNING and len(history) <= steps:
        if deadline is not None and deadline.passed:
            break
        loop.advance(1, deadline)
        history.append(loop.point.loss)
        late = len(history) > 2 * options.window
        if late and history[-1] > slow * history[-1 - options.window]:
            break
    return Fit(loop.point, loop.outcome is not Outcome.RUNNING, len(history) - 1)
