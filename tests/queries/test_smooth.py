"""Which function smooth units are, from single bends, and how many there are, from a rank."""

import numpy as np
import pytest

import neurecover as nr
from neurecover.activations import get
from neurecover.queries.box.black_box import Box
from neurecover.queries.smooth.counting import count_units
from neurecover.queries.smooth.shape import NAMES, find_shape


def teacher(activation: str, d: int, k: int, p: int, seed: int, size: float = 1.0) -> nr.Network:
    rng = np.random.default_rng(seed)
    W, b = size * rng.standard_normal((k, d)) / np.sqrt(d), rng.standard_normal(k)
    return nr.Network(W, b, rng.standard_normal((p, k)), rng.standard_normal(p), activation=activation)


@pytest.mark.parametrize("activation", NAMES)
def test_the_function_is_found_whatever_the_size_of_the_weights(activation: str) -> None:
    for seed, (d, k, p, size) in enumerate([(6, 5, 1, 1.0), (3, 12, 1, 0.1), (8, 20, 3, 4.0)]):
        box = Box(teacher(activation, d, k, p, seed, size), d)
        shape = find_shape(box, np.random.default_rng(seed))
        assert shape is not None
        assert str(shape.activation) == activation
        assert size / 100.0 < shape.size < 10.0 * size  # |w| is near `size`, |w·v|/|w| one of N(0, 1)
        assert box.queries < 1_000


@pytest.mark.parametrize("activation", NAMES)
def test_a_single_bend_is_found_among_many_units(activation: str) -> None:
    box, rng = Box(teacher(activation, 30, 100, 20, 0), 30), np.random.default_rng(0)
    for _ in range(3):
        shape = find_shape(box, rng)
        assert shape is not None
        assert str(shape.activation) == activation


def test_a_function_that_is_not_known_is_taken_for_none_that_is() -> None:
    rng = np.random.default_rng(1)
    W, a = rng.standard_normal((4, 5)), rng.standard_normal((4, 1))
    for act in (lambda z: np.sqrt(1.0 + z * z), lambda z: np.abs(z) * np.tanh(z / 2.0)):
        assert find_shape(Box(lambda X, act=act: act(X @ W.T) @ a, 5), np.random.default_rng(0)) is None


def test_units_are_counted_and_a_jump_of_the_second_derivative_is_not() -> None:
    for seed, (activation, d, k, p) in enumerate([("gelu", 6, 9, 1), ("silu", 8, 25, 5), ("tanh", 5, 3, 2)]):
        box = Box(teacher(activation, d, k, p, seed), d)
        assert count_units(box, get(activation), np.random.default_rng(seed)) == k
    box = Box(teacher("elu", 6, 5, 2, 0), 6)
    assert count_units(box, get("elu"), np.random.default_rng(0)) is None
    assert box.queries <= 1


def test_counting_keeps_to_what_is_left_of_the_budget() -> None:
    box = Box(teacher("gelu", 6, 9, 1, 0), 6, budget=500)
    assert count_units(box, get("gelu"), np.random.default_rng(0)) is None
    assert box.queries <= 500


@pytest.mark.parametrize("activation", ["gelu", "silu"])
def test_a_rank_that_counts_too_many_units_is_no_width_that_was_asked_for(activation: str) -> None:
    rng = np.random.default_rng(7315)
    W, b, A, c = rng.standard_normal((4, 5)), 0.5 * rng.standard_normal(4), rng.standard_normal((1, 4)), np.ones(1)
    truth = nr.Network(W, b, A, c, activation=activation)
    assert (count_units(Box(truth, 5), get(activation), np.random.default_rng(7315)) or 0) > 4
    found = nr.extract(nr.oracle(truth, 5), random_state=7315)
    assert found.certificate.verdict == "exact"
    assert nr.compare(found.network, truth).weight_error < 1e-11


@pytest.mark.parametrize("activation", ["gelu", "softplus"])
def test_a_residual_connection_beside_smooth_units_is_found(activation: str) -> None:
    rng = np.random.default_rng(7300)
    W, b, A, c = rng.standard_normal((4, 5)), 0.5 * rng.standard_normal(4), rng.standard_normal((2, 4)), np.ones(2)
    truth = nr.Network(W, b, A, c, activation=activation, C=rng.standard_normal((2, 5)))
    found = nr.extract(nr.oracle(truth, 5), random_state=7300)
    assert found.certificate.verdict == "exact"
    assert isinstance(found.network, nr.Network)
    assert found.network.C is not None
    assert nr.compare(found.network, truth).weight_error < 1e-11


@pytest.mark.parametrize("activation", ["gelu", "tanh"])
def test_a_network_that_clips_its_inputs_is_not_called_exact(activation: str) -> None:
    truth = nr.simulate.teacher(4, 3, activation=activation, random_state=0)
    found = nr.extract(nr.oracle(lambda X: truth(np.clip(X, -50.0, 50.0)), 4), random_state=0, query_budget=5_000)
    assert found.certificate.verdict in ("approximate", "failed"), found.summary()
