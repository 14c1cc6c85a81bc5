"""An experiment: first a saved table of figures and of the machine they were measured on, then a picture of the table.

`neurecover reproduce` runs those of the papers (`reproduce/`), and `neurecover bench` all others (`benchmarks/`, which
stands beside `src/`).
"""

from __future__ import annotations

import csv
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Row = dict[str, object]

# The libraries that figures depend on, if installed.
_VERSIONED = ("neurecover", "numpy", "scipy", "scikit-learn", "torch", "tensorly")
_FIRST_FRESH = 7_000  # tests and studies use smaller seeds


class Track(Protocol):
    """track(items, label) goes through the items, of any type, and shows how far it has got."""

    def __call__(self, items: Iterable[T], label: str, /) -> Iterable[T]: ...


@dataclass(frozen=True)
class Experiment:
    """A measurement with a name and a title: run(track) yields rows with the same keys, draw(rows, path) a picture.

    track(items, label) goes through the items and shows progress. A row may also come as a function that measures it:
    a run that was cut off then goes on where it ended. The rows that `draw` receives come from the CSV file, so all
    their values are text.
    """

    name: str
    title: str
    run: Callable[[Track], Iterable[Row | Callable[[], Row]]] = field(repr=False)
    draw: Callable[[list[dict[str, str]], Path], None] | None = field(repr=False, default=None)

    def save(self, folder: Path, track: Track) -> list[Path]:
        """Run, write NAME.csv and NAME.json, then draw NAME.png from the table; return the paths.

        The rows go to NAME.part.csv one by one, until all are there.
        """
        folder.mkdir(parents=True, exist_ok=True)
        began = time.time()
        table, part = folder / f"{self.name}.csv", folder / f"{self.name}.part.csv"
        kept = read_rows(part) if part.is_file() else []
        rows = (_measured(row, kept[i : i + 1]) for i, row in enumerate(self.run(track)))
        first = next(rows)  # what cannot run leaves no file behind
        with part.open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(first))
            writer.writeheader()
            for row in chain([first], rows):
                writer.writerow(row)
                file.flush()
        part.replace(table)
        record = folder / f"{self.name}.json"
        facts = {"experiment": self.name, "title": self.title, "seconds": round(time.time() - began, 1), **machine()}
        record.write_text(json.dumps(facts, indent=2) + "\n")
        return [table, record, *self.redraw(folder)]

    def redraw(self, folder: Path) -> list[Path]:
        """Draw NAME.png from the saved table; return its path, if there is anything to draw."""
        if self.draw is None:
            return []
        picture = folder / f"{self.name}.png"
        self.draw(read_rows(folder / f"{self.name}.csv"), picture)
        return [picture]


def _measured(row: Row | Callable[[], Row], kept: list[dict[str, str]]) -> Row:
    """Return the row, as it was `kept` if it is measured by a function and has been before."""
    if not callable(row):
        return row
    return {**kept[0]} if kept else row()


def by_name(package: str, modules: Iterable[str]) -> dict[str, Experiment]:
    """Import the modules of a package and return the `EXPERIMENTS` of all of them, by name."""
    every = (experiment for module in modules for experiment in import_module(f"{package}.{module}").EXPERIMENTS)
    return {experiment.name: experiment for experiment in every}


def fresh_seeds(count: int, first: int = _FIRST_FRESH) -> range:
    """Return seeds on which no setting was chosen; where the usual ones were looked at, give another `first`."""
    return range(first, first + count)


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a saved table, as text."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@contextmanager
def picture(path: Path, *, size: tuple[float, float], **subplots: Any) -> Iterator[tuple[Any, Any]]:
    """Give a figure and its axes to draw on, then save the figure; `subplots` are options of `plt.subplots`."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=size, layout="constrained", **subplots)
    yield figure, axes
    figure.savefig(path, dpi=130)
    plt.close(figure)


def machine() -> dict[str, object]:
    """Return what timings depend on: versions, processor and cores."""
    versions = {}
    for name in _VERSIONED:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "versions": versions,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }
