"""Files: which columns are read, what is refused and in which words, and how much memory a pass takes."""

import sys
import time
import tracemalloc
import zipfile
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from neurecover import data
from neurecover.statistics import Statistic


class Total(Statistic):
    """Σ x + Σ y, the smallest statistic there is."""

    row_bytes = 0

    def __init__(self) -> None:
        self.sums = {"total": np.zeros(())}

    def update(self, X: np.ndarray, Y: np.ndarray) -> None:
        self.sums["total"] += X.sum(dtype=float) + Y.sum(dtype=float)


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def _samples(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(1).standard_normal((n, 3))
    return X, X.sum(axis=1)


TABLE = "a,Yb,c,y2\n1,2,3,4\n5,6,7,8\n"


@pytest.mark.parametrize(
    ("inputs", "outputs", "input_names", "output_names"),
    [
        (None, None, ("a", "Yb", "c"), ("y2",)),
        (None, ["c"], ("a", "Yb", "y2"), ("c",)),
        (None, "c", ("a", "Yb", "y2"), ("c",)),
        (["y2", "a"], ["c", "Yb"], ("y2", "a"), ("c", "Yb")),
        ([0, -1], [1], ("a", "y2"), ("Yb",)),
        (["Yb", "y2"], None, ("Yb", "y2"), ("c",)),
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
        (["a", "z"], None, "Got 'z', which is not there"),
        (["a"], [9], "Got 9, which is not there"),
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
    with pytest.raises(ValueError, match="Got 'a', the name of 2 columns"):
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


def test_parquet_reads_every_numeric_type(tmp_path: Path) -> None:
    table = pa.table(
        {
            "flag": pa.array([True, False, True]),
            "count": pa.array([1, 2, 2**60], pa.int64()),
            "price": pa.array([Decimal(1), Decimal(2), Decimal(3)], pa.decimal128(20, 2)),
            "half": pa.array(np.array([0.5, 1.5, 2.5], np.float16)),
            "y": pa.array([1, 2, 3], pa.uint8()),
        }
    )
    pq.write_table(table, tmp_path / "s.parquet")
    X, _ = data.open(tmp_path / "s.parquet").collect()
    np.testing.assert_array_equal(X, [[1, 1, 1, 0.5], [0, 2, 2, 1.5], [1, 2.0**60, 3, 2.5]])


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.int32(), pa.bool_()])
@pytest.mark.parametrize("rows", [1, 4, 100])
def test_parquet_null_is_found_by_row_and_column(tmp_path: Path, kind: pa.DataType, rows: int) -> None:
    column = pa.array([None if i == 13 else i % 2 for i in range(20)], pa.int32()).cast(kind)
    path = tmp_path / "s.parquet"
    pq.write_table(pa.table({"a": column, "y": np.arange(20.0)}), path, row_group_size=6)
    with pytest.raises(ValueError, match="row 13, column 'a'") as caught:
        list(data.open(path).blocks(rows))
    assert str(path) in str(caught.value)


def test_parquet_without_numbers_or_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    pq.write_table(pa.table({"a": ["u", "v"], "y": [1.0, 2.0]}), path)
    with pytest.raises(ValueError, match=r"column 'a': expected numbers. Got type string"):
        data.open(path)
    pq.write_table(pa.table({"a": pa.array([], pa.float64()), "y": pa.array([], pa.float64())}), path)
    with pytest.raises(ValueError, match="Got 0 rows"):
        data.open(path)


def test_npz_members_that_are_missing_or_wrong_are_named(tmp_path: Path) -> None:
    X, Y = _samples()
    path = tmp_path / "s.npz"
    np.savez(path, inputs=X, outputs=Y)
    with pytest.raises(ValueError, match=r"expected members X and Y. Got inputs, outputs instead"):
        data.open(path)
    np.savez(path, X=X, Y=np.array([None] * len(Y)))
    with pytest.raises(ValueError, match=r"member Y: expected real numbers. Got dtype object"):
        data.open(path)
    np.savez(path, X=X, Y=Y[1:])
    with pytest.raises(ValueError, match="200 in X and 199 in Y"):
        data.open(path)
    np.savez(path, X=X, Y=Y)
    with pytest.raises(ValueError, match="holds X and Y apart"):
        data.open(path, outputs=["Y"])
    Y[150] = np.nan
    np.savez(path, X=X, Y=Y)
    with pytest.raises(ValueError, match="row 150, column 'y0'") as caught:
        list(data.open(path).blocks(64))
    assert str(path) in str(caught.value)


def test_npz_header_that_disagrees_with_its_bytes_is_refused(tmp_path: Path) -> None:
    X, Y = _samples()
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "Y.npy", Y)
    path = tmp_path / "s.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", (tmp_path / "X.npy").read_bytes()[:-8])
        archive.write(tmp_path / "Y.npy", "Y.npy")
    with pytest.raises(ValueError, match=r"member X: expected 4928 bytes.*Got 4920"):
        data.open(path)


