"""Parquet files: every numeric type, nulls and damage found by row, column and name."""

from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from neurecover import data


def _samples(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(1).standard_normal((n, 3))
    return X, X.sum(axis=1)


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
    with pytest.raises(ValueError, match=r"column 'a': expected numbers. Got text instead; leave it out with drop"):
        data.open(path)
    pq.write_table(pa.table({"a": pa.array([], pa.float64()), "y": pa.array([], pa.float64())}), path)
    with pytest.raises(ValueError, match="Got 0 rows"):
        data.open(path)


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
