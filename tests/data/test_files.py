"""Files of every format: truncated or missing ones are refused by name, and a pass takes the memory of a block."""

import json
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from neurecover import data
from neurecover.models.formats import libraries
from neurecover.statistics import Statistic


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def _samples(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(1).standard_normal((n, 3))
    return X, X.sum(axis=1)


TABLE = "a,Yb,c,y2\n1,2,3,4\n5,6,7,8\n"


class Total(Statistic):
    """Σ x + Σ y, the smallest statistic there is."""

    row_bytes = 0

    def __init__(self) -> None:
        self.sums = {"total": np.zeros(())}

    def update(self, X: np.ndarray, Y: np.ndarray) -> None:
        self.sums["total"] += X.sum(dtype=float) + Y.sum(dtype=float)


def _traced_pass(path: Path) -> tuple[Total, float]:
    """The statistic of one pass and the peak of Python's own allocations, numpy's included, in MB."""
    tracemalloc.start()
    try:
        total = data.reduce(data.open(path), Total(), block_bytes=2**20)
        return total, tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


class Total(Statistic):
    """Σ x + Σ y, the smallest statistic there is."""

    row_bytes = 0

    def __init__(self) -> None:
        self.sums = {"total": np.zeros(())}

    def update(self, X: np.ndarray, Y: np.ndarray) -> None:
        self.sums["total"] += X.sum(dtype=float) + Y.sum(dtype=float)


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


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"There is no file .*none\.csv"):
        data.open(tmp_path / "none.csv")
    with pytest.raises(ValueError, match=r"\.npz, \.npy, \.csv, \.tsv, \.parquet, \.pq, or a folder\. Got '\.txt'"):
        data.open(_write(tmp_path / "s.txt", TABLE))
    (tmp_path / "d.parquet").mkdir()
    with pytest.raises(ValueError, match=r"expected a folder of Parquet files. Got one without any"):
        data.open(tmp_path / "d.parquet")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_without_pyarrow_the_extra_is_named(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # None in sys.modules is how Python itself marks a module that cannot be imported.
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"extra `data`: pip install .*\[data\]'"):
        data.open(_write(tmp_path / f"s.{suffix}", TABLE))


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'neurecover[data]'"),
        ({"url": "file:///home/a%20b/clone", "dir_info": {}}, "pip install '/home/a b/clone[data]'"),
        ({"url": "file:///clone", "dir_info": {"editable": True}}, "pip install -e '/clone[data]'"),
        (
            {"url": "https://x.org/n", "vcs_info": {"vcs": "git"}},
            "pip install 'neurecover[data] @ git+https://x.org/n'",
        ),
    ],
)
def test_the_command_is_that_of_the_installation(
    origin: dict | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            return None if origin is None else json.dumps(origin)

    monkeypatch.setattr(libraries, "distribution", lambda name: Installed())
    assert libraries.install_command("data") == command


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
