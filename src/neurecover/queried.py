"""The record of an extraction, saved with a recovery: how many queries served which purpose, and what they found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class KinkLine:
    """A line x + t v through the inputs, and the places t (m,) at which the answers along it had a kink."""

    x: np.ndarray
    v: np.ndarray
    kinks: np.ndarray


@dataclass(frozen=True, eq=False)
class Queried:
    """The queries of an extraction by their purpose, and what they found.

    Attributes
    ----------
    purposes : tuple of (str, int)
        What queries were for and how many of them, in the order in which they were first asked.
    resolution : float
        The rounding of an answer, relative to the size of the answers.
    errors : tuple of ndarray
        The expected errors of the rows of every hidden layer, scaled to length one; empty if no layer was measured.
    line : KinkLine or None
        A line along which kinks were looked for; None if there was none.
    price : float or None
        What one query costs, if it was told.
    """

    purposes: tuple[tuple[str, int], ...]
    resolution: float
    errors: tuple[np.ndarray, ...] = ()
    line: KinkLine | None = None
    price: float | None = None

    @property
    def total(self) -> int:
        """The number of queries."""
        return sum(count for _, count in self.purposes)

    @property
    def cost(self) -> float | None:
        """The price of all queries together; None if the price of one is not known."""
        return None if self.price is None else self.price * self.total

    def found(self) -> list[str]:
        """Return a sentence for every hidden layer."""
        return [
            f"hidden layer {number}: {len(errors)} units, their weights to {float(np.max(errors, initial=0.0)):.1e}"
            for number, errors in enumerate(self.errors, start=1)
        ]

    def rows(self) -> list[tuple[str, str]]:
        """Return labels and texts of a summary."""
        spent = ", ".join(f"{purpose} {count:,}" for purpose, count in self.purposes)
        rows = [("asked for", spent)]
        if np.isfinite(self.resolution):
            rows.append(("resolution", f"{self.resolution:.1e} of the answers"))
        rows += [("found" if i == 0 else "", sentence) for i, sentence in enumerate(self.found())]
        if self.cost is not None:
            rows.append(("cost", f"{self.cost:,.2f}, {self.total:,} queries at {self.price:g}"))
        return rows

    def to_record(self) -> dict[str, Any]:
        """Return what can be written as JSON."""
        return {"purposes": [list(pair) for pair in self.purposes], "resolution": self.resolution, "price": self.price}

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to be saved, by name."""
        arrays = {f"errors{number}": errors for number, errors in enumerate(self.errors, start=1)}
        if self.line is not None:
            arrays |= {f"line_{name}": value for name, value in vars(self.line).items()}
        return arrays

    @classmethod
    def from_saved(cls, record: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Queried:
        """Read what `to_record` and `to_arrays` gave; KeyError if something is missing."""
        layers = sum(name.startswith("errors") for name in arrays)
        line = {name: arrays[f"line_{name}"] for name in ("x", "v", "kinks")} if "line_x" in arrays else None
        return cls(
            tuple((str(purpose), int(count)) for purpose, count in record["purposes"]),
            record["resolution"],
            tuple(arrays[f"errors{number}"] for number in range(1, layers + 1)),
            None if line is None else KinkLine(**line),
            record["price"],
        )
