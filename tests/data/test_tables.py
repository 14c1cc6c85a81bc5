"""Tables in memory, folders of Parquet files, Zarr stores, and which columns are outputs by name."""

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

import neurecover as nr
from neurecover import data

X = np.random.default_rng(0).standard_normal((900, 3)).astype(np.float32)
Y = (X.sum(axis=1) ** 2).astype(np.float32)
COLUMNS = {"a": X[:, 0], "year": X[:, 1], "b": X[:, 2], "y": Y}


class Interchanged:
    """Nothing but `__dataframe__`."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __dataframe__(self, *arguments: object, **named: object) -> object:
        return self._table.__dataframe__(*arguments, **named)


TABLES = {
    "pandas": pd.DataFrame(COLUMNS),
    "polars": pl.DataFrame(COLUMNS),
    "arrow": pa.table(COLUMNS),
    "interchange": Interchanged(pa.table(COLUMNS)),
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_tables_are_read_by_the_names_of_their_columns(table: object) -> None:
    for source in (nr.open(table), data.as_source(table)):
        assert (source.input_names, source.output_names) == (("a", "year", "b"), ("y",))
        np.testing.assert_array_equal(source.collect()[0], X)
        np.testing.assert_array_equal(source.collect()[1], Y[:, None])
        assert next(source.blocks(5))[0].dtype == np.float32
    other = nr.open(table, inputs=["b"], outputs="a")
    np.testing.assert_array_equal(other.collect()[1][:, 0], X[:, 0])


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table, lambda c: Interchanged(pa.table(c))])
def test_a_table_of_inputs_goes_beside_an_array_of_outputs(make: type) -> None:
    source = data.as_source(make({name: COLUMNS[name] for name in ("a", "year", "b")}), Y)
    assert source.input_names == ("a", "year", "b")
    np.testing.assert_array_equal(source.collect()[0], X)


def test_text_and_missing_values_in_tables_are_refused() -> None:
    with pytest.raises(ValueError, match=r"column 'a': expected numbers. Got text"):
        nr.open(pl.DataFrame({"a": ["u", "v"], "y": [1.0, 2.0]}))
    with pytest.raises(ValueError, match="row 1, column 'a': expected a finite number"):
        nr.open(pa.table({"a": [1.0, None], "y": [1.0, 2.0]})).collect()


@pytest.mark.parametrize(
    ("names", "outputs"),
    [
        (("year", "y"), ("y",)),
        (("x", "y0", "y1"), ("y0", "y1")),
        (("x", "Y", "z"), ("Y",)),
        (("x", "y_1", "y_2"), ("y_1", "y_2")),
        (("0", "1", "2"), ("2",)),
    ],
)
def test_only_y_and_numbered_y_are_outputs_by_name(names: tuple[str, ...], outputs: tuple[str, ...]) -> None:
    assert nr.open(pa.table({name: [1.0, 2.0] for name in names})).output_names == outputs


@pytest.mark.parametrize(
    ("names", "suggested"),
    [(("yield", "year", "z"), "z"), (("yes", "y_hat"), "y_hat"), (("Price", "area"), "Price")],
)
def test_an_output_is_never_guessed_from_a_name(names: tuple[str, ...], suggested: str) -> None:
    with pytest.raises(ValueError, match=f"no column is named y, so .* for instance outputs='{suggested}'"):
        nr.open(pa.table({name: [1.0, 2.0] for name in names}))


def test_the_summary_names_the_columns() -> None:
    text = nr.recover(nr.open(TABLES["polars"]), n_hidden=1, random_state=0).summary()
    assert "inputs a, year, b; outputs y" in text


def _folder(folder: Path, files: int = 3) -> Path:
    (folder / "more").mkdir(parents=True)
    for i, part in enumerate(np.array_split(np.arange(900), files)):
        place = folder / "more" if i == files - 1 else folder
        table = pa.table({name: values[part] for name, values in COLUMNS.items()})
        pq.write_table(table, place / f"part-{i}.parquet", row_group_size=70)
    return folder


def test_a_folder_of_parquet_files_is_one_table(tmp_path: Path) -> None:
    source = nr.open(_folder(tmp_path / "samples"))
    assert source.n_samples == 900
    got_X, got_Y = source.collect()
    # Files come in the order of their paths, those of a folder within among them.
    order = np.r_[600:900, 0:600]
    np.testing.assert_array_equal(got_X, X[order])
    np.testing.assert_array_equal(got_Y[:, 0], Y[order])


def test_files_of_a_folder_need_the_same_columns(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "samples")
    pq.write_table(pa.table({"a": [1.0], "y": [1.0]}), folder / "part-9.parquet")
    with pytest.raises(ValueError, match=r"part-9.parquet: expected the columns of .* without 'year'"):
        nr.open(folder)
    assert nr.open(folder, inputs=["a"], outputs=["y"]).n_samples == 901
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="expected a folder of Parquet files"):
        nr.open(tmp_path / "empty")


def test_a_corrupt_row_group_is_named_in_one_sentence(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "samples")
    file = folder / "part-1.parquet"
    meta = pq.ParquetFile(file).metadata.row_group(2).column(0)
    content = bytearray(file.read_bytes())
    start = meta.data_page_offset if meta.dictionary_page_offset is None else meta.dictionary_page_offset
    content[start : start + 40] = b"\xff" * 40
    file.write_bytes(bytes(content))
    with pytest.raises(
        ValueError, match=r"part-1.parquet.*: expected an intact Parquet file.*cannot be read"
    ) as caught:
        nr.recover(nr.open(folder), n_hidden=1)
    assert "\n" not in str(caught.value)


def _zarr_group(folder: Path) -> data.Source:
    group = zarr.open_group(folder / "samples.zarr", mode="w")
    group.create_array("X", data=X, chunks=(128, 3))
    group.create_array("Y", data=Y, chunks=(100,))
    return nr.open(folder / "samples.zarr")


def _zarr_table(folder: Path) -> data.Source:
    zarr.save_array(folder / "table.zarr", np.column_stack([X, Y]))
    return nr.open(folder / "table.zarr", inputs=[0, 1, 2])


def _npy(folder: Path) -> data.Source:
    np.save(folder / "table.npy", np.column_stack([X, Y]))
    return nr.open(folder / "table.npy")


def _csv(folder: Path) -> data.Source:
    np.savetxt(folder / "table.csv", np.column_stack([X, Y]), delimiter=",")
    return nr.open(folder / "table.csv")


def _parquet(folder: Path) -> data.Source:
    return nr.open(_folder(folder / "samples", files=1))


@pytest.mark.parametrize("make", [_zarr_group, _zarr_table, _npy, _csv, _parquet])
@pytest.mark.parametrize("rows", [7, 130, 5_000])
def test_reading_from_the_middle_gives_the_same_blocks(tmp_path: Path, make: object, rows: int) -> None:
    source = make(tmp_path)  # type: ignore[operator]
    blocks = list(source.blocks(rows))
    np.testing.assert_allclose(np.concatenate([block for block, _ in blocks]), X, rtol=1e-6)
    starts = np.cumsum([0] + [len(block) for block, _ in blocks])
    for i in {0, 1, len(blocks) // 2, len(blocks) - 1}:
        rest = list(source.blocks_from(rows, int(starts[i])))
        assert len(rest) == len(blocks) - i
        for (left, _), (right, _) in zip(rest, blocks[i:]):
            np.testing.assert_array_equal(left, right)


def test_zarr_stores_that_are_no_samples(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "other.zarr", mode="w")
    group.create_array("Z", data=X)
    with pytest.raises(ValueError, match=r"expected arrays X and Y in the group. Got Z"):
        nr.open(tmp_path / "other.zarr")


@pytest.mark.parametrize("written", [False, True])
def test_the_index_of_a_frame_is_no_input(written: bool, tmp_path: Path) -> None:
    """Rows chosen from a frame keep their numbers as an index, which Arrow and Parquet list among the columns."""
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "y": [4.0, 5.0, 6.0]}).drop(index=1)
    if written:
        frame.to_parquet(tmp_path / "rows.parquet")
    source = nr.open(tmp_path / "rows.parquet" if written else frame)
    assert (source.input_names, source.output_names) == (("a",), ("y",))
    unnamed = nr.open(frame.rename(columns={"y": "b"}), outputs="b")
    assert (unnamed.input_names, unnamed.output_names) == (("a",), ("b",))


def test_all_columns_that_are_no_numbers_are_named_at_once() -> None:
    frame = pd.DataFrame({"when": pd.to_datetime(["2020-01-01", "2020-01-02"]), "sex": ["f", "m"], "y": [1.0, 2.0]})
    with pytest.raises(
        ValueError, match=r"columns 'when', 'sex': expected numbers. Got dates and text instead; leave them out"
    ):
        nr.open(frame)


def test_rows_of_a_frame_and_of_a_series_have_the_same_labels() -> None:
    frame = pd.DataFrame({"a": np.arange(8.0), "y": np.arange(8.0)})
    with pytest.raises(ValueError, match=r"same row labels in X and Y.*Y.loc\[X.index\]"):
        data.as_source(frame[["a"]].iloc[4:], frame["y"].iloc[:4])
    shuffled = frame.sample(frac=1.0, random_state=0)
    X, Y = data.as_source(shuffled[["a"]], frame["y"].loc[shuffled.index]).collect()
    np.testing.assert_array_equal(X, Y)
