"""Optional libraries, installed with an extra and imported only when needed."""

from __future__ import annotations

import importlib
from typing import Any


def optional(name: str, purpose: str, extra: str) -> Any:
    """Import a module of an extra; if it is missing, the error names the command that installs the extra."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(f"{purpose} needs the extra `{extra}`: pip install 'neurecover[{extra}]'") from None


def torch() -> Any:
    """Import PyTorch."""
    return optional("torch", "Converting PyTorch modules", "torch")


def onnx() -> Any:
    """Import onnx."""
    return optional("onnx", "Reading and writing ONNX files", "onnx")


def onnxruntime() -> Any:
    """Import onnxruntime."""
    return optional("onnxruntime", "Running ONNX files", "onnx")


def arrow(module: str | None = None) -> Any:
    """Import pyarrow, or one of its modules by name."""
    package = optional("pyarrow", "Reading CSV, Parquet or tables", "data")
    return package if module is None else importlib.import_module(f"pyarrow.{module}")
