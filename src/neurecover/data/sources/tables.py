"""Tables in memory: pandas and polars frames, Arrow tables, and other objects with the same protocols.

A table with Arrow's protocol (`__arrow_c_stream__`) or the interchange protocol (`__dataframe__`) is read by columns
through pyarrow; the columns keep their names.
"""

from __future__ import annotations

from typing import Any

from neurecover.data.formats.columns import Columns, choose
from neurecover.data.formats.parquet import common_dtype, matrix
from neurecover.data.source import Source
from neurecover.data.sources.arrays import ArraySource
from neurecover.models.formats.libraries import arrow


def is_table(value: Any) -> bool:
    """Return whether the value is a table with named columns rather than an array."""
    return hasattr(value, "__dataframe__") or (hasattr(value, "__arrow_c_stream__") and hasattr(value, "columns"))


def table_source(table: Any, inputs: Columns | None, outputs: Columns | None) -> ArraySource:
    """Return the chosen columns of a table as samples."""
    made = f"the {type(table).__module__.split('.')[0]} table"
    origin = getattr(table, "attrs", {}).get("origin", made)  # attrs: what a pandas frame knows of itself
    read = arrow_table(table)
    choice = choose(read.schema.names, inputs, outputs, origin)
    X, Y = (
        matrix(read, names, common_dtype(read.schema, names, origin))
        for names in (choice.input_names, choice.output_names)
    )
    source = ArraySource(X, Y, origin=origin)
    source.without_a_value = Source.without_a_value
    source.input_names, source.output_names = choice.input_names, choice.output_names
    return source


def arrow_table(table: Any) -> Any:
    """Return the table as a pyarrow.Table with one chunk per column."""
    pa = arrow()
    if isinstance(table, pa.Table):
        read = table
    elif hasattr(table, "__arrow_c_stream__"):
        read = pa.table(table)
    else:
        read = arrow("interchange").from_dataframe(table)
    return read.combine_chunks()
