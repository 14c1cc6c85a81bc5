"""Optional libraries, installed with an extra and imported only when needed."""

from __future__ import annotations

import importlib
import json
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any
from urllib.parse import unquote, urlparse


def optional(name: str, purpose: str, extra: str) -> Any:
    """Import a module of an extra; if it is missing, the error names the command that installs the extra."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(f"{purpose} needs the extra `{extra}`: {install_command(extra)}") from None


def install_command(extra: str) -> str:
    """Return the command that adds an extra, for the way in which the package was installed."""
    try:
        origin = json.loads(distribution("neurecover").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:  # run from the source tree
        return f"pip install '.[{extra}]' in a clone of neurecover"
    url = origin.get("url", "")
    if "vcs_info" in origin:
        return f"pip install 'neurecover[{extra}] @ {origin['vcs_info']['vcs']}+{url}'"
    if not url.startswith("file:"):  # from a package index
        return f"pip install 'neurecover[{extra}]'"
    editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
    return f"pip install {editable}'{unquote(urlparse(url).path)}[{extra}]'"


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
