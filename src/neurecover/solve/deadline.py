"""Until when work may be begun."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Deadline:
    """A moment on the monotonic clock after which no new work is begun; None for never."""

    moment: float | None = None

    @classmethod
    def after(cls, seconds: float | None) -> Deadline:
        return cls(None if seconds is None else time.monotonic() + seconds)

    @property
    def seconds_left(self) -> float:
        return float("inf") if self.moment is None else max(self.moment - time.monotonic(), 0.0)

    @property
    def passed(self) -> bool:
        return self.moment is not None and time.monotonic() >= self.moment
