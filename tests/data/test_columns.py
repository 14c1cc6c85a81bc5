"""Which columns of a table are inputs and outputs: by name, by position and by default."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from neurecover import Network, data


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


TABLE = "a,Yb,c,y2\n1,2,3,4\n5,6,7,8\n"


@pytest.mark.parametrize(
    ("inputs", "outputs", "input_names", "output_names"),
    [
        (None, None, ("a", "Yb", "c"), ("y2",)),
        (None, ["c"], ("a", "Yb", "y2"), ("c",)),
        (None, "c", ("a", "Yb", "y2"), ("c",)),
        (["y2", "a"], ["c", "Yb"], ("y2", "a"), ("c", "Yb")),
        ([0, -1], [1], ("a", "y2"), ("Yb",)),
        (["Yb", "y2", "a"], None, ("Yb", "y2", "a"), ("c",)),
        (np.array([2]), np.int64(0), ("c",), ("a",)),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "pq"])
def test_columns_by_name_by_position_and_by_default(
    tmp_path: Path, suffix: str, inputs: object, outputs: object, input_names: tuple, output_names: tuple
) -> None:
    path = _write(tmp_path / "s.csv", TABLE)
    values = {"a": [1.0, 5.0], "Yb": [2.0, 6.0], "c": [3.0, 7.0], "y2": [4.0, 8.0]}
    if suffix == "pq":
        path = tmp_path / "s.PQ"
        pq.write_table(pa.table(values), path)
    source = data.open(path, inputs, outputs)
    assert source.input_names == input_names
    assert source.output_names == output_names
    X, Y = source.collect()
    np.testing.assert_array_equal(X, np.transpose([values[name] for name in input_names]))
    np.testing.assert_array_equal(Y, np.transpose([values[name] for name in output_names]))


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        (["a", "z"], None, "no column named 'z'"),
        (["y2"], None, "no column is named y, so name the output, for instance outputs='c'"),
        (["a"], [9], "no column named 9"),
        (["a", 0], None, "Got 'a' repeated"),
        (["a", "c"], ["c"], "Got 'c' as both"),
        ([], ["c"], "at least one input column"),
        (["a"], [], "at least one output column"),
        (["a", "Yb", "c", "y2"], None, "at least one output column"),
    ],
)
def test_impossible_choices_of_columns_are_named(tmp_path: Path, inputs: object, outputs: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        data.open(_write(tmp_path / "s.csv", TABLE), inputs, outputs)


def test_a_name_borne_by_two_columns_is_no_name_but_positions_still_work(tmp_path: Path) -> None:
    path = _write(tmp_path / "s.csv", "a,a,y\n1,2,3\n")
    with pytest.raises(ValueError, match="2 columns are named 'a'"):
        data.open(path, ["a"])
    np.testing.assert_array_equal(data.open(path, [1]).collect()[0], [[2.0]])


def test_the_last_column_is_the_output_where_no_name_tells(tmp_path: Path) -> None:
    source = data.open(_write(tmp_path / "s.csv", "1,2,3\n4,5,6\n"))
    assert source.input_names == ("0", "1")
    assert source.output_names == ("2",)
    assert source.n_samples is None
    np.testing.assert_array_equal(source.collect()[0], [[1, 2], [4, 5]])
    table = np.arange(8.0).reshape(2, 4)
    np.save(tmp_path / "t.npy", table)
    assert data.open(tmp_path / "t.npy").output_names == ("3",)
    np.testing.assert_array_equal(data.open(tmp_path / "t.npy", [3, 0], [2]).collect()[0], table[:, [3, 0]])


def test_rows_that_lack_a_value_are_left_out_if_asked(tmp_path: Path) -> None:
    """The other rows are those of the file without them, with weights too, and what was done is said."""
    text = "a,b,w\n1,2,1\n,3,1\n4,,2\n5,6,3\n7,8,\n"
    path = tmp_path / "data.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match="line 3, column 'a'"):
        data.open(path, outputs="b").collect()
    found = data.open(path, outputs="b", weight="w", missing="drop")
    X, Y = found.collect()
    np.testing.assert_array_equal(np.hstack([X, Y]), [[1.0, 2.0], [5.0, 6.0]])
    np.testing.assert_array_equal(found.weights(), [1.0, 3.0])
    assert found.base.assumed == "3 of 5 rows lack a value and were left out."
    found = data.open(path, inputs=["a", "b"], missing="drop")
    assert found.base.assumed.startswith("The last column, 'w', was taken")
    with pytest.raises(ValueError, match="refuse, drop"):
        data.open(path, missing="fill")
    path.write_text("a,b\n1,\n,2\n")
    with pytest.raises(ValueError, match="Got none of 2"):
        data.open(path, outputs="b", missing="drop")


def test_a_named_output_is_no_guess(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("y,x\n1,2\n3,4\n")
    assert data.open(path).base.assumed == ""
    assert data.open(path, outputs=["x"]).base.assumed == ""


def test_columns_that_are_dropped_are_neither_inputs_nor_outputs(tmp_path: Path) -> None:
    path = _write(tmp_path / "s.csv", TABLE)
    for drop in ("a", ["a"], [0], np.array([0])):
        found = data.open(path, drop=drop)
        assert (found.input_names, found.output_names) == (("Yb", "c"), ("y2",))
    found = data.open(path, outputs="c", drop=["a"], weight="y2")
    assert (found.input_names, found.output_names) == (("Yb",), ("c",))
    with pytest.raises(ValueError, match="for instance outputs='c'"):  # not one that was dropped
        data.open(path, drop="y2")


def test_saving_to_a_folder_that_is_not_there_names_the_file_and_the_folder(tmp_path: Path) -> None:
    net = Network([[1.0]], None, [[2.0]])
    with pytest.raises(FileNotFoundError, match=r"no/net.npz: there is no folder .*no to write to"):
        net.save(tmp_path / "no" / "net.npz")
    with pytest.raises(IsADirectoryError, match="Got a directory instead"):
        net.save(tmp_path)
