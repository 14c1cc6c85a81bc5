"""Samples larger than memory: reading ahead and from the middle, four passes, and runs that are broken off."""

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import neurecover as nr
from neurecover import data
from neurecover.cli.app import app
from neurecover.data import ArraySource, reduce
from neurecover.data.ahead import read_ahead
from neurecover.data.passes import count_passes
from neurecover.data.records import Records
from neurecover.statistics import Moments

SMALL = 100_000  # bytes of samples that are held in memory here


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neurecover.data.source.IN_MEMORY", SMALL)


def _pair(folder: Path, n: int, noise: float, seed: int) -> tuple[nr.Network, data.Source]:
    truth = nr.simulate.teacher(5, 3, random_state=seed)
    X, Y = nr.simulate.sample(truth, n, noise=noise, random_state=seed)
    np.save(folder / "X.npy", X)
    np.save(folder / "Y.npy", Y)
    return truth, nr.open((folder / "X.npy", folder / "Y.npy"))


def test_reading_ahead_keeps_order_and_raises_in_its_place() -> None:
    def values() -> Iterator[int]:
        yield from range(5)
        raise ValueError("the sixth")

    stream = read_ahead(values())
    assert [next(stream) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="the sixth"):
        next(stream)
    before = threading.active_count()
    endless = read_ahead(iter(range(10**9)))
    assert next(endless) == 0
    endless.close()
    assert threading.active_count() == before


def test_reading_goes_on_while_a_block_is_worked_on() -> None:
    asked = [threading.Event() for _ in range(7)]

    def values() -> Iterator[int]:
        for value in range(6):
            asked[value].set()
            yield value
        asked[6].set()

    # The next one is being read before this one is done with.
    assert [asked[value + 1].wait(timeout=60.0) for value in read_ahead(values())] == [True] * 6


@pytest.mark.usefixtures("small_memory")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_noisy_samples_take_four_passes_and_reach_the_optimum(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth, source = _pair(tmp_path, 12_000, 0.1, seed)
    told: list[str] = []
    streamed = nr.recover(source, n_hidden=3, random_state=seed, progress=lambda stage, _: told.append(stage))
    passes = {stage.split(" over")[0] for stage in told if stage.startswith("pass ")}
    assert passes == {f"pass {i} of 4" for i in range(1, 5)}
    assert any("s left" in stage for stage in told)
    assert streamed.certificate.verdict == "statistical"
    monkeypatch.setattr("neurecover.data.source.IN_MEMORY", 10**9)
    held = nr.recover(source, n_hidden=3, random_state=seed)
    order = nr.compare(streamed.network, held.network).permutation
    assert held.certificate.standard_errors is not None
    errors = held.certificate.standard_errors["W"]
    # Both are least squares on the same rows: apart by a small part of what the noise leaves open, whose size they
    # agree on to the 1/√n of a fourth moment.
    assert np.abs(streamed.network.W[order] - held.network.W).max() < 0.2 * errors.max()
    assert streamed.certificate.standard_errors is not None
    np.testing.assert_allclose(streamed.certificate.standard_errors["W"][order], errors, rtol=0.05)
    assert nr.compare(streamed.network, truth).weight_error < 6 * np.sqrt(5) * errors.max()


@pytest.mark.usefixtures("small_memory")
def test_samples_without_noise_are_exact_from_a_stream(tmp_path: Path) -> None:
    truth, source = _pair(tmp_path, 8_000, 0.0, 3)
    recovery = nr.recover(source, n_hidden=3, random_state=0)
    assert recovery.certificate.verdict == "exact"
    assert nr.compare(recovery.network, truth).weight_error < 1e-10


@pytest.mark.usefixtures("small_memory")
def test_a_stream_of_another_width_is_not_certified(tmp_path: Path) -> None:
    _, source = _pair(tmp_path, 6_000, 0.05, 4)
    assert nr.recover(source, n_hidden=2, random_state=0).certificate.verdict in ("approximate", "failed")


class _Broken(Moments):
    """Moments that break off after a number of rows."""

    limit = 0

    def update(self, X: np.ndarray, Y: np.ndarray) -> None:
        if self.n >= self.limit:
            raise KeyboardInterrupt
        super().update(X, Y)


@pytest.mark.usefixtures("small_memory")
def test_a_pass_that_is_broken_off_goes_on_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neurecover.data.loop.READ_BYTES", 48 * 100)
    monkeypatch.setattr("neurecover.data.passes.SHARE", 1e9)  # a record after every block
    _, source = _pair(tmp_path, 5_000, 0.1, 0)
    whole = reduce(source, Moments(5, 1))
    for limit in (100, 2_500, 4_900):
        records = Records(tmp_path / f"records-{limit}", {"what": "test"})
        broken = _Broken(5, 1)
        broken.limit = limit
        with pytest.raises(KeyboardInterrupt), count_passes(lambda stage, figure: None, records):
            reduce(source, broken)
        kept = records.read(1)
        # A block of 100 rows at the most is lost.
        assert kept is not None
        assert not kept.complete
        assert limit - 100 <= kept.done <= limit
        for _ in range(2):  # in the middle, and after the end
            with count_passes(lambda stage, figure: None, records):
                again = reduce(source, Moments(5, 1))
            assert all(np.array_equal(again.sums[name], value) for name, value in whole.sums.items())


SCRIPT = """
import sys, numpy as np, neurecover as nr, neurecover.data.source as source
source.IN_MEMORY = 100_000
samples = nr.open((sys.argv[1] + "/X.npy", sys.argv[1] + "/Y.npy"))
r = nr.recover(samples, n_hidden=3, random_state=1, checkpoint=sys.argv[2])
errors = r.certificate.standard_errors
np.savez(sys.argv[3], W=r.network.W, b=r.network.b, A=r.network.A, c=r.network.c, errors=errors["W"])
"""


def test_killed_runs_end_with_the_same_network(tmp_path: Path) -> None:
    _pair(tmp_path, 20_000, 0.1, 2)

    def begun(name: str) -> subprocess.Popen:
        out = tmp_path / f"{name}.npz"
        return subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path), str(tmp_path / name), str(out)])

    assert begun("whole").wait() == 0
    folder = tmp_path / "killed"
    # Killed as soon as the file is there, which is within the first pass, the search, and the last passes.
    for mark in ("pass-1.npz", "search.npz", "pass-3.npz"):
        run = begun("killed")
        while not (folder / mark).exists() and run.poll() is None:
            time.sleep(0.005)
        run.send_signal(signal.SIGKILL)
        run.wait()
    assert begun("killed").wait() == 0
    with np.load(tmp_path / "whole.npz") as whole, np.load(tmp_path / "killed.npz") as killed:
        assert all(np.array_equal(whole[name], killed[name]) for name in whole.files)


