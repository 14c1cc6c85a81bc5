"""Until when work may be started, in seconds or in steps, and who is told that it goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

T = TypeVar("T")

interrupt = threading.Event()  # set where the user asks for the best result so far: every deadline has passed then


@dataclass
class Watch:
    """Whether work was ended by the clock or by the user, told by the deadlines that share it."""

    ended: bool = False
    interrupted: bool = False


@dataclass
class Allowance:
    """The number of steps that may yet be made."""

    left: int


@dataclass(frozen=True)
class Deadline:
    """A moment on the monotonic clock after which no new work is started; None for never.

    `pulse` hears after every step how far a fit has come, √(Σ r² / Σ y²), nan where a step does not know it. Where
    there is an `allowance`, the deadline has also passed once so many steps were made: the same work on every machine.
    `watch` remembers that the moment ended something.
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
        """Whether the user asked for an end; remembered for this run after the request is over."""
        self.watch.interrupted |= interrupt.is_set()
        return self.watch.interrupted

    def share(self, part: float) -> Deadline:
        """Return the deadline after part of the time that is left; itself if there is no end."""
        return self if self.moment is None else replace(self, moment=time.monotonic() + part * self.seconds_left)

    def within_steps(self, steps: int) -> Deadline:
        """Return a deadline that has also passed once so many steps were made."""
        allowance = Allowance(steps if self.allowance is None else min(steps, self.allowance.left))

        def pulse(residual: float) -> None:
            allowance.left -= 1
            self.pulse(residual)

        return replace(self, pulse=pulse, allowance=allowance)


def within(deadline: Deadline, tries: Iterable[T]) -> Iterator[T]:
    """Yield the first of them in any case, and the others that come before the deadline."""
    for number, each in enumerate(tries):
        if number and deadline.passed:
            return
        yield each
