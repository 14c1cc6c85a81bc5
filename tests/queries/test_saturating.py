"""Units that saturate, by chosen queries: success over seeds, error bars, and boxes that only look like it."""

import warnings
from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import erf, expit

import neurecover as nr
from neurecover import Network, simulate
from neurecover.activations import get
from neurecover.queries.box.black_box import Box
from neurecover.queries.box.curvature import is_curved, measure_smooth_resolution
from neurecover.queries.saturating.steps import limits_of


def _float32(truth: Network) -> Callable[[np.ndarray], np.ndarray]:
    """The network computed in single precision."""
    W, b, A, c = (array.astype(np.float32) for array in (truth.W, truth.b, truth.A, truth.c))
    act = {"tanh": np.tanh, "sigmoid": expit}[str(truth.activation)]
    return lambda X: act(X.astype(np.float32) @ W.T + b) @ A.T + c


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
@pytest.mark.parametrize(("d", "k", "p", "seeds"), [(2, 3, 1, 4), (10, 8, 1, 4), (6, 24, 2, 2), (20, 16, 3, 1)])
def test_every_teacher_comes_back_to_rounding(activation, d, k, p, seeds) -> None:
    for seed in range(200, 200 + seeds):
        truth = simulate.teacher(d, k, p, activation=activation, random_state=seed)
        found = nr.extract(nr.oracle(truth), activation=activation, random_state=seed)
        assert found.certificate.verdict == "exact", found.summary()
        assert found.network.n_hidden == k
        assert nr.compare(found.network, truth).weight_error < 1e-11


