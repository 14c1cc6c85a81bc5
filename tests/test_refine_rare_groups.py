"""The levels of a category: units found level by level, turned the right way round, and their biases in every level."""

import numpy as np
import pytest

import neurecover as nr
from neurecover.data import ArraySource, prepared, side_by_side, with_misfits
from neurecover.models import Network
from neurecover.refine.finisher import finish
from neurecover.refine.rare_biases import MOST_LEVELS, Levels, _improved, _misfit, _one_constant, groups_fitted
from neurecover.refine.rare_groups import Search, _slope, units_from_groups
from neurecover.refine.task import Task
from neurecover.simulate import teacher
from neurecover.solve import Deadline

LEVELS, NUMBERS, UNITS = 12, 4, 4


def _table(seed: int, p: int = 1, n: int = 1_500) -> tuple[Network, np.ndarray, np.ndarray, np.ndarray]:
    """Four numbers and a category of twelve levels, standardised: the network, inputs, outputs and levels."""
    rng = np.random.default_rng(seed)
    level_of = rng.integers(LEVELS, size=n)
    X = np.hstack([rng.standard_normal((n, NUMBERS)), np.eye(LEVELS)[level_of]])
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    truth = teacher(X.shape[1], UNITS, p, bias=0.3, random_state=seed)
    truth = Network(truth.W, truth.b, truth.A, np.full(p, 0.3), truth.activation)
    return truth, X, truth(X), level_of


def _levels(X: np.ndarray, Y: np.ndarray, level_of: np.ndarray) -> Levels:
    return Levels(X, Y, np.arange(X.shape[1]) >= NUMBERS, level_of)


def _task(truth: Network, n: int, k: int | None = UNITS) -> Task:
    return Task(truth.activation, NUMBERS, truth.n_outputs, n, True, k)


def _fitted(network: Network, X: np.ndarray, Y: np.ndarray, level_of: np.ndarray) -> float:
    """The share of rows that the network fits but for a constant of their level."""
    rest = network(X) - Y
    for level in range(LEVELS):
        rest[level_of == level] -= np.median(rest[level_of == level], axis=0)
    return float(np.mean(np.abs(rest).max(axis=1) < 1e-8))


def _search(seed: int) -> Search:
    rng = np.random.default_rng(seed)
    return lambda source, task, most: finish(source, task, rng, Deadline(), max_descents=most)


@pytest.mark.parametrize("told", [UNITS, None])
@pytest.mark.parametrize("p", [1, 2])
def test_units_come_back_from_levels_the_right_way_round(p: int, told: int | None) -> None:
    """In 4 of 5 at least all have their direction, sign included, and nearly all rows are fitted."""
    right = 0
    for seed in range(5):
        truth, X, Y, level_of = _table(seed, p)
        with side_by_side():
            found = units_from_groups(_levels(X, Y, level_of), _task(truth, len(X), told), _search(seed), Deadline())
        if found is None:
            continue
        unit = [W[:, :NUMBERS] / np.linalg.norm(W[:, :NUMBERS], axis=1, keepdims=True) for W in (found.W, truth.W)]
        known = np.all((unit[0] @ unit[1].T).max(axis=0) > 1.0 - 1e-9)
        right += bool(known and _fitted(found, X, Y, level_of) > 0.95)
    assert right >= 4


def test_a_slope_is_that_of_most_samples() -> None:
    rng = np.random.default_rng(0)
    X, V = rng.standard_normal((60, 3)), rng.standard_normal((3, 2))
    Y = X @ V + 0.7
    Y[:6] += rng.exponential(size=(6, 2))
    assert np.abs(_slope(X, Y) - V).max() < 1e-9
    assert np.abs(np.linalg.lstsq(np.hstack([X, np.ones((60, 1))]), Y, rcond=None)[0][:-1] - V).max() > 1e-2


@pytest.mark.parametrize("seed", range(6))
def test_a_sample_on_the_other_side_of_a_unit_tells_its_bias(seed: int) -> None:
    """Unit 0 is on at one sample, and unit 1 off at one, which biases that fit all others do not know."""
    rng = np.random.default_rng(seed)
    T, A = rng.standard_normal((80, 3)), np.array([[1.0, -0.8, 0.6]])
    high, low = np.sort(T[:, 0])[-2:], np.sort(T[:, 1])[:2]
    bias = np.array([-high.mean(), -low.mean(), 0.1, 0.4])
    Y = np.maximum(T + bias[:3], 0.0) @ A.T + 0.4
    wrong = bias + np.array([-1.0, 0.5, 0.0, 0.5 * 0.8])  # off throughout; on throughout, made up for by the constant
    floor = 1e-20
    assert np.count_nonzero(_misfit(wrong, T, Y, A) > floor) in (1, 2)
    better = _improved(wrong, T, Y, A, floor)
    assert np.all(_misfit(better, T, Y, A) <= floor)


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_two_units_that_make_up_for_each_other_are_both_told_by_a_sample(seed: int, on: bool) -> None:
    """Units 0 and 1 are on but for sample 0, or there too, and the biases say the other: a₀ β₀ + a₁ β₁ is the same."""
    rng = np.random.default_rng(seed)
    T, A = rng.uniform(-1.0, 1.0, (80, 3)), np.array([[1.0, -0.8, 0.6]])
    T[0, :2] = -2.0, -2.2
    apart, low = np.array([1.0, 1.25, 0.0, 0.0]), np.array([1.2, 1.3, 0.1, 0.4])
    bias, wrong = (low + 2.0 * apart, low) if on else (low, low + 2.0 * apart)
    Y = np.maximum(T + bias[:3], 0.0) @ A.T + 0.4
    floor = 1e-20
    assert np.flatnonzero(_misfit(wrong, T, Y, A) > floor).tolist() == [0]
    better = _improved(wrong, T, Y, A, floor, free=False)
    assert np.all(_misfit(better, T, Y, A) <= floor)
    assert better[3] == 0.4


