"""Splits, random samples and the loop over data."""

import threading
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2
from threadpoolctl import threadpool_info, threadpool_limits

from neurecover import data
from neurecover.data import ArraySource, reduce, side_by_side, split, subsample
from neurecover.data.loop import THREAD_BYTES
from neurecover.statistics import Statistic


class Products(Statistic):
    """Sums of y xᵀ in exact integers, so that equality is exact whatever the order of blocks."""

    maxima = frozenset({"largest"})

    def __init__(self, n_inputs: int, n_outputs: int, row_bytes: int = 0) -> None:
        self.row_bytes = row_bytes
        self.sums = {"yx": np.zeros((n_outputs, n_inputs), dtype=int), "largest": np.array(-np.inf)}
        self.threads: set[int] = set()

    def update(self, X: np.ndarray, Y: np.ndarray) -> None:
        self.threads.add(threading.get_ident())  # a set that copies share
        self.sums["yx"] += Y.T.astype(int) @ X.astype(int)
        np.maximum(self.sums["largest"], len(X), out=self.sums["largest"])


def _numbered(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Row i holds i in its first input, so that rows can be recognised."""
    i = np.arange(n, dtype=float)
    return np.column_stack([i, -i]), 2 * i


def _csv(folder: Path, n: int) -> data.Source:
    X, Y = _numbered(n)
    np.savetxt(folder / "s.csv", np.column_stack([X, Y]), delimiter=",")
    source = data.open(folder / "s.csv")
    source.count()
    return source


def test_split_is_a_partition_decided_by_the_stream_of_the_seed(tmp_path: Path) -> None:
    n = 1000
    expected = np.random.default_rng(5).random(n) < 0.3
    for source in (ArraySource(*_numbered(n)), _csv(tmp_path, n)):
        train, holdout = split(source, 0.3, 5)
        for rows in (1, 17, 5000):
            kept = np.concatenate([X[:, 0] for X, _ in train.blocks(rows)])
            held = np.concatenate([X[:, 0] for X, _ in holdout.blocks(rows)])
            np.testing.assert_array_equal(held, np.flatnonzero(expected))
            np.testing.assert_array_equal(kept, np.flatnonzero(~expected))
        X, Y = holdout.collect()
        np.testing.assert_array_equal(Y[:, 0], 2 * X[:, 0])
        assert holdout.input_names == source.input_names
        assert (train.n_samples, holdout.n_samples) == (np.sum(~expected), np.sum(expected))


def test_streamed_rows_are_divided_by_their_values_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neurecover.data.source.IN_MEMORY", 1_000)
    X, Y = _numbered(4_000)
    order = np.random.default_rng(1).permutation(4_000)
    parts = [split(source, 0.3, 5) for source in (ArraySource(X, Y), ArraySource(X[order], Y[order]))]
    for rows in (7, 5_000):
        held = [np.sort(np.concatenate([X[:, 0] for X, _ in part.blocks(rows)])) for _, part in parts]
        kept = [np.sort(np.concatenate([X[:, 0] for X, _ in part.blocks(rows)])) for part, _ in parts]
        np.testing.assert_array_equal(*held)
        np.testing.assert_array_equal(np.sort(np.concatenate([held[0], kept[0]])), X[:, 0])
    # Binomial(4000, 0.3): four standard deviations are 116 rows.
    assert abs(len(held[0]) - 1_200) < 116


def test_split_counts_exactly_beyond_one_stretch_of_the_stream() -> None:
    n = 200_000
    train, holdout = split(ArraySource(np.zeros((n, 1), np.float32), np.zeros(n, np.float32)), 0.01, 3)
    assert holdout.n_samples == np.sum(np.random.default_rng(3).random(n) < 0.01)
    assert train.n_samples == n - holdout.n_samples
    assert next(holdout.blocks(10_000))[0].dtype == np.float32


def test_split_without_a_seed_is_a_partition_too() -> None:
    train, holdout = split(ArraySource(*_numbered(500)), 0.5, None)
    rows = np.concatenate([train.collect()[0][:, 0], holdout.collect()[0][:, 0]])
    np.testing.assert_array_equal(np.sort(rows), np.arange(500))


def test_a_part_can_be_split_again() -> None:
    train, _ = split(ArraySource(*_numbered(500)), 0.2, 0)
    inner, outer = split(train, 0.5, 1)
    union = np.concatenate([inner.collect()[0][:, 0], outer.collect()[0][:, 0]])
    np.testing.assert_array_equal(np.sort(union), train.collect()[0][:, 0])


def test_a_fault_is_reported_at_its_row_in_the_parent() -> None:
    X, Y = _numbered(300)
    held = np.flatnonzero(np.random.default_rng(0).random(300) < 0.1)
    X[held[4], 1] = np.nan
    _, holdout = split(ArraySource(X, Y), 0.1, 0)
    with pytest.raises(ValueError, match=f"row {held[4]}, column 'x1'"):
        list(holdout.blocks(32))


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 1.5, np.nan])
def test_fractions_outside_the_open_interval_are_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        split(ArraySource(*_numbered(10)), fraction, 0)


def test_a_part_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"held-out rows.*Got none of 2 rows at fraction 1e-06"):
        split(ArraySource(*_numbered(2)), 1e-6, 0)
    with pytest.raises(ValueError, match="Got none of 2 rows"):
        split(_csv(tmp_path, 2), 1e-6, 0)


def test_subsample_keeps_order_and_pairs_and_does_not_depend_on_the_source(tmp_path: Path) -> None:
    n = 5000
    sample = subsample(ArraySource(*_numbered(n)), 100, 9)
    X, Y = sample.collect()
    assert sample.n_samples == len(X) == 100
    assert np.all(np.diff(X[:, 0]) > 0)
    np.testing.assert_array_equal(Y[:, 0], 2 * X[:, 0])
    np.testing.assert_array_equal(subsample(_csv(tmp_path, n), 100, 9).collect()[0], X)
    # An independent computation: the rows with the 100 smallest keys.
    keys = np.random.default_rng(9).random(n)
    np.testing.assert_array_equal(X[:, 0], np.sort(np.argsort(keys)[:100]))


def test_subsample_merges_across_many_blocks() -> None:
    n = 400_000
    X, _ = subsample(ArraySource(*_numbered(n)), 1000, 2).collect()
    keys = np.random.default_rng(2).random(n)
    np.testing.assert_array_equal(X[:, 0], np.sort(np.argsort(keys)[:1000]))


@pytest.mark.parametrize("n", [49, 50, 51, 10_000])
def test_subsample_gives_exactly_n_rows_or_all(n: int) -> None:
    X, Y = _numbered(50)
    source = ArraySource(X.astype(np.float32), Y)
    sample = subsample(source, n, 0)
    assert sample.n_samples == min(n, 50)
    assert next(sample.blocks(100))[0].dtype == np.float32
    if n >= 50:
        np.testing.assert_array_equal(sample.collect()[0], X)


def test_subsample_needs_a_positive_size() -> None:
    with pytest.raises(ValueError, match="Got n=0"):
        subsample(ArraySource(*_numbered(5)), 0, 0)


def test_subsample_is_uniform_over_rows() -> None:
    """Over T draws of k out of n rows, row i is in Binomial(T, k/n) of them.

    The counts sum to T k, which leaves n − 1 degrees of freedom, and Σ (c_i − T k/n)² divided by
    T (k/n)(1 − k/n) n/(n − 1) tends to a chi-square variable.
    """
    n, k, draws = 40, 10, 2000
    source = ArraySource(*_numbered(n))
    counts = np.zeros(n)
    for seed in range(draws):
        counts[subsample(source, k, seed).collect()[0][:, 0].astype(int)] += 1
    share = k / n
    statistic = np.sum((counts - draws * share) ** 2) / (draws * share * (1 - share) * n / (n - 1))
    assert chi2.ppf(1e-4, n - 1) < statistic < chi2.ppf(1 - 1e-4, n - 1)


def test_reduce_gives_the_same_sums_for_every_block_size(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.integers(-9, 9, (777, 3)), rng.integers(-9, 9, (777, 2))
    np.savez_compressed(tmp_path / "s.npz", X=X, Y=Y)
    for source in (ArraySource(X, Y), data.open(tmp_path / "s.npz")):
        for block_bytes in (1, 100, 4096, 2**25):
            statistic = Products(3, 2)
            assert reduce(source, statistic, block_bytes=block_bytes) is statistic
            np.testing.assert_array_equal(statistic.sums["yx"], Y.T @ X)


def test_reduce_sizes_blocks_by_the_memory_of_a_row_and_reports_progress(tmp_path: Path) -> None:
    source = ArraySource(*_numbered(1000))
    seen: list[tuple[int, int | None]] = []
    statistic = reduce(
        source, Products(2, 1, row_bytes=76), lambda done, total: seen.append((done, total)), block_bytes=30_000
    )
    # Three numbers of 8 bytes beside 76 bytes of features: 300 rows in 30 kB.
    assert statistic.sums["largest"] == 300
    assert seen == [(300, 1000), (600, 1000), (900, 1000), (1000, 1000)]
    seen.clear()
    _csv(tmp_path, 10)
    source = data.open(tmp_path / "s.csv")
    reduce(source, Products(2, 1), lambda done, total: seen.append((done, total)))
    assert seen == [(10, None)]
    assert source.n_samples == 10


@pytest.mark.parametrize("allowed", [1, 2, 3])
def test_side_by_side_shares_a_large_block_among_the_threads_that_blas_was_allowed(allowed: int) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.integers(-9, 9, (1_001, 3)), rng.integers(-9, 9, (1_001, 2))
    large = Products(3, 2, row_bytes=8 * THREAD_BYTES // 1_001)
    with threadpool_limits(allowed, user_api="blas"):
        before = _blas_threads()
        with side_by_side():
            assert _blas_threads() == {1}
            reduce(ArraySource(X, Y), large, block_bytes=2**30)
        assert _blas_threads() == before
    np.testing.assert_array_equal(large.sums["yx"], Y.T @ X)
    assert min(max(before), 2) <= len(large.threads) <= max(before)  # a quick thread may take two parts
    assert large.sums["largest"] == -(-1_001 // max(before))


def test_small_blocks_and_large_sums_stay_in_one_thread() -> None:
    X, Y = np.ones((1_000, 3)), np.ones((1_000, 2))
    small = Products(3, 2, row_bytes=THREAD_BYTES // 1_000)
    heavy = Products(3, 2, row_bytes=8 * THREAD_BYTES // 1_000)
    heavy.sums["gram"] = np.zeros(heavy.row_bytes * 1_000 // 8)
    with threadpool_limits(2, user_api="blas"), side_by_side():
        for statistic in (small, heavy):
            reduce(ArraySource(X, Y), statistic, block_bytes=2**30)
            assert statistic.threads == {threading.get_ident()}


def test_an_error_in_a_thread_reaches_the_caller() -> None:
    class Refusing(Products):
        def update(self, X: np.ndarray, Y: np.ndarray) -> None:
            if X[0, 0] > 0:
                raise ValueError("row 999")

    X = np.arange(1_000.0)[:, None]
    with threadpool_limits(2, user_api="blas"), side_by_side(), pytest.raises(ValueError, match="row 999"):
        reduce(ArraySource(X, X), Refusing(1, 1, row_bytes=8 * THREAD_BYTES // 1_000), block_bytes=2**30)


def _blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}
