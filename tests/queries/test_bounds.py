"""Oracles with limits: where they may be queried, that no query leaves the range, and what is found within it."""

from itertools import product

import numpy as np
import pytest

import neurecover as nr
from benchmarks.extract import he_network
from neurecover.data.oracles.frame import Frame
from neurecover.queries.box.limits import EVERYWHERE, Limits, choose_frame
from neurecover.queries.box.options import BoxOptions

LOW, HIGH = np.array([-1.0, 0.0, 480.0]), np.array([3.0, 2.0, 520.0])


class Watched:
    """A model that counts the numbers it is queried outside of its range."""

    def __init__(self, model, low, high) -> None:
        self.model, self.low, self.high, self.outside = model, low, high, 0

    def __call__(self, X: np.ndarray) -> np.ndarray:
        self.outside += int(np.count_nonzero((self.low > X) | (self.high < X)))
        return self.model(X)


def extract(model, d: int, low, high, seed: int = 0, **settings) -> nr.Recovery:
    watched = Watched(model, low, high)
    found = nr.extract(nr.oracle(watched, d, bounds=(low, high), random_state=seed), random_state=seed, **settings)
    assert watched.outside == 0
    return found


@pytest.fixture(params=["middle", "data"])
def limits(request) -> tuple[Limits, Frame]:
    data = np.random.default_rng(0).standard_normal((50, 3)) @ [[1, 0.5, 0], [0, 0.2, 0], [0, 3, 8]] + [0.5, 1.2, 495]
    frame = choose_frame(LOW, HIGH, None if request.param == "middle" else Frame.like(data), BoxOptions())
    return Limits.of(LOW, HIGH, frame, BoxOptions()), frame


def is_inside(frame: Frame, Z: np.ndarray) -> np.ndarray:
    X = frame.inputs(Z)
    return np.all((X >= LOW) & (X <= HIGH), axis=1)


def test_the_range_in_the_coordinates_of_the_queries(limits: tuple[Limits, Frame]) -> None:
    within, frame = limits
    rng = np.random.default_rng(1)
    Z = 2.0 * rng.standard_normal((500, 3))
    np.testing.assert_array_equal(within.gauge(Z) <= 1.0, is_inside(frame, Z))
    assert 50 < np.count_nonzero(is_inside(frame, Z)) < 450
    drawn = within.pull_inside(Z)
    assert is_inside(frame, drawn).all()
    near = within.gauge(Z) < 0.9
    np.testing.assert_array_equal(drawn[near], Z[near])
    # A ball of the room around a point touches the edge, or a little less.
    room = within.room(drawn)
    U = rng.standard_normal((500, 3))
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    assert is_inside(frame, drawn + room[:, None] * U).all()
    back, forth = within.distances_to_edge(drawn, U)
    assert is_inside(frame, drawn + back[:, None] * U).all()
    assert is_inside(frame, drawn + forth[:, None] * U).all()
    np.testing.assert_allclose(within.gauge(drawn + forth[:, None] * U), 0.999, atol=1e-9)
    np.testing.assert_allclose(within.gauge(drawn + back[:, None] * U), 0.999, atol=1e-9)
    assert is_inside(frame, np.vstack([within.draw_ends(rng) for _ in range(50)])).all()


def test_corners_and_the_least_value_of_a_linear_function(limits: tuple[Limits, Frame]) -> None:
    within, frame = limits
    rng = np.random.default_rng(2)
    corners = within.corners(8, rng)
    expected = list(product(*zip(LOW, HIGH)))
    found = frame.inputs(corners / 0.999)
    np.testing.assert_allclose(sorted(map(tuple, found.round(9))), sorted(expected), atol=1e-6)
    assert within.corners(5, rng).shape == (5, 3)
    V = rng.standard_normal((20, 3))
    np.testing.assert_allclose(within.minimum(V), (corners / 0.999 @ V.T).min(axis=0), rtol=1e-9)


def test_a_box_without_limits_is_queried_as_before() -> None:
    Z = np.random.default_rng(0).standard_normal((5, 4))
    assert not EVERYWHERE
    assert EVERYWHERE.pull_inside(Z) is Z
    assert EVERYWHERE.shorten(Z, Z, 1e9) is Z
    assert EVERYWHERE.move_to_planes(Z, Z, Z[:, 0]) is Z
    assert EVERYWHERE.contains(Z).all()
    assert np.all(EVERYWHERE.room(Z) == np.inf)


