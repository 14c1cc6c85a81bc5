"""Inputs that hardly vary: the search begins in the others, and what the rows determine is found."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_digits

import neurecover as nr
from neurecover.data import ArraySource, prepared
from neurecover.data.preparing import SCARCE
from neurecover.models import Network
from neurecover.refine.finisher import finish
from neurecover.refine.rare_columns import _bring_in, start_from_common_columns
from neurecover.refine.rare_fits import FARTHEST, _fitted
from neurecover.refine.rare_programme import Given, fill_in
from neurecover.refine.rare_rows import by_rows, switched_off
from neurecover.refine.task import Task
from neurecover.solve import Deadline


def _with_rare_columns(seed: int, shown: int) -> tuple[Network, np.ndarray, np.ndarray]:
    """Five inputs that vary and three that do in `shown` of 600 rows, one or two of them at a time."""
    rng = np.random.default_rng(seed)
    X = np.hstack([rng.standard_normal((600, 5)), np.zeros((600, 3))])
    for j in range(3):
        X[rng.choice(600, shown, replace=False), 5 + j] = 1.0 + rng.random(shown)
    truth = nr.simulate.teacher(8, 3, 2, random_state=seed)
    return truth, X, truth(X)


@pytest.mark.parametrize("seed", range(4))
def test_the_start_has_units_that_fit_every_sample(seed: int) -> None:
    truth, X, Y = _with_rare_columns(seed, 30)
    rng = np.random.default_rng(0)
    given = prepared(ArraySource(X, Y), True, rng)
    task = Task(truth.activation, given.whitening.rank, 2, len(X), True, 3)
    start = start_from_common_columns(
        given, task, lambda source, smaller, most: finish(source, smaller, rng, Deadline()), rng, Deadline()
    )
    assert start is not None
    Z, Y = given.train.collect()
    features = np.hstack([truth.activation(Z @ start.units[:, :-1].T + start.units[:, -1]), np.ones((len(Z), 1))])
    left = Y - features @ np.linalg.lstsq(features, Y, rcond=None)[0]
    assert len(start.units) == 3
    assert np.abs(left).max() < 1e-9


def _with_a_category(seed: int) -> tuple[Network, np.ndarray, np.ndarray]:
    """Three numbers and a category of twenty levels, each in 30 of 600 rows or so."""
    rng = np.random.default_rng(seed)
    X = np.hstack([rng.standard_normal((600, 3)), np.eye(20)[rng.integers(20, size=600)]])
    truth = nr.simulate.teacher(23, 3, 2, random_state=seed, bias=0.2)
    return truth, X, truth(X)


def test_fresh_units_do_not_look_at_columns_that_hardly_vary() -> None:
    """A unit that is drawn is one of the numbers alone, of unit variance: no category moves it."""
    truth, X, Y = _with_a_category(0)
    rng = np.random.default_rng(0)
    given = prepared(ArraySource(X, Y), True, rng)
    task = Task(truth.activation, given.whitening.rank, 2, len(X), True, 3)

    start = start_from_common_columns(
        given, task, lambda source, smaller, most: finish(source, smaller, rng, Deadline(0.0)), rng, Deadline(0.0)
    )
    assert start is not None
    assert len(start.units) == 0
    V = start.draw(rng, 20, given.whitening.rank, True)
    assert V.shape == (20, given.whitening.rank + 1)
    Z = given.samples.collect()[0] @ V[:, :-1].T
    numbers = np.hstack([X[:, :3], np.ones((len(X), 1))])
    assert np.abs(Z - numbers @ np.linalg.lstsq(numbers, Z, rcond=None)[0]).max() < 1e-9
    assert np.allclose(Z.std(axis=0), 1.0)


def test_inputs_that_vary_are_left_to_the_search() -> None:
    rng = np.random.default_rng(0)
    truth = nr.simulate.teacher(4, 2, random_state=0)
    X = rng.standard_normal((200, 4))
    X[:, 3] = rng.integers(2, size=200)
    given = prepared(ArraySource(X, truth(X)), True, rng)
    task = Task(truth.activation, 4, 1, 200, True, 2)

    def never(*_: object) -> None:
        raise AssertionError

    assert start_from_common_columns(given, task, never, rng, Deadline()) is None  # type: ignore[arg-type]


def test_rows_that_alone_show_a_column_are_not_held_out() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1_000, 3))
    X[:, 2] = 0.0
    X[: SCARCE - 1, 2] = 1.0
    given = prepared(ArraySource(X, X[:, :1]), True, rng)
    held = given.holdout.collect()[0] @ given.whitening.matrix.T @ given.moments.covariance[:3, :3]
    assert 80 <= len(held) <= 120
    assert np.ptp(held[:, 2]) < 1e-12


def test_digits_with_pixels_that_hardly_vary() -> None:
    """61 pixels, eleven of them in less than 50 of 1,797 rows; two networks of 8 units, ten outputs.

    No weight that is marked as determined is wrong, and they are nine of ten.
    """
    X = load_digits().data
    X = X[:, X.std(axis=0) > 0]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    common = np.mean(np.median(X, axis=0) == X, axis=0) < 0.9
    for seed in (2, 4):
        truth = nr.simulate.teacher(X.shape[1], 8, 10, random_state=seed)
        r = nr.recover(X, truth(X), n_hidden=8, random_state=0, time_budget=60)
        determined = r.certificate.determined
        assert determined is not None
        assert np.mean(determined["W"]) > 0.9
        unit = [W[:, common] / np.linalg.norm(W[:, common], axis=1, keepdims=True) for W in (r.network.W, truth.W)]
        match = np.argmax(np.abs(unit[0] @ unit[1].T), axis=1)
        size = np.linalg.norm(truth.W[match][:, common], axis=1) / np.linalg.norm(r.network.W[:, common], axis=1)
        apart = np.abs(size[:, None] * r.network.W - truth.W[match])
        assert np.all(apart[determined["W"]] < 1e-8)


def _known_but_for_rare_columns(
    k: int, p: int, seed: int
) -> tuple[Network, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A network in four inputs that vary and six that do in 12 of 400 rows, and where they do."""
    rng = np.random.default_rng(seed)
    X = np.hstack([rng.standard_normal((400, 4)), np.zeros((400, 6))])
    for j in range(4, 10):
        X[rng.choice(400, 12, replace=False), j] = 3.0 * (1.0 + rng.random(12))
    truth = nr.simulate.teacher(10, k, p, random_state=seed)
    W = truth.W.copy()
    W[:, 4:] = 0.0
    differs = (X != 0.0) & (np.arange(10) >= 4)
    return truth, X, truth(X), W, differs


