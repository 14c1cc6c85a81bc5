"""Weights wherever samples come from: a column of a file, of a stream, of a Dask collection; all by the same sums."""

import json
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import neurecover as nr
from neurecover import cli
from neurecover.data import ArraySource, Mapped, Source, Whitening, as_source, reduce, source, split, subsample
from neurecover.data.views.weights import WeightedRows, with_weights, without_weights
from neurecover.statistics import InformationSums, Moments, Residuals, Statistic

D, N = 3, 4_000
TRUTH = nr.simulate.teacher(D, 2, random_state=0)
_rng = np.random.default_rng(0)
X = _rng.standard_normal((N, D))
W = np.exp(_rng.standard_normal(N)) * (np.arange(N) % 10 > 0)
Y = TRUTH(X) + 0.05 / np.sqrt(np.maximum(W, 1e-3))[:, None] * _rng.standard_normal((N, 1))
TABLE = pd.DataFrame(np.column_stack([X, W, Y]), columns=["a", "b", "c", "w", "y"])


def _statistics() -> list[Statistic]:
    return [Moments(D, 1), Residuals(TRUTH, 1), InformationSums.of(TRUTH)]


def _assert_same_sums(found: Source, rounding: float = 1e-12) -> None:
    own, every = W > 0.0, list(zip(_statistics(), _statistics(), strict=True))
    assert every
    for built, expected in every:
        reduce(ArraySource(X[own], Y[own], weight=W[own]), expected)
        statistic = reduce(found, built)
        assert statistic.n == np.count_nonzero(own)
        for name, value in expected.sums.items():
            scale = float(np.abs(value).max(initial=0.0))
            np.testing.assert_allclose(statistic.sums[name], value, rtol=0, atol=rounding * scale, err_msg=name)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npy"])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_column_of_a_file(suffix: str, streamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"table{suffix}"
    if suffix == ".npy":
        np.save(path, TABLE.to_numpy())
    else:
        TABLE.to_csv(path, index=False) if suffix == ".csv" else TABLE.to_parquet(path)
    if streamed:
        monkeypatch.setattr(source, "IN_MEMORY", 2**12)
    found = nr.open(path, weight=3 if suffix == ".npy" else "w")
    assert found.streams == streamed or found.base.n_samples is None
    assert (found.n_inputs, found.n_outputs, found.weighted) == (D, 1, True)
    _assert_same_sums(found)


def test_a_table_a_position_and_a_weight_that_stands_last() -> None:
    _assert_same_sums(nr.open(TABLE, weight="w"))
    _assert_same_sums(nr.open(TABLE, weight=-2))
    _assert_same_sums(nr.open(TABLE[["a", "b", "c", "y", "w"]].set_axis(list("01234"), axis=1), weight=-1))
    chosen = nr.open(TABLE, inputs=["b", "a"], outputs="y", weight="w")
    assert (chosen.input_names, chosen.output_names) == (("b", "a"), ("y",))


@pytest.mark.parametrize("collection", ["frame", "arrays"])
def test_a_dask_collection(collection: str) -> None:
    if collection == "frame":
        _assert_same_sums(nr.open(dd.from_pandas(TABLE, npartitions=5), weight="w"))
    else:
        arrays = (da.from_array(part, chunks=900) for part in (X, Y, W))
        _assert_same_sums(as_source(*arrays))
        with pytest.raises(ValueError, match=r"expected shape \(4000,\), one weight per row"):
            as_source(da.from_array(X), da.from_array(Y), W[1:])


