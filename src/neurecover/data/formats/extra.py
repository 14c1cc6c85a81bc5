"""Libraries that come with an extra and are loaded when something needs them."""

import importlib
from typing import Any


def arrow(module: str | None = None) -> Any:
    """pyarrow itself, or one of its modules by name."""
    package = optional("pyarrow", "Reading CSV, Parquet or tables", "data")
    return package if module is None else importlib.import_module(f"pyarrow.{module}")


def optional(name: str, purpose: str, extra: str) -> Any:
    """A module, or an error that says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(f"{purpose} needs the extra `{extra}`: pip install 'neurecover[{extra}]'") from None
