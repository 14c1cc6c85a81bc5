"""One hidden layer behind a box: the weights of random and trained networks, and boxes that are none."""

import warnings

import numpy as np
import pytest

from neurecover.exceptions import UnsolvableError
from neurecover.matching import compare
from neurecover.models import Network
from neurecover.queries.box.black_box import Box
from neurecover.queries.extraction import Extraction
from neurecover.queries.shallow.extract import extract_shallow
from neurecover.solve import Deadline
from query_networks import a_network, in_float32


def extract(ask, d: int, seed: int = 0, **settings) -> Extraction:
    box = settings.pop("box", None) or Box(ask, d)
    return extract_shallow(box, rng=np.random.default_rng(seed), deadline=Deadline.after(None), **settings)


def worst_error(found: Extraction, network: Network) -> float:
    comparison = compare(found.network, network)
    return max(comparison.weight_error, comparison.bias_error)


@pytest.mark.parametrize(
    ("d", "k", "p", "queries", "error"),
    [(10, 10, 1, 500, 1e-11), (64, 32, 1, 5_500, 1e-9), (60, 40, 8, 2_500, 1e-9), (10, 20, 1, 1_000, 1e-9)],
)
@pytest.mark.parametrize("seed", range(5))
def test_all_weights_of_a_random_network(d: int, k: int, p: int, queries: int, error: float, seed: int):
    network = a_network(seed, d, k, p)
    found = extract(network, d, seed)
    assert found.network.n_hidden == k
    assert worst_error(found, network) < error
    assert found.exact
    # Expected are the errors of the rows; those of the biases are of the same size.
    assert compare(found.network, network).weight_error < 4 * found.errors.max()
    # k is not told, which may cost this much more.
    assert found.queries < 1.3 * queries


def test_a_wide_input():
    network = a_network(1, 300, 24)
    found = extract(network, 300)
    assert found.network.n_hidden == 24
    assert worst_error(found, network) < 1e-8
    assert found.queries < 1.4 * 25 * 304


def test_four_times_as_many_units_as_inputs():
    network = a_network(1, 10, 40)
    found = extract(network, 10)
    assert found.exact
    assert found.network.n_hidden == 40
    assert worst_error(found, network) < 1e-9


def test_more_accuracy_takes_more_queries():
    network = a_network(2, 64, 32)
    rough, fine = (extract(network, 64, accuracy=accuracy) for accuracy in (1e-7, 1e-12))
    assert rough.queries < fine.queries
    assert worst_error(fine, network) < 4e-12
    assert worst_error(rough, network) < 4e-7


@pytest.mark.parametrize("activation", ["leaky_relu(0.1)", "abs"])
@pytest.mark.parametrize(("d", "k", "p"), [(10, 10, 1), (12, 16, 3)])
def test_other_kinks_than_relu(activation: str, d: int, k: int, p: int):
    plain = a_network(3, d, k, p)
    network = Network(plain.W, plain.b, plain.A, plain.c, activation)
    found = extract(network, d, activation=activation)
    assert found.exact
    assert found.network.n_hidden == k
    assert worst_error(found, network) < 1e-10


@pytest.mark.parametrize(("d", "k", "p"), [(1, 4, 1), (2, 5, 1), (5, 1, 1), (5, 2, 4)])
def test_small_shapes(d: int, k: int, p: int):
    network = a_network(4, d, k, p)
    found = extract(network, d)
    assert found.exact
    assert found.network.n_hidden == k
    assert worst_error(found, network) < 1e-10


def test_planes_far_from_the_origin_are_looked_for():
    plain = a_network(5, 12, 9)
    for size in (1e3, 1e5):
        network = Network(plain.W, 10 * size * plain.b, plain.A, plain.c)
        found = extract(network, 12)
        assert found.exact
        assert found.network.n_hidden == 9
        normal = network.normal_form()
        comparison = compare(found.network, network)
        assert comparison.weight_error < 1e-8
        assert comparison.bias_error < 1e-8 * np.abs(normal.b).max()


def test_equal_units_are_one_and_dead_units_none():
    plain = a_network(6, 12, 9)
    W, b, A = plain.W.copy(), plain.b.copy(), plain.A.copy()
    W[3], b[3] = W[2], b[2]
    A[:, 5] = 0.0
    network = Network(W, b, A, plain.c)
    found = extract(network, 12, n_hidden=9)
    assert found.exact
    assert found.network.n_hidden == 7
    assert worst_error(found, network) < 1e-10
    assert any("2 of the 9 expected units" in sentence for sentence in found.unreached)


@pytest.mark.parametrize("size", [1e-6, 1e-8, 1e-10])
def test_a_faint_unit_is_known_as_well_as_it_says(size: float):
    plain = a_network(7, 12, 9)
    A = plain.A.copy()
    A[0, 4] = size
    network = Network(plain.W, plain.b, A, plain.c)
    found = extract(network, 12)
    assert found.network.n_hidden == 9
    error = compare(found.network, network).weight_error
    assert error < 4 * found.errors.max()
    # What can be seen of it at best is the rounding of the others' answers over its own size.
    assert error < 1e3 * 2.2e-16 / size
    assert bool(found.unreached) == (found.errors.max() > 1e-6)


