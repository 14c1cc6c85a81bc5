"""An experiment: rows of figures first, saved with what they were measured on; a picture drawn from them second."""

from __future__ import annotations

import csv
import json
import os
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
Row = dict[str, object]
Track = Callable[[Iterable[T], str], Iterable[T]]

_VERSIONED = ("neurecover", "numpy", "scipy", "scikit-learn", "torch", "tensorly")


@dataclass(frozen=True)
class Experiment:
    """`run(track)` measures rows with the same keys, one after the other; `draw(rows, path)` makes a picture of them.

    track(items, label) goes through the items and shows how far it has got. The rows that `draw` receives come from the
    CSV file, so all their values are text.
    """

    name: str
    title: str
    run: Callable[[Track], Iterable[Row]] = field(repr=False)
    draw: Callable[[list[dict[str, str]], Path], None] | None = field(repr=False, default=None)

    def save(self, folder: Path, track: Track) -> list[Path]:
        """Run, write NAME.csv row by row and NAME.json, then draw NAME.png from the table."""
        folder.mkdir(parents=True, exist_ok=True)
        began = time.time()
        table, rows = folder / f"{self.name}.csv", iter(self.run(track))
        first = next(rows)  # what cannot run leaves no file behind
        with table.open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(first))
            writer.writeheader()
            for row in chain([first], rows):
                writer.writerow(row)
                file.flush()
        record = folder / f"{self.name}.json"
        facts = {"experiment": self.name, "title": self.title, "seconds": round(time.time() - began, 1), **machine()}
        record.write_text(json.dumps(facts, indent=2) + "\n")
        return [table, record, *self.redraw(folder)]

    def redraw(self, folder: Path) -> list[Path]:
        """Draw NAME.png from the saved table."""
        if self.draw is None:
            return []
        picture = folder / f"{self.name}.png"
        self.draw(read_rows(folder / f"{self.name}.csv"), picture)
        return [picture]


def fresh_seeds(count: int) -> range:
    """Seeds that no setting was chosen on; tests and studies use small ones."""
    return range(7_000, 7_000 + count)


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a saved table, as text."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def machine() -> dict[str, object]:
    """What figures depend on: versions, processor and cores."""
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
