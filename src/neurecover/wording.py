"""Results in words: the size of a network, two columns of text, the versions of libraries."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from textwrap import wrap

from neurecover.models import Composite, Model

LINE, LABEL = 88, 12  # characters of the lines of a summary, and of the labels before them


def versions() -> dict[str, str]:
    """Return the versions of the libraries that a result depends on, by name."""
    return dict(_installed())


@cache
def _installed() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("neurecover", "numpy", "scipy"):
        try:
            found[name] = version(name)  # reads and parses a file
        except PackageNotFoundError:  # not installed: run from the source tree
            continue
    return found


def in_columns(rows: list[tuple[str, str]]) -> str:
    """Format rows (label, text) as two columns, with the text wrapped."""
    lines = []
    for label, text in rows:
        first, *others = wrap(text, LINE - LABEL - 1, break_long_words=False, break_on_hyphens=False) or [""]
        lines += [f"{label:<{LABEL}} {first}", *(f"{'':<{LABEL}} {other}" for other in others)]
    return "\n".join(line.rstrip() for line in lines)


def describe(network: Model | None) -> str:
    """Return the size of a network in words."""
    if network is None:
        return "none"
    hidden = network.n_hidden
    units = f"{'-'.join(map(str, hidden))} hidden units" if isinstance(hidden, tuple) else _count(hidden, "hidden unit")
    if isinstance(network, Composite):
        upper = f" below {type(network.upper).__name__}"
    else:
        upper = "" if network.C is None else " and an affine term"
    inputs, outputs = _count(network.n_inputs, "input"), _count(network.n_outputs, "output")
    return f"{inputs}, {units} ({network.activation}){upper}, {outputs}"


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
