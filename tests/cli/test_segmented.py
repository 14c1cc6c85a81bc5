"""`neurecover segmented`: breaks of a table's columns, for people and for programs."""

import json
from pathlib import Path

import numpy as np
import pytest

import neurecover as nr
from neurecover import cli


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    dose, other = rng.uniform(0.0, 10.0, (2, 200))
    response = 1.0 + 0.5 * dose + 2.0 * np.maximum(dose - 4.0, 0.0) + rng.standard_normal(200)
    rows = np.column_stack([other, response, dose])
    path = tmp_path / "data.csv"
    np.savetxt(path, rows, delimiter=",", header="other,response,dose", comments="")
    return path


def status(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as left:
        cli.main([str(argument) for argument in arguments])
    assert isinstance(left.value.code, int)
    return left.value.code


def test_json_is_what_the_estimator_says(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("segmented", table, "--x", "dose", "--y", "response", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    data = np.loadtxt(table, delimiter=",", skiprows=1)
    model = nr.HingeRegression().fit(data[:, [2]], data[:, 1])
    assert (answer["n_hinges"], answer["verdict"], answer["inputs"]) == (1, "statistical", ["dose"])
    found = {line["name"]: line for line in answer["estimates"]}
    assert found["break1"]["value"] == pytest.approx(model.breakpoints_[0], rel=1e-12)
    assert found["break1"]["t"] is None


def test_the_table_and_the_file(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "law.npz"
    assert status("segmented", table, "--x", "dose", "--y", "response", "--out", out) == 0
    text = capsys.readouterr().out
    assert text.startswith("response by dose")
    assert "break1" in text
    assert nr.Recovery.load(out).network.n_hidden == 1


def test_bad_columns_and_methods_are_said(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("segmented", table, "--x", "dose", "--y", "response", "--intervals", "guess") == 2
    assert "posterior, profile or wald" in capsys.readouterr().err
    assert status("segmented", table, "--x", "nothing", "--y", "response") == 2
    capsys.readouterr()
    assert status("segmented", table, "--x", "dose", "--y", "response", "--folds", "1") == 2
    said = capsys.readouterr()
    assert "at least 2 parts" in said.err
    assert not said.out


def test_what_nobody_said_stands_in_the_first_line(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last column is the output where none has a name, and a row without a value is left out if asked."""
    assert status("segmented", table, "--x", "response") == 2
    assert "name the output, for instance --outputs dose" in capsys.readouterr().err
    text = table.read_text().splitlines()[1:]
    table.write_text("\n".join([*text[:5], "1.0,,2.0", *text[5:]]))
    assert status("segmented", table, "--x", "1") == 2
    assert "line 6, column '1'" in capsys.readouterr().err
    status("segmented", table, "--x", "1", "--dropna")
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("The last column, '2', was taken as the output. 1 of 201 rows lack")
    assert status("segmented", table, "--x", "2", "--y", "1", "--dropna", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["assumed"] == "1 of 201 rows lack a value and were left out."


def test_the_table_fits_a_terminal(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("segmented", table, "--x", "dose", "--y", "response") == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("break1") and line.count(".") == 4 for line in lines)


def test_recover_takes_auto_and_robust_losses(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line beside the kink is found, and twelve gross outliers are named under tukey."""
    data = np.loadtxt(table, delimiter=",", skiprows=1)
    data[::17, 1] += 60.0
    np.savetxt(table, data[:, [2, 1]], delimiter=",")
    status("recover", table, "--hidden", "1", "--affine", "auto", "--loss", "tukey", "--json")
    answer = json.loads(capsys.readouterr().out)
    assert answer["network"]["C"] is not None
    assert abs(-answer["network"]["b"][0] * answer["network"]["W"][0][0] - 4.0) < 0.6
    (said,) = (check["sentence"] for check in answer["checks"] if check["name"] == "outliers")
    assert "12 rows" in said
    assert {stage["name"]: stage["detail"] for stage in answer["stages"]}["columns"].startswith("The last column")
    for option, words in (("--affine", "yes, no or auto"), ("--loss", "squared, huber, tukey")):
        assert status("recover", table, option, "maybe") == 2
        assert words in capsys.readouterr().err
