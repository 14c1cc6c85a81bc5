"""A moment after which no pass over the samples and no linear solve goes on, whoever asked for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from neurecover.exceptions import OutOfTimeError
from neurecover.solve.deadline import Deadline

FLOPS = 5e9  # a second, that a factorisation makes at the least on the machines of today

_limit: ContextVar[float] = ContextVar("time limit", default=float("inf"))


@contextmanager
def time_limit(moment: float | None) -> Iterator[None]:
    """Within it, `reduce` and `afford` raise OutOfTimeError after `moment` on the monotonic clock; None for never."""
    before = _limit.set(min(_limit.get(), float("inf") if moment is None else moment))
    try:
        yield
    finally:
        _limit.reset(before)


def afford(flops: float = 0.0) -> None:
    """Raise OutOfTimeError where this much work would end after the limit."""
    if time.monotonic() + flops / FLOPS > _limit.get():
        raise OutOfTimeError("The time ended before this was done: give a larger time_budget.")


def limit() -> Deadline:
    """The limit in force as a deadline, for a loop that ends with the best it has."""
    moment = _limit.get()
    return Deadline(None if moment == float("inf") else moment)
