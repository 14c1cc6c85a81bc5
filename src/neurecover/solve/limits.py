"""A time limit for all passes over the samples and all linear solves within a context."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from neurecover.exceptions import OutOfTimeError
from neurecover.solve.deadline import Deadline, Watch

FLOPS = 5e9  # per second: the least that a factorisation reaches on machines of today
STEP = 1e7  # multiplications that take as long as the overhead of a step (measured)
PRODUCTS = 60  # passes over the samples that conjugate gradients make in an iterative step (measured)

_NEVER = Deadline()
_limit: ContextVar[Deadline] = ContextVar("time limit", default=_NEVER)


@contextmanager
def time_limit(moment: float | None, watch: Watch | None = None) -> Iterator[None]:
    """Within the context, `reduce` and `afford` raise OutOfTimeError after `moment` (monotonic clock); None: never.

    `watch` records that they did.
    """
    mine, outer = Deadline(moment, watch=watch or Watch()), _limit.get()
    before = _limit.set(mine if mine.seconds_left < outer.seconds_left else outer)
    try:
        yield
    finally:
        _limit.reset(before)


def afford(flops: float = 0.0) -> None:
    """Raise OutOfTimeError if this much work would end after the limit."""
    limit = _limit.get()
    if limit.moment is not None and time.monotonic() + flops / FLOPS > limit.moment:
        limit.watch.ended = True
        raise OutOfTimeError("The time ended before this was done: give a larger time_budget.")


def steps_within(work: float, n_samples: int, n_unknowns: int, dense: bool) -> int:
    """Return the number of damped steps within `work` multiplications, with S formed (dense) or by products.

    To limit a fit by this number rather than by the clock makes it reproducible.
    """
    return max(1, int(work / (STEP + n_samples * n_unknowns * (n_unknowns if dense else PRODUCTS))))


def limit() -> Deadline:
    """Return the current limit as a deadline, for a loop that can end with its best result so far."""
    return _limit.get()