def test_a_stream_is_recovered_as_the_same_rows_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both optima are those of all rows, to the promise of a step that is not taken: a tenth of a standard error."""
    TABLE.to_parquet(tmp_path / "table.parquet")
    held = nr.recover(X, Y, 2, random_state=0, sample_weight=W)
    monkeypatch.setattr(source, "IN_MEMORY", 2**12)
    streamed = nr.recover(nr.open(tmp_path / "table.parquet", weight="w"), n_hidden=2, random_state=0)
    assert "passes" in streamed.summary() or any("passes" in stage.detail for stage in streamed.stages)
    assert held.certificate.verdict == streamed.certificate.verdict == "statistical"
    errors, order = held.certificate.standard_errors, np.argsort(held.network.W[:, 0])
    assert errors is not None
    assert streamed.certificate.standard_errors is not None
    other = np.argsort(streamed.network.W[:, 0])
    apart = np.abs(held.network.W[order] - streamed.network.W[other])
    assert np.all(apart < 0.2 * errors["W"][order])
    # The one has every sample's leverage and the other the mean of it, D/ν of the variance: 5 % are far more.
    np.testing.assert_allclose(streamed.certificate.standard_errors["W"][other], errors["W"][order], rtol=0.05)
    assert streamed.certificate.noise_variance == pytest.approx(held.certificate.noise_variance, rel=1e-3)
    assert streamed.certificate.n_samples == held.certificate.n_samples == np.count_nonzero(W)


def test_views_hand_weights_on() -> None:
    own = W > 0.0
    rows = ArraySource(X[own], Y[own], weight=W[own])
    mapped = Mapped(rows, Whitening(np.ones(D), 2.0 * np.eye(D)))
    np.testing.assert_array_equal(mapped.weights(), W[own])
    train, holdout = split(mapped, 0.3, 0)
    weights = dict(zip(map(tuple, Y[own]), W[own]))
    for part in (train, holdout, subsample(mapped, 100, 0)):
        found = part.weights()
        assert found is not None
        assert all(weights[tuple(y)] == w for y, w in zip(part.collect()[1], found))
    assert without_weights(mapped).weights() is None
    np.testing.assert_array_equal(without_weights(mapped).collect()[0], mapped.collect()[0])
    assert ArraySource(X, Y).weights() is None


def test_a_negative_weight_of_a_file_is_named(tmp_path: Path) -> None:
    TABLE.assign(w=-1.0).to_csv(tmp_path / "table.csv", index=False)
    with pytest.raises(ValueError, match=r"column 'w': expected weights from 0\. Got -1\.0 instead"):
        nr.recover(nr.open(tmp_path / "table.csv", weight="w"), n_hidden=1)
    TABLE.assign(w=0.0).to_csv(tmp_path / "none.csv", index=False)
    with pytest.raises(ValueError, match="expected at least one sample of positive weight"):
        nr.recover(nr.open(tmp_path / "none.csv", weight="w"), n_hidden=1)


def _apart(kind: str, folder: Path, **arrays: np.ndarray) -> tuple[Any, str]:
    """X, Y and w in files of one kind, and how the weights among them are named."""
    if kind == "npy":
        for name, values in arrays.items():
            np.save(folder / f"{name}.npy", values)
        return (folder / "X.npy", folder / "Y.npy"), str(folder / "w.npy")
    path = folder / f"samples.{kind}"
    if kind == "npz":
        np.savez(path, **arrays)  # type: ignore[arg-type]
    else:
        import zarr

        group = zarr.open_group(str(path), mode="w")
        for name, values in arrays.items():
            group.create_array(name, data=values, chunks=(700, *values.shape[1:]))
    return path, "w"


@pytest.mark.parametrize("kind", ["npz", "npy", "zarr"])
def test_an_array_beside_x_and_y(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, name = _apart(kind, tmp_path, X=X, Y=Y, w=W)
    found = nr.open(data, weight=name)
    assert (found.input_names, found.output_names, found.weighted) == (("x0", "x1", "x2"), ("y0",), True)
    _assert_same_sums(found)
    monkeypatch.setattr(source, "IN_MEMORY", 2**12)
    assert found.streams
    _assert_same_sums(found)
    assert found.identity() != nr.open(data).identity()


def test_zarr_arrays_have_columns_too(tmp_path: Path) -> None:
    import zarr

    zarr.save_array(str(tmp_path / "table.zarr"), TABLE.to_numpy())
    _assert_same_sums(nr.open(tmp_path / "table.zarr", weight=3))


def test_columns_of_the_outputs_stay_beside_the_weights(tmp_path: Path) -> None:
    for kind in ("npz", "npy", "zarr"):
        data, name = _apart(kind, tmp_path, X=X.astype("f4"), Y=np.hstack([Y, 2.0 * Y]), w=W[:, None])
        parts = [np.concatenate(part) for part in zip(*nr.open(data, weight=name).weighted_blocks(1_500))]
        for i, expected in enumerate((X.astype("f4"), np.hstack([Y, 2.0 * Y]), W)):
            np.testing.assert_array_equal(parts[i], expected[W > 0.0])


@pytest.mark.filterwarnings("ignore:The data type")  # Zarr warns of text
@pytest.mark.parametrize("kind", ["npz", "npy", "zarr"])
def test_weights_apart_that_do_not_fit_are_refused(kind: str, tmp_path: Path) -> None:
    data, name = _apart(kind, tmp_path, X=X, Y=Y, w=W[1:], text=np.array(["a"] * N))
    with pytest.raises(ValueError, match=r"expected shape \(4000,\), one weight per row\. Got shape \(3999,\)"):
        nr.open(data, weight=name)
    with pytest.raises(ValueError, match="expected real numbers"):
        nr.open(data, weight="text" if kind != "npy" else str(tmp_path / "text.npy"))
    for wrong in (0, "Y"):
        with pytest.raises(ValueError, match=r"weights beside X and Y\. Got|are in a third, w\.npy\. Got"):
            nr.open(data, weight=wrong)
    with pytest.raises((ValueError, FileNotFoundError), match=r"and v for the weights|v\.npy"):
        nr.open(data, weight="v" if kind != "npy" else str(tmp_path / "v.npy"))
    with pytest.raises(ValueError, match="no columns are chosen"):
        nr.open(data, inputs=[0], weight=name)


def test_what_has_no_column_for_weights_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "pair.npz", X=X, Y=Y)
    with pytest.raises(ValueError, match=r"expected members X and Y, and w for the weights\. Got X, Y instead"):
        nr.open(tmp_path / "pair.npz", weight="w")
    with pytest.raises(ValueError, match="give recover a third, sample_weight"):
        nr.open((da.from_array(X), da.from_array(Y)), weight="w")
    with pytest.raises(ValueError, match="sample_weight goes with arrays and tables in memory"):
        nr.recover(nr.open(tmp_path / "pair.npz"), n_hidden=2, sample_weight=W)
    with pytest.raises(ValueError, match=r"no column named 'v', given for the weights"):
        nr.open(TABLE, weight="v")


def test_other_weights_are_other_samples_to_a_run_that_goes_on() -> None:
    first, second = (with_weights(ArraySource(X, Y), weight).identity() for weight in (W, W[::-1]))
    assert first != second
    assert isinstance(nr.open(TABLE, weight="w"), WeightedRows)


def test_the_command_line_takes_a_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    TABLE.to_csv(tmp_path / "table.csv", index=False)
    command = ["recover", str(tmp_path / "table.csv"), "--hidden", "2", "--json", "--weight"]
    for column, status in (("w", 0), ("w,y", 2)):
        with pytest.raises(SystemExit) as left:
            cli.main([*command, column])
        assert left.value.code == status
        answer = capsys.readouterr()
        assert json.loads(answer.out)["verdict"] == "statistical" if status == 0 else "--weight needs" in answer.err


@pytest.mark.parametrize("kind", ["npz", "npy"])
def test_the_command_line_takes_weights_apart(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, name = _apart(kind, tmp_path, X=X, Y=Y, w=W)
    files = [str(path) for path in (data if kind == "npy" else [data])]
    with pytest.raises(SystemExit) as left:
        cli.main(["recover", *files, "--hidden", "2", "--json", "--weight", name])
    assert left.value.code == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "statistical"
