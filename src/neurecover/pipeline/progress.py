"""What a run tells while it works: its stage, descents, relative residual, the time it has taken and may yet take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from neurecover.search import SearchOptions
from neurecover.solve import Deadline

Progress = Callable[[str, float], object]
SEARCHING = ("search", "shrink", "settle")
EVERY = 0.2  # seconds between two tellings from within a descent


class Reporter:
    """Tells the caller's function (stage, relative residual √(Σ r² / Σ y²)), nan where there is none yet.

    It is called at the beginning of a stage, at the end of every descent and, through `pulse`, from within descents.
    `descents` counts those of this search and `began` is when it began; `steps` counts all steps of the run.
    """

    def __init__(self, tell: Progress) -> None:
        self.tell, self.stage, self.descents, self.steps = tell, "read", 0, 0
        self.began = self._last = time.monotonic()
        self.count: Callable[[], tuple[int, int]] | None = None
        self._expected = math.inf

    def __call__(self, stage: str, residual: float) -> None:
        self._last = time.monotonic()
        if stage.startswith("search"):
            self.descents, self.began = (0, self._last) if math.isnan(residual) else (self.descents + 1, self.began)
        self.stage, self._expected = stage, math.inf
        self.tell(stage, residual)

    def expect(self, seconds: float) -> None:
        """The stage that has begun is likely to take so long."""
        self._expected = time.monotonic() + seconds

    def counted(self) -> str:
        """How far the stage is, where it goes through something that is counted."""
        done, total = self.count() if self.count is not None else (0, 0)
        return f"{done:,} of {total:,} answers" if total else ""

    def pulse(self, residual: float) -> None:
        """A step within the stage, told if nothing was told of late."""
        self.steps += 1
        now = time.monotonic()
        if now - self._last >= EVERY:
            self._last = now
            self.tell(self.stage, residual)

    def seconds_left(self, deadline: Deadline) -> float:
        """At most: until the deadline, or as many descents or answers as there may be at the pace so far."""
        now = time.monotonic()
        if not math.isinf(self._expected):
            return min(deadline.seconds_left, max(self._expected - now, 0.0))
        done, total = self.count() if self.count is not None else (0, 0)
        if done:
            return min(deadline.seconds_left, (now - self.began) * (total - done) / done)
        if not self.descents or not self.stage.startswith(SEARCHING):
            return deadline.seconds_left
        pace = (now - self.began) / self.descents
        return min(deadline.seconds_left, pace * (SearchOptions().max_fits - self.descents))


@contextmanager
def displayed(reporter: Reporter, deadline: Deadline) -> Iterator[None]:
    """A line on standard error that moves from the first moment on, in a terminal or a notebook; else nothing."""
    from rich.console import Console
    from rich.progress import Progress as Line
    from rich.progress import ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
    from rich.table import Column
    from rich.text import Text

    class Moving(ProgressColumn):
        """Looked up whenever the line is drawn, ten times a second, whether or not the stage tells anything."""

        def __init__(self, text: Callable[[], str]) -> None:
            super().__init__(Column(no_wrap=True))
            self.text = text

        def render(self, task: Task) -> Text:
            return Text(self.text())

    console = Console(stderr=True)
    left = Moving(lambda: _at_most(reporter.seconds_left(deadline)))
    # On a narrow terminal the stage gives way, not the time.
    stage = TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1))
    columns = stage, Moving(reporter.counted), TimeElapsedColumn(Column(no_wrap=True, min_width=7)), left
    hidden = not (console.is_terminal or console.is_jupyter)
    with Line(SpinnerColumn(), *columns, console=console, transient=True, disable=hidden) as line:
        task = line.add_task("read", total=None)

        def show(stage: str, residual: float) -> None:
            parts = [stage]
            if reporter.descents and stage.startswith(SEARCHING):
                parts.append(f"{reporter.descents} descent{'' if reporter.descents == 1 else 's'}")
            if not math.isnan(residual):
                parts.append(f"residual {residual:.1e}")
            line.update(task, description=", ".join(parts))

        reporter.tell = show
        yield


def _at_most(seconds: float) -> str:
    if math.isinf(seconds):
        return ""
    return f"at most {seconds:.0f} s left" if seconds < 120 else f"at most {seconds / 60:.0f} min left"
