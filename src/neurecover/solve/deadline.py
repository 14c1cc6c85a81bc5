"""Until when work may be begun, and who is told that it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Deadline:
    """A moment on the monotonic clock after which no new work is begun; None for never.

    `pulse` hears after every step how far a fit has come, √(Σ r² / Σ y²), nan where a step does not know it.
    """

    moment: float | None = None
    pulse: Callable[[float], object] = field(default=lambda residual: None, repr=False, compare=False)

    @classmethod
    def after(cls, seconds: float | None, pulse: Callable[[float], object] = lambda residual: None) -> Deadline:
        return cls(None if seconds is None else time.monotonic() + seconds, pulse)

    @property
    def seconds_left(self) -> float:
        return float("inf") if self.moment is None else max(self.moment - time.monotonic(), 0.0)

    @property
    def passed(self) -> bool:
        return self.moment is not None and time.monotonic() >= self.moment


def within(deadline: Deadline, tries: Iterable[T]) -> Iterator[T]:
    """The first of them in any case, and the others that come before the deadline."""
    for number, each in enumerate(tries):
        if number and deadline.passed:
            return
        yield each
