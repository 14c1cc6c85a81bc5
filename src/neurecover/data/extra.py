"""pyarrow, which comes with the extra `data` and is loaded when a file needs it."""

import importlib
from typing import Any


def arrow(module: str | None = None) -> Any:
    """pyarrow itself, or one of its modules by name."""
    try:
        package = importlib.import_module("pyarrow")
        return package if module is None else importlib.import_module(f"pyarrow.{module}")
    except ImportError:
        raise ImportError("Reading CSV or Parquet needs the extra `data`: pip install 'neurecover[data]'") from None