@pytest.mark.parametrize("seed", range(6))
def test_outputs_that_tell_all_units_give_rare_columns_at_once(seed: int) -> None:
    truth, X, Y, W, differs = _known_but_for_rare_columns(4, 5, seed)
    by_rows(W, truth, X, Y, differs, Deadline())
    assert np.abs(truth.activation(X @ W.T + truth.b) @ truth.A.T + truth.c - Y).max() < 1e-9


def test_fewer_outputs_than_units_tell_which_are_on() -> None:
    """Nine units, six outputs: rows with less than six units on say so by themselves, the others with the programme.

    Of eight networks six or more answer every row, with most weights of a column in twelve rows being the true ones.
    """
    answered = 0
    for seed in range(8):
        truth, X, Y, W, differs = _known_but_for_rare_columns(9, 6, seed)
        found = by_rows(W, truth, X, Y, differs, Deadline())
        apart = truth.activation(X @ W.T + found.b) @ truth.A.T + truth.c - Y
        if np.abs(apart).max() < 1e-8 * np.abs(Y).max():
            answered += 1
            assert np.mean(np.abs(W - truth.W)[:, 4:] < 1e-7) > 0.5
    assert answered >= 6


@pytest.mark.parametrize("seed", range(6))
def test_a_unit_that_is_on_in_rare_rows_alone_is_found_from_them(seed: int) -> None:
    """Three units are known, the fourth is off in all usual rows: what the three cannot give says where it is on."""
    truth, X, _, W, differs = _known_but_for_rare_columns(4, 6, seed)
    usual = ~differs.any(axis=1)
    weights = np.where(np.arange(10) < 4, truth.W[3], np.abs(truth.W[3]) + 0.2)
    truth = replace(
        truth,
        W=np.vstack([truth.W[:3], weights]),
        b=np.append(truth.b[:3], -0.01 - (X[usual] @ weights).max()),
    )
    Y = truth(X)
    assert np.count_nonzero(X @ weights + truth.b[3] > 0) >= 5
    known = replace(truth, W=W[:3], b=truth.b[:3], A=truth.A[:, :3])
    found = _bring_in(W[:3].copy(), known, X, Y, differs, 4, np.random.default_rng(0), Deadline())
    assert found.n_hidden == 4
    assert np.abs(found(X) - Y).max() < 1e-9 * np.abs(Y).max()


