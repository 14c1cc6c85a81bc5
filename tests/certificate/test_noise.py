"""Tests of noise that hold whatever its law: their size under noise, their power against a missing unit, coverage."""

import numpy as np
import pytest
from scipy.stats import binom

import neurecover as nr
from benchmarks import hostile
from benchmarks.coverage import deviations, measure
from neurecover.certificate import advice
from neurecover.certificate.information.matrix import Information
from neurecover.certificate.information.standard_errors import standard_errors
from neurecover.data import ArraySource, Whitening, reduce
from neurecover.statistics import InfluenceSums, InformationSums, ProbeScores, SerialResiduals, sketch
from neurecover.statistics.checks.influence import SKETCH


def probability(truth: nr.Network, X: np.ndarray, Y: np.ndarray, rng: np.random.Generator) -> float:
    """That of the scores of ten random units after one Gauss–Newton step from the truth: a fit, to first order."""
    samples, probes = ArraySource(X, Y), rng.standard_normal((10, X.shape[1] + 1))
    information = Information.of(reduce(samples, InformationSums.of(truth, True, probes)))
    P = len(information.F)
    theta = np.concatenate([truth.W.ravel(), truth.b, truth.A.ravel(), truth.c])
    theta = theta + information.inverse @ information.score[:P]
    (k, d), p = truth.W.shape, truth.n_outputs
    W, b, A, c = np.split(theta, np.cumsum([k * d, k, p * k]))
    fitted = nr.Network(W.reshape(k, d), b, A.reshape(p, k), c)
    information = Information.of(reduce(samples, InformationSums.of(fitted, True, probes)))
    return reduce(samples, ProbeScores(fitted, information.free, probes, information.explained)).p_value()


def test_robust_scores_keep_their_size_and_see_a_missing_unit() -> None:
    """Noise in proportion to an input: 60 p-values below 0.05 as often as they should be, to 4 standard deviations."""
    low, seen = 0, 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        truth = nr.simulate.teacher(3, 2, 1, random_state=seed)
        X = rng.standard_normal((600, 3))
        noise = 0.1 * np.abs(X[:, :1]) * rng.standard_normal((600, 1))
        low += probability(truth, X, truth(X) + noise, rng) < 0.05
        if seed < 12:
            more = nr.simulate.teacher(3, 1, 1, random_state=1_000 + seed)
            seen += probability(truth, X, truth(X) + 0.5 * more(X) + noise, rng) < 1e-3
    assert binom.sf(low - 1, 60, 0.05) > 3e-5
    assert seen >= 9