def test_the_same_seed_asks_the_same_queries():
    network = a_network(8, 10, 10)
    first, second = (extract(network, 10, seed=3) for _ in range(2))
    assert first.queries == second.queries
    np.testing.assert_array_equal(first.network.W, second.network.W)


def test_trained_networks():
    from sklearn.datasets import load_diabetes
    from sklearn.neural_network import MLPRegressor
    from sklearn.preprocessing import StandardScaler

    X, y = load_diabetes(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    for k in (8, 16):
        for seed in range(3):
            model = MLPRegressor(hidden_layer_sizes=(k,), solver="lbfgs", max_iter=200, random_state=seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(X, y)
            (W, A), (b, c) = model.coefs_, model.intercepts_
            network = Network(W.T, b, A.T, c)
            found = extract(model.predict, 10, seed)
            assert found.network.n_hidden == k
            assert worst_error(found, network) < 1e-9
            assert found.exact


@pytest.mark.parametrize("seed", range(3))
def test_answers_in_float32(seed: int):
    network = a_network(seed, 10, 10)
    found = extract(in_float32(network), 10, seed)
    assert found.network.n_hidden == 10
    assert worst_error(found, network) < 1e-5
    assert found.exact
    assert worst_error(found, network) < 6 * found.errors.max()


def test_answers_in_float32_of_a_wider_network():
    network = a_network(11, 40, 20)
    found = extract(in_float32(network), 40, 1)
    assert found.network.n_hidden == 20
    assert worst_error(found, network) < 1e-5


@pytest.mark.parametrize("digits", [8, 5])
def test_answers_rounded_to_digits(digits: int):
    network = a_network(1, 10, 8)
    found = extract(lambda X: np.round(network(X), digits), 10)
    assert found.network.n_hidden == 8
    assert found.exact
    # The grid is 10^-digits, and thousands of answers average it out.
    assert worst_error(found, network) < 10.0 ** (1 - digits)


def _weights():
    rng = np.random.default_rng(0)
    return rng.standard_normal((16, 8)), rng.standard_normal(16), rng.standard_normal((3, 16))


def _softmax(X):
    W, _, A = _weights()
    z = np.maximum(X @ W.T, 0) @ A.T
    z = np.exp(z - z.max(axis=1, keepdims=True))
    return z / z.sum(axis=1, keepdims=True)


W0, A0, _ = _weights()
STRANGERS = {
    "tanh": lambda X: np.tanh(X @ W0.T) @ A0,
    "cubic": lambda X: (X @ W0[0]) ** 3 + X @ W0[1],
    "softmax": _softmax,
    "sine": lambda X: np.sin(X @ W0[0]),
    "step": lambda X: (X @ W0.T > 0) @ A0,
    "two layers": lambda X: np.maximum(np.maximum(X @ W0.T, 0) @ _weights()[2].T, 0) @ [1.0, -2.0, 0.5],
    "maximum": lambda X: np.max(X @ W0.T, axis=1),
    "relu and a linear part": lambda X: np.maximum(X @ W0[:5].T + 0.3, 0) @ A0[:5] + 0.3 * X @ W0[9],
    "linear": lambda X: X @ W0[0],
    "constant": lambda X: np.ones(len(X)),
    "random": lambda X: np.random.default_rng().standard_normal(len(X)),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_a_box_that_is_no_such_network_gives_no_confident_answer(name: str):
    try:
        found = extract(STRANGERS[name], 8)
    except UnsolvableError:
        return
    if found.network.C is not None:
        assert any("affine part" in sentence for sentence in found.unreached)
        return
    assert not found.exact
    assert found.residual > 1e-3
    assert any("does not reproduce the oracle" in sentence for sentence in found.notes)


def test_gradient_boosting_gives_no_confident_answer():
    from sklearn.ensemble import GradientBoostingRegressor

    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 8))
    model = GradientBoostingRegressor(n_estimators=50, random_state=0).fit(X, np.sin(X[:, 0]) + X[:, 1])
    with pytest.raises(UnsolvableError):
        extract(model.predict, 8)


def test_the_wrong_activation_gives_no_confident_answer():
    plain = a_network(3, 8, 5)
    network = Network(plain.W, plain.b, plain.A, plain.c, "leaky_relu(0.1)")
    with pytest.raises(UnsolvableError, match="affine part"):
        extract(network, 8)
    with pytest.raises(ValueError, match="two linear pieces"):
        extract(network, 8, activation="sigmoid")


def test_budget_and_time_end_it():
    network = a_network(0, 10, 10)
    with pytest.raises(UnsolvableError, match="budget of 200 queries"):
        extract(network, 10, box=Box(network, 10, budget=200))
    with pytest.raises(UnsolvableError, match="Time ran out"):
        extract_shallow(Box(network, 10), rng=np.random.default_rng(0), deadline=Deadline.after(0.0))


def test_progress_is_told():
    told = []
    extract(a_network(0, 10, 10), 10, progress=lambda stage, figure: told.append((stage, figure)))
    assert ("units", 10.0) in told
    assert told[-1][0] == "residual"
