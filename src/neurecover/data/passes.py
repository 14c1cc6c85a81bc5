"""A pass over all samples: its number, the time left, and the record from which it can be resumed.

A run with records writes, from time to time, the sums of the current pass and the number of rows in them. An
interrupted run that is started again reads the sums of the finished passes and continues in the middle of the
last one. The same blocks are added in the same order, so the sums are the same to the last bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Generic, TypeVar

from neurecover.data.records import Record, Records
from neurecover.data.source import Source
from neurecover.statistics import Statistic

S = TypeVar("S", bound=Statistic)
Report = Callable[[str, float], object]

SHARE = 0.05  # largest share of the time that is spent on writing records


@dataclass
class Passes:
    """The passes of one run over streamed samples; `planned` is their expected number."""

    report: Report = lambda stage, figure: None
    records: Records | None = None
    planned: int = 0
    made: int = 0


_passes: ContextVar[Passes | None] = ContextVar("passes", default=None)


@contextmanager
def count_passes(report: Report, records: Records | None = None) -> Iterator[Passes]:
    """Count, report and record the passes made within the context."""
    passes = Passes(report, records)
    before = _passes.set(passes)
    try:
        yield passes
    finally:
        _passes.reset(before)


@dataclass
class Pass(Generic[S]):
    """One pass: the statistic so far, the number of rows of the base in it, and the position of the next row.

    `position` counts rows, or partitions if the base is on a cluster.
    """

    statistic: S
    total: int | None
    number: int
    run: Passes
    done: int = 0
    position: int = 0
    complete: bool = False

    def __post_init__(self) -> None:
        self._began = self._written = time.monotonic()
        self._cost, self._before = 0.0, self.done

    def advance(self, rows: int, position: int | None = None) -> None:
        """Count rows that were added to the statistic, and write a record of the pass if one is due."""
        self.done += rows
        self.position = self.done if position is None else position
        now = time.monotonic()
        records = self.run.records
        if records is not None and now - self._written >= self._cost / SHARE:
            records.write(self.number, Record(self.statistic.to_arrays(), self.done, self.position, False))
            self._written = time.monotonic()
            self._cost = self._written - now
        self.run.report(self._sentence(now), float("nan"))

    def _sentence(self, now: float) -> str:
        of = f" of {self.run.planned}" if self.run.planned >= self.number else ""
        if self.total is None:
            return f"pass {self.number}{of} over the samples, {self.done:,} rows"
        left = (now - self._began) * (self.total - self.done) / max(self.done - self._before, 1)
        return f"pass {self.number}{of} over {self.total:,} samples, {self.done / self.total:.0%}, {left:.0f} s left"


@contextmanager
def begin_pass(base: Source, statistic: S) -> Iterator[Pass[S]]:
    """Begin the next pass, or continue an interrupted one, and record its end."""
    run = _passes.get() or Passes()
    run.made += 1
    current = Pass(statistic, base.n_samples, run.made, run)
    if run.records is not None:
        kept = run.records.read(run.made)
        if kept is not None:
            held = statistic.from_arrays(kept.arrays)
            current = Pass(held, base.n_samples, run.made, run, kept.done, kept.position, kept.complete)
    yield current
    if run.records is not None and not current.complete:
        run.records.write(run.made, Record(current.statistic.to_arrays(), current.done, current.position, True))