@pytest.mark.parametrize("writer", [np.savez, np.savez_compressed])
def test_one_flipped_byte_among_the_values_of_an_npz_is_noticed(tmp_path: Path, writer: object) -> None:
    X, Y = _samples()
    path = tmp_path / "s.npz"
    writer(path, X=X, Y=Y)
    content = bytearray(path.read_bytes())
    content[2000] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"intact .npz archive|finite number") as caught:
        data.open(path).collect()
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["s.npz", "c.npz", "s.npy", "s.parquet"])
@pytest.mark.parametrize("fraction", [0.0, 0.02, 0.5, 0.99])
def test_a_truncated_file_is_refused_by_name(tmp_path: Path, name: str, fraction: float) -> None:
    X, Y = _samples(2000)
    np.savez(tmp_path / "s.npz", X=X, Y=Y)
    np.savez_compressed(tmp_path / "c.npz", X=X, Y=Y)
    np.save(tmp_path / "s.npy", X)
    pq.write_table(pa.table({"a": X[:, 0], "y": Y}), tmp_path / "s.parquet", row_group_size=500)
    path = tmp_path / name
    content = path.read_bytes()
    path.write_bytes(content[: int(fraction * len(content))])
    with pytest.raises(ValueError, match="intact") as caught:
        data.open(path).collect()
    assert str(path) in str(caught.value)


def test_a_parquet_file_with_a_damaged_page_is_refused_by_name(tmp_path: Path) -> None:
    X, Y = _samples(5000)
    path = tmp_path / "s.parquet"
    pq.write_table(pa.table({"a": X[:, 0], "y": Y}), path, compression="gzip")
    content = bytearray(path.read_bytes())
    content[1000:9000] = bytes(8000)
    path.write_bytes(content)
    with pytest.raises(ValueError, match="row group 0: expected an intact Parquet file") as caught:
        data.open(path).collect()
    assert str(path) in str(caught.value)


