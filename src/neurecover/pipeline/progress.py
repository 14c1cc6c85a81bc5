"""The progress of a run: its stage, descents, relative residual, elapsed time and largest remaining time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from neurecover.search import SearchOptions
from neurecover.solve import Deadline

Progress = Callable[[str, float], object]
SEARCHING = ("search", "shrink", "settle")
EVERY = 0.2  # seconds between two reports from within a descent


class Reporter:
    """Calls the user's function with the stage and the relative residual √(Σ r² / Σ y²), nan if there is none yet.

    It is called at the beginning of a stage, at the end of every descent and, through `pulse`, within descents.
    `descents` counts the descents of this search, which began at `began`; `steps` counts all steps of the run.
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
        """Note how long the current stage is likely to take."""
        self._expected = time.monotonic() + seconds

    def counted(self) -> str:
        """Return a text with the number of answers so far and in total; empty if the stage counts none."""
        done, total = self.count() if self.count is not None else (0, 0)
        return f"{done:,} of {total:,} answers" if total else ""

    def pulse(self, residual: float) -> None:
        """Count a step of the stage, and report it unless the last report is recent."""
        self.steps += 1
        now = time.monotonic()
        if now - self._last >= EVERY:
            self._last = now
            self.tell(self.stage, residual)

    def seconds_left(self, deadline: Deadline) -> float:
        """Return an upper bound of the remaining seconds: to the deadline, or to the end at the pace so far."""
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
def display_progress(reporter: Reporter, deadline: Deadline) -> Iterator[None]:
    """Show progress as a line on standard error, in a terminal or a notebook; elsewhere show nothing."""
    from rich.console import Console
    from rich.progress import Progress as Line
    from rich.progress import ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
    from rich.table import Column
    from rich.text import Text

    class Moving(ProgressColumn):
        """A text that is recomputed whenever the line is drawn, ten times a second."""

        def __init__(self, text: Callable[[], str]) -> None:
            super().__init__(Column(no_wrap=True))
            self.text = text

        def render(self, task: Task) -> Text:
            return Text(self.text())

    console = Console(stderr=True)
    left = Moving(lambda: _at_most(reporter.seconds_left(deadline)))
    # On a narrow terminal the stage is truncated, not the time.
    stage = TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1))
    columns = stage, Moving(reporter.counted), TimeElapsedColumn(Column(no_wrap=True, min_width=7)), left
    if not (console.is_terminal or console.is_jupyter):  # where rich before 15 ends a disabled line with a new one
        yield
        return
    with Line(SpinnerColumn(), *columns, console=console, transient=True) as line:
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
