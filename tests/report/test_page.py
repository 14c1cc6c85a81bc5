"""The excerpt kept in a file, the table of weights, the pictures and what a notebook shows."""

import logging
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import neurecover as nr
from neurecover.certificate import Certificate
from neurecover.excerpt import LOOKED_AT, OUTPUTS, ROWS, Excerpt
from neurecover.models import Polynomial, network_of
from neurecover.models.formats.libraries import install_command
from neurecover.report.figures import as_svg, draw_weights
from neurecover.report.layers import layer_tables
from neurecover.report.page import report_page
from neurecover.report.templating import figure, prose, share
from neurecover.report.units import unit_tables

pd = pytest.importorskip("pandas")
pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

TRUTH = nr.simulate.teacher(4, 3, 2, random_state=3)
NOISE = 0.1


@pytest.fixture(scope="module")
def noisy() -> nr.Recovery:
    X, Y = nr.simulate.sample(TRUTH, 1500, noise=NOISE, random_state=3)
    recovery = nr.recover(X, Y, n_hidden=3, random_state=0)
    assert recovery.certificate.verdict == "statistical"
    return recovery


@pytest.fixture(scope="module")
def failed() -> nr.Recovery:
    X, Y = nr.simulate.sample(TRUTH, 20, random_state=3)
    return nr.recover(X, Y, n_hidden=50, random_state=0)


def composite() -> nr.Recovery:
    """A network of the kind that `recover_lowest_layer` returns, below a polynomial."""
    rng = np.random.default_rng(0)
    upper = Polynomial([[0, 0], [1, 0], [1, 2]], [[0.5, 1.0, -2.0]])
    network = nr.Composite(np.eye(2, 3), [0.1, -0.2], upper)
    X = rng.standard_normal((50, 3))
    Y = network(X)
    excerpt = Excerpt.of_answers(X, network, Y, Y, ("a", "b", "c"), ("y",))
    return nr.Recovery(network, Certificate((), 0.0, None, 50, 5), "lowest_layer", (), 0.1, excerpt=excerpt)


def test_the_excerpt_is_of_samples_that_the_fit_had_not_seen(noisy: nr.Recovery) -> None:
    shown = noisy.excerpt
    assert shown is not None
    assert shown.observed.shape == shown.predicted.shape == (min(noisy.certificate.n_holdout, ROWS), 2)
    assert shown.n_looked_at == 1500
    # Here all held-out rows are kept, so that they have the error that the certificate states.
    np.testing.assert_allclose(np.mean((shown.observed - shown.predicted) ** 2), noisy.certificate.holdout_mse)
    X, _ = nr.simulate.sample(TRUTH, 1500, noise=NOISE, random_state=3)
    on = np.mean(X @ noisy.network.W.T + noisy.network.b > 0, axis=0)
    # A sample on the very edge of a unit may fall to either side of it by rounding.
    np.testing.assert_allclose(shown.on[0], on, atol=2 / 1500)


def test_the_excerpt_is_bounded_and_comes_back_from_the_file(tmp_path: Path) -> None:
    network = nr.simulate.teacher(3, 2, 9, random_state=0)
    X = np.random.default_rng(0).standard_normal((3 * ROWS, 3))
    Y = network(X)
    shown = Excerpt.of_answers(X, network, Y, Y + 1.0, ("a", "b", "ü"), tuple("pqrstuvwx"))
    assert shown.observed.shape == (ROWS, OUTPUTS)
    assert LOOKED_AT > ROWS
    recovery = nr.Recovery(network, Certificate((), 0.0, None, 5, 1), "m", (), 0.0, excerpt=shown)
    recovery.save(tmp_path / "r.npz")
    back = nr.Recovery.load(tmp_path / "r.npz")
    assert back.versions == recovery.versions
    assert back.excerpt is not None
    assert back.excerpt.input_names == ("a", "b", "ü")
    for name, array in shown.to_arrays().items():
        np.testing.assert_array_equal(back.excerpt.to_arrays()[name], array)