@pytest.mark.parametrize("k", [1, 2])
def test_a_function_that_is_constant_but_in_rare_rows(k: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 4))
    X[:, 3] = np.where(rng.random(600) < 0.06, 4.0 + rng.random(600), 0.0)
    truth = Network([[0.5, 0.2, 0.1, 3.0]], [-9.0], [[1.0], [2.0]], [0.3, 0.4])
    found = nr.recover(X, truth(X), k, random_state=0, time_budget=3.0)
    assert np.abs(found.network(X) - truth(X)).max() < 1e-9


def test_many_rows_take_no_square_matrix() -> None:
    T = np.random.default_rng(0).standard_normal((100_000, 3))
    np.testing.assert_allclose(switched_off(T, T @ [1.0, 2.0, 3.0], T[:0], np.empty(0)), [1.0, 2.0, 3.0])


def test_more_units_than_a_programme_takes_are_left_alone() -> None:
    units = [Given(np.ones((1, 1)), np.zeros(1), np.zeros(1), np.eye(1), np.empty((0, 1)), np.empty(0))] * 201
    assert not fill_in(np.full((1, 201), np.nan), units, np.ones((2, 201)), np.ones((1, 2)), Deadline())


def test_a_unit_open_in_all_its_weights_is_told_by_rare_rows_too() -> None:
    """A unit that is on in two of the usual rows, and one that fits those: rare rows give the other equations."""
    truth, X, _, _, differs = _known_but_for_rare_columns(7, 5, 0)
    usual = ~differs.any(axis=1)
    z = np.sort(X[usual] @ truth.W[0])
    truth = Network(truth.W, np.append(-0.5 * (z[-2] + z[-3]), truth.b[1:]), truth.A, truth.c)
    extended, z = np.hstack([X[usual][:, :4], np.ones((usual.sum(), 1))]), X[usual] @ truth.W[0] + truth.b[0]
    other = switched_off(extended[z > 0], z[z > 0], extended[z <= 0], np.zeros(np.count_nonzero(z <= 0)))
    assert np.abs(other[:4] - truth.W[0, :4]).max() > 0.01
    W = np.where(np.arange(10) < 4, truth.W, 0.0)
    W[0, :4] = other[:4]
    found = by_rows(W, replace(truth, b=np.append(other[4], truth.b[1:])), X, truth(X), differs, Deadline())
    apart = truth.activation(X @ W.T + found.b) @ truth.A.T + truth.c - truth(X)
    assert np.abs(apart).max() < 1e-8


def test_a_programme_finds_the_units_of_rows_that_do_not_tell() -> None:
    """Two outputs, four units, one open weight each: no row tells by itself, and the rows together do."""
    rng = np.random.default_rng(3)
    A, known = rng.standard_normal((2, 4)), rng.standard_normal((8, 4))
    T, w = rng.uniform(1.0, 2.0, (8, 1)), rng.standard_normal(4)
    H = np.maximum(known + T * w, 0.0)
    units = [Given(T, known[:, u], np.zeros(1), np.eye(1), np.empty((0, 1)), np.empty(0)) for u in range(4)]
    found = np.full_like(H, np.nan)
    fill_in(found, units, A, H @ A.T, Deadline())
    np.testing.assert_allclose(found, H, atol=1e-9)
    nothing = np.full_like(H, np.nan)
    fill_in(nothing, units, A, H @ A.T + rng.standard_normal((8, 2)), Deadline())  # noise is no network
    assert np.isnan(nothing).all()


def test_a_unit_that_a_column_switches_off_keeps_a_finite_weight() -> None:
    """The larger the weight the better it is off, without end; what a column adds to a unit is bounded."""
    rng = np.random.default_rng(0)
    Z, T = rng.uniform(0.5, 2.0, (40, 2)), rng.uniform(0.1, 1.0, (40, 1))
    network = Network(np.eye(2), None, np.array([[1.0, 0.5]]), None, "relu")
    w, rss = _fitted(network, Z, T, np.zeros((40, 1)), 3.0 * rng.standard_normal((64, 1, 2)))
    assert rss.min() == 0.0
    assert np.abs(w).max() <= FARTHEST * Z.max() / T.max()


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_weights_that_switch_a_unit_off_are_no_larger_than_it_takes(side: float) -> None:
    """A row that the equations determine allows a tenth, with which 1.1 does as well as 9e7 in the open direction."""
    T, values = np.array([[1.0, 0.0]]), np.array([0.0])
    T_off, known = np.array([[1.0, 0.0], [0.0, -side], [0.0, 1e-8 * side]]), np.array([-0.1, 1.0, -1.0])
    w = switched_off(T, values, T_off, known)
    assert w[0] == pytest.approx(0.0, abs=1e-12)
    assert 1.0 < side * w[1] < 1.1
