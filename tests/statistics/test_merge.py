"""Every statistic is a commutative monoid over its samples, and survives storage in a file."""

import inspect
import pkgutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from every_statistic import BASIS, DEEP, FACTORIES, NETWORK, ORIGIN, STUDENT, D, P
from neurecover import statistics
from neurecover.data import ArraySource, reduce
from neurecover.statistics import (
    Alike,
    Divided,
    HermiteSums,
    InformationSums,
    Moments,
    ReadoutSums,
    Residuals,
    RowSample,
    SerialResiduals,
    Statistic,
    Together,
)
from neurecover.statistics.fits.union_score import UnionScore

every_statistic = pytest.mark.parametrize("build", FACTORIES.values(), ids=FACTORIES)


def _samples(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, D), dtype=np.float32), rng.standard_normal((n, P), dtype=np.float32)


def _updated(build: Callable[[], Statistic], X: np.ndarray, Y: np.ndarray) -> Statistic:
    return _added(build(), X, Y)


def _added(statistic: Statistic, X: np.ndarray, Y: np.ndarray) -> Statistic:
    statistic.update(X, Y)
    return statistic


def _assert_same(left: Statistic, right: Statistic, rounding: float = 0.0) -> None:
    assert left.sums.keys() == right.sums.keys()
    for name, value in left.sums.items():
        scale = np.abs(value).max(initial=1.0)
        np.testing.assert_allclose(right.sums[name], value, rtol=0, atol=rounding * scale, err_msg=name)


def test_every_statistic_is_covered() -> None:
    modules = [import_module(m.name) for m in pkgutil.walk_packages(statistics.__path__, "neurecover.statistics.")]
    concrete = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Statistic) and not inspect.isabstract(value)
    }
    # The score of a union is over labels, which these samples are not: tests/algorithms/test_gp18_steps.py has its own.
    # Products of neighbouring rows leave out the pairs that a partition separates. Rows themselves and several
    # statistics in one are in tests/statistics/test_rows.py.
    several = {Together, Divided, Alike}
    elsewhere = {UnionScore, SerialResiduals, RowSample} | several
    assert {type(build()) for build in FACTORIES.values()} == concrete - elsewhere


def test_products_of_neighbours() -> None:
    X, Y = _samples(50)
    whole = SerialResiduals(DEEP)
    whole.update(X, Y)
    R = Y - DEEP(X)
    np.testing.assert_allclose(whole.sums["products"], np.sum(R[1:] * R[:-1], axis=0), rtol=1e-6)
    first, second = SerialResiduals(DEEP), SerialResiduals(DEEP)
    first.update(X[:20], Y[:20])
    second.update(X[20:], Y[20:])
    first.merge(second)
    np.testing.assert_allclose(whole.sums["products"] - first.sums["products"], R[20] * R[19], rtol=1e-6, atol=1e-9)
    assert np.abs(whole.z()).max() < 5.0


@every_statistic
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_partition_merged_in_any_order_and_grouping_is_one_pass(
    build: Callable[[], Statistic], data: st.DataObject
) -> None:
    n = data.draw(st.integers(1, 40), "n")
    X, Y = _samples(n, data.draw(st.integers(0, 99), "seed"))
    part = np.array(data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n), "part of every row"))
    # Parts that no row chose stay empty, so that the identity takes part in the merging.
    pieces = [build() for _ in range(6)]
    for j in np.unique(part):
        pieces[j].update(X[part == j], Y[part == j])
    while len(pieces) > 1:
        pieces = data.draw(st.permutations(pieces), "order")
        pieces[0].merge(pieces.pop())
    _assert_same(_updated(build, X, Y), pieces[0], rounding=1e-13)
    assert pieces[0].n == n


@every_statistic
def test_a_blank_copy_is_as_built_and_shares_no_sums(build: Callable[[], Statistic]) -> None:
    filled = _updated(build, *_samples(30))
    before = filled.to_arrays()
    blank = filled.blank()
    _assert_same(_updated(build, *_samples(20, seed=1)), _added(blank, *_samples(20, seed=1)), rounding=1e-14)
    for name, value in before.items():
        np.testing.assert_array_equal(filled.to_arrays()[name], value)


@every_statistic
def test_merging_leaves_the_other_statistic_as_it_was(build: Callable[[], Statistic]) -> None:
    first, second = _updated(build, *_samples(30)), _updated(build, *_samples(20, seed=1))
    before = second.to_arrays()
    first.merge(second)
    second.merge(build())
    assert before
    for name, value in before.items():
        np.testing.assert_array_equal(second.to_arrays()[name], value)