def test_a_file_without_an_excerpt_is_read_and_drawn(tmp_path: Path, failed: nr.Recovery) -> None:
    assert failed.excerpt is None
    failed.save(tmp_path / "r.npz")
    back = nr.Recovery.load(tmp_path / "r.npz")
    assert back.excerpt is None
    back.plot()
    back.to_html(tmp_path / "r.html")
    assert "Rely on nothing here" in (tmp_path / "r.html").read_text()


def test_the_table_has_every_weight_with_its_interval(noisy: nr.Recovery) -> None:
    frame = noisy.to_frame()
    network, errors = noisy.network, noisy.certificate.standard_errors
    assert errors is not None
    assert len(frame) == network.n_parameters
    assert frame.determined.all()
    row = frame[(frame.layer == "hidden 1") & (frame.unit == 2) & (frame.weight == "x1")].iloc[0]
    assert (row.estimate, row.standard_error) == (network.W[2, 1], errors.W[2, 1])
    row = frame[(frame.layer == "output") & (frame.unit == 1) & (frame.weight == "bias")].iloc[0]
    assert (row.estimate, row.standard_error) == (network.c[1], errors.c[1])
    np.testing.assert_allclose(frame.high - frame.low, 2 * 1.96 * frame.standard_error, rtol=1e-4)
    np.testing.assert_allclose((frame.high + frame.low) / 2, frame.estimate)


def test_names_of_columns_come_through() -> None:
    X, Y = nr.simulate.sample(TRUTH, 400, random_state=3)
    table = pd.DataFrame(X, columns=["age", "height", "mass", "sex <&>"])
    assert set(nr.recover(table, Y[:, 0], n_hidden=3, random_state=0).to_frame().weight) > set(table.columns)


def test_layers_of_every_kind_of_network() -> None:
    deep = nr.DeepNetwork([(np.ones((3, 2)), None), (np.ones((4, 3)), None), (np.ones((1, 4)), None)])
    assert [(t.name, t.values.shape) for t in layer_tables(deep)] == [
        ("hidden 1", (3, 3)),
        ("hidden 2", (4, 4)),
        ("output", (1, 5)),
    ]
    lower, upper = layer_tables(composite().network)
    np.testing.assert_array_equal(lower.values[:, -1], [-0.1, 0.2])  # a threshold is a bias reversed
    assert upper.columns == ("1", "h0", "h0h1²")
    np.testing.assert_array_equal(upper.weights, [[0.5, 1.0, -2.0]])
    callable_above = nr.Composite(np.eye(2), [0.0, 0.0], lambda H: H[:, :1])
    assert [table.name for table in layer_tables(callable_above)] == ["hidden 1"]
    assert len(composite().to_frame()) == 8 + 3


