"""Answers of few digits, around data with columns of very different sizes: found, with error bars that hold."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

import neurecover as nr
from neurecover.data.oracles.frame import Frame
from neurecover.queries.box.black_box import Box
from neurecover.queries.shallow.coarse import _informative_rows

SIZE = np.array([1e-3, 1.0, 1e3, 5.0, 0.1, 30.0])
MEAN = np.array([0.0, 1.0, 5e3, -20.0, 3.0, 100.0])
DATA = MEAN + SIZE * np.random.default_rng(0).standard_normal((300, 6))

Cast = Callable[[np.ndarray], np.ndarray]
CASTS: dict[str, Cast] = {
    "4 decimals": lambda Y: np.round(Y, 4),
    "3 decimals": lambda Y: np.round(Y, 3),
    "float32": lambda Y: Y.astype(np.float32),
    "float16": lambda Y: Y.astype(np.float16),
}


def network(seed: int, size: np.ndarray, mean: np.ndarray) -> nr.Network:
    """6-5-1 with planes among inputs of this mean and size."""
    rng = np.random.default_rng(seed)
    (W, b), (A, c) = (
        (rng.standard_normal((k, d)) * np.sqrt(2 / d), 0.1 * rng.standard_normal(k)) for d, k in pairwise((6, 5, 1))
    )
    W = W / size
    return nr.Network(W, b - W @ mean, A, c)


def in_standard_errors(found: nr.Recovery, truth: nr.Network, size: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """(weights found − true ones) / their standard errors; units are paired in coordinates of one size."""
    errors, ours, true = found.certificate.standard_errors, found.network.normal_form(), truth.normal_form()
    assert errors is not None
    rows = [np.column_stack([net.W * size, net.W @ mean + net.b]) for net in (ours, true)]
    a, b = (row / np.linalg.norm(row[:, :-1], axis=1, keepdims=True) for row in rows)
    pairs = np.argmin(np.linalg.norm(a[:, None] - b, axis=2), axis=1)
    assert sorted(pairs) == list(range(true.n_hidden))
    differences = (ours.W - true.W[pairs], ours.b - true.b[pairs], ours.A - true.A[:, pairs])
    return np.concatenate([(d / errors[name]).ravel() for name, d in zip("WbA", differences)])


@pytest.mark.parametrize("kind", CASTS)
def test_few_digits_around_data(kind: str) -> None:
    cast, z = CASTS[kind], []
    for seed in range(10, 14):
        truth = network(seed, SIZE, MEAN)
        box = nr.oracle(lambda X, truth=truth: cast(truth(X)), like=DATA)
        found = nr.extract(box, random_state=seed)
        assert found.certificate.verdict == "statistical", found.summary()
        assert found.network.n_hidden == 5
        z.append(in_standard_errors(found, truth, SIZE, MEAN))
    # 160 weights of 4 networks: 95 % within 1.96, less 3 standard deviations of a count of 40 independent ones.
    assert np.mean(np.abs(np.concatenate(z)) < 1.96) > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 40)


@pytest.mark.parametrize("digits", [5, 6])
def test_rounding_that_is_the_same_in_many_answers_is_no_evidence(digits: int) -> None:
    """Where all units are off every answer is the offset c, rounded one way: many of them tell no more than one."""
    z = []
    for seed in range(10, 26):
        truth = network(seed, np.ones(6), np.zeros(6))
        found = nr.extract(nr.oracle(lambda X, truth=truth: np.round(truth(X), digits), 6), random_state=seed)
        assert found.certificate.verdict == "statistical", found.summary()
        z.append(in_standard_errors(found, truth, np.ones(6), np.zeros(6)))
    # 640 weights of 16 networks, 160 of them independent.
    assert np.mean(np.abs(np.concatenate(z)) < 1.96) > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 160)
    assert np.sqrt(np.mean(np.concatenate(z) ** 2)) > 0.4


def test_queries_at_which_no_unit_shows_count_once() -> None:
    truth = nr.Network([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0], [[1.0, 1.0]])
    X = np.array([[-1.0, -1.0], [1.0, -1.0], [-2.0, -1.0], [1.0, 1.0], [-3.0, -1.0]])
    np.testing.assert_array_equal(_informative_rows(truth, X), [0, 1, 3])
    leaky = nr.Network(truth.W, truth.b, truth.A, activation="leaky_relu(0.1)")
    np.testing.assert_array_equal(_informative_rows(leaky, X), np.arange(5))


def test_queries_are_known_as_they_are_put() -> None:
    """In single precision x is rounded, by more than answers are where the inputs are far from zero."""
    truth = network(0, SIZE, MEAN)
    seen: list[np.ndarray] = []

    def ask(X: np.ndarray) -> np.ndarray:
        seen.append(X)
        return truth(X).astype(np.float32)

    box = Box(ask, 6, frame=Frame.of_columns(MEAN, SIZE))
    assert 2.0**-24 <= box.resolution < 1e-5
    Z = np.random.default_rng(0).standard_normal((50, 6))
    put = box.round_queries(Z)
    assert 1e-9 < np.abs(put - Z).max() < 1e-5
    box(put)
    np.testing.assert_array_equal(seen[-1], seen[-1].astype(np.float32))
    np.testing.assert_allclose(MEAN + put * SIZE, seen[-1], rtol=0, atol=1e-11 * np.abs(MEAN).max())
    plain = Box(truth, 6)
    assert plain.round_queries(Z) is Z


def test_half_precision_is_queried_where_its_answers_are_finite() -> None:
    truth = network(1, np.ones(6), np.zeros(6))
    box = Box(lambda X: truth(X).astype(np.float16), 6)
    assert box.resolution >= 2.0**-11
    assert box.limits
    assert np.isfinite(box(box.limits.pull_inside(1e9 * np.ones((1, 6))))).all()
    assert not Box(truth, 6).limits
