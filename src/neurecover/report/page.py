"""The report: a self-contained HTML file made from a recovery."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from neurecover.algorithms import methods
from neurecover.certificate import Check, Verification, advice, verify
from neurecover.certificate.verdict import NEEDS
from neurecover.data import as_source
from neurecover.excerpt import ROWS, Excerpt
from neurecover.inference import Coefficient, coefficients, freedom_of, values_of
from neurecover.matching import compare
from neurecover.models import Model
from neurecover.models.formats.files import write_whole
from neurecover.report.figures import (
    as_svg,
    draw_fit,
    draw_kinks,
    draw_residuals,
    draw_spectra,
    draw_weights,
    is_wide,
    test_samples,
    weights_size,
)
from neurecover.report.layers import LayerTable, recovery_tables
from neurecover.report.templating import environment
from neurecover.report.units import unit_tables
from neurecover.results import REASONS
from neurecover.wording import describe

if TYPE_CHECKING:
    from neurecover.results import Recovery

SQUARE = (3.3, 2.8)  # inches per figure, three in a row
SHOWN_UNITS = 300  # rows of a table of units
SHOWN_WEIGHTS = 60  # rows of a table of weights; figures and to_frame show more


def write_report(
    recovery: Recovery[Model], path: str | Path, truth: Model | None = None, X: Any = None, Y: Any = None
) -> None:
    """Write the report to this path; if that fails, an existing file stays unchanged."""
    text = report_page(recovery, truth, X, Y)
    write_whole(path, lambda target: target.write_text(text, encoding="utf-8"))


def report_page(recovery: Recovery[Model], truth: Model | None = None, X: Any = None, Y: Any = None) -> str:
    """Return the report as HTML."""
    comparison = None if truth is None else compare(recovery.network, truth)
    certificate = recovery.certificate
    checks, verdict, meaning = certificate.checks, certificate.verdict, certificate.meaning
    tables = recovery_tables(recovery)
    facts = {
        "r": recovery,
        "network": describe(recovery.network),
        "meaning": f"{meaning[0].upper()}{meaning[1:]}.",
        "tips": advice(certificate),
        # The checks that the verdict needs; below statistical, every failed check prevents a better verdict.
        "needed": NEEDS[verdict] if verdict in ("exact", "statistical") else (),
        "checks": sorted((check for check in checks if _needed(check)), key=lambda check: check.passed),
        "assumptions": [check for check in checks if not _needed(check)],
        "assumes": next((method.assumes for method in methods() if method.name == recovery.method), None),
        "coefficients": _coefficients(recovery),
        "wide": is_wide,
        "layers": [(table, _weights(table, number)) for number, table in enumerate(tables)],
        "units": unit_tables(recovery, truth, comparison),
        "shown_units": SHOWN_UNITS,
        "shown_reasons": REASONS,
        "test_samples": test_samples(recovery),
        "pictures": _pictures(recovery, tables),
        "errors": None if comparison is None else comparison.rows(),
        "fresh": None if X is None else _fresh(recovery, X, Y),
    }
    return environment().get_template("report.html").render(facts)


def _coefficients(recovery: Recovery[Model]) -> tuple[Coefficient, ...]:
    """Return the weights with their intervals if there are errors and few enough weights for a table, else none."""
    root = recovery.certificate.covariance_root
    if root is None or len(root) > SHOWN_WEIGHTS:
        return ()
    values, freedom = values_of(recovery.network), freedom_of(recovery.certificate)
    return coefficients(recovery.parameter_names(), values, root, freedom)


def _needed(check: Check) -> bool:
    return any(check.name in names for names in NEEDS.values())


def _weights(table: LayerTable, number: int) -> str:
    return as_svg(draw_weights, table, name=f"layer{number}", size=weights_size(table)) if table.weights.size else ""


def _pictures(recovery: Recovery[Model], tables: list[LayerTable]) -> list[str]:
    excerpt = recovery.excerpt
    drawn = []
    if excerpt is not None:
        what = test_samples(recovery)
        drawn.append(as_svg(draw_fit, excerpt, what, name="fit", size=SQUARE))
        drawn.append(as_svg(draw_residuals, excerpt, recovery.certificate, what, name="residuals", size=SQUARE))
    if any(table.weights.size for table in tables):
        drawn.append(as_svg(draw_spectra, tables, name="spectra", size=SQUARE))
    if recovery.queried is not None and recovery.queried.line is not None:
        drawn.append(as_svg(draw_kinks, recovery.network, recovery.queried.line, name="kinks", size=SQUARE))
    return drawn


def _fresh(recovery: Recovery[Model], X: Any, Y: Any) -> dict[str, Any]:
    """Test the network on samples given for the report; return the results and a figure of the first samples."""
    source, network = as_source(X, Y), recovery.network
    figures: Verification = verify(network, source)
    X, Y = next(source.blocks(ROWS))
    excerpt = Excerpt.of_answers(X, network, Y, network(X), source.input_names, source.output_names)
    rows = list(zip(source.output_names, figures.mse, figures.unexplained, figures.largest, figures.rounding))
    return {
        "origin": source.origin,
        "n": figures.n_samples,
        "shown": len(excerpt.observed),
        "rows": rows,
        "pictures": [
            as_svg(draw_fit, excerpt, "these samples", name="freshfit", size=SQUARE),
            as_svg(draw_residuals, excerpt, recovery.certificate, "these samples", name="freshresiduals", size=SQUARE),
        ],
    }
