"""The posterior of hinge planes: against one input's quadrature, in its limits, and what it covers."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, t

import neurecover as nr
from neurecover.certificate.information.plane_posterior import DrawOptions, draw_planes, interval
from neurecover.exceptions import NotRecoveredWarning
from neurecover.hinges.checks.planes import further_plane_p_value
from neurecover.hinges.mixture import Mixture
from neurecover.hinges.planes import fit_planes, parameters


def planes(seed: int, n: int, noise: float) -> tuple[nr.Network, np.ndarray, np.ndarray]:
    """Return one hinge plane of two inputs beside a plane, and rows of it."""
    rng = np.random.default_rng(seed)
    truth = nr.Network([[0.8, 0.6]], [0.3], [[1.5]], [1.0], C=[[0.5, -0.3]])
    X = rng.standard_normal((n, 2))
    return truth, X, truth(X)[:, 0] + noise * rng.standard_normal(n)


def test_one_input_has_the_posterior_of_the_quadrature() -> None:
    """The same breaks and slopes by two computations; the ends of 95 % intervals to a quarter of a standard error."""
    rng = np.random.default_rng(1)
    x = rng.uniform(0.0, 10.0, 150)
    y = 1.0 + 0.5 * x + 1.5 * np.maximum(x - 4.0, 0.0) + rng.standard_normal(150)
    line = nr.HingeRegression(1).fit(x[:, None], y)
    known = {one.name: one for one in line.estimates()}
    found = fit_planes(x[:, None], y, None, 1, 8, 0)
    places, means, weight = found.rows
    draws = draw_planes(found.network, places, means[:, None], weight, 0.0, rng, DrawOptions(margin=0.05))
    assert draws is not None
    sign = float(found.network.W[0, 0])
    place = -sign * draws.b
    error = known["break1"].error
    np.testing.assert_allclose(interval(place, 0.95)[0], [known["break1"].low, known["break1"].high], atol=error / 4)
    np.testing.assert_allclose(place.std(), error, rtol=0.1)


def test_with_little_noise_it_is_least_squares() -> None:
    truth, X, y = planes(0, 400, 1e-3)
    model = nr.HingeRegression(1).fit(X, y)
    drawn, wald = (np.array([line.error for line in model.estimates(method=how)]) for how in ("posterior", "wald"))
    np.testing.assert_allclose(drawn, wald, rtol=0.15)
    np.testing.assert_allclose(np.abs(parameters(model.network_)), np.abs(parameters(truth)), atol=2e-3)


def test_intervals_of_planes_cover() -> None:
    """Twelve sets of n = 100: no fewer values than one run in ten thousand would have that covers 0.93 of them."""
    covered, values, sets = 0, 0, 12
    for seed in range(sets):
        truth, X, y = planes(seed, 100, 0.5)
        model = nr.HingeRegression(1).fit(X, y)
        if model.network_.W[0] @ truth.W[0] < 0.0:  # relu(z) = z + relu(−z)
            C, A = truth.C, truth.A
            assert C is not None
            truth = nr.Network(-truth.W, -truth.b, A, truth.c + A @ truth.b, C=C + A @ truth.W)
        for line, value in zip(model.estimates(), parameters(truth)):
            covered += line.low <= value <= line.high
            values += 1
    assert covered >= binom.ppf(1e-4, values, 0.93)


def test_draws_are_asked_for_once_and_anew_after_a_fit() -> None:
    _, X, y = planes(0, 120, 0.5)
    model = nr.HingeRegression(1).fit(X, y)
    first = model.conf_int()
    assert model.conf_int() == first
    model.fit(X, 2.0 * y)
    assert model.conf_int()["change1"][0] == pytest.approx(2.0 * first["change1"][0], rel=0.2)
    assert nr.HingeRegression(0).fit(X, y).conf_int() == nr.HingeRegression(0).fit(X, y).conf_int(method="wald")


def test_planes_at_the_edge_have_least_squares_alone() -> None:
    """No draw is among the data where every plane has to have half of the rows on either side."""
    _, X, y = planes(0, 120, 0.5)
    found = fit_planes(X, y, None, 1, 8, 0)
    options = DrawOptions(margin=0.6)
    places, means, weight = found.rows
    rng = np.random.default_rng(0)
    assert draw_planes(found.network, places, means[:, None], weight, 0.0, rng, options) is None


def test_quantiles_of_mixtures_are_the_roots_of_their_distribution_function() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 7, 200):
        weight = rng.dirichlet(np.ones(size))
        mixture = Mixture(rng.standard_normal(size), rng.uniform(0.01, 2.0, size), weight, 4.0, np.zeros(size))
        levels = np.array([0.001, 0.025, 0.5, 0.9])
        found = mixture.quantiles(levels)
        below = t.cdf((found[:, None] - mixture.centre) / mixture.scale, 4.0) @ weight
        np.testing.assert_allclose(below, levels, atol=1e-6)
    point = Mixture(np.array([3.0]), np.zeros(1), np.ones(1), 4.0, np.zeros(1))
    np.testing.assert_array_equal(point.quantiles(np.array([0.1, 0.9])), [3.0, 3.0])


def test_the_test_of_no_hinge_has_its_size_and_sees_a_hinge() -> None:
    rejected = seen = 0
    for seed in range(100):
        rng = np.random.default_rng([seed, 41])
        X = rng.standard_normal((80, 3))
        plane, y = np.column_stack([np.ones(80), X]), X @ [1.0, -1.0, 0.5] + rng.standard_normal(80)
        rejected += further_plane_p_value(X, y, np.ones(80), plane, rng) <= 0.05
        if seed < 20:
            bent = y + 3.0 * np.maximum(X[:, 0] + X[:, 1], 0.0)
            seen += further_plane_p_value(X, bent, np.ones(80), plane, rng) <= 0.01
    assert rejected <= binom.ppf(0.9999, 100, 0.05)
    assert seen >= 18


def test_a_frame_gives_its_names_and_a_failed_fit_warns() -> None:
    rng = np.random.default_rng(3)
    X = pd.DataFrame(rng.standard_normal((60, 2)), columns=["dose", "age"])
    with pytest.warns(NotRecoveredWarning, match="failed"):
        model = nr.HingeRegression(1).fit(X, pd.Series(rng.standard_normal(60), name="response"))
    assert set(model.recovery_.to_frame()["weight"]) >= {"dose", "age"}
    assert model.no_hinge_pvalue_ > 0.01
    assert "no hinge: p" in model.summary()
