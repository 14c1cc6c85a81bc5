"""Kinks on a line and gradients beside them, against the planes of networks that are known."""

import numpy as np
import pytest

from neurecover.models import Network
from neurecover.queries.box.black_box import Box
from neurecover.queries.box.gradients import choose_steps, draw_basis, measure_gradients
from neurecover.queries.lines.kinks import find_kinks
from query_networks import a_network, in_float32


def a_line(seed: int, d: int):
    rng = np.random.default_rng(1000 + seed)
    return 0.5 * rng.standard_normal(d), rng.standard_normal(d)


def true_kinks(network: Network, x: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.sort(-(network.W @ x + network.b) / (network.W @ v))


@pytest.mark.parametrize(("d", "k", "p"), [(10, 10, 1), (40, 60, 1), (30, 40, 5), (2, 7, 1)])
@pytest.mark.parametrize("seed", range(5))
def test_all_kinks_are_found_and_no_others(d: int, k: int, p: int, seed: int):
    network = a_network(seed, d, k, p)
    x, v = a_line(seed, d)
    kinks = find_kinks(Box(network, d), x, v, -1e4, 1e4)
    truth = true_kinks(network, x, v)
    assert kinks.complete
    assert len(kinks.positions) == k
    # A kink is where two lines meet, so its place is off by rounding over the change of slope.
    jump = np.linalg.norm(kinks.jumps, axis=1)
    np.testing.assert_array_less(np.abs(kinks.positions - truth), 1e-11 * (1 + np.abs(truth)) / np.minimum(jump, 1))
    assert kinks.queries < 20 * k + 40


def test_slopes_and_values_are_those_of_the_network():
    network = a_network(3, 20, 15, 2)
    x, v = a_line(3, 20)
    kinks = find_kinks(Box(network, 20), x, v, -1e4, 1e4)
    on = (x + kinks.centres[:, None] * v) @ network.W.T + network.b > 0
    np.testing.assert_allclose(kinks.slopes, (on * (network.W @ v)) @ network.A.T, atol=1e-11)
    np.testing.assert_allclose(kinks.values, network(x + kinks.centres[:, None] * v), atol=1e-11)
    assert np.all(np.diff(kinks.edges) > 0)


def test_two_kinks_close_together_are_two():
    # At a distance of 1e-6 of each other and of opposite sign: far off they look like a step of 1e-6.
    network = Network([[1.0, 0.0], [1.0, 0.0]], [0.3, 0.3 + 1e-6], [[1.0, -1.0]])
    kinks = find_kinks(Box(network, 2), np.zeros(2), np.array([1.0, 0.5]), -100.0, 100.0)
    np.testing.assert_allclose(kinks.positions, [-0.3 - 1e-6, -0.3], atol=1e-9)


def test_kinks_of_float32_answers_are_real():
    for seed in range(5):
        network = a_network(seed, 10, 10)
        x, v = a_line(seed, 10)
        kinks = find_kinks(Box(in_float32(network), 10), x, v, -1e3, 1e3)
        apart = np.abs(kinks.positions[:, None] - true_kinks(network, x, v)).min(axis=1)
        assert len(kinks.positions) >= 7
        # Two kinks that are told apart badly are put between their true places.
        assert np.quantile(apart, 0.8) < 1e-3


def test_a_smooth_box_is_given_up():
    network = a_network(0, 5, 4)
    box = Box(lambda X: np.tanh(X @ network.W.T) @ network.A.T, 5)
    kinks = find_kinks(box, *a_line(0, 5), -100.0, 100.0, most=2_000)
    assert not kinks.complete
    assert kinks.queries < 3_000


def test_a_straight_line_has_no_kinks():
    kinks = find_kinks(Box(lambda X: X[:, 0] + 3.0, 4), *a_line(0, 4), -1e4, 1e4)
    assert len(kinks.positions) == 0
    assert kinks.slopes.shape == (1, 1)
    with pytest.raises(ValueError, match="expected start < stop"):
        find_kinks(Box(lambda X: X[:, 0], 4), *a_line(0, 4), 1.0, 1.0)


@pytest.mark.parametrize("p", [1, 3])
def test_gradients_are_exact_and_stay_inside(p: int):
    d, k = 40, 30
    network = a_network(5, d, k, p)
    rng = np.random.default_rng(0)
    points = rng.standard_normal((12, d))
    basis = draw_basis(rng, d)
    on = points @ network.W.T + network.b > 0
    truth = (on[:, None, :] * network.A) @ network.W
    box = Box(network, d)
    # Steps far too long to begin with: the box has to notice.
    measured = measure_gradients(box, points, basis, np.full(12, 10.0), rng=rng)
    assert measured.sound.all()
    rounding = measured.noise[:, None, None] / np.abs(measured.steps).min(axis=1)[:, None, None]
    assert np.all(np.abs(measured.full() - truth) < 200 * rounding)
    assert np.all(np.abs(measured.steps) < 10.0)


def test_fitting_steps_nearly_always_fit():
    d, k = 60, 40
    network = a_network(6, d, k)
    rng = np.random.default_rng(1)
    points = rng.standard_normal((100, d))
    basis = draw_basis(rng, d)
    box = Box(network, d)
    longest = np.full(100, 10.0)
    steps = choose_steps(box, points, box(points), basis, longest, rng=rng)
    room = np.min(np.abs(points @ network.W.T + network.b) / np.abs(network.W @ basis).max(axis=1), axis=1)
    able = room > 10.0 * 0.4**4
    assert np.mean(steps[able] < room[able]) > 0.7
    assert np.median(steps[able] / room[able]) > 0.1


def test_a_basis_is_orthonormal_and_begins_where_it_is_told():
    rng = np.random.default_rng(0)
    first = rng.standard_normal(7)
    basis = draw_basis(rng, 7, first)
    np.testing.assert_allclose(basis.T @ basis, np.eye(7), atol=1e-14)
    np.testing.assert_allclose(basis[:, 0], first / np.linalg.norm(first), atol=1e-14)
