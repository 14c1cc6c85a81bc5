"""Libraries that come with an extra and are loaded when a conversion needs them."""

from __future__ import annotations

import importlib
from typing import Any


def torch() -> Any:
    return _library("torch", "PyTorch modules", "torch")


def onnx() -> Any:
    return _library("onnx", "ONNX files", "onnx")


def onnxruntime() -> Any:
    return _library("onnxruntime", "ONNX files", "onnx")


def _library(name: str, purpose: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(f"{purpose} need the extra `{extra}`: pip install 'neurecover[{extra}]'") from None