def test_left_out_residuals_are_those_of_a_fit_without_the_sample() -> None:
    """For a linear model, r/(1 − h) is exactly what the fit to the others leaves."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((40, 3)), rng.standard_normal((40, 1))
    line = nr.Network(np.zeros((0, 3)), None, np.zeros((1, 0)), [float(Y.mean())])
    F = np.array([[40.0]])
    sums = InfluenceSums(line, np.array([0]), np.linalg.inv(F), np.sqrt(np.linalg.inv(F)))
    sums.update(X, Y)
    others = np.array([Y[i, 0] - np.delete(Y, i).mean() for i in range(40)])
    np.testing.assert_allclose(sums.sums["left_out"], np.sum(others**2), rtol=1e-12)
    np.testing.assert_allclose(sums.sums["left_out_squared"], np.sum(others**4), rtol=1e-12)
    assert sums.influence().freedom == pytest.approx(2 * np.mean(others**2) ** 2 / np.var(others**2))


@pytest.mark.parametrize("family", ["t with 3 degrees of freedom", "in proportion to the output, plus 0.7"])
def test_intervals_cover_under_other_noise_than_gaussian(family: str) -> None:
    """Three seeds, k given: nothing false, some claims, and 29 deviations each of which 95 % should be inside.

    They are correlated; counted as 10 independent ones per network, four standard deviations are 4·√(0.05·0.95/10c).
    """
    row = measure(family, range(501, 507, 2), lambda items, label: items)
    claims = int(str(row["statistical"]))
    assert claims >= 1
    assert row["false"] == 0
    assert float(str(row["covered in %"])) >= 95 - 400 * np.sqrt(0.05 * 0.95 / (10 * claims))


def test_rows_that_depend_on_one_another_get_no_error_bars() -> None:
    row = measure("AR(0.9) in inputs and noise", range(501, 503, 2), lambda items, label: items)
    assert row["statistical"] == 0


@pytest.mark.usefixtures("steps_for_seconds")
def test_a_kink_that_noise_may_have_made_is_not_vouched_for() -> None:
    """The unit is on for every row, so the truth is straight; a kink through the last few rows explains noise alone."""
    truth = nr.Network([[1.0]], [1.001], [[1.0]], [0.0])
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = np.sin(2.0 * rng.uniform(-1.0, 1.0, 300))[:, None]
        Y = truth(X) + 0.01 * rng.standard_normal((300, 1))
        r = nr.recover(X, Y, n_hidden=1, random_state=0, time_budget=1)
        assert r.certificate.verdict not in ("exact", "statistical"), seed


@pytest.mark.usefixtures("steps_for_seconds")
@pytest.mark.parametrize("how", ["steps that are no decimals", "clipped noise"])
def test_values_that_noise_does_not_repeat(how: str) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, truth = rng.standard_normal((300, 2)), nr.Network([[0.6, 0.8]], [-0.3], [[1.0]], [0.1234567])
        Y = truth(X)
        if how == "clipped noise":
            Y = Y + 0.05 * rng.standard_normal(Y.shape)
            Y = np.minimum(Y, np.quantile(Y, 0.95))
        else:
            Y = np.round(Y / 0.00037) * 0.00037
        r = nr.recover(X, Y, n_hidden=1, random_state=0, time_budget=1)
        assert r.certificate.verdict not in ("exact", "statistical"), seed


@pytest.mark.usefixtures("steps_for_seconds")
def test_two_units_on_one_plane_may_be_one_and_a_straight_function() -> None:
    """The truth has a unit that is always on; relu(z) and relu(−z) on the plane of another give the same function."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 2))
    truth = nr.Network([[0.6, 0.8], [1.0, 0.0]], [0.1, 50.0], [[1.0, 0.7]])
    for noise in (0.0, 0.01):
        Y = truth(X) + noise * rng.standard_normal((400, 1))
        for k in (2, None):
            r = nr.recover(X, Y, n_hidden=k, random_state=0, time_budget=2)
            assert r.certificate.verdict not in ("exact", "statistical"), (noise, k)


def test_leverages_of_many_parameters_are_sketched() -> None:
    """‖J R Ξ‖²/m is ‖J R‖² on average, and off by √(2/m) of it: 18 % for 64 columns, within five times that here."""
    rng = np.random.default_rng(6)
    J, root = rng.standard_normal((50, 300)), rng.standard_normal((300, 300))
    assert sketch(root[:, :200]).shape == (300, 200)
    exact, about = np.sum((J @ root) ** 2, axis=1), np.sum((J @ sketch(root)) ** 2, axis=1)
    np.testing.assert_allclose(about, exact, rtol=5 * np.sqrt(2 / SKETCH))


@pytest.mark.usefixtures("steps_for_seconds")
def test_what_a_clean_output_determines_has_the_error_of_rounding() -> None:
    """Of two outputs one is small and noisy: weights that the other shows are off by rounding, within their errors.

    Three seeds; which of them are claimed depends on how a processor rounds.
    """
    for seed in range(301, 304):
        case = hostile.draw("small_output", seed)
        found = nr.recover(case.X, case.Y, random_state=seed, time_budget=2)
        if found.certificate.verdict != "statistical":
            continue
        assert found.certificate.standard_errors is not None
        assert found.certificate.standard_errors.b.min() > np.finfo(float).eps  # no number is known better
        z = deviations(found, case.truth)
        assert z is not None
        assert np.abs(z).max() < 5.0


