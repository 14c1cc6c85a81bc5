"""The box counts, keeps to its budget and knows how its answers are rounded."""

import numpy as np
import pytest

from neurecover.exceptions import UnsolvableError
from neurecover.queries.box.black_box import Box
from query_networks import a_network, in_float32


def test_every_row_is_counted_and_batches_are_kept_to():
    sizes = []

    def ask(X):
        sizes.append(len(X))
        return X.sum(axis=1)

    box = Box(ask, 3, batch=4)
    answers = box(np.ones((10, 3)))
    assert box.queries == 10
    assert sizes == [4, 4, 2]
    np.testing.assert_array_equal(answers, np.full((10, 1), 3.0))


def test_the_budget_is_never_exceeded():
    queried = []
    box = Box(lambda X: queried.append(len(X)) or X.sum(axis=1), 2, budget=10)
    box(np.zeros((7, 2)))
    with pytest.raises(UnsolvableError, match="budget of 10 queries is used up"):
        box(np.zeros((4, 2)))
    assert sum(queried) == 7
    box(np.zeros((3, 2)))
    assert box.queries == 10


@pytest.mark.parametrize("seed", range(4))
def test_the_resolution_tells_float64_float32_and_digits_apart(seed: int):
    network = a_network(seed)
    fine = Box(network, 12)
    single = Box(in_float32(network), 12)
    rounded = Box(lambda X: np.round(network(X), 4), 12)
    assert fine.resolution < 1e-14
    assert not fine.coarse
    # Rounding to nearest in float32 is at most 2⁻²⁴ of one number, and d + k of them are added up.
    assert 1e-8 < single.resolution < 21 * 2.0**-24 * 4
    assert single.coarse
    # Rounded to a grid of 1e-4, answers are off by up to half of it.
    assert 1e-5 < rounded.resolution * rounded.scale < 2e-4


def test_flat_places_tell_nothing_about_the_rounding():
    # Two inputs in five are in the flat part; longer segments would cross kinks and take these for rounding.
    for seed in range(8):
        network = a_network(seed)
        box = Box(lambda X, network=network: np.maximum(network(X), 0.0), 12)
        assert box.resolution < 1e-14


def test_a_large_constant_makes_answers_coarser():
    network = a_network()
    box = Box(lambda X: network(X) + 1e6, 12)
    X = np.random.default_rng(0).standard_normal((200, 12))
    error = np.abs(box(X)[:, 0] - 1e6 - network(X)[:, 0])
    assert error.max() < 8 * box.noise(X, box(X)).min()
    assert error.max() > 1e-12


def test_answers_that_differ_when_queried_again_are_noticed():
    rng = np.random.default_rng(0)
    network = a_network()
    box = Box(lambda X: network(X) + 1e-9 * rng.standard_normal((len(X), 1)), 12)
    with pytest.raises(UnsolvableError, match="different answers to the same query"):
        _ = box.resolution


def test_queries_are_safe_from_a_box_that_writes_into_them():
    def ask(X):
        X *= 0.0
        return X[:, 0]

    X = np.ones((3, 2))
    Box(ask, 2)(X)
    assert (X == 1.0).all()


@pytest.mark.parametrize(
    ("ask", "message"),
    [(lambda X: X[:1, 0], "expected 3 answers"), (lambda X: np.zeros((3, 0)), "expected 3 answers")],
)
def test_answers_of_the_wrong_shape_are_refused(ask, message):
    with pytest.raises(ValueError, match=message):
        Box(ask, 2)(np.zeros((3, 2)))


def test_answers_that_are_no_numbers_end_it():
    with pytest.raises(UnsolvableError, match="not a finite number"):
        Box(lambda X: np.full(len(X), np.nan), 2)(np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"expected queries of shape \(n, 2\)"):
        Box(lambda X: X[:, 0], 2)(np.zeros((3, 3)))
    with pytest.raises(ValueError, match="expected budget to be at least 1"):
        Box(lambda X: X[:, 0], 2, budget=0)
