"""Samples in a CSV file, streamed through pyarrow.

Every chosen column is read as float64, because a column that begins with integers may contain fractions later. A column
that begins with True or False is read as 1 and 0.
pyarrow parses fast but does not say at which line it failed. After a failure a second, slow pass finds that line.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from neurecover.data.formats.columns import Columns, choose
from neurecover.data.source import LABELS_SHOW, MOST_COLUMNS, Blocks, Source
from neurecover.models.formats.libraries import arrow

# Bytes of text parsed at a time; pyarrow reads some thirty pieces ahead, and larger ones are no
# faster. A line has to fit in one piece, and no decimal double needs more than 64 characters.
_PIECE = 2**18
_FIELD = 64  # characters
_LINE = _FIELD * MOST_COLUMNS
_FURTHER = 10_000  # lines after the first fault that are read for other columns with faults: a tenth of a second
MISSING = frozenset(("", "NA", "N/A", "n/a", "#N/A", "#NA", "NaN", "nan", "-NaN", "-nan", "NULL", "null"))  # pyarrow's


class CsvSource(Source):
    """Comma-separated numbers, UTF-8, with or without a header line; semicolons or tabs if the first line has no comma.

    The first line is a header unless all its fields are numbers, True, False or missing; without one the columns
    are named "0", "1", … Empty lines are skipped. n_samples is unknown before a pass.
    """

    n_samples = None
    reads_ahead = True

    def __init__(self, path: Path, inputs: Columns | None = None, outputs: Columns | None = None) -> None:
        arrow("csv")
        self.origin = str(path)
        self._path = path
        header = read_header(path, self.origin)
        self._delimiter, self._header_line, self._names = header.separator, header.line, header.names
        self._choice = choose(self._names, inputs, outputs, self.origin)
        first = next(self._records(), (0, []))[1]
        self._booleans = {j for j, field in enumerate(first) if _is_boolean(field)}
        self.input_names = self._choice.input_names
        self.output_names = self._choice.output_names

    def _files(self) -> list[Path]:
        return [self._path]

    def _blocks(self, rows: int) -> Blocks:
        pa = arrow()
        try:
            for batch in self._reader():
                X, Y = _matrix(batch, self._choice.inputs), _matrix(batch, self._choice.outputs)
                for start in range(0, len(X), rows):
                    yield X[start : start + rows], Y[start : start + rows]
        except (pa.ArrowException, OSError) as error:
            raise ValueError(self._first_fault() or f"{self.origin}: cannot be read as CSV ({error}).") from error

    def _reader(self) -> Any:
        pa, pc = arrow(), arrow("csv")
        # Positions serve as names for pyarrow, which would refuse a header that repeats one.
        columns = [str(j) for j in range(len(self._names))]
        chosen = [str(j) for j in self._choice.inputs + self._choice.outputs]
        types = {j: pa.bool_() if int(j) in self._booleans else pa.float64() for j in chosen}
        return pc.open_csv(
            self._path,
            read_options=pc.ReadOptions(
                column_names=columns, skip_rows=self._header_line, block_size=max(_PIECE, _FIELD * len(columns))
            ),
            parse_options=pc.ParseOptions(delimiter=self._delimiter),
            convert_options=pc.ConvertOptions(include_columns=chosen, column_types=types),
        )

    def _where(self, row: int) -> str:
        for count, (line, _) in enumerate(self._records()):
            if count == row:
                return f"line {line}"
        return f"row {row}"

    def _first_fault(self) -> str | None:
        """Describe the first field that cannot be read, and name the other columns that cannot be read as they are."""
        faults: dict[int, tuple[int, str]] = {}
        lacking: set[int] = set()
        for line, fields in self._records():
            if faults and line > min(faults.values())[0] + _FURTHER:
                break
            if len(fields) != len(self._names) and not faults:
                return f"{self.origin}, line {line}: expected {len(self._names)} fields. Got {len(fields)} instead."
            for j in self._choice.inputs + self._choice.outputs:
                field = fields[j] if j < len(fields) else ""
                if field in MISSING:
                    lacking.add(j)
                elif not self._readable(j, field):
                    faults.setdefault(j, (line, field))
        if not faults:
            return None
        (first, (line, field)), *others = faults.items()
        expected = "True or False" if first in self._booleans else "a number"
        also = [f"{self._names[j]!r} ({text!r})" for j, (_, text) in others]
        also += [f"{self._names[j]!r} (values missing)" for j in sorted(lacking - set(faults))]
        found = f"{self.origin}, line {line}, column {self._names[first]!r}: expected {expected}. Got {field!r} instead"
        more = f" The same for {', '.join(also)}." if also else ""
        return f"{found}; {self._hint(first, field)}.{more}"

    def _readable(self, j: int, field: str) -> bool:
        return _is_boolean(field) or field in "01" if j in self._booleans else _is_number(field)

    def _hint(self, j: int, field: str) -> str:
        if re.fullmatch(r"[-+]?\d+,\d+", field):
            return "write decimals with a point"
        if j in self._choice.outputs:
            return f"{LABELS_SHOW}, with labels written as 0 and 1"
        return "correct it, leave the column out with drop=[…], or turn text into columns of 0 and 1"

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        return (pair for pair in _lines(self._path, self._delimiter, self.origin) if pair[0] > self._header_line)


@dataclass(frozen=True)
class Header:
    """The names of the columns of a CSV file, and the number of the header line, 0 if the file has none."""

    separator: str
    line: int
    names: list[str]


def read_header(path: Path, origin: str) -> Header:
    """Read the header: the first line, unless all its fields are numbers, True, False or missing."""
    separator = _delimiter(path)
    line, fields = next(_lines(path, separator, origin), (0, []))
    if not fields:
        raise ValueError(f"{origin}: expected comma-separated numbers. Got an empty file instead.")
    values = [field for field in fields if field.strip() not in MISSING]
    if values and all(_is_number(field) or _is_boolean(field) for field in values):
        return Header(separator, 0, [str(j) for j in range(len(fields))])
    return Header(separator, line, [field.strip() for field in fields])


def _lines(path: Path, delimiter: str, origin: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number, counted from 1, and the fields of every line that is not empty."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        if len(file.readline(_LINE)) == _LINE:
            raise ValueError(f"{origin}: expected lines of up to {_LINE} characters. Got a longer one.")
        file.seek(0)
        reader = csv.reader(file, delimiter=delimiter)
        try:
            for fields in reader:
                if fields:
                    yield reader.line_num, fields
        except csv.Error as error:
            raise ValueError(f"{origin}, line {reader.line_num}: not readable as CSV ({error}).") from error


def _matrix(batch: Any, positions: tuple[int, ...]) -> np.ndarray:
    # A missing value becomes nan here and is refused, with its line, by Source.blocks.
    columns = [batch.column(str(j)).to_numpy(zero_copy_only=False) for j in positions]
    return np.column_stack([column.astype(np.float64) for column in columns])  # None among booleans is nan


def _delimiter(path: Path) -> str:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        first = file.readline(_LINE)
    return next((mark for mark in ("," if "," in first else "", "\t", ";") if mark and mark in first), ",")


def _is_boolean(text: str) -> bool:
    return text in ("True", "False", "true", "false", "TRUE", "FALSE")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text