def test_no_standard_error_is_below_rounding() -> None:
    """Unit 0 writes to a clean output alone, whose residuals are zero: so would be the variances of its weights."""
    rng = np.random.default_rng(0)
    network = nr.Network(np.eye(2), [0.3, -0.2], np.eye(2), [0.1, 0.2])
    X = rng.standard_normal((300, 2))
    Y = network(X)
    Y[:, 1] += 0.1 * rng.standard_normal(300)
    sums = InformationSums.of(network)
    sums.update(X, Y)
    white, samples = Whitening(np.zeros(2), np.eye(2)), ArraySource(X, Y)
    errors = standard_errors(Information.of(sums), network, white, samples, None, 0.01, True, None).arrays
    clean, noisy = (np.array([*errors["W"][j], errors["b"][j], errors["A"][j, j]]) for j in range(2))
    assert np.all(clean > np.finfo(float).eps)
    assert np.all(clean < 1e-10)
    assert np.all(noisy[[0, 2, 3]] > 1e-3)  # along the row itself the error is of second order


def test_independent_rows_are_not_called_dependent_where_biases_are_missing() -> None:
    """Residuals of a wrong network have a mean: centred, each of four tests fails by chance in one of a thousand."""
    for seed in range(4):
        truth = nr.simulate.teacher(2, 2, 1, bias=0.7, random_state=seed)
        X, Y = nr.simulate.sample(truth, 1_000, noise=0.1, random_state=seed)
        wrong = nr.recover(X, Y, 2, bias=False, random_state=0)
        checks = wrong.certificate.checks
        assert wrong.certificate.verdict in ("approximate", "failed")
        assert all(check.passed for check in checks if check.name == "independence")
        assert any("bias=True" in tip for tip in advice(wrong.certificate))


def test_a_network_without_biases_passes_the_test_of_the_mean() -> None:
    truth = nr.simulate.teacher(5, 4, 1, bias=0.0, random_state=1)
    X, Y = nr.simulate.sample(truth, 3_000, noise=0.1, random_state=1)
    r = nr.recover(X, Y, 4, bias=False, random_state=0)
    assert r.certificate.verdict == "statistical", r.certificate.reasons
    assert any("fixed at zero, the residual has mean zero" in check.sentence for check in r.certificate.checks)


def test_the_correlation_of_neighbours_is_that_of_centred_residuals() -> None:
    rng = np.random.default_rng(0)
    net = nr.simulate.teacher(3, 2, 2, random_state=0)
    X = rng.standard_normal((400, 3))
    R = rng.exponential(size=(400, 2)) + np.array([3.0, -1.0])
    sums = SerialResiduals(net)
    sums.update(X, net(X) + R)
    centred = R - R.mean(axis=0)
    pairs = centred[1:] * centred[:-1]
    np.testing.assert_allclose(sums.z(), pairs.sum(axis=0) / np.sqrt(np.sum(pairs**2, axis=0)), rtol=1e-9)
    spread = np.sqrt(np.sum(centred**2, axis=0))
    np.testing.assert_allclose(sums.mean_z(), R.sum(axis=0) / spread, rtol=1e-9)


def test_copies_of_rows_are_no_observations() -> None:
    """Every row written down twice halves the variance that is stated: not certified, and the reason is named first.

    Doses that repeat with rounded responses are observations.
    """
    truth = nr.simulate.teacher(4, 2, random_state=0)
    X, Y = nr.simulate.sample(truth, 400, noise=0.1, random_state=0)
    assert nr.recover(X, Y, 2, random_state=0).certificate.verdict == "statistical"
    found = nr.recover(np.repeat(X, 2, axis=0), np.repeat(Y, 2, axis=0), 2, random_state=0).certificate
    assert found.verdict == "approximate"
    assert any("50% of the rows are copies" in check.sentence for check in found.checks)
    rng = np.random.default_rng(0)
    dose = np.repeat(np.arange(11.0), 60)
    response = np.round(2.0 * (1.0 + 2.0 * np.maximum(dose - 4.5, 0.0) + rng.standard_normal(660))) / 2.0
    checks = nr.recover(dose[:, None], response, 1, random_state=0).certificate.checks
    assert not any("are copies" in check.sentence for check in checks)
