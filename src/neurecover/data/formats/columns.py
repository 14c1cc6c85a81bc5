"""Which columns of a table are inputs and which are outputs."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import SupportsIndex

from neurecover.data.source import check_columns
from neurecover.exceptions import did_you_mean

Column = str | SupportsIndex
Columns = Column | Iterable[Column]


class Without(tuple[Column, ...]):
    """As a choice of inputs: all columns except these and the outputs."""


_OUTPUT = re.compile(r"[yY](_?[0-9]+)?")
_USUAL = ("target", "label", "class", "price", "response", "outcome", "output")  # suggested, never taken unasked
_INDEX = re.compile(r"__index_level_[0-9]+__")  # how pandas names an index that it writes beside the columns


@dataclass(frozen=True)
class Choice:
    """The positions and names of the columns that are inputs, and of those that are outputs."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]


def is_output_name(name: str) -> bool:
    """Return whether a column's name marks it as an output: y, y0, y_1, …"""
    return _OUTPUT.fullmatch(name) is not None


def default_outputs(names: Sequence[str], origin: str) -> list[int]:
    """Return the positions of the outputs among columns of which none was chosen; names are never guessed from."""
    named = [j for j, name in enumerate(names) if is_output_name(name)]
    if not named and len(names) > 1 and not all(name.isdigit() for name in names):
        likely = next((name for name in names if name.lower() in _USUAL), names[-1])
        raise ValueError(
            f"{origin}: no column is named y, so name the output, for instance outputs={likely!r}. "
            f"The columns are {_listed(names)}."
        )
    return named or list(range(len(names)))[-1:]


def choose(names: Sequence[str], inputs: Columns | None, outputs: Columns | None, origin: str) -> Choice:
    """Resolve names and positions; a negative position counts from the last column.

    Outputs default to the columns named y, y0, y1, … or y_0, y_1, …; if columns have no names, or only one is left, to
    the last one. Inputs default to all other columns except the index of a pandas frame. A column listed in `inputs` is
    never an output by default.
    """
    check_columns(len(names), origin)
    dropped = _positions(names, inputs, "columns to drop", origin) if isinstance(inputs, Without) else []
    inputs = None if dropped else inputs
    chosen_inputs = [] if inputs is None else _positions(names, inputs, "inputs", origin)
    if outputs is None:
        free = _left(names, chosen_inputs + dropped)
        chosen_outputs = [free[j] for j in default_outputs([names[j] for j in free], origin)]
    else:
        chosen_outputs = _positions(names, outputs, "outputs", origin)
    if inputs is None:
        chosen_inputs = _left(names, chosen_outputs + dropped)
        unnamed = [j for j in chosen_inputs if names[j] in ("", "Unnamed: 0")]
        if unnamed:
            raise ValueError(
                f"{origin}: column {unnamed[0]} has no name, as the index of a table has none: "
                f"leave it out with drop=[{unnamed[0]}]. The others are {_listed([name for name in names if name])}."
            )
    both = [names[j] for j in sorted(set(chosen_outputs) & set(dropped))]
    if both:
        raise ValueError(f"{origin}: {_listed(both)} cannot be an output and dropped. Choose one of them.")
    both = [names[j] for j in sorted(set(chosen_inputs) & set(chosen_outputs))]
    if both:
        raise ValueError(f"{origin}: a column is an input or an output. Got {_listed(both)} as both instead.")
    for what, chosen in (("input", chosen_inputs), ("output", chosen_outputs)):
        if not chosen:
            raise ValueError(
                f"{origin}: expected at least one {what} column. Got none from the columns {_listed(names)} instead."
            )
    distinct = _distinct(names)
    return Choice(
        tuple(chosen_inputs),
        tuple(chosen_outputs),
        tuple(distinct[j] for j in chosen_inputs),
        tuple(distinct[j] for j in chosen_outputs),
    )


def _distinct(names: Sequence[str]) -> list[str]:
    """Make the names distinct: a repeated name gets the number of its column appended."""
    first: dict[str, int] = {}
    return [name if first.setdefault(name, j) == j else f"{name} ({j})" for j, name in enumerate(names)]


def _left(names: Sequence[str], taken: Iterable[int]) -> list[int]:
    index = {j for j, name in enumerate(names) if _INDEX.fullmatch(name)}
    return sorted(set(range(len(names))) - set(taken) - index)


def _positions(names: Sequence[str], wanted: Columns, what: str, origin: str) -> list[int]:
    if isinstance(wanted, str) or not isinstance(wanted, Iterable):
        wanted = [wanted]
    named: dict[str, list[int]] = {}
    for j, name in enumerate(names):
        named.setdefault(name, []).append(j)
    positions: list[int] = []
    for column in wanted:
        matches = named.get(column, []) if isinstance(column, str) else _counted(column, len(names))
        if len(matches) != 1:
            problem = f"{len(matches)} columns are" if matches else "there is no column"
            hint = " Choose by position." if matches else did_you_mean(str(column), names)
            raise ValueError(
                f"{origin}: {problem} named {column!r}, given for the {what}. The columns are {_listed(names)}.{hint}"
            )
        positions += matches
    repeated = [names[j] for j, times in Counter(positions).items() if times > 1]
    if repeated:
        raise ValueError(f"{origin}: each of the {what} is named once. Got {_listed(repeated)} repeated instead.")
    return positions


def _counted(position: SupportsIndex, count: int) -> list[int]:
    j = position.__index__()
    return [j % count] if -count <= j < count else []


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:12])
    return shown if len(names) <= 12 else f"{shown}, … ({len(names)} in all)"
