"""Figures of a recovery: weights, fit, residuals and spectra, for `plot` and for the report."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from neurecover.excerpt import Excerpt
from neurecover.models import Model
from neurecover.models.formats.libraries import optional
from neurecover.queried import KinkLine
from neurecover.report.layers import LayerTable, recovery_tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from neurecover.certificate import Certificate
    from neurecover.results import Recovery

INK = "#010101"  # placeholder for the text colour of the page
SERIES = ("#1f6fb4", "#b4490f", "#2a7d3f", "#8a3fa0", "#806600", "#5b5b5b")  # one per output; 4.5 : 1 on white
NEGATIVE, POSITIVE = np.array([31, 111, 180]), np.array([190, 80, 15])
DECADES = 30.0  # ratio of singular values beyond which their axis is logarithmic
READABLE = 5.0  # width in inches at which labels of seven points still have five on a phone four inches wide
LABELS = 24  # rows or columns up to which each has its name
STYLE = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "neurecover",  # the same recovery gives the same file
}


def overview(recovery: Recovery[Model]) -> Figure:
    """Draw the layers in the first row; fit, residuals and spectra in the second."""
    tables = recovery_tables(recovery)
    with _style():
        figure = _figure(10.0, 6.4)
        above, below = figure.subfigures(2, 1, height_ratios=[3, 2.6], squeeze=False)[:, 0]
        ratios = [max(table.values.shape[1], 4) ** 0.5 for table in tables]
        for axis, table in zip(above.subplots(1, len(tables), width_ratios=ratios, squeeze=False)[0], tables):
            draw_weights(axis, table)
            axis.set_box_aspect(min(max(table.values.shape[0] / table.values.shape[1], 0.15), 1.0))
        fit, residuals, spectra = below.subplots(1, 3)
        draw_fit(fit, recovery.excerpt, test_samples(recovery))
        draw_residuals(residuals, recovery.excerpt, recovery.certificate, test_samples(recovery))
        draw_spectra(spectra, tables)
        above.suptitle(f"{recovery.certificate.verdict}: {recovery.network!r}", fontsize=10)
    return figure


def test_samples(recovery: Recovery[Model]) -> str:
    """Return the name of the samples that the fit was tested on."""
    return "held-out queries" if recovery.method == "queries" else "held-out samples"


def draw_weights(axis: Axes, table: LayerTable) -> None:
    """Draw a cell per weight: colour for the sign, strength for |w| / max |w|; biases have their own scale."""
    values, m = table.values, table.weights.shape[1]
    axis.set_title(f"{table.name}: {len(values)} × {m}", loc="left")  # visible even if the picture is cut
    if not values.size:
        return _empty_panel(axis)
    image = np.zeros((len(values), len(table.columns), 4))
    for part in (slice(0, m), slice(m, None)):
        largest = max(float(np.abs(values[:, part]).max(initial=0.0)), 1e-9 * float(np.abs(values).max()), 1e-300)
        image[:, part, :3] = np.where(values[:, part, None] < 0.0, NEGATIVE, POSITIVE) / 255
        image[:, part, 3] = np.abs(values[:, part]) / largest
    axis.imshow(image, aspect="auto", interpolation="nearest")
    if m < len(table.columns):
        axis.axvline(m - 0.5, color=INK, linewidth=0.8)
    if table.determined is not None and not table.determined.all():
        rows, columns = np.nonzero(~table.determined)
        axis.plot(columns, rows, "x", color=INK, markersize=3)
    for set_ticks, names in ((axis.set_xticks, table.columns), (axis.set_yticks, table.units)):
        if len(names) <= LABELS:
            set_ticks(range(len(names)), [_short(name) for name in names])
        elif names[-1] == "bias":
            some = range(0, len(names) - 3, 5 * -(-len(names) // (5 * LABELS)))
            set_ticks([*some, len(names) - 1], [*(_short(names[j]) for j in some), "bias"])
    axis.tick_params(length=0, labelsize=7)
    axis.tick_params(axis="x", rotation=90 if len(table.columns) > 8 else 0)


def draw_fit(axis: Axes, excerpt: Excerpt | None, samples: str) -> None:
    """Plot predictions against true outputs; points on the diagonal are exact."""
    axis.set_title(f"fit on {samples}")
    if excerpt is None:
        return _empty_panel(axis)
    both = [excerpt.observed.min(), excerpt.observed.max(), excerpt.predicted.min(), excerpt.predicted.max()]
    axis.plot([min(both), max(both)], [min(both), max(both)], color=INK, linewidth=0.8)
    for colour, name, observed, predicted in _outputs(excerpt):
        axis.plot(observed, predicted, ".", markersize=4, color=colour, alpha=0.7, label=name)
    axis.set_xlabel("answer")
    axis.set_ylabel("prediction")
    _legend(axis, excerpt)


def draw_residuals(axis: Axes, excerpt: Excerpt | None, certificate: Certificate, samples: str) -> None:
    """Draw a histogram of every output's residuals, with the Gaussian of the noise that the certificate states."""
    axis.set_title(f"residuals on {samples}")
    if excerpt is None:
        return _empty_panel(axis)
    residuals = excerpt.observed - excerpt.predicted
    largest = max(float(np.abs(residuals).max(initial=0.0)), 1e-300)
    edges = np.linspace(-largest, largest, 26).tolist()
    for colour, name, observed, predicted in _outputs(excerpt):
        axis.hist(
            observed - predicted, bins=edges, color=colour, alpha=0.75 / len(excerpt.observed.T) ** 0.5, label=name
        )
    x = np.linspace(-largest, largest, 200)
    own = certificate.noise_variances
    stated = [certificate.noise_variance or 0.0] if own is None else own.tolist()
    for colour, variance in zip((INK,) if len(stated) == 1 else SERIES, stated):
        if variance > 0.0:
            density = np.exp(-(x**2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
            axis.plot(x, len(residuals) * (edges[1] - edges[0]) * density, color=colour, linewidth=0.9)
    axis.set_xlabel("answer − prediction")
    axis.set_ylabel("samples")
    _legend(axis, excerpt)


def draw_spectra(axis: Axes, tables: list[LayerTable]) -> None:
    """Plot the singular values of every layer's weights: their ratio is the condition number."""
    axis.set_title("singular values of the weights")
    largest = max((min(table.weights.shape) for table in tables), default=0)
    for colour, table in zip(SERIES * len(tables), tables):
        values = np.linalg.svd(table.weights, compute_uv=False) if table.weights.size else np.zeros(0)
        if np.any(values > 0.0):
            axis.plot(np.arange(1, len(values) + 1), values, ".-", color=colour, label=table.name, linewidth=0.9)
    if not axis.lines:
        return _empty_panel(axis)
    low, high = axis.dataLim.intervaly
    if low > 0.0 and high / low > DECADES:
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=0.0)
    axis.set_xlabel("number")
    axis.set_xticks(range(1, largest + 1), minor=largest > 12)
    axis.legend(frameon=False, fontsize=7)


def draw_kinks(axis: Axes, network: Model, line: KinkLine) -> None:
    """Plot the first output along a line through the inputs, with the places at which queries showed a kink."""
    axis.set_title(f"{len(line.kinks)} kinks along a line of queries")
    low, high = (float(line.kinks.min()), float(line.kinks.max())) if len(line.kinks) else (0.0, 1.0)
    margin = 0.1 * max(high - low, 1e-3)
    t = np.sort(np.concatenate([np.linspace(low - margin, high + margin, 400), line.kinks]))
    axis.plot(t, network(line.x + t[:, None] * line.v)[:, 0], color=SERIES[0], linewidth=1.0)
    for place in line.kinks:
        axis.axvline(place, color=INK, linewidth=0.5, linestyle=":")
    axis.set_xlabel("place along the line")
    axis.set_ylabel("first output")


def as_svg(draw: Callable[..., None], *arguments: Any, name: str, size: tuple[float, float]) -> str:
    """Return one picture as inline SVG in the colours of the page; `name` makes its ids unique on the page."""
    with _style():
        figure = _figure(*size)
        axis = figure.subplots()
        draw(axis, *arguments)
        label = escape(axis.get_title() or axis.get_title(loc="left"))
        stream = io.StringIO()
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = stream.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)  # the page has its own
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{name}-", svg)
    svg = svg.replace(INK, "currentColor")
    for number, colour in enumerate(SERIES):
        svg = svg.replace(colour, f"var(--series-{number})")
    # Without a height attribute, the height follows from the width, which may shrink to fit the page.
    return re.sub(r'<svg ([^>]*?)height="[^"]*"', rf'<svg \1role="img" aria-label="{label}"', svg, count=1)


