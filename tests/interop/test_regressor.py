"""NetworkRecovery is a scikit-learn regressor like any other, and says how far its weights can be trusted."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import neurecover as nr
from neurecover.exceptions import NotRecoveredWarning
from neurecover.interop.prediction_errors import PredictionErrors

TRUTH = nr.simulate.teacher(3, 2, 2, random_state=0)
X = np.random.default_rng(0).standard_normal((300, 3))
Y = TRUTH(X)


# One unit and 300 steps, because the data of most checks are noise, which a search takes long to give up.
@pytest.mark.usefixtures("steps_for_seconds")
@pytest.mark.filterwarnings("ignore::neurecover.exceptions.NotRecoveredWarning")
@parametrize_with_checks([nr.NetworkRecovery(n_hidden=1, random_state=0, time_budget=0.3)])
def test_estimator_checks(estimator: BaseEstimator, check: Any) -> None:
    check(estimator)


def test_weights_certificate_and_layout() -> None:
    model = nr.NetworkRecovery(random_state=0).fit(X, Y)
    assert model.certificate_.verdict == "exact"
    assert nr.compare(model.network_, TRUTH).weight_error < 1e-12
    assert [W.shape for W in model.coefs_] == [(3, 2), (2, 2)]
    hidden = np.maximum(X @ model.coefs_[0] + model.intercepts_[0], 0.0)
    np.testing.assert_allclose(hidden @ model.coefs_[1] + model.intercepts_[1], model.predict(X), atol=1e-13)
    # The same layout as scikit-learn's own, and as the conversions'.
    np.testing.assert_allclose(model.network_.to_sklearn().predict(X), model.predict(X), atol=1e-13)
    np.testing.assert_array_equal(nr.Network.from_sklearn(model)(X), model.predict(X))
    assert model.recovery_.network is model.network_


def test_a_linear_term_beside_the_units() -> None:
    truth = nr.simulate.teacher(3, 2, 2, bias=0.5, affine=1.0, random_state=0)
    model = nr.NetworkRecovery(n_hidden=2, affine=True, random_state=0).fit(X, truth(X))
    assert model.certificate_.verdict == "exact"
    np.testing.assert_array_equal(model.affine_coef_, model.network_.C.T)
    hidden = np.maximum(X @ model.coefs_[0] + model.intercepts_[0], 0.0)
    outputs = hidden @ model.coefs_[1] + X @ model.affine_coef_ + model.intercepts_[1]
    np.testing.assert_allclose(outputs, truth(X), atol=1e-12)
    np.testing.assert_allclose(nr.Network.from_sklearn(model)(X), truth(X), atol=1e-12)
    assert model.predict(X, return_std=True)[1].max() < 1e-12
    assert nr.NetworkRecovery(n_hidden=2, random_state=0).fit(X, Y).affine_coef_ is None


def test_targets_keep_their_shape() -> None:
    for y, shape in ((Y, (300, 2)), (Y[:, 0], (300,)), (Y[:, :1], (300, 1))):
        model = nr.NetworkRecovery(n_hidden=2, random_state=0).fit(X, y)
        assert model.predict(X).shape == shape
        assert [part.shape for part in model.predict(X, return_std=True)] == [shape, shape]
        assert model.score(X, y) == pytest.approx(1.0)


def test_pipelines_searches_clones_and_frames() -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = nr.NetworkRecovery(n_hidden=2, random_state=0)
    twin = clone(model)
    assert twin is not model
    assert twin.get_params() == model.get_params()
    pipeline = make_pipeline(StandardScaler(), twin).fit(frame, Y[:, 0])
    assert list(pipeline[:-1].get_feature_names_out()) == ["a", "b", "c"]
    assert pipeline.score(frame, Y[:, 0]) == pytest.approx(1.0)
    # The pipeline's network, scaler and all, is the one behind the samples.
    assert nr.compare(nr.Network.from_sklearn(pipeline), nr.Network(TRUTH.W, TRUTH.b, TRUTH.A[:1])).weight_error < 1e-10
    np.testing.assert_array_equal(model.fit(frame, Y).feature_names_in_, ["a", "b", "c"])
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["b", "a", "c"]])
    search = GridSearchCV(clone(model), {"n_hidden": [1, 2]}, cv=3).fit(X, Y)
    assert search.best_params_ == {"n_hidden": 2}
    assert cross_val_score(clone(model), X, Y[:, 0], cv=3).min() > 1.0 - 1e-12


def test_several_layers() -> None:
    rng = np.random.default_rng(2)
    truth = nr.DeepNetwork([(rng.standard_normal(shape), None) for shape in ((4, 4), (3, 4), (1, 3))])
    inputs = rng.standard_normal((900, 4))
    model = nr.NetworkRecovery(n_hidden=(4, 3), random_state=0).fit(inputs, truth(inputs)[:, 0])
    assert [W.shape for W in model.coefs_] == [(4, 4), (4, 3), (3, 1)]
    assert model.score(inputs, truth(inputs)[:, 0]) > 0.99


@pytest.mark.parametrize("wrong", [{"n_hidden": 0}, {"bias": "yes"}, {"depth": -1}, {"time_budget": -1.0}])
def test_parameters_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"The '{next(iter(wrong))}' parameter"):
        nr.NetworkRecovery(**wrong).fit(X, Y)


def test_standard_errors_of_predictions_cover() -> None:
    """95 % intervals of the mean at new inputs, over 25 draws of noise that is louder for large inputs.

    Within a draw they cover or miss together: the share of a draw was measured to have a deviation of 0.055, that of 25
    draws 0.011, and five of these are allowed.
    """
    rng = np.random.default_rng(3)
    fresh = rng.standard_normal((50, 3))
    covered = []
    for _ in range(25):
        inputs = rng.standard_normal((400, 3))
        noise = 0.05 * (1.0 + np.abs(inputs[:, :1])) * rng.standard_normal((400, 2))
        model = nr.NetworkRecovery(n_hidden=2, random_state=0).fit(inputs, TRUTH(inputs) + noise)
        mean, error = model.predict(fresh, return_std=True)
        if np.isfinite(error).all():
            covered.append(np.abs(mean - TRUTH(fresh)) < 1.96 * error)
    assert len(covered) >= 20
    assert abs(np.mean(covered) - 0.95) < 5 * 0.011


def test_weights_are_those_of_recover_and_of_the_score() -> None:
    rng = np.random.default_rng(4)
    weight = np.exp(rng.standard_normal(300)) * (np.arange(300) % 5 > 0)
    noisy = Y[:, 0] + 0.02 * rng.standard_normal(300)
    model = nr.NetworkRecovery(n_hidden=2, random_state=0).fit(X, noisy, sample_weight=weight)
    same = nr.recover(X, noisy, 2, random_state=0, sample_weight=weight)
    np.testing.assert_array_equal(model.network_.W, same.network.W)
    # Copies with a weight of one each are whole weights.
    times = rng.integers(0, 4, 300)
    first, second = (
        nr.NetworkRecovery(n_hidden=2, random_state=0).fit(*samples).predict(X)
        for samples in (
            (X, noisy, times),
            (np.repeat(X, times, axis=0), np.repeat(noisy, times), np.ones(times.sum())),
        )
    )
    np.testing.assert_allclose(first, second, atol=1e-12)
    residual, mean = noisy - model.predict(X), np.average(noisy, weights=weight)
    r2 = 1.0 - weight @ residual**2 / (weight @ (noisy - mean) ** 2)
    assert model.score(X, noisy, sample_weight=weight) == pytest.approx(r2)


def test_standard_errors_of_predictions_are_those_of_weighted_least_squares() -> None:
    """For one unit that is always on, y = a·x + c: the sandwich of a straight line, up to the n/(n − P/p) of both."""
    rng = np.random.default_rng(5)
    inputs, weight = rng.uniform(1.0, 2.0, (200, 1)), np.exp(rng.standard_normal(200))
    line = nr.Network([[1.0]], [5.0], [[2.0]], [0.0])
    outputs = line(inputs) + 0.1 * rng.standard_normal((200, 1))
    errors = PredictionErrors.of(line, inputs, outputs, weight)
    J = np.column_stack([inputs, np.ones(200)])
    inverse = np.linalg.inv(J.T @ (weight[:, None] * J))
    scores = J * (weight * (outputs - line(inputs))[:, 0])[:, None]
    C = inverse @ (scores.T @ scores) @ inverse * 200 / (200 - line.n_parameters)
    np.testing.assert_allclose(errors(inputs)[:, 0], np.sqrt(np.einsum("ip,pq,iq->i", J, C, J)), rtol=1e-8)


def test_errors_are_rounding_for_exact_weights_and_infinite_where_nothing_is_known() -> None:
    _, error = nr.NetworkRecovery(random_state=0).fit(X, Y).predict(X, return_std=True)
    assert error.max() < 1e-12
    noise = np.random.default_rng(1).standard_normal(40)
    model = nr.NetworkRecovery(n_hidden=1, random_state=0).fit(X[:40], noise)
    assert model.certificate_.verdict == "failed"
    assert np.isinf(model.predict(X, return_std=True)[1]).all()


def test_names_of_a_frame_and_a_series_are_kept() -> None:
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"dose": rng.uniform(0.0, 10.0, 200), "treated": rng.random(200) < 0.5})
    y = pd.Series(2.0 * np.maximum(frame["dose"] - 4.0, 0.0) + frame["treated"], name="response")
    y = y + rng.standard_normal(200)
    y.name = "response"
    for found in (
        nr.NetworkRecovery(n_hidden=1, affine=True, random_state=0).fit(frame, y).recovery_,
        nr.recover(frame, y, 1, affine=True, random_state=0),
    ):
        names = found.parameter_names()
        assert {"W[0, dose]", "W[0, treated]", "A[response, 0]"} <= set(names)
        assert set(found.to_frame()["weight"]) >= {"dose", "treated"}


def test_columns_that_are_no_numbers_are_refused_together() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1.0, None, 2.0], "day": pd.to_datetime(["2020-01-01"] * 3), "c": [1, 2, 3]})
    with pytest.raises(ValueError, match=r"'day' \(datetime64.*'a' \(1 missing\)") as caught:
        nr.recover(frame, np.zeros(3))
    assert "'c'" not in str(caught.value)


def test_fit_warns_where_nothing_was_recovered() -> None:
    rng = np.random.default_rng(1)
    with pytest.warns(NotRecoveredWarning, match="verdict is failed"):
        nr.NetworkRecovery(n_hidden=1, random_state=0).fit(rng.standard_normal((100, 3)), rng.standard_normal(100))


def test_an_activation_may_be_written_as_in_papers() -> None:
    assert nr.NetworkRecovery(n_hidden=2, activation="ReLU", random_state=0).fit(X, Y).certificate_.verdict == "exact"
