"""What a person meets at the edges: labels, tables of other kinds, refusals, options in place of arguments."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import neurecover as nr
from neurecover import cli
from neurecover.certificate import advice
from neurecover.cli.wording import as_options
from neurecover.data.oracles import diagnosis as looks
from neurecover.pipeline import extracting, progress
from neurecover.solve import Deadline

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 3))
SIDE = X @ [1.0, 2.0, -1.0] > 0


@dataclass(frozen=True)
class Outcome:
    returncode: int
    stdout: str
    stderr: str


def run(*arguments: str, folder: Path) -> Outcome:
    """The command line in a folder, within this process: a new one would import everything anew."""
    out, err = io.StringIO(), io.StringIO()
    here = contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
    with here[0], here[1], here[2], pytest.raises(SystemExit) as left:
        cli.main(list(arguments))
    return Outcome(int(left.value.code or 0), out.getvalue(), err.getvalue())


@pytest.mark.parametrize("pair", [(0.0, 1.0), (-1.0, 1.0), (1, 2), (False, True)])
def test_two_values_are_labels(pair: tuple) -> None:
    found = nr.recover(X, np.where(SIDE, *pair), random_state=0)
    assert found.certificate.verdict == "failed"
    assert "labels" in found.certificate.reasons[0]
    assert "HalfspaceUnion" in found.certificate.reasons[0]
    assert advice(found.certificate) == ()  # nothing about units that were never looked for


@pytest.mark.parametrize("labels", [np.where(SIDE, "yes", "no"), np.where(SIDE, "yes", "no").astype(object)])
def test_labels_in_words_point_to_halfspaces(labels: np.ndarray) -> None:
    for outputs in (labels, pd.Series(labels, name="kind")):
        with pytest.raises(ValueError, match="HalfspaceUnion"):
            nr.recover(X, outputs)
    with pytest.raises(ValueError, match="HalfspaceUnion"):
        nr.oracle(lambda rows: np.where(rows[:, 0] > 0, "yes", "no"), 3)


def test_a_column_of_text_is_named() -> None:
    table = pd.DataFrame({"size": X[:, 0], "colour": np.where(SIDE, "red", "blue")})
    with pytest.raises(ValueError, match=r"expected columns of numbers.* Got 'colour' \("):
        nr.recover(table, X[:, 1])


def test_three_values_are_no_labels() -> None:
    """A count is an output like any other."""
    assert looks.describe_classes(np.repeat([[0.0], [1.0], [2.0]], 20, axis=0)) is None


@pytest.mark.parametrize(("name", "mark"), [("a.csv", ";"), ("a.csv", "\t"), ("a.tsv", "\t"), ("a.csv", ",")])
def test_tables_with_other_separators(tmp_path: Path, name: str, mark: str) -> None:
    rows = [mark.join(("u", "v", "y")), *(mark.join(map(repr, map(float, row))) for row in X)]
    (tmp_path / name).write_text("\n".join(rows))
    source = nr.open(tmp_path / name)
    assert source.input_names == ("u", "v")
    np.testing.assert_array_equal(np.column_stack(source.collect()), X)


def test_decimal_commas_an_index_and_names_that_repeat(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("u;y\n1,5;2\n2;3\n")
    with pytest.raises(ValueError, match="write decimals with a point"):
        nr.open(file).collect()
    pd.DataFrame(X, columns=["u", "v", "y"]).to_csv(file)
    with pytest.raises(ValueError, match="column 0 has no name, as the index of a table"):
        nr.open(file)
    assert nr.open(file, inputs=["u", "v"]).n_inputs == 2
    file.write_text("u,u,y\n1,2,3\n4,5,6\n")
    assert nr.open(file).input_names == ("u", "u (1)")


def test_inputs_too_small_are_not_called_constant() -> None:
    reason = nr.recover(1e-200 * X, X[:, 0], random_state=0).certificate.reasons[0]
    assert "constant" not in reason
    assert "other units" in reason


@pytest.mark.parametrize(
    ("call", "near"),
    [
        (lambda: nr.recover(X, X[:, 0], activation="rellu"), "relu"),
        (lambda: nr.recover(X, X[:, 0], activation="Tahn"), "tanh"),
        (lambda: nr.simulate.teacher(3, 2, kind="orthonormall"), "orthonormal"),
        (lambda: nr.simulate.sample(nr.simulate.teacher(3, 2), 9, inputs="gausian"), "gaussian"),
    ],
)
def test_words_that_are_nearly_right(call, near: str) -> None:
    with pytest.raises(ValueError, match=f"Did you mean '{near}'"):
        call()


def test_a_box_that_refuses_says_why_and_what_to_do() -> None:
    def near_alone(rows: np.ndarray) -> np.ndarray:
        if np.abs(rows).max() > 50:
            raise ValueError("inputs out of range")
        return np.maximum(rows @ [1.0, 2.0, -1.0], 0.0)

    found = nr.extract(nr.oracle(near_alone, 3), random_state=0)
    assert "inputs out of range" in found.certificate.reasons[0]
    assert "recover(oracle, n_samples=...)" in found.certificate.reasons[0]

    def broken(rows: np.ndarray) -> np.ndarray:
        raise ValueError("shapes do not fit")

    with pytest.raises(ValueError, match=r"fails on an array of shape \(2, 3\), a query per row: shapes do not fit"):
        nr.oracle(broken, 3)


@pytest.mark.parametrize(
    ("sentence", "word"),
    [
        ("ask where its inputs lie, with like=X.", "--like FILE"),
        ("tell the range as bounds=(low, high).", "--bounds LOW,HIGH"),
        (extracting.SMOOTH, "--samples 2000 --activation auto"),
        ("Give it more time: a larger time_budget, or none.", "--time-budget"),
        ("is used up: give a larger query_budget.", "a larger --budget."),
        ("is found from samples: neurecover.recover(oracle, n_samples=2000).", "neurecover extract … --samples 2000."),
        ("Leave the number of units to be found: n_hidden=None.", "found: leave out --hidden."),
        ("bounds needs finite numbers with low < high. Got (3.0, 1.0) instead.", "--bounds needs"),
        (
            "so no columns are chosen. Leave out inputs, outputs and drop.",
            "--inputs, --outputs and --drop",
        ),
        ("Try activation='leaky_relu(0.1)' or 'abs'.", "--activation leaky_relu(0.1)"),
    ],
)
def test_the_command_line_names_its_options(sentence: str, word: str) -> None:
    worded = as_options(sentence)
    assert word in worded
    assert "=" not in worded


def test_options_of_extract(tmp_path: Path) -> None:
    nr.simulate.teacher(4, 3, activation="tanh", random_state=0).save(tmp_path / "t.npz")
    np.savez(tmp_path / "s.npz", X=RNG.standard_normal((50, 4)), Y=np.zeros(50))
    assert run("extract", "t.npz", "--like", "s.npz", folder=tmp_path).returncode == 0
    # A table of inputs alone, whose last column is no output.
    np.savetxt(tmp_path / "s.csv", RNG.standard_normal((50, 4)), delimiter=",", header="a,b,c,d", comments="")
    alone = run("extract", "t.npz", "--like", "s.csv", folder=tmp_path)
    assert alone.returncode == 0, alone.stderr
    assert "'.csv'" in run("extract", "s.csv", folder=tmp_path).stderr
    asked = run("extract", "t.npz", "--bounds", "-4,4", "--samples", "1500", "--activation", "tanh", folder=tmp_path)
    assert asked.returncode == 0, asked.stderr
    outside = run("extract", "t.npz", "--bounds", "-4,4", folder=tmp_path)
    assert outside.returncode == 4
    assert "--samples" in outside.stdout
    assert "two numbers" in run("extract", "t.npz", "--bounds", "4", folder=tmp_path).stderr


def test_sizes_beyond_all_memory_are_refused(tmp_path: Path) -> None:
    for command in (["simulate", "--out", "b.npz"], ["plan"]):
        refused = run(*command, "--inputs", "1000000", "--hidden", "1000000", folder=tmp_path)
        assert refused.returncode == 2
        assert "Choose smaller sizes" in refused.stderr


def test_a_reader_that_stops_is_no_failure(tmp_path: Path) -> None:
    command = f"{sys.executable} -m neurecover methods; echo status $? >&2"
    ended = subprocess.run(["sh", "-c", f"({command}) | true"], cwd=tmp_path, capture_output=True, text=True)
    assert "status 0" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "BrokenPipe" not in ended.stderr


def test_interrupted_while_it_loads(tmp_path: Path) -> None:
    """At moments of the first half second: a word, and status 130 or the signal's own before Python runs anything."""
    for delay in (0.25, 0.5):
        started = subprocess.Popen(
            [sys.executable, "-c", "import neurecover.__main__ as m; print('in', flush=True); m.main()", "demo"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ,
        )
        assert started.stdout is not None
        started.stdout.readline()
        time.sleep(delay)
        started.send_signal(signal.SIGINT)
        _, errors = started.communicate(timeout=60)
        assert "Traceback" not in errors
        assert started.returncode in (130, 0)


def test_time_left_is_told_while_a_stage_says_nothing() -> None:
    reporter, never = progress.Reporter(lambda stage, residual: None), Deadline.after(None)
    reporter("certify", float("nan"))
    assert reporter.seconds_left(never) == np.inf
    reporter.expect(20.0)
    assert 15.0 < reporter.seconds_left(never) <= 20.0
    reporter("read", float("nan"))
    reporter.began = time.monotonic() - 10.0
    reporter.count = lambda: (250, 1000)
    assert reporter.counted() == "250 of 1,000 answers"
    assert reporter.seconds_left(never) == pytest.approx(30.0, abs=1.0)


def test_what_a_library_prints_by_itself_is_no_part_of_the_answer() -> None:
    """Printed by C, not by Python, before the answer and within it; standard output holds the answer alone."""
    code = (
        "import ctypes\n"
        "from neurecover.cli import machine\n"
        "with machine.libraries_to_stderr():\n"
        "    ctypes.CDLL(None).puts(b'a solver speaks')\n"
        "machine.answer({'seconds': 1})\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == '{"seconds": 1}\n'
    assert ran.stderr == "a solver speaks\n"