def test_records_of_another_run_are_refused(tmp_path: Path) -> None:
    X, Y = nr.simulate.sample(nr.simulate.teacher(3, 2, random_state=0), 200, random_state=0)
    nr.recover(X, Y, 2, random_state=0, checkpoint=tmp_path / "records")
    for arguments in ({"n_hidden": 3}, {"random_state": 1}, {"bias": False}):
        with pytest.raises(ValueError, match=r"of another run: its (n_hidden|seed|bias) is"):
            nr.recover(X, Y, **{"n_hidden": 2, "random_state": 0, "checkpoint": tmp_path / "records", **arguments})
    with pytest.raises(ValueError, match="of another run: its samples is"):
        nr.recover(X + 1, Y, 2, random_state=0, checkpoint=tmp_path / "records")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("not ours")
    with pytest.raises(ValueError, match="not empty and holds no checkpoint"):
        nr.recover(X, Y, 2, random_state=0, checkpoint=tmp_path / "full")
    with pytest.raises(ValueError, match="whole number or None"):
        nr.recover(X, Y, 2, random_state=np.random.default_rng(0), checkpoint=tmp_path / "records")


def test_a_run_without_a_seed_goes_on_with_its_own(tmp_path: Path) -> None:
    X, Y = nr.simulate.sample(nr.simulate.teacher(3, 2, random_state=0), 200, noise=0.1, random_state=0)
    first, second = (nr.recover(X, Y, 2, checkpoint=tmp_path / "records") for _ in range(2))
    np.testing.assert_array_equal(first.network.W, second.network.W)


def test_a_full_disk_leaves_the_old_record_whole(tmp_path: Path) -> None:
    records = Records(tmp_path, {"what": "test"})
    records.keep("sums", {"a": np.arange(10.0)})
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limit[1]))  # the system refuses to write more, as on a full disk
    try:
        with pytest.raises(
            OSError, match=r"cannot be written \(.*\). Make room there and repeat the call: it continues"
        ):
            records.keep("sums", {"a": np.arange(10_000.0)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    kept = records.get("sums")
    assert kept is not None
    np.testing.assert_array_equal(kept["a"], np.arange(10.0))
    assert sorted(os.listdir(tmp_path)) == ["run.json", "sums.npz"]


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    records = Records(tmp_path, {"what": "test"})
    (tmp_path / "pass-1.npz").write_bytes(b"PK nothing")
    with pytest.raises(ValueError, match=r"pass-1.npz is damaged"):
        records.read(1)


def test_a_large_array_is_streamed_too(small_memory: None) -> None:
    truth = nr.simulate.teacher(5, 3, random_state=0)
    X, Y = nr.simulate.sample(truth, 12_000, noise=0.1, random_state=0)
    assert ArraySource(X, Y).streams
    assert nr.recover(X, Y, 3, random_state=0).certificate.verdict == "statistical"


@pytest.mark.usefixtures("small_memory")
def test_the_command_line_keeps_records_in_a_folder(tmp_path: Path) -> None:
    _pair(tmp_path, 12_000, 0.1, 0)
    arguments = ["recover", *(str(tmp_path / f"{name}.npy") for name in "XY"), "--hidden", "3"]
    first, again = (
        CliRunner().invoke(app, [*arguments, "--json", "--checkpoint", str(tmp_path / "records")]) for _ in range(2)
    )
    assert first.exit_code == again.exit_code == 0, first.output
    assert list((tmp_path / "records").iterdir())
    assert json.loads(first.stdout)["network"] == json.loads(again.stdout)["network"]
