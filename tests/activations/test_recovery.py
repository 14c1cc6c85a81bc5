"""Recovery with smooth activations, the activation found, and the hint at a better one."""

from collections.abc import Callable

import numpy as np
import pytest

import neurecover as nr
from neurecover.activations import Activation
from neurecover.certificate import advice

SMOOTH = ["tanh", "softplus", "gelu", "silu", "elu", "selu", "sigmoid"]


def planted(activation: str | Activation, seed: int, d: int = 6, k: int = 5, n: int = 400) -> tuple:
    truth = nr.simulate.teacher(d, k, activation=activation, random_state=seed)
    return (truth, *nr.simulate.sample(truth, n, random_state=seed))


@pytest.mark.parametrize("activation", SMOOTH)
@pytest.mark.parametrize("n_hidden", [5, None])
def test_smooth_networks_come_back_exactly(activation: str, n_hidden: int | None) -> None:
    truth, X, Y = planted(activation, 3)
    found = nr.recover(X, Y, n_hidden, activation=activation, random_state=0)
    errors = nr.compare(found.network, truth)
    assert found.certificate.verdict == "exact"
    assert max(errors.weight_error, errors.bias_error, errors.output_weight_error) < 1e-9


@pytest.mark.parametrize("activation", ["relu", "tanh", "softplus", "gelu", "elu", "leaky_relu"])
@pytest.mark.parametrize("n_hidden", [5, None])
def test_the_activation_is_found(activation: str, n_hidden: int | None) -> None:
    truth, X, Y = planted(activation, 4)
    found = nr.recover(X, Y, n_hidden, activation="auto", random_state=0)
    assert found.network.activation == truth.activation
    assert found.certificate.verdict == "exact"
    assert nr.compare(found.network, truth).weight_error < 1e-9
    assert any(r.startswith(f"The activation was found: {truth.activation}") for r in found.certificate.reasons)
    assert str(truth.activation) in found.summary()


def test_sigmoid_is_found_as_the_tanh_it_is() -> None:
    truth, X, Y = planted("sigmoid", 1)
    found = nr.recover(X, Y, 5, activation="auto", random_state=0)
    assert str(found.network.activation) == "tanh"
    assert found.certificate.verdict == "exact"
    X = np.random.default_rng(9).standard_normal((100, 6))
    np.testing.assert_allclose(found.network(X), truth(X), atol=1e-9)


@pytest.mark.usefixtures("steps_for_seconds")
def test_with_noise_the_least_error_decides() -> None:
    _, X, Y = planted("tanh", 2, n=3000)
    noise = 0.02 * Y.std() * np.random.default_rng(0).standard_normal(Y.shape)
    found = nr.recover(X, Y + noise, 5, activation="auto", random_state=0, time_budget=30)
    assert str(found.network.activation) == "tanh"
    assert any("the next is" in reason for reason in found.certificate.reasons)


@pytest.mark.usefixtures("steps_for_seconds")
def test_a_poor_fit_names_the_better_activation_first() -> None:
    _, X, Y = planted("softplus", 5, d=4, k=4)
    found = nr.recover(X, Y, 4, activation="tanh", random_state=0, time_budget=4)
    assert found.certificate.verdict in ("approximate", "failed")
    assert "softplus fits these samples" in found.certificate.reasons[0]
    assert "activation='softplus'" in found.certificate.reasons[0]


@pytest.mark.usefixtures("steps_for_seconds")
def test_noise_that_no_activation_explains_gets_no_hint() -> None:
    rng = np.random.default_rng(0)
    found = nr.recover(rng.standard_normal((300, 3)), rng.standard_normal(300), 2, random_state=0, time_budget=2)
    assert not any("fits these samples" in reason for reason in found.certificate.reasons)


@pytest.mark.slow
def test_auto_finds_the_activation_of_several_layers() -> None:
    """Nine of ten such teachers are found (measured on two kinds of processor), so none of 2 is one chance in a
    hundred; what is named right is right in every weight. The second is tried only where the first was not found."""
    found = 0
    for seed in range(2):
        rng = np.random.default_rng(seed)
        layers = [(rng.standard_normal((m, d)), rng.standard_normal(m)) for d, m in ((3, 3), (3, 2), (2, 1))]
        truth = nr.DeepNetwork(layers, "tanh")
        X = rng.standard_normal((1_000, 3))
        recovery = nr.recover(X, truth(X), (3, 2), activation="auto", random_state=0)
        exact = recovery.certificate.verdict == "exact"
        found += exact
        assert not exact or str(recovery.network.activation) == "tanh"
        assert not exact or nr.compare(recovery.network, truth).weight_error < 1e-6
        if found:
            break
    assert found == 1


