"""Measurements in a process of their own: its peak of memory is then that of the measurement alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# The child finds the same modules as this process, wherever that found them.
_CHILD = """
import importlib, json, sys
path, module, name, arguments = json.loads(sys.argv[1])
sys.path[:] = path
print(json.dumps(getattr(importlib.import_module(module), name)(*arguments)))
"""


def in_own_process(measure: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Call a function of a module in a new process and return its figures; both ways they pass as JSON."""
    call = json.dumps([sys.path, measure.__module__, measure.__name__, arguments])
    child = subprocess.run([sys.executable, "-c", _CHILD, call], capture_output=True, text=True)
    if child.returncode:
        raise RuntimeError(f"The measuring process failed:\n{child.stderr}")
    return json.loads(child.stdout.splitlines()[-1])


def peak_bytes() -> int:
    """Return the most memory that this process has held so far."""
    # Not getrusage: its maximum survives exec, so that a child begins with the size of its parent.
    try:
        status = Path("/proc/self/status").read_text()
    except FileNotFoundError:
        raise RuntimeError("Peak memory is read from /proc/self/status, which only Linux has.") from None
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
