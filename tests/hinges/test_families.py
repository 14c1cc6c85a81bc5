"""Shares and counts: R's figures for a table, and agreement of rows with what they are gathered to."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import binom, poisson

import neurecover as nr
from neurecover.hinges.families import FAMILIES

# Down syndrome by the age of the mother [Davison and Hinkley, 1997, Table 7.3; R's segmented, data(down)].
AGE = np.array([17.0, *np.arange(18.5, 46.0), 47.0])
BIRTHS = np.array([13555, 13675, 18752, 22005, 23896, 24667, 24807, 23986, 22860, 21450, 19202, 17450, 15685, 13954,
                   11987, 10983, 9825, 8483, 7448, 6628, 5780, 4834, 3961, 2952, 2276, 1589, 1018, 596, 327,
                   249.0])  # fmt: skip
CASES = np.array([16, 15, 16, 22, 16, 12, 17, 22, 15, 14, 27, 14, 9, 12, 12, 18, 13, 11, 23, 13, 17, 15, 30, 31, 33, 20,
                  16, 22, 11, 7.0])  # fmt: skip


def test_down_is_as_r_has_it() -> None:
    """segmented(glm(cases/births ~ age, binomial, weights = births)) of R's segmented 1.6-2, K = 1."""
    model = nr.HingeRegression(1, family="binomial", estimate="least_squares")
    model.fit(AGE[:, None], CASES / BIRTHS, sample_weight=BIRTHS)
    figures = {line.name: line for line in model.estimates(method="wald")}
    assert figures["break1"].value == pytest.approx(31.08115062, rel=1e-6)
    assert figures["break1"].error == pytest.approx(0.7242074, rel=1e-5)
    assert (figures["slope1"].value, figures["slope1"].error) == pytest.approx((-0.01341, 0.017947), rel=1e-3)
    assert (figures["slope2"].value, figures["slope2"].error) == pytest.approx((0.26081, 0.014764), rel=1e-3)
    free = nr.HingeRegression(family="binomial").fit(AGE[:, None], CASES / BIRTHS, sample_weight=BIRTHS)
    assert (free.n_hinges_, free.certificate_.verdict) == (1, "statistical")


def test_zeros_and_ones_agree_with_their_shares() -> None:
    rng = np.random.default_rng(1)
    x = np.repeat(np.arange(12.0), 40)
    y = rng.binomial(1, expit(-1.0 + 0.8 * np.maximum(x - 5.0, 0.0)))
    share = y.reshape(12, 40).mean(axis=1)
    rows = nr.HingeRegression(1, family="binomial").fit(x[:, None], y)
    few = nr.HingeRegression(1, family="binomial").fit(x[::40, None], share, sample_weight=np.full(12, 40.0))
    np.testing.assert_allclose(few.breakpoint_intervals_, rows.breakpoint_intervals_, rtol=1e-9)
    np.testing.assert_allclose(few.covariance_, rows.covariance_, rtol=1e-7, atol=1e-12)
    assert few.certificate_.verdict == rows.certificate_.verdict


@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_the_fit_has_the_greatest_likelihood(family: str) -> None:
    """No step of a general minimiser from the fit lowers the deviance."""
    rng = np.random.default_rng(2)
    x = np.sort(rng.uniform(0.0, 10.0, 80))
    eta, w = 0.5 - 0.3 * x + 0.6 * np.maximum(x - 4.0, 0.0), rng.integers(5, 30, 80).astype(float)
    y = (rng.binomial(w.astype(int), expit(eta)) if family == "binomial" else rng.poisson(w * np.exp(eta))) / w
    model = nr.HingeRegression(1, family=family, estimate="least_squares").fit(x[:, None], y, sample_weight=w)
    net = model.network_

    def deviance(theta: np.ndarray) -> float:
        a, b, d, place = theta
        mean = FAMILIES[family].mean(a + b * x + d * np.maximum(x - place, 0.0))
        return float(FAMILIES[family].deviance(y, mean, w).sum())

    start = np.array([net.c[0], net.C[0, 0], net.A[0, 0], -net.b[0]])
    best = minimize(deviance, start, method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-9})
    assert deviance(start) <= best.fun + 1e-5
    np.testing.assert_allclose(model.predict(x[:, None]), FAMILIES[family].mean(net(x[:, None])[:, 0]))


def test_tails_are_those_of_the_distributions() -> None:
    k, mean, w = np.arange(11.0), np.full(11, 0.3), np.full(11, 10.0)
    for name, law in (("binomial", binom(10, 0.3)), ("poisson", poisson(3.0))):
        expected = np.minimum(law.cdf(k), law.sf(k - 1.0))
        np.testing.assert_allclose(FAMILIES[name].tail(k / 10.0, mean, w), expected, rtol=1e-8)


def test_shares_that_scatter_more_are_said_to() -> None:
    """Shares whose probability itself varies from row to row."""
    rng = np.random.default_rng(3)
    x = np.linspace(0.0, 10.0, 60)
    eta = 0.5 - 0.5 * x + 1.0 * np.maximum(x - 4.0, 0.0)
    verdicts = []
    for extra in (0.0, 1.0):
        y = rng.binomial(200, expit(eta + extra * rng.standard_normal(60))) / 200.0
        model = nr.HingeRegression(1, family="binomial").fit(x[:, None], y, sample_weight=np.full(60, 200.0))
        verdicts.append({check.name: check.passed for check in model.certificate_.checks}["dispersion"])
    assert verdicts == [True, False]


@pytest.mark.parametrize("n_hinges", [0, 1])
def test_a_line_without_a_maximum_of_likelihood_is_not_statistical(n_hinges: int) -> None:
    """Zeros below 5 and ones above: the steeper the logit, the better."""
    x = np.linspace(0.0, 10.0, 40)
    model = nr.HingeRegression(n_hinges, family="binomial").fit(x[:, None], (x > 5.0).astype(float))
    assert model.certificate_.verdict != "statistical"
    assert not next(check.passed for check in model.certificate_.checks if check.name == "bounds")
    np.testing.assert_allclose(model.predict(x[:, None]), x > 5.0, atol=1e-3)


def test_what_a_family_does_not_have_is_refused() -> None:
    x, y = np.arange(20.0)[:, None], np.linspace(0.0, 2.0, 20)
    with pytest.raises(ValueError, match="from 0 to 1"):
        nr.HingeRegression(family="binomial").fit(x, y)
    with pytest.raises(ValueError, match="one input"):
        nr.HingeRegression(family="poisson").fit(np.hstack([x, x**2]), y)
    with pytest.raises(ValueError, match="loss='huber'"):
        nr.HingeRegression(family="poisson", loss="huber").fit(x, y)
    with pytest.raises(ValueError, match="family='normal'"):
        nr.HingeRegression(1, family="poisson").fit(x, np.round(y)).predict_interval(x)
