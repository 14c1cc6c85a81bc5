"""HingeRegression is a scikit-learn regressor, and says breaks, slopes and how far they can be trusted."""

from dataclasses import replace
from functools import partialmethod
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import parametrize_with_checks

import neurecover as nr
from neurecover.certificate.from_segments import certify_segments
from neurecover.hinges.certifying import certificate_facts
from neurecover.search import SearchOptions


def kinked(seed: int, n: int = 100, noise: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 10.0, n)
    return x[:, None], 1.0 + 0.5 * x + 2.0 * np.maximum(x - 4.0, 0.0) + noise * rng.standard_normal(n)


@parametrize_with_checks([nr.HingeRegression(n_hinges=1)])
@pytest.mark.filterwarnings("ignore:Residuals of neighbours")
def test_estimator_checks(estimator: BaseEstimator, check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six fits in place of four hundred: what is checked here is how the estimator behaves, on samples of no hinge."""
    monkeypatch.setattr(SearchOptions, "__init__", partialmethod(SearchOptions.__init__, max_fits=6))
    check(estimator)


def test_a_law_without_noise_is_exact() -> None:
    X, y = kinked(0, noise=0.0)
    model = nr.HingeRegression().fit(X, y)
    assert (model.n_hinges_, model.certificate_.verdict) == (1, "exact")
    np.testing.assert_allclose(model.breakpoints_, [4.0], rtol=1e-12)
    np.testing.assert_allclose(model.slopes_, [0.5, 2.5], rtol=1e-12)
    np.testing.assert_allclose(model.intercepts_, [1.0, -7.0], rtol=1e-11)
    np.testing.assert_allclose(model.predict(X), y, rtol=1e-12)


def test_a_straight_line_has_no_hinge() -> None:
    x = np.random.default_rng(1).uniform(0.0, 10.0, 100)
    for noise in (0.0, 1.0):
        y = 3.0 - 0.2 * x + noise * np.random.default_rng(2).standard_normal(100)
        model = nr.HingeRegression().fit(x[:, None], y)
        assert model.n_hinges_ == 0
        assert model.certificate_.verdict == ("statistical" if noise else "exact")
        slope, constant = np.polyfit(x, y, 1)
        np.testing.assert_allclose([model.slopes_[0], model.intercepts_[0]], [slope, constant], rtol=1e-9)
        assert "straight line" in model.summary()


def test_the_network_is_the_line() -> None:
    X, y = kinked(3)
    model = nr.HingeRegression().fit(X, y)
    grid = np.linspace(0.0, 10.0, 50)
    segment = np.searchsorted(model.breakpoints_, grid)
    np.testing.assert_allclose(
        model.predict(grid[:, None]), model.intercepts_[segment] + model.slopes_[segment] * grid, rtol=1e-10
    )
    assert model.recovery_.network is model.network_
    assert model.recovery_.to_frame()["standard_error"].max() > 0.0
    assert "verdict" in model.recovery_.summary()


@pytest.mark.filterwarnings("ignore:Residuals of neighbours")
def test_intervals_cover_the_truth() -> None:
    covered = {"posterior": 0, "profile": 0}
    inside, seeds = 0, range(100, 180)
    for seed in seeds:
        X, y = kinked(seed)
        model = nr.HingeRegression(n_hinges=1).fit(X, y)
        for method in covered:
            low, high = model.conf_int(method=method)["break1"]
            covered[method] += low <= 4.0 <= high
        low, high = model.predict_interval(np.array([[7.0]]))[0]
        inside += low <= 10.5 + np.random.default_rng(seed + 1000).standard_normal() <= high
    least = binom.ppf(1e-4, len(seeds), 0.95)
    assert min(*covered.values(), inside) >= least


def test_wald_is_least_squares_to_first_order() -> None:
    X, y = kinked(5)
    model = nr.HingeRegression(n_hinges=1, estimate="least_squares").fit(X, y)
    lines = {line.name: line for line in model.estimates(method="wald")}
    x, psi, delta = X[:, 0], lines["break1"].value, lines["change1"].value
    J = np.column_stack([np.ones(100), x, np.maximum(x - psi, 0.0), -delta * (x > psi)])
    rss = float(np.sum((y - model.predict(X)) ** 2))
    errors = np.sqrt(np.diag(np.linalg.inv(J.T @ J)) * rss / 96)
    names = ("const", "x", "change1", "break1")
    np.testing.assert_allclose([lines[name].error for name in names], errors, rtol=1e-8)
    np.testing.assert_array_equal(model.breakpoints_, [psi])


def test_rows_that_repeat_are_observations() -> None:
    rng = np.random.default_rng(0)
    dose = np.repeat(np.linspace(0.0, 10.0, 11), 60)
    y = np.round((1.0 + 0.5 * dose + np.maximum(dose - 4.3, 0.0) + rng.standard_normal(660)) * 2.0) / 2.0
    model = nr.HingeRegression().fit(dose[:, None], y)
    assert (model.n_hinges_, model.certificate_.verdict) == (1, "statistical")
    low, high = model.breakpoint_intervals_[0]
    assert low < 4.3 < high < low + 1.5


def test_outliers_are_named_and_have_no_weight() -> None:
    X, y = kinked(7, n=600)
    wrong = np.arange(0, 600, 50)
    spoilt = y.copy()
    spoilt[wrong] += 30.0 * (-1.0) ** np.arange(len(wrong))
    clean = nr.HingeRegression(n_hinges=1).fit(X, y)
    plain = nr.HingeRegression(n_hinges=1).fit(X, spoilt)
    assert plain.certificate_.verdict != "statistical"
    assert len(plain.outliers_)
    for loss in ("huber", "tukey"):
        model = nr.HingeRegression(n_hinges=1, loss=loss).fit(X, spoilt)
        assert set(wrong) <= set(model.outliers_)
        assert len(model.outliers_) <= len(wrong) + 1
        assert abs(model.breakpoints_[0] - clean.breakpoints_[0]) < 0.1


def test_neighbours_that_go_together_bring_a_warning() -> None:
    rng = np.random.default_rng(0)
    noise = rng.standard_normal(200)
    for i in range(1, 200):
        noise[i] += 0.5 * noise[i - 1]
    x = np.arange(200.0)
    with pytest.warns(UserWarning, match="neighbours go together"):
        model = nr.HingeRegression(n_hinges=0).fit(x[:, None], 0.01 * x + noise)
    assert model.certificate_.verdict == "approximate"


def test_a_jump_and_a_curve_are_named() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 10.0, 200)
    for y, words in ((np.where(x > 6.0, 3.0, 0.0), "jump"), (0.2 * (x - 5.0) ** 2, "polynomial|curve")):
        model = nr.HingeRegression().fit(x[:, None], 0.5 * x + y + 0.3 * rng.standard_normal(200))
        assert model.certificate_.verdict == "approximate"
        assert any(word in " ".join(model.certificate_.reasons) for word in words.split("|"))


@pytest.mark.filterwarnings("ignore:Residuals of neighbours")
def test_weights_are_repetitions() -> None:
    X, y = kinked(9)
    weight = np.random.default_rng(0).integers(0, 4, 100)
    weighted = nr.HingeRegression(n_hinges=1).fit(X, y, sample_weight=weight)
    repeated = nr.HingeRegression(n_hinges=1).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(weighted.breakpoint_intervals_, repeated.breakpoint_intervals_, rtol=1e-9)
    np.testing.assert_allclose(weighted.covariance_, repeated.covariance_, rtol=1e-8)


def test_planes_of_several_inputs() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.standard_normal((300, 2)), columns=["age", "dose"])
    w = np.array([0.6, 0.8])
    y = 1.0 + X @ [0.5, -1.0] + 2.0 * np.maximum(X @ w - 0.3, 0.0) + 0.3 * rng.standard_normal(300)
    model = nr.HingeRegression().fit(X, y)
    assert model.n_hinges_ == 1
    lines = {line.name: line for line in model.estimates()}
    truths = {"w1[age]": 0.6, "w1[dose]": 0.8, "b1": -0.3, "change1": 2.0, "const": 1.0, "age": 0.5, "dose": -1.0}
    assert set(truths) == set(lines)
    for name, truth in truths.items():
        assert abs(lines[name].value - truth) < 4.5 * lines[name].error
    flat = nr.HingeRegression().fit(X, X @ [0.5, -1.0] + rng.standard_normal(300))
    assert flat.n_hinges_ == 0
    assert model.predict(X, return_std=True)[1].max() < 0.3


def test_plot_shows_breaks() -> None:
    X, y = kinked(1)
    figure = nr.HingeRegression().fit(pd.DataFrame(X, columns=["dose"]), y).plot()
    assert figure.axes[0].get_xlabel() == "dose"


@pytest.mark.filterwarnings("ignore:Residuals of neighbours")
def test_the_recovery_of_a_line_has_names_covariance_and_likelihood() -> None:
    X, y = kinked(4)
    model = nr.HingeRegression().fit(pd.DataFrame(X, columns=["dose"]), pd.Series(y, name="response"))
    found = model.recovery_
    low, high = found.conf_int()["b[0]"]
    assert low < -4.0 < high
    error = np.sqrt(np.diag(found.covariance()))[found.parameter_names().index("A[response, 0]")]
    assert error == pytest.approx(np.sqrt(model.covariance_[2, 2]))
    straight = nr.HingeRegression(n_hinges=0).fit(X, y).recovery_
    assert found.compare_models(straight).bic < 0.0


@pytest.mark.parametrize("estimator", [nr.HingeRegression(), nr.NetworkRecovery()])
def test_dates_and_missing_values_are_refused_with_all_columns(estimator: BaseEstimator) -> None:
    table = pd.DataFrame({"a": [1.0, np.nan, 2.0], "b": pd.date_range("2020", periods=3), "c": [1.0, 2.0, 3.0]})
    with pytest.raises(ValueError, match=r"'b'.*'a' \(1 missing\)"):
        estimator.fit(table, np.arange(3.0))


@pytest.mark.parametrize("repeats", [1, 2])
def test_outliers_beside_planes_are_named_by_their_rows_and_lose_their_weight(repeats: int) -> None:
    """With repeated inputs too; the rows are those that were given, in their order."""
    rng = np.random.default_rng(3)
    X = np.repeat(rng.uniform(-1.0, 1.0, (300 // repeats, 2)), repeats, axis=0)
    truth = nr.Network([[0.8, 0.6]], [0.1], [[2.0]], [1.0], C=[[0.5, -0.3]])
    y = truth(X)[:, 0] + 0.2 * rng.standard_normal(300)
    wrong = np.array([7, 60, 151, 290])
    spoilt = y.copy()
    spoilt[wrong] += [9.0, -9.0, 9.0, -9.0]
    clean = nr.HingeRegression(n_hinges=1).fit(X, y)
    plain = nr.HingeRegression(n_hinges=1).fit(X, spoilt)
    assert 2 <= len(plain.outliers_) <= len(wrong)  # least squares may have bent to one of them
    assert set(plain.outliers_) <= set(wrong)
    assert any("far off the fit, counted from 0: 7, 60" in reason for reason in plain.certificate_.reasons)
    model = nr.HingeRegression(n_hinges=1, loss="tukey").fit(X, spoilt)
    assert set(wrong) <= set(model.outliers_)
    assert len(model.outliers_) <= len(wrong) + 1
    assert any("tukey" in reason for reason in model.certificate_.reasons)
    assert np.abs(model.predict(X) - clean.predict(X)).max() < 0.15 < np.abs(plain.predict(X) - clean.predict(X)).max()


def test_cross_validation_is_that_of_fits_to_the_other_rows() -> None:
    X, y = kinked(11)
    model = nr.HingeRegression().fit(X, y)
    errors = model.cross_validate(most=2, folds=5)
    part = np.argsort(np.argsort(X[:, 0])) % 5
    expected = np.zeros(3)
    for own in range(5):
        for k in range(3):
            other = nr.HingeRegression(k, estimate="least_squares").fit(X[part != own], y[part != own])
            expected[k] += np.sum((other.predict(X[part == own]) - y[part == own]) ** 2) / len(y)
    np.testing.assert_allclose(errors, expected, rtol=1e-9)
    assert errors[1] < 0.5 * errors[0]
    assert "rows left out, 5 folds" in model.summary(folds=5)
    with pytest.raises(ValueError, match="folds"):
        model.cross_validate(folds=1)


def test_cross_validation_of_counts_is_their_deviance() -> None:
    rng = np.random.default_rng(12)
    x = np.sort(rng.uniform(0.0, 10.0, 150))
    y = rng.poisson(np.exp(2.0 - 0.3 * x + 0.6 * np.maximum(x - 4.0, 0.0)))
    errors = nr.HingeRegression(1, family="poisson").fit(x[:, None], y).cross_validate(folds=5)
    assert errors[1] < 0.8 * errors[0]
    assert errors[1] == pytest.approx(1.0, abs=6.0 * (2.0 / 150) ** 0.5)  # a deviance has the mean of about one


@pytest.mark.filterwarnings("ignore:Residuals of neighbours")
def test_a_straight_line_that_is_rejected_is_not_statistical() -> None:
    """Neither where it was told, nor where three distinct inputs have no room for a hinge."""
    X, y = kinked(1)
    for model in (nr.HingeRegression(0).fit(X, y), nr.HingeRegression().fit(np.floor(X / 3.4), y)):
        assert (model.n_hinges_, model.certificate_.verdict) == (0, "approximate")
        assert "straight line does as well" not in model.summary()


@pytest.mark.parametrize("told", [1, 2])
def test_a_spare_hinge_is_not_exact(told: int) -> None:
    X, y = kinked(1, noise=0.0)
    model = nr.HingeRegression(told).fit(X, X[:, 0] if told == 1 else y)
    assert model.certificate_.verdict == "approximate"
    assert any("no more than rounding too" in reason for reason in model.certificate_.reasons)


def test_a_curve_through_half_of_the_rows_is_not_exact() -> None:
    X, y = kinked(1, noise=0.0)
    model = nr.HingeRegression(1, loss="huber").fit(X, y)
    assert model.certificate_.verdict == "exact"
    np.testing.assert_allclose(model.breakpoints_, [4.0], rtol=1e-9)
    facts = certificate_facts(model._found, model.certificate_.standard_errors)
    assert certify_segments(replace(facts, outliers=tuple(range(30)))).verdict == "approximate"


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_numbers_whose_squares_are_none_are_refused(scale: float) -> None:
    X, y = kinked(1)
    for rows in ((X * scale, y), (X, y * scale)):
        with pytest.raises(ValueError, match="another unit"):
            nr.HingeRegression().fit(*rows)