@every_statistic
def test_a_new_statistic_is_the_identity(build: Callable[[], Statistic]) -> None:
    full, empty = _updated(build, *_samples(30)), build()
    empty.merge(full)
    _assert_same(full, empty)
    full.merge(build())
    _assert_same(empty, full)


@pytest.mark.parametrize("name", ["moments-4", "hermite-1", "residuals", "readout"])
def test_an_empty_block_adds_nothing(name: str) -> None:
    statistic = _updated(FACTORIES[name], *_samples(30))
    before = statistic.to_arrays()
    statistic.update(*_samples(0))
    assert before
    for array, value in before.items():
        np.testing.assert_array_equal(statistic.to_arrays()[array], value)


@every_statistic
def test_the_block_size_of_a_pass_does_not_matter(build: Callable[[], Statistic]) -> None:
    X, Y = _samples(101)
    for block_bytes in (1, 5_000, 2**20):
        passed = reduce(ArraySource(X, Y), build(), block_bytes=block_bytes)
        _assert_same(_updated(build, X, Y), passed, rounding=1e-13)


@every_statistic
def test_single_precision_samples_are_summed_in_double_precision(build: Callable[[], Statistic]) -> None:
    X, Y = _samples(50)
    single, double = _updated(build, X, Y), _updated(build, X.astype(float), Y.astype(float))
    _assert_same(double, single)
    assert all(value.dtype in (np.float64, np.int64) for value in single.sums.values())


@every_statistic
def test_a_stored_statistic_goes_on_where_it_stopped(build: Callable[[], Statistic], tmp_path: Path) -> None:
    statistic = _updated(build, *_samples(30))
    np.savez(tmp_path / "sums.npz", **statistic.to_arrays())
    with np.load(tmp_path / "sums.npz", allow_pickle=False) as arrays:
        loaded = build().from_arrays(arrays)
    _assert_same(statistic, loaded)
    statistic.update(*_samples(10, seed=1))
    assert loaded.n == 30
    loaded.update(*_samples(10, seed=1))
    _assert_same(statistic, loaded)


@every_statistic
def test_stored_arrays_are_copies(build: Callable[[], Statistic]) -> None:
    statistic = _updated(build, *_samples(30))
    arrays = statistic.to_arrays()
    other = build().from_arrays(arrays)
    kept = {name: value.copy() for name, value in arrays.items()}
    statistic.update(*_samples(10))
    other.update(*_samples(10))
    assert kept
    for name, value in kept.items():
        np.testing.assert_array_equal(arrays[name], value)


MISMATCHED: list[tuple[Statistic, Statistic]] = [
    (Moments(D, P), Moments(D + 1, P)),
    (Moments(D, P, order=2), Moments(D, P, order=3)),
    (HermiteSums(D, P, 2), HermiteSums(D, P, 3)),
    (HermiteSums(D, P, 3, regress=1), HermiteSums(D, P, 3, regress=2)),
    (HermiteSums(D, 1), HermiteSums(D, P)),
    (Residuals(NETWORK, P), Residuals(NETWORK, 1)),
    (ReadoutSums(STUDENT), InformationSums.of(NETWORK)),
    (Moments(D, P), Residuals(NETWORK, P)),
]


@pytest.mark.parametrize(("left", "right"), MISMATCHED)
def test_sums_of_other_shapes_are_refused_and_change_nothing(left: Statistic, right: Statistic) -> None:
    before = left.to_arrays()
    with pytest.raises(ValueError, match=r"needs arrays of shapes .* gave .* instead"):
        left.merge(right)
    with pytest.raises(ValueError, match=r"The stored arrays gave .* instead"):
        left.from_arrays(right.to_arrays())
    for name, value in before.items():
        np.testing.assert_array_equal(left.to_arrays()[name], value)


@pytest.mark.parametrize(
    ("left", "right", "name"),
    [
        (Moments(D, P), Moments(D, P, origin=ORIGIN), "origin"),
        (Residuals(NETWORK, P), Residuals(NETWORK, P, origin=ORIGIN[D:]), "origin"),
        (HermiteSums(D, P), HermiteSums(D, P, mean=ORIGIN[:D]), "mean"),
        (
            HermiteSums(D, P, projection=BASIS),
            HermiteSums(D, P, projection=BASIS[:, ::-1].copy()),
            "projection",
        ),
    ],
)
def test_sums_of_something_else_are_refused(left: Statistic, right: Statistic, name: str) -> None:
    with pytest.raises(ValueError, match=f"one and the same {name}"):
        left.merge(right)
    with pytest.raises(ValueError, match=f"one and the same {name}"):
        left.from_arrays(right.to_arrays())