@pytest.mark.parametrize("depth", [1, 2])
def test_an_affine_term_has_a_table_by_the_names_of_the_inputs(depth: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sizes = (3, *(4,) * depth, 2)
    layers = [(rng.standard_normal((m, n)), None) for n, m in pairwise(sizes)]
    network = network_of(layers, "relu", rng.standard_normal((2, 3)))
    table = layer_tables(network, None, ("a", "b", "ü"), ("p", "q"))[-1]
    assert (table.name, table.units, table.columns) == ("affine", ("p", "q"), ("a", "b", "ü"))
    np.testing.assert_array_equal(table.weights, network.C)
    assert layer_tables(network)[-2].name == "output"

    recovery = nr.Recovery(network, Certificate((), 0.0, None, 50, 5), "m", (), 0.1)
    frame = recovery.to_frame()
    rows = frame[frame["layer"] == "affine"]
    np.testing.assert_array_equal(rows["estimate"], network.C.ravel())
    assert list(rows["weight"]) == ["x0", "x1", "x2"] * 2
    assert len(frame) == network.n_parameters
    assert "and an affine term" in recovery.summary()
    assert "<caption>affine</caption>" in network._repr_html_()
    recovery.to_html(tmp_path / "r.html", network)
    page = (tmp_path / "r.html").read_text()
    assert "affine: 2 × 3" in page
    assert "affine term" in page
    recovery.save(tmp_path / "r.npz")
    np.testing.assert_array_equal(nr.Recovery.load(tmp_path / "r.npz").network.C, network.C)
    # The weight above a unit is that of the output, whatever stands beside it.
    above = [row.above for row in unit_tables(recovery)[-1].rows]
    np.testing.assert_allclose(above, np.linalg.norm(layers[-1][0], axis=0))


def test_the_distance_of_a_unit_is_to_its_mirror_image_where_the_truth_is_turned() -> None:
    rng = np.random.default_rng(0)
    truth = nr.Network(rng.standard_normal((4, 3)), None, rng.standard_normal((1, 4)), activation="tanh")
    recovery = nr.Recovery(truth.normal_form(), Certificate((), 0.0, None, 50, 5), "m", (), 0.1)
    comparison = nr.compare(recovery.network, truth)
    assert -1 in comparison.signs
    assert max(row.distance for row in unit_tables(recovery, truth, comparison)[0].rows) < 1e-15


def test_units_say_which_of_the_truth_they_are(noisy: nr.Recovery) -> None:
    order = [2, 0, 1]
    truth = TRUTH.take(order)
    rows = unit_tables(noisy, truth, nr.compare(noisy.network, truth))[0].rows
    plain = unit_tables(noisy, TRUTH, nr.compare(noisy.network, TRUTH))[0].rows
    assert len(rows) == 3
    for row, other in zip(rows, plain, strict=True):
        assert order[row.partner] == other.partner
        distance = np.linalg.norm(noisy.network.W[row.number] - TRUTH.normal_form().W[other.partner])
        np.testing.assert_allclose([row.distance, other.distance], distance)
        assert row.error is not None
        assert row.distance <= 6 * row.error * 2  # four weights, each within six standard errors


def test_pictures_show_the_sign_the_size_and_what_is_not_determined() -> None:
    network = nr.Network([[1.0, -0.5], [0.0, 0.25]], None, [[1.0, 2.0]])
    table = layer_tables(network)[0]
    from matplotlib.figure import Figure

    axis = Figure().subplots()
    draw_weights(axis, table)
    image = np.asarray(axis.images[0].get_array())
    np.testing.assert_allclose(image[:, :2, 3], np.abs(network.W))  # opacity is |w| / max |w|
    assert image[0, 0, 0] > image[0, 0, 2]  # red for plus
    assert image[0, 1, 0] < image[0, 1, 2]  # blue for minus
    assert len(axis.lines) == 1  # the line before the bias
    unseen = type(table)(table.name, table.units, table.columns, table.values, None, table.values > 0.3)
    axis = Figure().subplots()
    draw_weights(axis, unseen)
    crosses = axis.lines[-1].get_xydata()
    assert len(crosses) == np.count_nonzero(~(table.values > 0.3))


def test_svg_is_well_formed_the_same_every_time_and_follows_the_page(noisy: nr.Recovery) -> None:
    table = layer_tables(noisy.network)[0]
    one, two = (as_svg(draw_weights, table, name="w", size=(3, 2)) for _ in range(2))
    assert one == two
    root = ET.fromstring(one)
    assert root.attrib["aria-label"] == "hidden 1: 3 × 4"
    assert "currentColor" in one
    ids = re.findall(r'\bid="([^"]*)"', one)
    assert len(ids) == len(set(ids))
    assert all(name.startswith("w-") for name in ids)
    targets = re.findall(r'(?:url\(#|href="#)([^")]*)', one)
    assert set(targets) <= set(ids)


def test_the_overview_is_a_figure_that_a_notebook_shows(noisy: nr.Recovery) -> None:
    drawn = noisy.plot()
    titles = [axis.get_title() for axis in drawn.axes]
    assert titles[-3:] == ["fit on held-out samples", "residuals on held-out samples", "singular values of the weights"]
    assert drawn._repr_png_().startswith(b"\x89PNG")
    spectrum = drawn.axes[-1].lines[0].get_ydata()
    np.testing.assert_allclose(spectrum, np.linalg.svd(noisy.network.W, compute_uv=False))
    composite().plot()


def test_what_a_notebook_shows(noisy: nr.Recovery) -> None:
    comparison = nr.compare(noisy.network, TRUTH)
    for thing, words in (
        (noisy, ("statistical", noisy.certificate.reasons[0])),
        (noisy.certificate, ("statistical", "checks")),
        (noisy.network, ("4 inputs, 3 hidden units", "unit 2")),
        (comparison, ("output weights", figure(comparison.weight_error, 2))),
        (composite().network, ("h0h1²",)),
        (nr.DeepNetwork([(np.ones((300, 200)), None), (np.ones((1, 300)), None)]), ("300 × 201",)),
    ):
        html = thing._repr_html_()
        text = re.sub(r"&#39;", "'", html)
        assert html.count("<div") == html.count("</div>")
        for word in words:
            assert word in text


def test_text_is_escaped(tmp_path: Path, failed: nr.Recovery) -> None:
    stage = nr.Stage("<script>alert(1)</script>", 0.1, "a < b & c")
    hostile = nr.Recovery(failed.network, failed.certificate, "<b>", (stage,), 0.1)
    hostile.to_html(tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert "<script>alert" not in text
    assert "a &lt; b &amp; c" in text


def test_a_report_that_cannot_be_written_leaves_nothing(tmp_path: Path, failed: nr.Recovery) -> None:
    with pytest.raises(FileNotFoundError):
        failed.to_html(tmp_path / "nowhere" / "r.html")
    (tmp_path / "old.html").write_text("old")
    with pytest.raises(ValueError, match="n_inputs"):
        failed.to_html(tmp_path / "old.html", X=np.zeros((5, 2)), Y=np.zeros(5))
    assert (tmp_path / "old.html").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["old.html"]


MISSING = """
import sys, numpy as np, neurecover as nr
net = nr.Network(np.ones((1, 1)), None, np.ones((1, 1)))
r = nr.Recovery(net, nr.Certificate((), 0.0, None, 5, 1), "m", (), 0.0)
for module, call in (("pandas", r.to_frame), ("matplotlib", r.plot), ("jinja2", lambda: r.to_html("x.html"))):
    sys.modules[module] = None
    assert module != "jinja2" or r._repr_html_() is None
    try:
        call()
    except ImportError as error:
        print(module, error)
    del sys.modules[module]
"""


def test_a_missing_extra_is_named_with_its_command() -> None:
    done = subprocess.run([sys.executable, "-c", MISSING], capture_output=True, text=True)
    for line, (module, extra) in zip(
        done.stdout.splitlines(), (("pandas", "data"), ("matplotlib", "report"), ("jinja2", "report")), strict=True
    ):
        assert line.startswith(module), done.stderr
        assert install_command(extra) in line


def test_figures_are_never_rounded_to_certainty() -> None:
    assert (share(0.0), share(0.0004), share(0.5), share(0.9996), share(1.0), share(None)) == (
        "0.0 %",
        "< 0.1 %",
        "50.0 %",
        "> 99.9 %",
        "100.0 %",
        "–",
    )
    assert (figure(-1.5e-7), figure(None), figure(float("nan")), figure(12345), figure(float("inf"))) == (
        "−1.5e−07",
        "–",
        "–",
        "12,345",
        "∞",
    )


def test_progress_tells_the_root_of_the_relative_residual() -> None:
    told: list[tuple[str, float]] = []
    X, Y = nr.simulate.sample(TRUTH, 1500, noise=NOISE, random_state=3)
    nr.recover(X, Y, n_hidden=3, random_state=0, progress=lambda stage, residual: told.append((stage, residual)))
    stages = list(dict.fromkeys(stage for stage, _ in told))
    assert stages[0] == "read"
    assert stages[-2:] == ["last fit", "certify"]
    last = [residual for stage, residual in told if stage == "settle"][-1]
    # Σ r² / Σ y² on 2,700 numbers has a relative error of √(2/2700) = 3 % and its root half of that.
    assert abs(last / (NOISE / np.sqrt(np.mean(Y**2))) - 1) < 0.08


def test_descents_are_told_before_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps within the first descent are heard, on a machine of any speed: no pause is kept between them."""
    monkeypatch.setattr("neurecover.pipeline.progress.EVERY", 0.0)
    truth = nr.simulate.teacher(24, 24, random_state=0)
    X, Y = nr.simulate.sample(truth, 3000, random_state=0)
    told: list[float] = []

    class EnoughError(Exception):
        pass

    def hear(stage: str, residual: float) -> None:
        if stage == "search" and np.isfinite(residual):
            told.append(residual)
        if len(told) == 3:
            raise EnoughError

    with pytest.raises(EnoughError):
        nr.recover(X, Y, n_hidden=24, random_state=0, progress=hear)
    assert told == sorted(told, reverse=True)  # within one descent the residual falls


def test_stages_are_logged_and_nothing_is_said_unasked(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    X, Y = nr.simulate.sample(TRUTH, 300, random_state=3)
    with caplog.at_level(logging.INFO, logger="neurecover"):
        recovery = nr.recover(X, Y, n_hidden=3, random_state=0)
    logged = [record.getMessage() for record in caplog.records if record.name == "neurecover"]
    assert [line.split(":")[0] for line in logged] == [stage.name for stage in recovery.stages]
    nr.recover(X, Y, n_hidden=3, random_state=0, progress=True)  # standard error is no terminal here
    assert capfd.readouterr() == ("", "")


def test_numbers_in_sentences_have_a_true_minus_sign_and_words_their_hyphen() -> None:
    assert prose("a held-out residual of 1.5e-13 leaves R² = -0.01 (-2)") == (
        "a held-out residual of 1.5e−13 leaves R² = −0.01 (−2)"
    )


def test_a_column_keeps_its_zeros_and_a_sentence_does_not() -> None:
    assert [figure(value, 4, padded=True) for value in (1.0, 1.0094, -0.201)] == ["1.000", "1.009", "−0.2010"]
    assert figure(1.0, 4) == "1"


def test_a_direction_names_no_weight_that_two_decimals_do_not_show() -> None:
    network = nr.Network([[1.0, 1e-4, 0.0], [0.6, -0.8, 0.0]], None, [[1.0, 2.0]])
    recovery = nr.Recovery(network, Certificate((), 0.0, None, 5, 1), "m", (), 0.0)
    table = unit_tables(recovery)[0]
    assert [row.direction for row in table.rows] == ["1.00 x0 + …", "− 0.80 x1 + 0.60 x0"]
    assert not table.has_errors


def test_the_bias_of_a_wide_layer_is_named() -> None:
    from matplotlib.figure import Figure

    axis = Figure().subplots()
    draw_weights(axis, layer_tables(nr.simulate.teacher(60, 3, random_state=0))[0])
    names = [label.get_text() for label in axis.get_xticklabels()]
    assert names[0] == "x0"
    assert names[-1] == "bias"
    assert len(names) <= 25


def test_an_extraction_shows_what_its_queries_were_for() -> None:
    truth = nr.simulate.teacher(4, 3, random_state=0)
    found = nr.extract(nr.oracle(truth, n_inputs=4), random_state=0, price=0.5)
    page = report_page(found)
    assert found.queried is not None
    assert found.queried.line is not None
    assert sum(count for _, count in found.queried.purposes) == found.n_queries
    assert all(purpose in page for purpose, _ in found.queried.purposes)
    assert f"{found.n_queries * 0.5:,.2f}" in page
    assert f"{len(found.queried.line.kinks)} kinks along a line of queries" in page
    # On the line the truth bends at every place that was recorded, and is straight at half the way between two.
    line, step = found.queried.line, 1e-4
    for t, bends in ((line.kinks, True), ((line.kinks[1:] + line.kinks[:-1]) / 2.0, False)):
        low, middle, high = (truth(line.x + (t + s)[:, None] * line.v)[:, 0] for s in (-step, 0.0, step))
        assert np.all((np.abs(low - 2.0 * middle + high) > 1e-7) == bends)


def test_a_failed_extraction_shows_no_error_on_samples_it_has_not_seen() -> None:
    found = nr.extract(nr.oracle(nr.simulate.teacher(4, 3, random_state=0), n_inputs=4), random_state=0, query_budget=9)
    assert found.certificate.n_holdout == 0
    assert "error on" not in report_page(found)
