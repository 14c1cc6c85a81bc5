"""A real cluster of two worker processes: the statistics of one process, whatever happens to a worker."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.distributed import Client, LocalCluster
from distributed.comm.core import CommClosedError

import neurecover as nr
from benchmarks.resources import files, workers
from neurecover.data import ArraySource, Mapped, Whitening, reduce, split
from neurecover.data.sources.dask import DaskSource
from neurecover.statistics import InformationSums, Moments, Together

TRUTH = nr.simulate.teacher(5, 3, random_state=0)
X, Y = nr.simulate.sample(TRUTH, 10_000, noise=0.1, random_state=0)
ARRAYS = da.from_array(X, chunks=(1_000, 3)), da.from_array(Y[:, 0], chunks=1_700)


pytestmark = pytest.mark.slow  # the workers are processes of their own


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 5}),
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as opened,
    ):
        yield opened


def _statistic() -> Together:
    return Together(moments=Moments(5, 1), curvature=InformationSums.of(TRUTH))


def _assert_same(left: Together, right: Together) -> None:
    right_arrays = right.to_arrays()
    assert right_arrays.keys() == left.to_arrays().keys()
    for name, value in left.to_arrays().items():
        scale = np.abs(value).max(initial=1e-300)
        np.testing.assert_allclose(right_arrays[name], value, rtol=0, atol=1e-12 * scale, err_msg=name)


def test_two_workers_give_the_statistics_of_one_process(client: Client) -> None:
    here = ArraySource(X, Y)
    whitening = Whitening.of(X.mean(axis=0), np.cov(X.T))
    frame = dd.from_pandas(pd.DataFrame(np.column_stack([X, Y]), columns=[*"abcde", "y"]), npartitions=9)
    table = da.from_array(np.column_stack([X, Y]), chunks=(3_000, 4))
    for there in (nr.open(ARRAYS, client=client), nr.open(frame, client=client), nr.open(table)):
        _assert_same(reduce(Mapped(here, whitening), _statistic()), reduce(Mapped(there, whitening), _statistic()))


def test_parts_of_a_division_are_the_same_there(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neurecover.data.source.IN_MEMORY", 1_000)
    here, there = split(ArraySource(X, Y), 0.3, 1), split(nr.open(ARRAYS, client=client), 0.3, 1)
    for part in range(2):
        _assert_same(reduce(here[part], _statistic()), reduce(there[part], _statistic()))


def test_a_network_is_recovered_where_the_samples_are(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neurecover.data.source.IN_MEMORY", 100_000)
    there = nr.recover(nr.open(ARRAYS, client=client), n_hidden=3, random_state=0)
    assert there.certificate.verdict == "statistical"
    errors = there.certificate.standard_errors
    assert errors is not None
    # The largest of fifteen errors, in a Gaussian's standard deviations.
    assert nr.compare(there.network, TRUTH).weight_error < 5 * np.sqrt(5) * errors["W"].max()


def test_a_worker_that_is_killed_changes_nothing(client: Client) -> None:
    before = client.run(os.getpid)

    def kill() -> None:
        time.sleep(0.3)
        os.kill(next(iter(before.values())), signal.SIGKILL)

    class Slow(Moments):
        def update(self, X: np.ndarray, Y: np.ndarray) -> None:
            time.sleep(0.1)
            super().update(X, Y)

    expected = reduce(nr.open(ARRAYS, client=client), Moments(5, 1))
    thread = threading.Thread(target=kill)
    thread.start()
    sums = reduce(nr.open(ARRAYS, client=client), Slow(5, 1))
    thread.join()
    assert all(np.array_equal(sums.sums[name], value) for name, value in expected.sums.items())


def test_a_partition_with_another_schema_is_named(client: Client) -> None:
    good = pd.DataFrame({"a": [1.0, 2.0], "y": [1.0, 2.0]})

    def part(number: int) -> pd.DataFrame:
        return good if number != 2 else good.rename(columns={"a": "b"})

    frame = dd.from_map(part, range(4), meta=good)
    with pytest.raises(ValueError, match=r"partition 2: expected the columns of the others. Got one without 'a'"):
        reduce(nr.open(frame, client=client), Moments(1, 1))
    faulty = da.from_array(np.where(np.arange(40.0)[:, None] == 33.0, np.nan, 1.0) * np.ones((1, 2)), chunks=(10, 2))
    with pytest.raises(ValueError, match=r"partition 3, row 3, column '0': expected a finite number"):
        reduce(nr.open(faulty, client=client), Moments(1, 1))


def test_a_scheduler_that_goes_away_is_one_sentence() -> None:
    class Slow(Moments):
        def update(self, X: np.ndarray, Y: np.ndarray) -> None:
            time.sleep(0.1)
            super().update(X, Y)

    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
        cluster = LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None)
        client = Client(cluster, set_as_default=False)
        thread = threading.Timer(0.5, cluster.close)
        thread.start()
        with pytest.raises(OSError, match=r"The Dask scheduler went away .* make the same call"):
            reduce(nr.open(ARRAYS, client=client), Slow(5, 1))
        thread.join()
        client.close()


def test_the_benchmark_of_workers_adds_up_the_same_sums(monkeypatch: pytest.MonkeyPatch, client: Client) -> None:
    """On the cluster that is running, in place of one of its own."""
    monkeypatch.setattr(workers, "CASE", {"n": 3 * files.PIECE // 2, "d": 4, "k": 2, "kind": "parquet"})
    monkeypatch.setattr(workers, "TIMES", 1)
    own = workers._opened

    @contextmanager
    def opened(path: Path, count: int) -> Iterator[Any]:
        if count == 0:
            with own(path, 0) as here:
                yield here
        else:
            frame = dd.read_parquet(path, split_row_groups=1)
            yield nr.open(frame, client=client), lambda: list(client.run(time.process_time).values())

    monkeypatch.setattr(workers, "_opened", opened)
    rows = list(workers.compared(lambda items, label: items))
    assert [row["workers"] for row in rows] == [0, 0, 1, 2]
    assert all(float(str(row["apart"])) < 1e-12 for row in rows)
    assert len(client.nthreads()) == 2


def test_a_scheduler_that_does_not_answer_is_the_same_sentence() -> None:
    """Whichever call finds it gone: that for the number of workers, or one that hands out work."""

    class Gone:
        def nthreads(self, *_: Any) -> Any:
            raise CommClosedError("ConnectionPool closing.")

        compute = nthreads

    source = nr.open(ARRAYS, client=Gone())
    assert isinstance(source, DaskSource)
    for call in (source._n_workers, lambda: source._submitted(None)):
        with pytest.raises(OSError, match=r"The Dask scheduler went away \(CommClosedError\)"):
            call()


def test_collections_are_opened_without_being_computed() -> None:
    def computed(*arguments: Any) -> np.ndarray:
        raise AssertionError("a partition was computed")

    lazy = da.map_blocks(computed, chunks=((1_000,) * 9, (6,)), dtype=float, meta=np.zeros((0, 6)))
    source = nr.open(lazy)
    assert (source.n_samples, source.n_inputs, source.n_outputs) == (9_000, 5, 1)
    with pytest.raises(ValueError, match="of as many rows"):
        nr.open((lazy[:, :5], lazy[:10, 5]))
    with pytest.raises(ValueError, match="client goes with a Dask array"):
        nr.open(pd.DataFrame({"a": [1.0]}), client=object())


def test_without_a_client_the_partitions_are_worked_on_here() -> None:
    import dask.array as da

    truth = nr.simulate.teacher(3, 2, random_state=0)
    X, Y = nr.simulate.sample(truth, 600, random_state=0)
    r = nr.recover(da.from_array(X, chunks=(300, 3)), da.from_array(Y, chunks=(300, 1)), 2, random_state=0)
    assert r.certificate.verdict == "exact"
