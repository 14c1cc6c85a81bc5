"""Every kind of source gives the same rows, in the same order, whatever the block size."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neurecover import data
from neurecover.data import ArraySource, Source, as_source

N, D, P = 137, 3, 2


@pytest.fixture
def arrays() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    return rng.standard_normal((N, D)), rng.standard_normal((N, P))


def _table(X: np.ndarray, Y: np.ndarray) -> pa.Table:
    columns = {f"x{j}": X[:, j] for j in range(X.shape[1])} | {f"y{j}": Y[:, j] for j in range(Y.shape[1])}
    return pa.table(columns)


def _array(X: np.ndarray, Y: np.ndarray, folder: Path) -> Source:
    return as_source(X, Y)


def _lists(X: np.ndarray, Y: np.ndarray, folder: Path) -> Source:
    return as_source(X.tolist(), Y.tolist())


def _frames(X: np.ndarray, Y: np.ndarray, folder: Path) -> Source:
    return as_source(pd.DataFrame(X), pd.DataFrame(Y))


def _memory_map(X: np.ndarray, Y: np.ndarray, folder: Path) -> Source:
    np.save(folder / "X.npy", X)
    return as_source(np.load(folder / "X.npy", mmap_mode="r"), Y)


def _npz(X: np.ndarray, Y: np.ndarray, folder: Path) -> Source:
    np.savez(folder / "s.npz", X=X, Y=Y)
    return as_source(folder / "s.npz")


def _npz_compressed(X: np.ndarray, Y: np.ndarray, folder: Path) -> Source:
    np.savez_compressed(folder / "s.npz", X=X, Y=Y)
    return as_source(str(folder / "s.npz"))


def _npz_fortran(X: np.ndarray, Y: np.ndarray, folder: Path) -> Source:
    np.savez_compressed(folder / "s.npz", X=np.asfortranarray(X), Y=np.asfortranarray(Y))
    return data.open(folder / "s.npz")


def _npy(X: np.ndarray, Y: np.ndarray, folder: Path) -> Source:
    np.save(folder / "s.npy", np.hstack([Y, X]))
    return data.open(folder / "s.npy", outputs=range(P))


def _npy_pair(X: np.ndarray, Y: np.ndarray, folder: Path) -> Source:
    np.save(folder / "X.npy", X)
    np.save(folder / "Y.npy", np.asfortranarray(Y))
    return data.open((folder / "X.npy", folder / "Y.npy"))


def _csv(X: np.ndarray, Y: np.ndarray, folder: Path) -> Source:
    _table(X, Y).to_pandas().to_csv(folder / "s.csv", index=False)
    return data.open(folder / "s.csv")


def _csv_no_header(X: np.ndarray, Y: np.ndarray, folder: Path) -> Source:
    _table(X, Y).to_pandas().to_csv(folder / "s.csv", index=False, header=False)
    return data.open(folder / "s.csv", outputs=[D, "4"])


def _parquet(X: np.ndarray, Y: np.ndarray, folder: Path) -> Source:
    pq.write_table(_table(X, Y), folder / "s.parquet", row_group_size=50)
    return data.open(folder / "s.parquet")


KINDS: list[Callable[[np.ndarray, np.ndarray, Path], Source]] = [
    _array,
    _lists,
    _frames,
    _memory_map,
    _npz,
    _npz_compressed,
    _npz_fortran,
    _npy,
    _npy_pair,
    _csv,
    _csv_no_header,
    _parquet,
]


@pytest.mark.parametrize("kind", KINDS)
def test_concatenated_blocks_are_the_arrays(
    kind: Callable[..., Source], arrays: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    X, Y = arrays
    source = kind(X, Y, tmp_path)
    assert (source.n_inputs, source.n_outputs) == (D, P)
    assert source.n_samples in (N, None)
    # Two passes at each size: a source is read again and again.
    for rows in (1, 1, 10, 10, N - 1, N, 10_000):
        pairs = list(source.blocks(rows))
        assert all(1 <= len(a) == len(b) <= rows for a, b in pairs)
        np.testing.assert_array_equal(np.concatenate([a for a, _ in pairs]), X)
        np.testing.assert_array_equal(np.concatenate([b for _, b in pairs]), Y)
    np.testing.assert_array_equal(source.collect()[0], X)
    np.testing.assert_array_equal(source.collect()[1], Y)


@pytest.mark.parametrize("kind", [_array, _memory_map, _npz, _npz_fortran, _npy, _npy_pair, _parquet])
def test_single_precision_stays_single_in_blocks_and_is_doubled_by_collect(
    kind: Callable[..., Source], arrays: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    X, Y = (array.astype(np.float32) for array in arrays)
    source = kind(X, Y, tmp_path)
    for a, b in source.blocks(20):
        assert a.dtype == b.dtype == np.float32
    collected = source.collect()
    assert collected[0].dtype == collected[1].dtype == np.float64
    np.testing.assert_array_equal(collected[0], X)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float16, np.longdouble, ">f8"])
def test_every_real_type_but_single_becomes_double(dtype: type, tmp_path: Path) -> None:
    X = np.arange(12).reshape(6, 2).astype(dtype)
    np.savez(tmp_path / "s.npz", X=X, Y=X[:, 0])
    for source in (ArraySource(X, X[:, 0]), data.open(tmp_path / "s.npz")):
        for a, b in source.blocks(4):
            assert a.dtype == b.dtype == np.float64
            assert a.dtype.isnative
        np.testing.assert_array_equal(source.collect()[0], X.astype(float))


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 40),
    d=st.integers(1, 4),
    p=st.integers(1, 3),
    rows=st.integers(1, 50),
    compressed=st.booleans(),
    fortran=st.booleans(),
    kind=st.sampled_from(["f4", "f8", ">f4", "i2"]),
)
def test_npz_stream_agrees_with_numpy_load(
    tmp_path_factory: pytest.TempPathFactory,
    n: int,
    d: int,
    p: int,
    rows: int,
    compressed: bool,
    fortran: bool,
    kind: str,
) -> None:
    path = tmp_path_factory.mktemp("npz") / "s.npz"
    rng = np.random.default_rng(n)
    X = np.array(100 * rng.standard_normal((n, d)), kind, order="F" if fortran else "C")
    Y = (100 * rng.standard_normal((n, p))).astype(kind)
    (np.savez_compressed if compressed else np.savez)(path, X=X, Y=Y, extra=np.zeros(3))
    pairs = list(data.open(path).blocks(rows))
    with np.load(path) as loaded:
        np.testing.assert_array_equal(np.concatenate([a for a, _ in pairs]), loaded["X"])
        np.testing.assert_array_equal(np.concatenate([b for _, b in pairs]), loaded["Y"])


def test_one_output_may_be_a_vector(arrays: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    X, Y = arrays
    np.savez(tmp_path / "s.npz", X=X, Y=Y[:, 0])
    for source in (ArraySource(X, Y[:, 0]), data.open(tmp_path / "s.npz")):
        assert source.n_outputs == 1
        np.testing.assert_array_equal(source.collect()[1], Y[:, :1])


def test_names_come_from_the_frame_or_are_numbered() -> None:
    X = pd.DataFrame({"age": [1.0, 2.0], "size": [3.0, 4.0]})
    source = ArraySource(X, [0, 1])
    assert source.input_names == ("age", "size")
    assert source.output_names == ("y0",)
    assert ArraySource(X.to_numpy(), [0, 1]).input_names == ("x0", "x1")


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        (np.ones((3, 2)), np.ones(4), "3 in X and 4 in Y"),
        (np.ones((0, 2)), np.ones(0), "Got 0 rows"),
        (np.ones(3), np.ones(3), r"shape \(3,\) instead"),
        (np.ones((3, 0)), np.ones(3), r"shape \(3, 0\) instead"),
        (np.ones((3, 2)), np.ones((3, 1, 1)), r"shape \(3, 1, 1\)"),
        (np.ones((3, 2)), np.float64(1.0), r"shape \(\)"),
        (np.ones((3, 2), complex), np.ones(3), "X: expected real numbers. Got dtype complex128"),
        (np.ones((3, 2)), np.array(["a", "b", "c"]), "Y: expected real numbers"),
        (np.array([[1, None]], object), np.ones(1), "Got dtype object"),
        ([[1.0, 2.0], [3.0]], [1.0, 2.0], "rows of unequal length"),
    ],
)
def test_arrays_that_are_no_samples_are_refused(X: object, Y: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ArraySource(X, Y)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_a_value_that_is_not_finite_is_found_by_row_and_column(
    arrays: tuple[np.ndarray, np.ndarray], value: float, rows: int
) -> None:
    X, Y = arrays
    Y[40, 1] = value
    with pytest.raises(ValueError, match=f"row 40, column 'y1': expected a finite number. Got {value}"):
        list(ArraySource(X, Y).blocks(rows))
    X[20, 2] = value
    with pytest.raises(ValueError, match="row 20, column 'x2'"):
        list(ArraySource(X, Y).blocks(rows))


def test_a_block_has_at_least_one_row(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    with pytest.raises(ValueError, match="Got rows=0"):
        ArraySource(*arrays).blocks(0)


def test_as_source_passes_a_source_through_and_wants_outputs_once(
    arrays: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    source = ArraySource(*arrays)
    assert as_source(source) is source
    with pytest.raises(ValueError, match="holds its own outputs"):
        as_source(source, arrays[1])
    with pytest.raises(ValueError, match="holds its own outputs"):
        as_source(tmp_path / "s.npz", arrays[1])
    with pytest.raises(ValueError, match="need the outputs Y"):
        as_source(arrays[0])


def test_repr_says_what_is_known(arrays: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    assert repr(ArraySource(*arrays)) == "<ArraySource the arrays: 137 samples, 3 inputs, 2 outputs>"
    assert "unknown number of samples" in repr(_csv(*arrays, tmp_path))


def test_a_masked_array_and_a_model_in_the_place_of_samples_are_refused() -> None:
    X = np.ma.masked_array(np.zeros((5, 2)), mask=np.eye(5, 2))
    with pytest.raises(ValueError, match="masked"):
        data.as_source(X, np.zeros(5))
    with pytest.raises(ValueError, match="oracle"):
        data.as_source(lambda X: X)