TABLE = np.linspace(0.0, 12.0, 400)


@pytest.mark.parametrize(
    ("f", "inverse"),
    [
        (lambda z: np.maximum(np.expm1(z), 0.0), np.log1p),
        (lambda z: np.log1p(np.maximum(z, 0.0)), None),
        (lambda z: np.interp(z, TABLE, TABLE + TABLE**2 / 3), None),
    ],
)
@pytest.mark.parametrize("method", ["exact_tensor", "exact_ica"])
def test_rectified_functions_in_the_exact_algorithms(f: Callable, inverse: Callable | None, method: str) -> None:
    # [BJW18, §9.1]: not homogeneous, so that the size of a unit's row is found with its weights.
    act = Activation.from_function(f, inverse=inverse)
    kind = "orthonormal" if method == "exact_ica" else "sphere"
    truth = nr.simulate.teacher(5, 4, 6, kind=kind, bias=0.0, activation=act, random_state=3)
    X, Y = nr.simulate.sample(truth, 10_000, random_state=3)
    found = nr.estimate(X, Y, 4, method=method, activation=act, bias=False, random_state=0)
    assert found.network is not None
    assert nr.compare(found.network, truth).weight_error < 1e-12


def test_what_is_not_rectified_is_refused_by_them() -> None:
    act = Activation.from_function(np.arctan)
    _, X, Y = planted(act, 0)
    found = nr.estimate(X, Y, 1, method="exact_tensor", activation=act, bias=False)
    assert "zero for z ≤ 0" in found.notes[0]


@pytest.mark.parametrize("activation", ["tanh", "logistic"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_trained_model_of_scikit_learn_comes_back(activation: str) -> None:
    from sklearn.datasets import load_diabetes, load_wine
    from sklearn.neural_network import MLPRegressor
    from sklearn.preprocessing import scale

    for data in (load_diabetes(), load_wine()):
        inputs = scale(data.data)
        model = MLPRegressor(hidden_layer_sizes=(8,), activation=activation, random_state=0).fit(inputs, data.target)
        (W, A), (b, c) = model.coefs_, model.intercepts_
        truth = nr.Network(W.T, b, A.T, c, activation)
        X = np.random.default_rng(0).multivariate_normal(np.zeros(inputs.shape[1]), np.cov(inputs.T), 1000)
        found = nr.recover(X, model.predict(X), 8, activation=activation, random_state=0)
        assert found.certificate.verdict == "exact"
        assert nr.compare(found.network, truth).weight_error < 1e-8


@pytest.mark.parametrize("activation", ["sigmoid", "tanh", "softplus"])
def test_steep_networks_are_compared_in_bounded_time(activation: str) -> None:
    rng = np.random.default_rng(0)
    W = rng.standard_normal((6, 5))
    W *= 1e3 / np.linalg.norm(W, axis=1, keepdims=True)
    truth = nr.Network(W, rng.standard_normal(6), rng.standard_normal((1, 6)), None, activation)
    near = nr.Network(W + 1e-3, truth.b, truth.A, None, activation)
    # One point of a grid per unit of slope and of reach would be 1e6 points and more; the panels are some hundreds.
    assert nr.compare(near, truth).weight_error == pytest.approx(1e-3 * np.sqrt(5), rel=1e-9)


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "abs"])
def test_the_normal_form_turns_units(activation: str) -> None:
    truth, X, _ = planted(activation, 7)
    deep = nr.DeepNetwork([(truth.W, truth.b), (truth.W[:3, :5], truth.b[:3]), (truth.A[:, :3], [0.5])], activation)
    for network in (truth, deep):
        normal = network.normal_form()
        np.testing.assert_allclose(normal(X), network(X), atol=1e-12)
        for W in normal.hidden_weights:
            assert np.all(W[np.arange(len(W)), np.abs(W).argmax(axis=1)] > 0)


def test_units_too_few_ask_for_more_and_not_for_another_activation() -> None:
    truth = nr.simulate.teacher(3, 2, random_state=3)
    found = nr.recover(*nr.simulate.sample(truth, 400, random_state=0), n_hidden=1, random_state=0)
    assert found.certificate.verdict == "approximate"
    assert "More units fit these samples to rounding" in advice(found.certificate)[0]
    assert not any("activation=" in sentence and "fits" in sentence for sentence in found.certificate.reasons)
