"""A moment after which no pass over the samples and no linear solve goes on, whoever asked for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from neurecover.exceptions import OutOfTimeError
from neurecover.solve.deadline import Deadline, Watch

FLOPS = 5e9  # a second, that a factorisation makes at the least on the machines of today
STEP = 1e7  # multiplications that the smallest step is worth, for what it takes besides them (measured)
PRODUCTS = 60  # passes over the samples, by conjugate gradients, that an iterative step is worth (measured)

_NEVER = Deadline()
_limit: ContextVar[Deadline] = ContextVar("time limit", default=_NEVER)


@contextmanager
def time_limit(moment: float | None, watch: Watch | None = None) -> Iterator[None]:
    """Within it, `reduce` and `afford` raise OutOfTimeError after `moment` on the monotonic clock; None for never.

    `watch` is told that they did.
    """
    mine, outer = Deadline(moment, watch=watch or Watch()), _limit.get()
    before = _limit.set(mine if mine.seconds_left < outer.seconds_left else outer)
    try:
        yield
    finally:
        _limit.reset(before)


def afford(flops: float = 0.0) -> None:
    """Raise OutOfTimeError where this much work would end after the limit."""
    limit = _limit.get()
    if limit.moment is not None and time.monotonic() + flops / FLOPS > limit.moment:
        limit.watch.ended = True
        raise OutOfTimeError("The time ended before this was done: give a larger time_budget.")


def steps_within(work: float, n_samples: int, n_unknowns: int, dense: bool) -> int:
    """Return how many damped steps a number of multiplications allows, with S formed (dense) or in products.

    A fit that is worth so much and no more is limited by this number rather than by the clock.
    """
    return max(1, int(work / (STEP + n_samples * n_unknowns * (n_unknowns if dense else PRODUCTS))))


def limit() -> Deadline:
    """Return the limit in force as a deadline, for a loop that ends with the best it has."""
    return _limit.get()
