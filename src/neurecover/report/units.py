"""The table of hidden units: direction, bias, weight in the layer above, how often the unit is on, and its error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neurecover.models import Composite, Model
from neurecover.report.layers import LayerTable, recovery_tables

if TYPE_CHECKING:
    from neurecover.matching import Comparison
    from neurecover.results import Recovery

NAMED = 3  # number of largest weights that describe a direction
SHOWN = 0.005  # smallest weight that two decimals show


@dataclass(frozen=True)
class UnitRow:
    """One hidden unit. `above` is its weight in the layer above, or the norm of its weights there.

    `error` is the largest standard error in its row. `distance` is ‖ŵ − w‖ from the unit's partner in the truth, for
    the first layer. Either is None if unknown.
    """

    number: int
    direction: str
    bias: float
    above: float | None
    on: float | None
    error: float | None
    partner: int | None = None
    distance: float | None = None


@dataclass(frozen=True)
class UnitTable:
    """The units of one hidden layer, and the meaning of `above` in this layer."""

    name: str
    above: str
    rows: list[UnitRow]
    compared: bool

    @property
    def has_errors(self) -> bool:
        return any(row.error is not None for row in self.rows)

    @property
    def has_distances(self) -> bool:
        return any(row.distance is not None for row in self.rows)


def unit_tables(
    recovery: Recovery[Model], truth: Model | None = None, comparison: Comparison | None = None
) -> list[UnitTable]:
    """Return a table per hidden layer."""
    tables = recovery_tables(recovery)
    excerpt = recovery.excerpt
    found = []
    for number, table in enumerate(table for table in tables if table.hidden):
        over = tables[number + 1] if number + 1 < len(tables) and tables[number + 1].columns[-1] == "bias" else None
        on = excerpt.on[number] if excerpt is not None and number < len(excerpt.on) else None
        partners = _partners(table, truth, comparison, number)
        rows = [_row(table, over, on, unit, partners) for unit in range(len(table.values))]
        single = over is not None and len(over.values) == 1
        found.append(UnitTable(table.name, "output weight" if single else "weight above", rows, comparison is not None))
    return found


def _row(
    table: LayerTable,
    over: LayerTable | None,
    on: np.ndarray | None,
    unit: int,
    partners: dict[int, tuple[int, float | None]],
) -> UnitRow:
    column = None if over is None else over.weights[:, unit]
    above = None if column is None else float(column[0]) if len(column) == 1 else float(np.linalg.norm(column))
    partner, distance = partners.get(unit, (None, None))
    return UnitRow(
        unit,
        _direction(table.weights[unit], table.columns),
        float(table.values[unit, -1]),
        above,
        None if on is None else float(on[unit]),
        None if table.errors is None else float(table.errors[unit].max()),
        partner,
        distance,
    )


def _direction(w: np.ndarray, names: tuple[str, ...]) -> str:
    """Return the largest weights, as in "0.82 x3 − 0.41 x7 + …"."""
    order = np.argsort(-np.abs(w), kind="stable")[: max(1, min(NAMED, np.count_nonzero(np.abs(w) >= SHOWN)))]
    parts = [f"{'−' if w[j] < 0 else '+'} {abs(w[j]):.2f} {names[j]}" for j in order]
    return (" ".join(parts) + (" + …" if np.count_nonzero(w) > len(order) else "")).removeprefix("+ ")


def _partners(
    table: LayerTable, truth: Model | None, comparison: Comparison | None, number: int
) -> dict[int, tuple[int, float | None]]:
    """Return, for every unit of the network, its partner in the truth and, in the first layer only, its distance.

    Above the first layer the columns are in a different order than in the truth.
    """
    if truth is None or comparison is None or number >= len(comparison.layers):
        return {}
    layer = comparison.layers[number]
    # The signs refer to the truth as given: its normal form may have mirrored units.
    W = (truth.normal_form() if isinstance(truth, Composite) else truth.fixed_scales()).hidden_weights[number]
    partners: dict[int, tuple[int, float | None]] = {}
    for i, j in enumerate(layer.permutation.tolist()):
        if j >= 0:
            distance = float(np.linalg.norm(layer.signs[i] * table.weights[j] - W[i])) if number == 0 else None
            partners[j] = (i, distance)
    return partners