def test_the_constant_is_one_that_most_levels_can_have() -> None:
    """Two levels without a unit on throughout have each its own, and no level may have what lies between."""
    A, right, wrong = np.array([[0.5, -0.8]]), 0.3, 1.1
    least = np.array([[-1.0, -1.0], [-1.0, -1.0], [0.6, -1.0], [-1.0, 0.7], [0.2, 0.1]])
    # With unit 0 on throughout a level can have 0.4 at most, with unit 1 all that are not much less than its own.
    biases = np.array([[0.0, 0.0, wrong], [0.0, 0.0, right], [2.0, 0.0, 0.1], [0.0, 2.0, 0.5], [2.0, 2.0, 0.3]])
    before = biases.copy()
    constant = _one_constant(biases, A, least, np.ones(5, dtype=bool), 1e-9)
    assert constant.tolist() == [right]
    assert np.abs(biases[1:, 2] - right).max() < 1e-9
    assert np.array_equal(biases[:2], before[:2])
    moved = biases - before
    assert np.all(moved[:, :2] >= np.where(least > 0.0, -least, 0.0) - 1e-9)
    assert np.abs(moved[:, :2] @ A[0] + moved[:, 2]).max() < 1e-12


def test_a_level_is_fitted_anew_where_a_few_samples_say_so() -> None:
    truth, X, Y, level_of = _table(3)
    W = truth.W.copy()
    W[0, NUMBERS + 2] += 0.3
    off = Network(W, truth.b, truth.A, truth.c, truth.activation)
    assert np.abs(off(X) - Y).max() > 1e-3
    again = groups_fitted(off, _levels(X, Y, level_of), _task(truth, len(X)), Deadline())
    assert again is not None
    assert _fitted(again, X, Y, level_of) > 0.99


def test_levels_that_are_too_many_or_units_that_bend_twice_are_left_alone() -> None:
    truth, X, Y, level_of = _table(3)
    levels = _levels(X, Y, level_of)
    assert levels.suit(_task(truth, len(X)))
    leaky = Network(truth.W, truth.b, truth.A, truth.c, "leaky_relu(0.1)")
    assert groups_fitted(leaky, levels, _task(leaky, len(X)), Deadline()) is None
    many = _levels(X, Y, np.arange(len(X)) % (MOST_LEVELS + 1))
    assert groups_fitted(truth, many, _task(truth, len(X)), Deadline()) is None


def test_held_out_samples_join_the_fit_only_if_they_are_few() -> None:
    _, X, Y, _ = _table(1)
    given = prepared(ArraySource(X, Y), True, np.random.default_rng(0))
    (Z, known), n = given.holdout.collect(), given.train.count()
    values = {row.tobytes(): y for row, y in zip(Z, known)}

    def answers(wrong: int):  # type: ignore[no-untyped-def]
        def model(Z: np.ndarray) -> np.ndarray:
            exact = np.array([values[row.tobytes()] for row in Z])
            exact[:wrong] += 1.0
            return exact

        return model

    assert with_misfits(given, answers(0)) is None
    assert with_misfits(given, answers(len(Z) // 2)) is None
    more = with_misfits(given, answers(3))
    assert more is not None
    assert (more.train.count(), more.holdout.count()) == (n + 3, len(Z) - 3)


def test_a_category_of_many_levels_is_recovered() -> None:
    """Every row answered to rounding in 7 of 8 at least, and no weight said to be determined that is wrong."""
    answered = 0
    for seed in range(8):
        truth, X, Y, _ = _table(20 + seed)
        found = nr.recover(X, Y, UNITS, random_state=seed, time_budget=20.0)
        answered += bool(np.abs(found.network(X) - Y).max() < 1e-8 * np.abs(Y).max())
        seen = found.certificate.determined
        if seen is not None:
            for row, own in zip(found.network.W, seen["W"]):
                if own.any():
                    known = truth.W[:, own] / np.linalg.norm(truth.W[:, own], axis=1, keepdims=True)
                    assert np.abs(row[own] - known).max(axis=1).min() < 1e-7
    assert answered >= 7


@pytest.mark.parametrize("seed", range(3))
def test_too_few_units_are_not_repaired(seed: int) -> None:
    """One unit more than was told: nothing is said to be exact or determined."""
    _, X, Y, _ = _table(40 + seed)
    found = nr.recover(X, Y, UNITS - 1, random_state=seed, time_budget=5.0)
    assert found.certificate.verdict not in ("exact", "statistical")
    assert found.certificate.determined is None
