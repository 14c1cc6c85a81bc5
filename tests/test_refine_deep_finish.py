"""Networks of several hidden layers from samples alone, and what is not such a network."""

import numpy as np
import pytest

from neurecover.activations import get
from neurecover.data import ArraySource
from neurecover.exceptions import UnsolvableError
from neurecover.matching import compare
from neurecover.models import DeepNetwork
from neurecover.refine.deep_finisher import DeepFinished, finish_deep
from neurecover.refine.model_fit import fit_model
from neurecover.solve import Deadline


def _teacher(
    sizes: tuple[int, ...], n: int, seed: int, activation: str = "relu", bias: bool = True
) -> tuple[np.ndarray, DeepNetwork]:
    """Unit rows; every kink within reach of the samples, as in the tables of the documentation."""
    rng = np.random.default_rng(seed)
    X, act, layers = rng.standard_normal((n, sizes[0])), get(activation), []
    H = X
    for k in sizes[1:-1]:
        W = rng.standard_normal((k, H.shape[1]))
        W /= np.linalg.norm(W, axis=1, keepdims=True)
        Z = H @ W.T
        b = bias * (0.5 * Z.std(axis=0) * rng.standard_normal(k) - Z.mean(axis=0))
        layers.append((W, b))
        H = act(Z + b)
    layers.append((rng.standard_normal((sizes[-1], H.shape[1])), np.zeros(sizes[-1])))
    return X, DeepNetwork(layers, activation)


def _finish(X: np.ndarray, Y: np.ndarray, widths: tuple[int, ...] | None, **settings: object) -> DeepFinished:
    activation = settings.pop("activation", "relu")
    rng = np.random.default_rng(settings.pop("seed", 0))
    return finish_deep(ArraySource(X, Y), widths, activation, rng, Deadline(), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sizes", "activation", "bias"),
    [((6, 4, 3, 2), "relu", True), ((5, 4, 3, 2), "leaky_relu(0.1)", True), ((6, 4, 3, 2), "relu", False)],
)
def test_exact_samples_give_the_weights(sizes: tuple[int, ...], activation: str, bias: bool) -> None:
    X, network = _teacher(sizes, 3_000, 12, activation, bias)
    found = _finish(X, network(X), sizes[1:-1], activation=activation, bias=bias)
    assert found.determined
    assert found.exact
    assert found.converged
    assert found.sign_choices == 1
    error = compare(found.network, network)
    assert error.weight_error < 1e-10
    assert error.bias_error < 1e-10
    assert error.output_weight_error < 1e-10


def test_the_same_seed_gives_the_same_network() -> None:
    X, network = _teacher((5, 4, 3, 2), 1_500, 12)
    first, second = (_finish(X, network(X), (4, 3), seed=7) for _ in range(2))
    for (W, b), (V, c) in zip(first.network.layers, second.network.layers):
        np.testing.assert_array_equal(W, V)
        np.testing.assert_array_equal(b, c)


def test_widths_are_found() -> None:
    X, network = _teacher((4, 3, 2, 1), 2_000, 5)
    found = _finish(X, network(X), None)
    assert found.exact
    assert found.network.n_hidden == (3, 2)
    assert compare(found.network, network).weight_error < 1e-10


def test_noise_ends_at_the_optimum_near_the_truth() -> None:
    X, network = _teacher((5, 4, 3, 2), 3_000, 12)
    Y = network(X)
    Y = Y + 0.05 * Y.std(axis=0) * np.random.default_rng(1).standard_normal(Y.shape)
    found = _finish(X, Y, (4, 3))
    total = float(np.sum((Y - Y.mean(axis=0)) ** 2))
    reference = fit_model(ArraySource(X, Y), network, bias=True)
    assert 1e-3 < found.relative_rss < 1e-2
    assert not found.exact
    assert found.relative_rss <= reference.rss / total * (1.0 + 1.0 / Y.size)
    assert compare(found.network, network).weight_error < 0.1
    assert "Two runs ended at the same least-squares optimum." in found.notes


def test_a_search_that_sees_a_part_of_noisy_samples_ends_at_the_optimum_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    X, network = _teacher((5, 4, 3, 2), 6_000, 12)
    Y = network(X)
    Y = Y + 0.05 * Y.std(axis=0) * np.random.default_rng(1).standard_normal(Y.shape)
    monkeypatch.setattr("neurecover.refine.deep_finisher.SEARCH_LOAD", 30)  # 47 parameters: 1,410 of 6,000 samples
    found = _finish(X, Y, (4, 3))
    reference = fit_model(ArraySource(X, Y), network, bias=True)
    total = float(np.sum((Y - Y.mean(axis=0)) ** 2))
    assert found.relative_rss <= reference.rss / total * (1.0 + 1.0 / Y.size)
    assert found.agreements == 1
    assert found.sign_choices == 1


@pytest.mark.parametrize("name", ["tanh", "cubic", "deeper"])
def test_what_is_not_such_a_network_is_not_exact(name: str) -> None:
    X, network = _teacher((4, 3, 3, 3, 1), 1_500, 3)
    rng = np.random.default_rng(0)
    Z = X @ rng.standard_normal((4, 3))
    Y = {"tanh": np.tanh(Z) @ np.ones((3, 1)), "cubic": (Z**3).sum(axis=1, keepdims=True), "deeper": network(X)}[name]
    found = finish_deep(ArraySource(X, Y), (3, 2), "relu", rng, Deadline.after(1.5))
    assert found.relative_rss > 1e-8
    assert not found.exact
    assert found.network.n_hidden == (3, 2)


def test_data_that_cannot_be_solved_says_so() -> None:
    X = np.random.default_rng(0).standard_normal((40, 5))
    rng = np.random.default_rng(0)
    with pytest.raises(UnsolvableError, match="same for every sample"):
        finish_deep(ArraySource(X, np.ones((40, 1))), (3, 2), "relu", rng, Deadline())
    with pytest.raises(UnsolvableError, match="more equations"):
        finish_deep(ArraySource(X, X[:, :1]), (6, 5), "relu", rng, Deadline())


@pytest.mark.parametrize(
    ("widths", "activation", "depth", "match"),
    [
        ((3, 0), "relu", 2, "at least one unit"),
        ((), "relu", 2, "at least one unit"),
        ((3, 2), "sigmoid", 2, "relu and leaky_relu"),
        (None, "relu", 0, "at least one hidden layer"),
    ],
)
def test_bad_input_is_refused(widths: tuple[int, ...] | None, activation: str, depth: int, match: str) -> None:
    X = np.random.default_rng(0).standard_normal((100, 3))
    with pytest.raises(ValueError, match=match):
        finish_deep(ArraySource(X, X[:, :1]), widths, activation, np.random.default_rng(0), Deadline(), depth=depth)
