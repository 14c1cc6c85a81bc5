"""Display of results in a notebook, with parts of the report."""

from __future__ import annotations

from typing import Any

from neurecover.models import Model
from neurecover.report.layers import layer_tables
from neurecover.report.templating import environment
from neurecover.results import Recovery
from neurecover.wording import describe

CELLS = 600  # largest number of weights for which all are shown


def in_notebook(kind: str, thing: Any) -> str | None:
    """Return HTML for a recovery, certificate, network or comparison; None (plain text) if jinja2 is missing."""
    try:
        pieces = environment()
    except ImportError:
        return None
    return pieces.get_template("notebook.html").render(kind=kind, **_facts(thing))


def _facts(thing: Any) -> dict[str, Any]:
    if isinstance(thing, Recovery):
        return {"rows": thing.rows()[1:], "verdict": thing.certificate.verdict}
    if isinstance(thing, Model):
        return {"network": describe(thing), "layers": layer_tables(thing), "cells": CELLS}
    if hasattr(thing, "checks"):
        return {"verdict": thing.verdict, "reasons": thing.reasons, "checks": thing.checks}
    return {"errors": thing.rows()}