@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize(("low", "high"), [(-3.0, 3.0), (0.0, 1.0)])
def test_one_hidden_layer_in_a_range(low: float, high: float, p: int) -> None:
    """Planes that cut off no more than a corner are found too, because the corners are queried."""
    for seed in range(4):
        truth = he_network((8, 7, p), seed)
        found = extract(truth, 8, low, high, seed)
        middle, half = 0.5 * (low + high), 0.5 * (high - low)
        crossing = np.abs(truth.W.sum(axis=1) * middle + truth.b) < half * np.abs(truth.W).sum(axis=1)
        if crossing.all():
            assert found.certificate.verdict == "exact", found.summary()
        if found.certificate.verdict == "exact":
            errors = nr.compare(found.network, truth)
            assert max(errors.weight_error, errors.bias_error) < 1e-7
            assert errors.unmatched == ((), ())


def test_a_range_far_from_zero_and_uneven() -> None:
    low, high = np.array([-1.0, -100.0, 480.0, 0.0]), np.array([3.0, 100.0, 520.0, 1e-3])
    plain = he_network((4, 6, 1), 3)
    size = 0.25 * (high - low)
    W = plain.W / size
    truth = nr.Network(W, plain.b - W @ (0.5 * (low + high)), plain.A, plain.c)
    for seed in range(3):
        found = extract(truth, 4, low, high, seed)
        assert found.certificate.verdict == "exact", found.summary()
        errors = nr.compare(found.network, truth)
        assert errors.weight_error < 1e-7
        assert errors.unmatched == ((), ())


@pytest.mark.parametrize("seed", range(3))
def test_a_unit_that_is_on_all_over_the_range_is_named(seed: int) -> None:
    truth = he_network((6, 5, 1), seed)
    b = truth.b.copy()
    b[2] = 1.1 * 2.0 * np.abs(truth.W[2]).sum()
    truth = nr.Network(truth.W, b, truth.A, truth.c)
    found = extract(truth, 6, -2.0, 2.0, seed)
    assert found.certificate.verdict == "approximate"
    assert "units that are always active: 1 of the returned units" in found.certificate.reasons[0]
    assert found.network.n_hidden == 5
    X = np.random.default_rng(seed).uniform(-2, 2, (1000, 6))
    np.testing.assert_allclose(found.network(X), truth(X), atol=1e-9 * np.abs(truth(X)).max())


@pytest.mark.parametrize("seed", range(3))
def test_two_hidden_layers_in_a_range(seed: int) -> None:
    truth = he_network((10, 10, 10, 1), seed)
    found = extract(truth, 10, -3.0, 3.0, seed)
    assert found.certificate.verdict == "exact", found.summary()
    assert found.network.n_hidden == (10, 10)
    assert nr.compare(found.network, truth).weight_error < 1e-9


def test_two_hidden_layers_in_a_range_that_few_planes_cross_are_never_exact_and_wrong() -> None:
    """Inputs between 0 and 1: some units of the second layer are on, or off, wherever the box may be queried."""
    for seed in range(2):
        truth = he_network((6, 5, 4, 1), seed)
        found = extract(truth, 6, 0.0, 1.0, seed, query_budget=8_000)
        assert found.certificate.reasons[0].endswith(".")
        if found.certificate.verdict == "exact":
            assert nr.compare(found.network, truth).weight_error < 1e-7


def test_coarse_answers_in_a_range() -> None:
    for seed in range(2):
        truth = he_network((6, 5, 1), seed)
        found = extract(lambda X, truth=truth: np.round(truth(X), 6), 6, -2.0, 2.0, seed)
        assert found.certificate.verdict == "statistical", found.summary()
        # The grid is 1e-6; thousands of answers average it out.
        assert nr.compare(found.network, truth).weight_error < 1e-5


@pytest.mark.parametrize("name", ["sine", "square", "constant", "linear", "tanh"])
def test_what_is_no_network_in_a_range_ends_in_a_sentence(name: str) -> None:
    w = np.array([1.0, -0.5, 0.3, 2.0])
    box = {
        "sine": lambda X: np.sin(X @ w),
        "square": lambda X: (X @ w) ** 2,
        "constant": lambda X: np.ones(len(X)),
        "linear": lambda X: X @ w,
        "tanh": lambda X: np.tanh(X @ w),
    }[name]
    found = extract(box, 4, -2.0, 2.0, query_budget=100_000)
    assert found.certificate.verdict in ("approximate", "failed"), found.summary()
    assert found.certificate.reasons[0].endswith(".")