@pytest.mark.parametrize("data", ["diabetes", "wine"])
@pytest.mark.parametrize("activation", ["tanh", "logistic"])
def test_models_trained_on_targets_as_they_come(data, activation) -> None:
    """Weight error ≤ 1e-8 on three models of each kind, whose units bend too little for samples to tell them apart."""
    from sklearn import datasets
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, y = getattr(datasets, f"load_{data}")(return_X_y=True)
    for seed in range(3):
        net = MLPRegressor(hidden_layer_sizes=(8,), activation=activation, max_iter=300, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = make_pipeline(StandardScaler(), net).fit(X, y)
        found = nr.extract(nr.oracle(model), random_state=seed)
        assert found.certificate.verdict == "exact", found.summary()
        assert nr.compare(found.network, Network.from_sklearn(model)).weight_error < 1e-8


def test_any_scale_and_place_of_the_inputs() -> None:
    """x → x·s + m leaves the function as it is; queried around the data, so does the answer."""
    truth = simulate.teacher(5, 4, activation="tanh", random_state=1)
    size, mean = np.array([1e-6, 1.0, 30.0, 1e4, 1e6]), np.array([1e-3, 5.0, 0.0, -1e6, 1e6])
    moved = Network(truth.W / size, truth.b - truth.W @ (mean / size), truth.A, truth.c, "tanh")
    X = np.random.default_rng(0).standard_normal((200, 5)) * size + mean
    found = nr.extract(nr.oracle(moved, like=X), random_state=0)
    assert found.certificate.verdict == "exact", found.summary()
    np.testing.assert_allclose(found.network(X), moved(X), atol=1e-8 * np.abs(truth.A).sum())


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_error_bars_of_answers_in_single_precision(activation) -> None:
    """In 7 of 8 networks rounding passes for noise. Errors in standard errors: mean square ≤ 2, largest below 6."""
    z: list[np.ndarray] = []
    verdicts = []
    for seed in range(300, 308):
        truth = simulate.teacher(8, 6, 2, activation=activation, random_state=seed)
        truth = Network(*(a.astype(np.float32).astype(float) for a in (truth.W, truth.b, truth.A, truth.c)), activation)
        found = nr.extract(nr.oracle(_float32(truth), n_inputs=8), activation=activation, random_state=seed)
        verdicts.append(found.certificate.verdict)
        assert nr.compare(found.network, truth).weight_error < 1e-5
        if found.certificate.standard_errors is None:
            continue
        normal = truth.normal_form()
        order = [int(np.argmin(np.linalg.norm(normal.W - w, axis=1))) for w in found.network.W]
        theirs, errors = normal.take(order), found.certificate.standard_errors
        z += [((getattr(found.network, name) - getattr(theirs, name)) / errors[name]).ravel() for name in "WbA"]
    assert verdicts.count("statistical") >= 7
    assert np.mean(np.concatenate(z) ** 2) < 2.0
    assert np.abs(np.concatenate(z)).max() < 6.0


def test_error_bars_around_the_data_in_single_precision() -> None:
    """The same network behind inputs of other sizes and places has error bars that fit these."""
    truth = simulate.teacher(6, 5, activation="relu", random_state=7)
    size, mean = np.array([0.01, 1.0, 30.0, 5.0, 100.0, 1.0]), np.array([0.2, 5.0, 0.0, -100.0, 1000.0, 0.0])
    W, b = truth.W / size, truth.b - truth.W @ (mean / size)
    single = [a.astype(np.float32) for a in (W, b, truth.A, truth.c)]

    def box(X):
        return np.maximum(X.astype(np.float32) @ single[0].T + single[1], 0) @ single[2].T + single[3]

    X = np.random.default_rng(1).standard_normal((300, 6)) * size + mean
    found = nr.extract(nr.oracle(box, like=X), random_state=0)
    assert found.certificate.verdict == "statistical", found.summary()
    normal = Network(*(a.astype(float) for a in single)).normal_form()
    order = [int(np.argmin(np.linalg.norm(normal.W - w, axis=1))) for w in found.network.W]
    z = (found.network.W - normal.take(order).W) / found.certificate.standard_errors["W"]
    assert np.sqrt(np.mean(z**2)) < 2.0
    assert np.abs(z).max() < 6.0


def _deep(X):
    rng = np.random.default_rng(3)
    W, V, a = rng.standard_normal((6, 4)), rng.standard_normal((5, 6)), rng.standard_normal(5)
    return np.tanh(np.tanh(X @ W.T) @ V.T) @ a


def _of_erf(X):
    rng = np.random.default_rng(4)
    W, a = rng.standard_normal((5, 4)), rng.standard_normal(5)
    return erf(X @ W.T + 0.3) @ a


def _hidden_bump(X):
    """A unit that steps like the others, and a bump that is nothing far out."""
    return np.tanh(X @ np.array([1.0, -0.5, 0.2, 0.3])) + 1e-3 * np.exp(-np.sum(X**2, axis=1))


@pytest.mark.parametrize("box", [_deep, _of_erf, _hidden_bump])
@pytest.mark.parametrize("activation", ["auto", "tanh"])
def test_boxes_that_only_look_like_it_are_never_vouched_for(box, activation) -> None:
    found = nr.extract(nr.oracle(box, n_inputs=4), activation=activation, random_state=0, time_budget=4)
    assert found.certificate.verdict in ("approximate", "failed")


def test_a_line_beside_the_units_is_an_affine_term() -> None:
    line = np.array([[0.0, 0.0, 0.1, 0.0]])
    truth = Network(np.array([[1.0, -1.0, 0.0, 0.0]]), None, np.ones((1, 1)), activation="tanh", C=line)
    found = nr.extract(nr.oracle(truth), random_state=0)
    assert found.certificate.verdict == "exact"
    assert nr.compare(found.network, truth).weight_error < 1e-11
    np.testing.assert_allclose(found.network.C, line, atol=1e-11)


def test_units_of_one_direction_are_not_vouched_for() -> None:
    W = np.array([[1.0, 2.0, 0.5], [1.0, 2.0, 0.5], [0.3, -1.0, 1.0]])
    truth = Network(W, np.array([0.0, 1.0, 0.0]), np.array([[1.0, -2.0, 1.0]]), activation="tanh")
    found = nr.extract(nr.oracle(truth), random_state=0)
    assert found.certificate.verdict in ("approximate", "failed")


def test_tanh_and_sigmoid_are_one_network_in_two_ways() -> None:
    truth = simulate.teacher(4, 3, activation="sigmoid", random_state=0)
    found = nr.extract(nr.oracle(truth), random_state=0)
    assert str(found.network.activation) == "tanh"
    assert nr.compare(found.network, truth).weight_error < 1e-11
    assert nr.compare(truth, found.network).weight_error < 1e-11


def test_what_levels_off_and_what_does_not() -> None:
    assert limits_of(get("tanh")) == (-1.0, 1.0)
    assert limits_of(get("sigmoid")) == pytest.approx((0.0, 1.0), abs=1e-15)
    for name in ("softplus", "gelu", "step", "relu", "exp"):
        with pytest.raises(ValueError, match="levels off"):
            limits_of(get(name))


def test_an_activation_without_a_way_names_the_one_there_is() -> None:
    truth = simulate.teacher(4, 2, activation="square", random_state=0)
    with pytest.raises(ValueError, match=r"use samples for it, neurecover\.recover\(oracle"):
        nr.extract(nr.oracle(truth), activation="square")


def test_curves_are_told_from_kinks_and_digits() -> None:
    rng = np.random.default_rng(0)
    for seed in range(8):
        smooth = simulate.teacher(5, 6, activation="tanh", random_state=seed)
        kinked = simulate.teacher(5, 300, activation="relu", random_state=seed)
        assert is_curved(Box(smooth, 5), rng)
        assert not is_curved(Box(kinked, 5), rng)
        assert measure_smooth_resolution(Box(smooth, 5), rng) < 1e-14
        rounded = measure_smooth_resolution(Box(_float32(smooth), 5), rng)
        assert 2e-8 < rounded < 2e-6
