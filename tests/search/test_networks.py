"""Networks as students and back, and units that no sample switches."""

from dataclasses import replace

import numpy as np
import pytest

from neurecover.fit.samples import Samples
from neurecover.models import DeepNetwork, Network, as_network, as_student, away_from_samples
from neurecover.search.network import fitted_network
from students import Shape, at, features, network

NETWORKS = {
    f"{len(sizes) - 2} layers{', affine' * affine}{', no biases' * (not bias)}": network(sizes, 1, act, bias, affine)
    for sizes, act, bias, affine in [
        ((4, 3, 2), "relu", True, False),
        ((4, 3, 1), "tanh", False, False),
        ((4, 3, 2), "leaky_relu(0.2)", True, True),
        ((4, 3, 1), "relu", False, True),
        ((4, 3, 3, 2), "relu", True, False),
        ((4, 3, 3, 1), "tanh", True, True),
        ((4, 3, 2, 3, 2), "relu", False, False),
    ]
}
every_network = pytest.mark.parametrize("net", NETWORKS.values(), ids=NETWORKS)
X = np.random.default_rng(0).standard_normal((200, 4))


def _has_biases(net: Network | DeepNetwork) -> bool:
    return any(b.any() for _, b in net.layers)


@every_network
def test_a_network_is_a_student_and_back(net: Network | DeepNetwork) -> None:
    bias = _has_biases(net)
    student = as_student(net, bias)
    assert student.widths == tuple(map(len, net.hidden_weights))
    np.testing.assert_allclose(student(features(X, bias)), net(X), atol=1e-12)
    back = as_network(student)
    assert type(back) is type(net)
    assert back.arrays.keys() == net.arrays.keys()
    for name, array in net.arrays.items():
        np.testing.assert_array_equal(back.arrays[name], array, err_msg=name)


@every_network
def test_with_skips_it_is_the_same_function_and_they_are_zero_but_for_the_affine_term(
    net: Network | DeepNetwork,
) -> None:
    bias = _has_biases(net)
    student = as_student(net, bias, skips=True)
    assert student.skips
    np.testing.assert_allclose(student(features(X, bias)), net(X), atol=1e-12)
    plain = as_student(net, bias)
    assert np.count_nonzero(student.theta) == np.count_nonzero(plain.theta)
    assert [np.count_nonzero(V) for V in student.V] == [np.count_nonzero(V) for V in plain.V]
    if student.depth == 1:
        np.testing.assert_allclose(as_network(student)(X), net(X), atol=1e-12)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu(0.3)"])
@pytest.mark.parametrize("p", [1, 3])
def test_skips_that_are_no_affine_term_become_pairs_of_units(activation: str, p: int) -> None:
    student = Shape(activation, (4,), p=p).student()
    net = as_network(student)
    np.testing.assert_allclose(net(X), student(features(X)), atol=1e-11)
    assert isinstance(net, Network)
    assert net.C is None
    assert net.n_hidden == 4 + 2 * min(p, 4)
    kept = as_network(replace(student, affine=True))
    assert kept.n_hidden == 4
    np.testing.assert_allclose(kept(X), student(features(X)), atol=1e-11)


def _ends(net: Network | DeepNetwork) -> tuple[np.ndarray, np.ndarray]:
    Z = np.hstack(net.preactivations(X))
    return Z.min(axis=0), Z.max(axis=0)


@pytest.mark.parametrize("sizes", [(4, 3, 2), (4, 3, 3, 2)])
@pytest.mark.parametrize("activation", ["relu", "leaky_relu(0.2)"])
@pytest.mark.parametrize("affine", [False, True])
def test_units_that_no_sample_switches_move_away_and_change_nothing_on_the_samples(
    sizes: tuple[int, ...], activation: str, affine: bool
) -> None:
    net = network(sizes, 1, activation, affine=affine)
    layers = [(W.copy(), b.copy()) for W, b in net.layers]
    for W, b in layers[:-1]:
        b[0], b[1] = 100.0, -100.0  # always on, always off
        W[:2] *= 0.5
    net = net.with_layers(layers, net.C)
    moved = away_from_samples(net, *_ends(net))
    np.testing.assert_allclose(moved(X), net(X), atol=1e-10)
    lowest, highest = _ends(moved)
    start = 0
    for (W, _), (above, _), (before, _) in zip(moved.layers, moved.layers[1:], net.layers[1:]):
        assert lowest[start] > highest[start] - lowest[start]  # its kink is as far from the samples as they are wide
        if activation == "relu":
            assert not above[:, 1].any()  # what is off adds nothing wherever it is on
            np.testing.assert_array_equal(above[:, 2], before[:, 2])
        start += len(W)
    np.testing.assert_array_equal(moved.hidden_weights[0], net.hidden_weights[0])


def test_smooth_networks_and_those_all_of_whose_units_switch_stay_as_they_are() -> None:
    for net in (network((4, 3, 2), 1), network((4, 3, 2), 1, "tanh")):
        low, high = _ends(net)
        assert away_from_samples(net, low, high) is net
    tanh = network((4, 3, 2), 1, "tanh")
    assert away_from_samples(tanh, np.ones(3), 2.0 * np.ones(3)) is tanh


def test_the_network_of_a_fit_moves_what_its_samples_do_not_switch() -> None:
    net = network((4, 3, 1), 1)
    net = net.with_layers([(net.layers[0][0], np.array([50.0, 0.1, -0.1])), net.layers[1]], None)
    point = at(Samples(features(X), net(X), 1), as_student(net, True))
    found = fitted_network(point)
    np.testing.assert_allclose(found(X), net(X), atol=1e-9)
    assert found.layers[0][1][0] > 75.0
