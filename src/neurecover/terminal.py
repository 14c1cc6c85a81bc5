"""What the command line shows: consoles, tables and the progress bar."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

# Types only, so that `--help` does not wait for the numerical libraries.
if TYPE_CHECKING:
    from neurecover.algorithms import Algorithm
    from neurecover.certificate import Verification
    from neurecover.experiment import Experiment, Track
    from neurecover.matching import Comparison
    from neurecover.models import DeepNetwork, Model, Network
    from neurecover.results import Recovery

T = TypeVar("T")


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Drop the rest of the output: a reader that stops early, such as head, is no failure."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# Without markup, because reasons and papers hold square brackets.
out = _Console(markup=False, emoji=False, highlight=False)
err = Console(stderr=True, markup=False, emoji=False, highlight=False)

COLOURS = {"exact": "green", "statistical": "green", "approximate": "yellow", "failed": "red"}


def say(text: str) -> None:
    """Print one line on standard output, which the terminal wraps."""
    out.print(text, soft_wrap=True)


def complain(text: str) -> None:
    """Print an error as one line on standard error."""
    err.print("error: " + " ".join(text.splitlines()), soft_wrap=True)


def recovery_panel(recovery: Recovery[Model], reword: Callable[[str], str] = str, verbose: bool = False) -> Panel:
    """Return the summary of a recovery, each sentence passed through `reword`."""
    return verdict_panel(recovery.certificate.verdict, recovery.rows(verbose), reword)


def verdict_panel(verdict: str, rows: list[tuple[str, str]], reword: Callable[[str], str] = str) -> Panel:
    """Return rows of a label and a text in a frame of the verdict's colour, each text passed through `reword`."""
    grid = summary_grid([(label, reword(text)) for label, text in rows])
    return Panel(grid, title=verdict, title_align="left", border_style=COLOURS[verdict], expand=False)


def summary_grid(rows: list[tuple[str, str]]) -> Table:
    """Return a grid with labels on the left and wrapped sentences on the right."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for label, text in rows:
        grid.add_row(label, text)
    return grid


def comparison_table(comparison: Comparison) -> Table:
    """Return a table of the errors of a network against the truth, each with its meaning."""
    table = _table("error", "value", "what it is", right=("value",))
    for name, value, meaning in comparison.rows():
        table.add_row(name, f"{value:.2g}", meaning)
    return table


def units_table(found: Network | DeepNetwork, truth: Network, comparison: Comparison) -> Table:
    """Return a table of every unit of the truth beside the one found for it, both in normal form."""
    truth, layers = truth.normal_form(), found.normal_form().layers
    (W, b_found), (A, _) = layers[0], layers[-1]
    table = _table("unit", "a", "a found", "b", "b found", "‖ŵ − w‖", right=("a", "a found", "b", "b found", "‖ŵ − w‖"))
    for i, j in enumerate(comparison.permutation.tolist()):
        a, b = f"{truth.A[0, i]:.9f}", f"{truth.b[i]:.9f}"
        if j < 0:
            table.add_row(str(i), a, "–", b, "–", "–")
            continue
        distance = math.dist(W[j], truth.W[i])
        table.add_row(str(i), a, f"{A[0, j]:.9f}", b, f"{b_found[j]:.9f}", f"{distance:.1e}")
    return table


def verification_table(verification: Verification, names: tuple[str, ...]) -> Table:
    """Return a table with the figures of every output."""
    table = _table("output", "mean squared error", "R²", "largest residual", "rounding")
    for column in table.columns[1:]:
        column.justify = "right"
    v = verification
    for name, mse, unexplained, largest, rounding in zip(
        names, v.mse, v.unexplained, v.largest, v.rounding, strict=True
    ):
        table.add_row(name, f"{mse:.3g}", _r2(unexplained), f"{largest:.3g}", f"{rounding:.1g}")
    return table


def methods_table(methods: Iterable[Algorithm]) -> Table:
    """Return a table of the methods."""
    table = _table("method", "paper", "assumes")
    table.columns[0].no_wrap = True
    for method in methods:
        table.add_row(method.name, method.paper, method.assumes)
    return table


def experiments_table(experiments: dict[str, Experiment]) -> Table:
    """Return a table of the experiments that `bench` or `reproduce` can run."""
    table = _table("name", "what it measures")
    table.columns[0].no_wrap = True
    for name, experiment in experiments.items():
        table.add_row(name, experiment.title)
    return table


def rows_table(rows: list[dict[str, str]]) -> Table:
    """Return the rows of a saved table as a table for the terminal."""
    table = _table(*(rows[0] if rows else ("no rows",)))
    for row in rows:
        table.add_row(*(_short(value) for value in row.values()))
    return table


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show a line on standard error with the time that the work takes; nothing if that is no terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    if not err.is_terminal:  # where rich before 15 ends a disabled line with a new one
        yield
        return
    with Progress(*columns, console=err, transient=True) as progress:
        progress.add_task(what, total=None)
        yield


@contextmanager
def tracking() -> Iterator[Track]:
    """Give a `track` that shows a bar on standard error while it goes through its items, if that is a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:

        def track(items: Iterable[T], label: str) -> Iterator[T]:
            task = progress.add_task(label, total=len(items) if isinstance(items, Sized) else None)
            for item in items:
                yield item
                progress.advance(task)
            progress.remove_task(task)

        yield track


def _table(*headers: str, right: tuple[str, ...] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for header in headers:
        table.add_column(header, justify="right" if header in right else "left")
    return table


def _r2(unexplained: float) -> str:
    """Format R² so that its nines are not rounded up to 1."""
    if math.isnan(unexplained):
        return "constant"
    return f"1 − {unexplained:.1e}" if 0.0 < unexplained < 1e-4 else f"{1 - unexplained:.6f}"


def _short(value: str) -> str:
    """Return a number with six digits, and any other text unchanged."""
    try:
        return value if "." not in value and "e" not in value else f"{float(value):.6g}"
    except ValueError:
        return value
