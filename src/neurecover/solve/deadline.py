"""Until when work may be started, in seconds or in steps, and who is told that it goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

T = TypeVar("T")

interrupt = threading.Event()  # set when the user asks for the best result so far; then every deadline has passed


@dataclass
class Watch:
    """A record, shared by several deadlines, of whether the clock or the user ended any work."""

    ended: bool = False
    interrupted: bool = False


@dataclass
class Allowance:
    """The number of steps that may still be made."""

    left: int


@dataclass(frozen=True)
class Deadline:
    """A moment on the monotonic clock after which no new work is started; None for never.

    `pulse` is called after every step with the relative residual √(Σ r² / Σ y²), nan if a step does not know it. With
    an `allowance`, the deadline has also passed after that many steps, which is the same work on every machine. `watch`
    records that the deadline ended some work.
    """

    moment: float | None = None
    pulse: Callable[[float], object] = field(default=lambda residual: None, repr=False, compare=False)
    allowance: Allowance | None = field(default=None, repr=False, compare=False)
    watch: Watch = field(default_factory=Watch, repr=False, compare=False)

    @classmethod
    def after(cls, seconds: float | None, pulse: Callable[[float], object] = lambda residual: None) -> Deadline:
        return cls(None if seconds is None else time.monotonic() + seconds, pulse)

    @property
    def seconds_left(self) -> float:
        if self._interrupted:
            return 0.0
        return float("inf") if self.moment is None else max(self.moment - time.monotonic(), 0.0)

    @property
    def passed(self) -> bool:
        if self._interrupted or (self.moment is not None and time.monotonic() >= self.moment):
            self.watch.ended = True
            return True
        return self.allowance is not None and self.allowance.left <= 0

    @property
    def _interrupted(self) -> bool:
        """Whether the user asked to stop; the run remembers this after the request is cleared."""
        self.watch.interrupted |= interrupt.is_set()
        return self.watch.interrupted

    def share(self, part: float) -> Deadline:
        """Return a deadline after this part of the remaining time; the same deadline if it has no end."""
        return self if self.moment is None else replace(self, moment=time.monotonic() + part * self.seconds_left)

    def within_steps(self, steps: int) -> Deadline:
        """Return a deadline that has also passed after this number of steps."""
        allowance = Allowance(steps if self.allowance is None else min(steps, self.allowance.left))

        def pulse(residual: float) -> None:
            allowance.left -= 1
            self.pulse(residual)

        return replace(self, pulse=pulse, allowance=allowance)


def within(deadline: Deadline, tries: Iterable[T]) -> Iterator[T]:
    """Yield the first try in any case, and further ones until the deadline."""
    for number, each in enumerate(tries):
        if number and deadline.passed:
            return
        yield each
