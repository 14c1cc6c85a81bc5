"""CSV files: headers, quotes, wide lines, and faults found by line and column."""

from pathlib import Path

import numpy as np
import pytest

import neurecover as nr
from neurecover import data
from neurecover.data.formats.csv import read_header


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_csv_takes_late_fractions_blank_lines_quotes_and_unused_text(tmp_path: Path) -> None:
    # The fraction comes after more text than pyarrow looks at to guess a type.
    body = "".join(f'{i},name{i},"{2 * i}"\r\n' for i in range(150_000))
    path = tmp_path / "s.csv"
    path.write_bytes(b"\xef\xbb\xbf\r\na,label,y\r\n\r\n" + body.encode() + b"\r\n0.5,last,1e-3")
    X, Y = data.open(path, ["a"], ["y"]).collect()
    np.testing.assert_array_equal(X[:, 0], [*range(150_000), 0.5])
    np.testing.assert_array_equal(Y[:, 0], [*range(0, 300_000, 2), 1e-3])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty file"),
        ("\n\n", "empty file"),
        ("a,y\n", "Got 0 rows"),
        ("a,y\n1,2\n\n3\n", "line 4: expected 2 fields. Got 1 instead"),
        ("a,y\n1,2\n3,4,5\n", "line 3: expected 2 fields. Got 3 instead"),
        ("1,2\n3,4,5\n", "line 2: expected 2 fields. Got 3 instead"),
        ("a,y\n1,2\n3,four\n", "line 3, column 'y': expected a number. Got 'four'"),
        ("a,y\n1_0,2\n", "line 2, column 'a': expected a number. Got '1_0'"),
        ("a,b,c,y\n1,x,,2\n3,4,2024-01-02,5\n", r"line 2, column 'b': .* for 'c' \('2024-01-02'\)\.$"),
        ("a,b,c,y\n1,x,2,2\n,4,3,5\n", r"line 2, column 'b': .* for 'a' \(values missing\)\.$"),
        ("a,y\n1,2\n\n\n3,\n", "line 5, column 'y': expected a finite number. Got nan"),
        ("a,y\n1,2\nNA,3\n", "line 3, column 'a': expected a finite number. Got nan"),
        ("1,2\n1e999,3\n", "line 2, column '0': expected a finite number. Got inf"),
    ],
)
def test_faults_of_a_csv_are_found_by_line_and_column(tmp_path: Path, text: str, message: str) -> None:
    path = _write(tmp_path / "s.csv", text)
    with pytest.raises(ValueError, match=message) as caught:
        data.open(path).collect()
    assert str(path) in str(caught.value)


def test_a_csv_fault_far_into_the_file_is_found(tmp_path: Path) -> None:
    path = _write(tmp_path / "s.csv", "a,y\n" + "1.25,2.5\n" * 200_000 + "1,oops\n")
    with pytest.raises(ValueError, match=r"line 200002, column 'y'.*'oops'"):
        for _ in data.open(path).blocks(1000):
            pass


def test_csv_lines_wider_than_the_usual_piece_are_read(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((3, 20_000))
    np.savetxt(tmp_path / "wide.csv", X, fmt="%.17g", delimiter=",")
    got, last = data.open(tmp_path / "wide.csv").collect()
    np.testing.assert_array_equal(np.hstack([got, last]), X)


def test_true_and_false_are_numbers(tmp_path: Path) -> None:
    file = tmp_path / "flags.csv"
    file.write_text("flag,x,y\nTrue,1.5,2\nfalse,2.5,3\n")
    X, Y = data.open(file).collect()
    np.testing.assert_array_equal(X, [[1.0, 1.5], [0.0, 2.5]])
    np.testing.assert_array_equal(Y, [[2.0], [3.0]])
    file.write_text("flag,x,y\nTrue,1.5,2\nmaybe,2.5,3\n")
    with pytest.raises(ValueError, match=r"line 3, column 'flag': expected True or False. Got 'maybe' instead"):
        data.open(file).collect()


@pytest.mark.parametrize("first", ["NA,3.5", ",8.25", "nan,1.0", "#N/A,1"])
def test_a_first_line_that_lacks_a_value_is_no_header(first: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(f"{first}\n" + "1.0,2.0\n" * 3)
    assert read_header(path, "table").line == 0
    with pytest.raises(ValueError, match=r"line 1, column '0': expected a finite number.*missing='drop'"):
        data.open(path).collect()


def test_a_line_of_names_is_a_header_beside_an_empty_name(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(",b\n1.0,2.0\n")
    assert read_header(path, "table").names == ["", "b"]


def test_all_columns_that_cannot_be_read_are_named_at_once(tmp_path: Path) -> None:
    path = tmp_path / "three.csv"
    path.write_text("a,when,town,y\n1,2020-01-01,x,4\n2,2020-01-02,y,5\n,2020-01-03,z,3\n")
    with pytest.raises(ValueError, match=r"'when': expected a number.*'town' \('x'\), 'a' \(values missing\)"):
        list(nr.open(path).blocks(10))
    path.write_text("a,b,c,y\n1,,3,4\n2,3,,5\n3,4,5,\n")
    with pytest.raises(ValueError, match=r"column 'b': expected a finite number.*The same in columns 'c', 'y'"):
        list(nr.open(path).blocks(10))
