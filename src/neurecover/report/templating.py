"""The templates and how numbers are written in them."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any

import numpy as np

from neurecover.certificate import Check
from neurecover.models.formats.libraries import optional

STRONGEST = 0.5  # largest opacity behind a number that keeps it readable, on white and on black


@cache
def environment() -> Any:
    """Return the jinja2 environment, which escapes everything that is not marked as safe."""
    jinja2 = optional("jinja2", "A report", "report")
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("neurecover.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "figure": figure,
        "prose": prose,
        "bound": bound,
        "share": share,
        "chance": chance,
        "shade": shade,
        "zip": zip,
        "abs_max": largest_of,
    }
    return made


def figure(value: float | None, digits: int = 4, padded: bool = False) -> str:
    """Format a number with `digits` digits and a minus sign; a dash for None. `padded` keeps trailing zeros."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool | str):
        return str(value)
    text = f"{value:,}" if isinstance(value, int) else f"{value:{'#' if padded else ''}.{digits}g}"
    return text.replace("-", "−").replace("inf", "∞")


def prose(sentence: str) -> str:
    """Return the sentence with minus signs, at which lines do not break, in place of hyphens before numbers."""
    return re.sub(r"(?<=\de)-(?=\d)|(?<=[ (\[])-(?=\d)", "−", sentence)


def bound(check: Check) -> str:
    """Format the limit of a check, with ≤ or ≥ if the figure shows which side passes."""
    if check.figure is None or check.limit is None or not check.figure - check.limit:
        return figure(check.limit, 3)
    return f"{'≤' if (check.figure < check.limit) == check.passed else '≥'} {figure(check.limit, 3)}"


def share(value: float | None) -> str:
    """Format a share in percent; never round to 0 or 100."""
    if value is None:
        return "–"
    if 0.0 < value < 0.001:
        return "< 0.1 %"
    return "> 99.9 %" if 0.999 < value < 1.0 else f"{100 * value:.1f} %"


def chance(p: float) -> str:
    """Format a p-value, without meaningless digits if it is very small."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def shade(value: float, largest: float) -> str:
    """Return the colour of a weight: the hue for its sign, the strength for its size relative to the largest."""
    colour = "31, 111, 180" if value < 0 else "190, 80, 15"
    return f"rgba({colour}, {STRONGEST * min(abs(value) / max(largest, 1e-300), 1.0):.2f})"


def largest_of(values: np.ndarray) -> float:
    return float(np.abs(values).max(initial=0.0))