def test_npy_files_of_the_wrong_kind_are_refused(tmp_path: Path) -> None:
    X, Y = _samples()
    np.save(tmp_path / "v.npy", Y)
    with pytest.raises(ValueError, match=r"Got shape \(200,\) instead; two files are opened as a pair"):
        data.open(tmp_path / "v.npy")
    np.save(tmp_path / "o.npy", np.array([[None, 1]]))
    with pytest.raises(ValueError, match=r"o.npy: expected an intact .npy file of numbers"):
        data.open(tmp_path / "o.npy")
    np.save(tmp_path / "t.npy", np.array([["a", "b"]]))
    with pytest.raises(ValueError, match=r"t.npy: expected real numbers"):
        data.open(tmp_path / "t.npy")
    np.save(tmp_path / "X.npy", X[1:])
    with pytest.raises(ValueError, match="199 in X and 200 in Y"):
        data.open((tmp_path / "X.npy", tmp_path / "v.npy"))
    with pytest.raises(ValueError, match="holds X and Y apart"):
        data.open((tmp_path / "X.npy", tmp_path / "v.npy"), inputs=[0])
    with pytest.raises(ValueError, match="a pair"):
        data.open((tmp_path / "X.npy", tmp_path / "v.csv"))
    np.savez(tmp_path / "z.npz", X=X, Y=Y)
    (tmp_path / "z.npz").rename(tmp_path / "z.npy")
    with pytest.raises(ValueError, match=r"Got an .npz archive"):
        data.open(tmp_path / "z.npy")


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"There is no file .*none\.csv"):
        data.open(tmp_path / "none.csv")
    with pytest.raises(ValueError, match=r"\.npz, \.npy, \.csv, \.tsv, \.parquet, \.pq\. Got '\.txt'"):
        data.open(_write(tmp_path / "s.txt", TABLE))
    (tmp_path / "d.parquet").mkdir()
    with pytest.raises(ValueError, match=r"expected a folder of Parquet files. Got one without any"):
        data.open(tmp_path / "d.parquet")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_without_pyarrow_the_extra_is_named(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # None in sys.modules is how Python itself marks a module that cannot be imported.
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"extra `data`: pip install 'neurecover\[data\]'"):
        data.open(_write(tmp_path / f"s.{suffix}", TABLE))


def _traced_pass(path: Path) -> tuple[Total, float]:
    """The statistic of one pass and the peak of Python's own allocations, numpy's included, in MB."""
    tracemalloc.start()
    try:
        total = data.reduce(data.open(path), Total(), block_bytes=2**20)
        return total, tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("layout", ["stored", "compressed", "fortran", "npy"])
def test_memory_of_a_pass_is_that_of_a_block(tmp_path: Path, layout: str) -> None:
    X = np.random.default_rng(0).integers(0, 4, (1_000_000, 7)).astype(float)
    path = tmp_path / ("s.npy" if layout == "npy" else "s.npz")
    if layout == "npy":
        np.save(path, X)
    elif layout == "compressed":
        X = X[:250_000].repeat(4, axis=0)
        np.savez_compressed(path, X=X[:, :6], Y=X[:, 6])
    else:
        np.savez(path, X=X[:, :6].copy(order="F" if layout == "fortran" else "C"), Y=X[:, 6])
    start = time.process_time()
    total, peak = _traced_pass(path)
    assert X.nbytes > 50 * 2**20
    # One block of 1 MiB, its bytes before conversion and the mask of finite values, with room to spare.
    assert peak < 8
    assert time.process_time() - start < 5
    assert total.sums["total"] == X.sum()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_arrow_memory_does_not_grow_with_the_file(tmp_path: Path, suffix: str) -> None:
    x = np.random.default_rng(0).standard_normal(1_500_000)
    table = pa.table({f"x{j}": x for j in range(3)} | {"y": x})
    path = tmp_path / f"s.{suffix}"
    if suffix == "csv":
        table = table.slice(0, 500_000)
        pa.csv.write_csv(table, path)
    else:
        # One row group, as a writer with default settings may leave it.
        pq.write_table(table, path, row_group_size=len(x), use_dictionary=False, compression="none")
    del x
    expected = 3 * pa.compute.sum(table["y"]).as_py()
    length = table.num_rows
    del table
    assert path.stat().st_size > 35 * 2**20
    source = data.open(path)
    before = pa.total_allocated_bytes()
    peak = 0
    done = 0
    total = 0.0
    for X, _ in source.blocks(8192):
        peak = max(peak, pa.total_allocated_bytes() - before)
        total += X.sum()
        done += len(X)
    assert done == length
    assert total == pytest.approx(expected, rel=1e-9)
    # pyarrow reads some thirty pieces of a CSV ahead, and one buffer for each column of a Parquet file.
    assert peak < (16 if suffix == "csv" else 4) * 2**20
