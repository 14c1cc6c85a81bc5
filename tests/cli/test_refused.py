"""What the command line cannot use is refused in one line, and a defect is reported in one."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import neurecover as nr
from commands import ENVIRONMENT, Outcome, Run, assert_refused, save_samples, small_teacher
from neurecover.models.formats.libraries import install_command


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["recovr"], ["recovr", "Did you mean 'recover'"]),
        (["recover"], ["Missing argument"]),
        (["recover", "samples.npz", "--hiden", "2"], ["--hiden", "--hidden", "neurecover recover --help"]),
        (["recover", "samples.npz", "--hidden", "two"], ["--hidden"]),
        (["recover", "samples.npz", "--hidden", "0"], ["--hidden"]),
        (["recover", "samples.npz", "--method", "magic"], ["magic", "least_squares"]),
        (["recover", "samples.npz", "--activation", "softmax"], ["softmax", "relu"]),
        (["recover", "samples.npz", "--method", "hermit"], ["Did you mean 'hermite'?"]),
        (["recover", "sampels.npz"], ["There is no file sampels.npz", "Did you mean 'samples.npz'?"]),
        (["recover", "samples.csv"], ["Did you mean 'samples."]),
        (["recover", "net.npz"], ["net.npz holds a network", "are needed"]),
        (["recover", "samples.npz", "--time-budget", "nan"], ["nan"]),
        (["recover", "samples.npz", "--outputs", "y"], ["no columns are chosen"]),
        (["recover", "nowhere.npz"], ["There is no file nowhere.npz"]),
        (["recover", "."], ["folder"]),
        (["recover", "samples.txt"], ["samples.txt", ".npz", ".csv"]),
        (["recover", "text.npz"], ["text.npz"]),
        (["recover", "cut.npz"], ["cut.npz"]),
        (["recover", "nan.npz"], ["nan.npz", "row 7", "'y0'"]),
        (["recover", "one.npy", "two.npy", "three.npy"], ["a pair (X.npy, Y.npy)"]),
        (["recover", "samples.npz", "--out", "net.onnx"], ["net.onnx", ".npz"]),
        (["recover", "samples.npz", "--out", "nowhere/net.npz"], ["there is no folder nowhere"]),
        (["recover", "samples.npz", "--out", "/proc/net.npz"], ["/proc", "nothing can be written"]),
        (["recover", "samples.npz", "--out", "folder.npz"], ["directory"]),
        (["recover", "samples.npz", "--out", "./samples.npz"], ["overwrite the samples"]),
        (["verify", "nowhere.npz", "samples.npz"], ["There is no file nowhere.npz"]),
        (["verify", "samples.npz", "net.npz"], ["samples.npz holds samples", "a network is needed"]),
        (["verify", "wide.npz", "samples.npz"], ["wide.npz holds samples"]),
        (["report", "net.npz"], ["holds no recovery", "`recover`"]),
        (["report", "samples.npz"], ["samples.npz holds samples"]),
        (["report", "found.npz", "-o", "found.pdf"], ["found.pdf", ".html"]),
        (["report", "found.npz", "--truth", "other.npz"], ["n_inputs", "3 and 4"]),
        (["report", "found.npz", "--samples", "wide.npz"], ["wide.npz", "n_inputs=3"]),
        (["export", "net.npz", "net.onx"], ["net.onx", ".onnx, .json, .npz"]),
        (["export", "net.npz", "net.json", "--dtype", "float32"], [".onnx", "float32"]),
        (["export", "net.npz", "net.onnx", "--dtype", "float16"], ["float16", "float32"]),
        (["extract", "model.onx"], ["There is no file model.onx"]),
        (["extract", "text.onnx"], ["text.onnx"]),
        (["export", "net.npz", "net.npz"], ["overwrite"]),
        (["export", "samples.npz", "net.json"], ["samples.npz holds samples"]),
        (["extract"], ["one model to query"]),
        (["extract", "net.npz", "--command", "cat"], ["one model to query"]),
        (["extract", "--command", "cat"], ["--inputs"]),
        (["extract", "ne.npz"], ["Did you mean 'net.npz'?"]),
        (["estimate", "samples.npz", "--method", "least_squares"], ["recover"]),
        (["estimate", "samples.npz", "--form", "papr"], ["best or paper"]),
        (["plan"], ["--inputs and --hidden"]),
        (["plan", "--inputs", "3", "--hidden", "2", "--error", "0"], ["error"]),
        (["--verison"], ["--version"]),
        (["verify", "net.npz", "wide.npz"], ["wide.npz", "n_inputs=3", "Got 5"]),
        (["verify", "table.npy", "samples.npz"], ["table.npy: expected the file of a network"]),
        (["compare", "net.npz", "cut.npz"], ["cut.npz"]),
        (["compare", "net.npz", "other.npz"], ["n_inputs", "3 and 4"]),
        (["simulate"], ["--out"]),
        (["simulate", "--out", "new.npz", "--kind", "square"], ["square", "sphere"]),
        (["simulate", "--out", "new.npz", "--kind", "conditioned"], ["condition"]),
        (["simulate", "--out", "new.npz", "--distribution", "cauchy"], ["cauchy", "gaussian"]),
        (["simulate", "--out", "new.npz", "--noise", "-1"], ["--noise"]),
        (["simulate", "--out", "new.npz", "--truth", "new.npz"], ["overwrite the samples"]),
        (["simulate", "--out", "new.npz", "--samples", "1000000000000"], ["memory"]),
        (["bench", "speed-of-light"], ["speed-of-light", "all"]),
        (["bench", "finsher"], ["Did you mean 'finisher'?"]),
        (["reproduce", "fig99"], ["fig99", "all"]),
        (["reproduce", "all", "--out", "samples.npz"], ["samples.npz"]),
    ],
    ids=lambda value: "",
)
def test_what_cannot_be_used_is_refused_in_one_line(arguments: list[str], words: list[str], run: Run) -> None:
    X, Y = save_samples("samples.npz", n=50)
    Path("samples.txt").write_bytes(Path("samples.npz").read_bytes())
    Path("text.npz").write_text("hello")
    Path("text.onnx").write_text("hello")
    Path("cut.npz").write_bytes(Path("samples.npz").read_bytes()[:1500])
    Path("folder.npz").mkdir()
    np.save("table.npy", X)
    Y[7] = np.nan
    np.savez("nan.npz", X=X, Y=Y)
    np.savez("wide.npz", X=np.zeros((5, 5)), Y=np.zeros(5))
    small_teacher().save("net.npz")
    small_teacher(4).save("other.npz")
    nr.Recovery(small_teacher(), nr.Certificate((), 0.0, None, 5, 1), "m", (), 0.0).save("found.npz")
    before = {path: path.stat().st_mtime_ns for path in Path.cwd().iterdir()}
    assert_refused(run(*arguments), *words)
    assert {path: path.stat().st_mtime_ns for path in Path.cwd().iterdir()} == before


def test_a_missing_extra_is_named_with_its_command(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("a,y\n1,2\n")
    code = "import sys; sys.modules['pyarrow'] = None; from neurecover.cli import main; main(sys.argv[1:])"
    arguments = [sys.executable, "-c", code, "recover", str(tmp_path / "table.csv")]
    done = subprocess.run(arguments, capture_output=True, text=True, env=ENVIRONMENT)
    assert_refused(Outcome(done.returncode, done.stdout, done.stderr), install_command("data"))


def test_a_defect_is_one_line_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nr, "methods", lambda: [None])
    outcome = run("methods")
    assert (outcome.status, outcome.out) == (1, "")
    assert re.fullmatch(r"error: AttributeError in terminal.py, line \d+: .* please report it\.\n", outcome.err)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("recover", "table.csv", "--drop", "ie"),
            "there is no column named 'ie', given for the columns to drop.",
        ),
        (("recover", "table.csv", "--drop", "id"), "at least one input column"),
        (("recover", "table.csv", "--drop", "y", "--outputs", "y"), "'y' cannot be an output and dropped"),
        (("recover", "table.csv", "--drop", "y", "--inputs", "id"), "--inputs and --drop both choose the inputs"),
        (("recover", "samples.npz", "--one-hot"), "--one-hot changes a table: .csv, .tsv or .parquet"),
    ],
)
def test_what_a_table_cannot_be_changed_into(run: Run, arguments: tuple[str, ...], words: str) -> None:
    Path("table.csv").write_text("id,y\n1,\n,2\n")
    save_samples("samples.npz")
    outcome = run(*arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert words in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_a_row_that_lacks_a_value_is_named_by_its_line_though_columns_are_dropped(run: Run) -> None:
    Path("table.csv").write_text("id,a,y\nu,1,2\nv,,3\n")
    assert "table.csv, line 3, column 'a': expected a finite number" in run("recover", "table.csv", "--drop", "id").err
    assert "table.csv, row 1, column 'a'" in run("recover", "table.csv", "--drop", "id", "--one-hot").err
