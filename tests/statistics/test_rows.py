"""Rows told apart by their values, samples of them, and several statistics in one pass."""

import numpy as np
import pytest

from neurecover.statistics import Divided, Division, Moments, RowSample, Together
from neurecover.statistics.together import row_numbers

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3_000, 4)).astype(np.float32)
Y = RNG.standard_normal((3_000, 2)).astype(np.float32)


def _sample(size: int = 200, extreme: int = 20) -> RowSample:
    return RowSample(2, size, extreme, 7, np.zeros(4), np.ones(4))


def _filled(statistic: RowSample, parts: list[np.ndarray]) -> RowSample:
    for part in parts:
        statistic.update(X[part], Y[part])
    return statistic


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_numbers_of_rows_are_uniform_and_different(kind: type) -> None:
    # Whole numbers and single precision leave most bits of a double at zero: the hardest case for a hash of bits.
    rows = np.arange(200_000, dtype=kind).reshape(-1, 2)
    numbers = row_numbers(rows, rows[:, :1], 3)
    assert len(np.unique(numbers)) == len(rows)
    counts = np.bincount((numbers >> np.uint64(56)).astype(int), minlength=256)
    # χ² with 255 degrees of freedom: mean 255, standard deviation 22.6, five of them above.
    assert np.sum((counts - len(rows) / 256) ** 2) / (len(rows) / 256) < 255 + 5 * 22.6


def test_a_number_depends_on_the_values_and_the_seed_alone() -> None:
    numbers = row_numbers(X, Y, 1)
    order = RNG.permutation(len(X))
    np.testing.assert_array_equal(row_numbers(X[order].astype(np.float64), Y[order], 1), numbers[order])
    assert not np.any(row_numbers(X, Y, 2) == numbers)
    np.testing.assert_array_equal(
        row_numbers(np.array([[0.0]]), -np.zeros((1, 1)), 0), row_numbers(*np.zeros((2, 1, 1)), 0)
    )


def test_a_sample_is_the_same_for_any_order_and_partition() -> None:
    whole = _filled(_sample(), [np.arange(3_000)])
    order = RNG.permutation(3_000)
    parts = _filled(_sample(), np.array_split(order, 41))
    merged = _filled(_sample(), [order[:700]])
    merged.merge(_filled(_sample(), [order[700:]]))
    expected = np.hstack([X, Y])[np.argsort(row_numbers(X, Y, 7))[:200]]
    for sample in (whole, parts, merged, _sample().from_arrays(parts.to_arrays())):
        np.testing.assert_array_equal(sample.random, expected)
        np.testing.assert_array_equal(sample.unusual, whole.unusual)
        assert sample.n == 3_000


def test_a_sample_holds_every_row_once_and_the_unusual_ones() -> None:
    rare = np.zeros((3_000, 4), dtype=np.float32)
    rare[17, 2] = 9.0
    sample = RowSample(2, 100, 10, 0, np.zeros(4), np.zeros(4))
    for _ in range(5):
        sample.update(rare, np.zeros((3_000, 2)))
    assert len(sample.random) == 2
    few = _filled(_sample(50, 10), [np.arange(3_000)])
    farthest = np.argsort(-np.abs(X).max(axis=1))[:10]
    kept = {row.tobytes() for row in np.vstack([few.random, few.unusual])}
    assert all(np.hstack([X[i], Y[i]]).astype(np.float64).tobytes() in kept for i in farthest)


def test_statistics_of_the_parts_of_a_division_add_up() -> None:
    division = Division(0.3, 5)
    both = Together(all=Moments(4, 2), parts=Divided(division, train=Moments(4, 2), held=Moments(4, 2)))
    for part in np.array_split(np.arange(3_000), 7):
        both.update(X[part], Y[part])
    again = both.blank().from_arrays(both.to_arrays())
    again.merge(both)
    whole, parts = again.part("all", Moments), again.part("parts", Divided)
    train, held = parts.part("train", Moments), parts.part("held", Moments)
    assert held.n == 2 * np.count_nonzero(division.held_out(X, Y))
    assert whole.n == train.n + held.n == 6_000
    np.testing.assert_allclose(train.sums["order_2"] + held.sums["order_2"], whole.sums["order_2"], rtol=1e-12)
    assert both.blank().n == 0
