"""Files from outside that are not what they seem: one sentence each, from the header or the first bytes."""

import io
import json
import os
import resource
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import neurecover as nr
from neurecover import data


def npy_header(text: str) -> bytes:
    body = text.encode("latin1")
    body += b" " * (63 - (len(body) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body


@pytest.mark.parametrize("suffix", ["npz", "npy", "csv", "parquet"])
def test_pipes_and_devices_are_not_opened(tmp_path: Path, suffix: str) -> None:
    """A reader of a pipe without a writer would wait for ever; /dev/zero never ends."""
    pipe, link = tmp_path / f"pipe.{suffix}", tmp_path / f"link.{suffix}"
    os.mkfifo(pipe)
    link.symlink_to("/dev/zero")
    for path in (pipe, link):
        with pytest.raises(ValueError, match="a pipe or a device"):
            data.open(path)
        with pytest.raises(ValueError, match="a pipe or a device"):
            nr.load(path)


def test_an_archive_that_unpacks_to_far_more_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    net = nr.simulate.teacher(3, 2, random_state=0)
    path = tmp_path / "bomb.npz"
    net.save(path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive, archive.open("more.npy", "w") as member:
        member.write(npy_header(repr({"descr": "<f8", "fortran_order": False, "shape": (2**26,)})))
        for _ in range(512):
            member.write(bytes(2**20))
    assert path.stat().st_size < 2**20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for read in (nr.load, nr.Recovery.load):
        with pytest.raises(ValueError, match=r"unpacks to 53687\d+ bytes"):
            read(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 2**10  # kilobytes


def test_a_header_that_claims_more_than_the_member_holds_allocates_nothing(tmp_path: Path) -> None:
    path = tmp_path / "claims.npz"
    nr.simulate.teacher(3, 2, random_state=0).save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["W.npy"] = npy_header(repr({"descr": "<f8", "fortran_order": False, "shape": (2**40,)})) + bytes(64)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(ValueError, match="not a readable"):
        nr.load(path)


@pytest.mark.parametrize("header", ["-" * 60_000 + "1", "(" * 5_000, "{'descr': '<f8'", "{1: 2}", "[] * 3"])
def test_headers_of_nonsense(tmp_path: Path, header: str) -> None:
    content = npy_header(header)
    alone, archive = tmp_path / "h.npy", tmp_path / "h.npz"
    alone.write_bytes(content)
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("X.npy", content)
        file.writestr("Y.npy", content)
    for path in (alone, archive):
        with pytest.raises(ValueError, match=r"h\.np"):
            data.open(path)
    with pytest.raises(ValueError, match="not a readable"):
        nr.load(archive)


def test_tables_too_wide_are_refused_from_their_header(tmp_path: Path) -> None:
    wide, line = tmp_path / "wide.npy", tmp_path / "line.csv"
    content = npy_header(repr({"descr": "<f8", "fortran_order": False, "shape": (1, 10**7)}))
    with wide.open("wb") as file:
        file.write(content)
        file.truncate(len(content) + 8 * 10**7)  # a sparse file
    line.write_bytes(b"1," * 10**7)
    with pytest.raises(ValueError, match="at most 20000 columns"):
        data.open(wide)
    with pytest.raises(ValueError, match="longer one"):
        data.open(line)
    with pytest.raises(ValueError, match="at most 20000 columns"):
        nr.recover(np.zeros((10, 30_000)), np.zeros(10))


def test_parquet_with_one_name_twice(tmp_path: Path) -> None:
    path = tmp_path / "twice.parquet"
    column = pa.array([1.0, 2.0])
    pq.write_table(pa.table([column, column, column], names=["x", "x", "y"]), path)
    with pytest.raises(ValueError, match="'x' more than once"):
        data.open(path)


def test_a_saved_recovery_with_nested_json(tmp_path: Path) -> None:
    path = tmp_path / "nested.npz"
    net = nr.simulate.teacher(3, 2, random_state=0)
    arrays = net.to_arrays() | {"recovery": np.array("[" * 50_000 + "]" * 50_000)}
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match="cannot read"):
        nr.Recovery.load(path)
    np.savez(path, **(arrays | {"recovery": np.array(json.dumps({"checks": 3}))}))
    with pytest.raises(ValueError, match="cannot read"):
        nr.Recovery.load(path)
    assert nr.load(path).n_hidden == 2


def test_numpy_reads_what_is_written_and_the_other_way_round(tmp_path: Path) -> None:
    net = nr.simulate.teacher(3, 2, random_state=0)
    net.save(tmp_path / "own.npz")
    with np.load(tmp_path / "own.npz", allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["W"], net.W)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **{name: archive[name] for name in archive.files})
    (tmp_path / "numpy.npz").write_bytes(buffer.getvalue())
    np.testing.assert_array_equal(nr.load(tmp_path / "numpy.npz").W, net.W)


@pytest.mark.parametrize(
    ("size", "message"), [(1e160, "up to 1e.100"), (1e300, "up to 1e.100"), (1e-120, "1e-100 or more")]
)
def test_numbers_whose_squares_leave_the_range_of_doubles(size: float, message: str) -> None:
    X, Y = nr.simulate.sample(nr.simulate.teacher(3, 2, random_state=0), 100, random_state=0)
    for inputs, outputs in ((X * size, Y), (X, Y * size)):
        with pytest.raises(ValueError, match=message):
            nr.recover(inputs, outputs, 2)


def test_a_method_without_end_is_refused_at_once() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((200, 50)), rng.standard_normal((200, 50))
    found = nr.estimate(X, Y, 50, method="arbitrary_noise", bias=False, form="paper", random_state=0)
    assert found.network is None
    assert "choices of 50" in found.notes[0]