def weights_size(table: LayerTable) -> tuple[float, float]:
    """Return width and height in inches: room for the name of every row and column, up to the size of a page."""
    rows, columns = table.values.shape
    return min(2.2 + 0.26 * columns, 9.0), min(0.9 + 0.2 * rows + 0.1 * (columns > 8), 7.0)


def is_wide(table: LayerTable) -> bool:
    """Return whether the figure is so wide that its labels are too small to read on a phone."""
    return weights_size(table)[0] > READABLE


def _style() -> Any:
    return optional("matplotlib", "A picture", "report").rc_context(STYLE)


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    class Picture(Figure):
        """A figure that a notebook displays, without a window or matplotlib's global list of figures."""

        def _repr_png_(self) -> bytes:
            stream = io.BytesIO()
            self.savefig(stream, format="png", dpi=110)
            return stream.getvalue()

    return Picture(figsize=(width, height), layout="constrained")


def _outputs(excerpt: Excerpt) -> list[tuple[str, str, np.ndarray, np.ndarray]]:
    return list(zip(SERIES, excerpt.output_names, excerpt.observed.T, excerpt.predicted.T))


def _legend(axis: Axes, excerpt: Excerpt) -> None:
    if excerpt.observed.shape[1] > 1:
        axis.legend(frameon=False, fontsize=7)


def _empty_panel(axis: Axes) -> None:
    axis.text(0.5, 0.5, "nothing was fitted", ha="center", va="center", transform=axis.transAxes)
    axis.set_axis_off()


def _short(name: str) -> str:
    name = name.removeprefix("unit ")
    return name if len(name) <= 12 else name[:11] + "…"
