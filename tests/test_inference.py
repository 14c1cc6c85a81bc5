"""Intervals, tests, comparisons and predictions from a statistical answer."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import f, norm, t

import neurecover as nr
from neurecover.inference import freedom_of, intervals, wald_test


def kinked(seed: int = 0, n: int = 400, slope: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 10.0, n)
    return x[:, None], 1.0 + slope * x + 2.0 * np.maximum(x - 4.0, 0.0) + rng.standard_normal(n)


@pytest.fixture(scope="module")
def found() -> nr.Recovery:
    recovery = nr.recover(*kinked(), n_hidden=1, affine=True, random_state=0)
    assert recovery.certificate.verdict == "statistical"
    return recovery


def test_the_covariance_has_the_standard_errors_in_the_order_of_the_names(found: nr.Recovery) -> None:
    names = found.parameter_names()
    assert sorted(names) == ["A[y0, 0]", "C[y0, x0]", "W[0, x0]", "b[0]", "c[y0]"]
    errors = found.certificate.standard_errors
    assert errors is not None
    wanted = [errors[name[0]].item() for name in names]
    np.testing.assert_allclose(np.sqrt(np.diag(found.covariance())), wanted, rtol=1e-10, atol=1e-12)
    for level, name in ((0.9, "A"), (0.95, "A"), (0.999, "b")):
        freedom = freedom_of(found.certificate)[[one[0] for one in names].index(name)]
        reach = t.ppf(0.5 + level / 2, freedom) / t.ppf(0.975, freedom) * norm.ppf(0.975) * errors[name].item()
        value = getattr(found.network, name).item()
        ends = found.conf_int(level)[next(one for one in names if one[0] == name)]
        np.testing.assert_allclose(ends, [value - reach, value + reach])
    # The slope on the right of the kink is known better than its two parts.
    assert found.covariance()[names.index("A[y0, 0]"), names.index("C[y0, x0]")] < 0.0


def test_names_of_several_outputs_and_layers() -> None:
    truth = nr.simulate.teacher(3, 2, 2, random_state=1)
    X, Y = nr.simulate.sample(truth, 2000, noise=0.05, random_state=1)
    two = nr.recover(X, Y, n_hidden=2, random_state=0)
    names, errors = two.parameter_names(), two.certificate.standard_errors
    assert errors is not None
    assert names[:4] == ["W[0, x0]", "W[0, x1]", "W[0, x2]", "W[1, x0]"]
    place = {name: i for i, name in enumerate(names)}
    np.testing.assert_allclose(two.covariance()[place["A[y1, 0]"]][place["A[y1, 0]"]], errors["A"][1, 0] ** 2)


def test_wald_tests(found: nr.Recovery) -> None:
    names, Sigma = found.parameter_names(), found.covariance()
    one = found.test("C[y0, x0]", 0.5)
    assert found.network.C is not None
    a, c = names.index("A[y0, 0]"), names.index("C[y0, x0]")
    z = (found.network.C[0, 0] - 0.5) / np.sqrt(Sigma[c, c])
    freedom = freedom_of(found.certificate)[c]
    p_value = 2.0 * t.sf(abs(z) * t.ppf(0.975, freedom) / norm.ppf(0.975), freedom)
    np.testing.assert_allclose([one.statistic, one.p_value], [z**2, p_value], rtol=1e-8)
    assert one.p_value > 1e-3
    assert found.test("A[y0, 0]").p_value < 1e-10
    both = found.test(["C[y0, x0]", {"C[y0, x0]": 1.0, "A[y0, 0]": 1.0}], [0.5, 2.5])
    R = np.zeros((2, 5))
    R[:, c], R[1, a] = 1.0, 1.0
    apart = np.array([found.network.C[0, 0] - 0.5, found.network.C[0, 0] + found.network.A[0, 0] - 2.5])
    statistic = apart @ np.linalg.solve(R @ Sigma @ R.T, apart)
    np.testing.assert_allclose([both.statistic, both.freedom], [statistic, 2], rtol=1e-8)
    # A hypothesis said twice is one.
    twice = found.test(np.vstack([R, R]), [0.5, 2.5, 0.5, 2.5])
    np.testing.assert_allclose([twice.statistic, twice.freedom], [statistic, 2], rtol=1e-6)
    with pytest.raises(ValueError, match="names weights as conf_int does"):
        found.test("slope")
    assert len(names) == 5


def test_errors_that_few_residuals_carry_hold_at_every_level() -> None:
    """Errors from 5 squares, widened to 1.96 at 95 %: shares of 40,000 draws to four standard deviations."""
    rng, n = np.random.default_rng(0), 40_000
    values, freedom = rng.standard_normal(n), np.full(n, 5.0)
    errors = np.sqrt(rng.chisquare(5.0, n) / 5.0) * t.ppf(0.975, 5) / norm.ppf(0.975)
    for level in (0.9, 0.95, 0.99, 0.999):
        low, high = intervals(values, errors[:, None], level, freedom).T
        assert abs(np.mean((low <= 0.0) & (high >= 0.0)) - level) < 4 * np.sqrt(level * (1 - level) / n)
    # The test of one weight rejects where its interval does not hold the value.
    for value, error in zip(values[:20] * 4, errors[:20]):
        made = wald_test(np.array([value]), np.array([[error]]), np.eye(1), 0.0, np.array([5.0]))
        (low, high), *_ = intervals(np.array([value]), np.array([[error]]), 1.0 - made.p_value, 5.0)
        np.testing.assert_allclose(min(abs(low), abs(high)), 0.0, atol=1e-9 * abs(value))


def test_models_are_compared_on_the_same_samples(found: nr.Recovery) -> None:
    X, y = kinked()
    plain = nr.recover(X, y, n_hidden=1, random_state=0)
    compared = found.compare_models(plain)
    rss = [float(np.sum((y - r.network(X)[:, 0]) ** 2)) for r in (found, plain)]
    np.testing.assert_allclose(compared.likelihood_ratio, 400 * np.log(rss[1] / rss[0]), rtol=1e-6)
    assert compared.freedom == 1
    np.testing.assert_allclose(compared.bic, -compared.likelihood_ratio + np.log(400), rtol=1e-8)
    assert compared.p_value is not None
    assert compared.p_value < 1e-3
    assert plain.compare_models(found).p_value == pytest.approx(compared.p_value)
    assert f.sf(compared.likelihood_ratio, 1, 395) < 1e-3
    with pytest.raises(ValueError, match="same samples"):
        found.compare_models(nr.recover(*kinked(1, 300), n_hidden=1, affine=True, random_state=0))


def test_predictions_have_errors_and_intervals_that_cover(found: nr.Recovery) -> None:
    """400 further samples: 0.95 of them, to four standard deviations of the count."""
    X, y = kinked(5)
    Y, error = found.predict(X, return_std=True)
    np.testing.assert_array_equal(Y, found.network(X))
    J = np.column_stack([np.ones(400), X, np.maximum(X[:, 0] - 4.0, 0.0), -2.0 * (X[:, 0] > 4.0)])
    plain = np.sqrt(np.einsum("ij,jk,ik->i", J, np.linalg.inv(J.T @ J), J))
    np.testing.assert_allclose(np.median(error[:, 0] / plain), 1.0, atol=0.2)
    low, high = found.predict_interval(X)[:, 0].T
    covered = np.mean((low <= y) & (y <= high))
    assert abs(covered - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 400)


def test_what_was_saved_says_the_same(found: nr.Recovery, tmp_path: Path) -> None:
    found.save(tmp_path / "r.npz")
    again = nr.Recovery.load(tmp_path / "r.npz")
    np.testing.assert_array_equal(again.covariance(), found.covariance())
    assert again.conf_int(0.99) == found.conf_int(0.99)
    assert again.certificate.likelihood == found.certificate.likelihood


def test_an_answer_without_errors_says_so() -> None:
    X = np.random.default_rng(0).standard_normal((200, 2))
    exact = nr.recover(X, nr.simulate.teacher(2, 1, random_state=0)(X), random_state=0)
    with pytest.raises(ValueError, match="Got exact, where every weight is right"):
        exact.conf_int()
    np.testing.assert_array_equal(exact.predict(X), exact.network(X))


def test_the_report_has_the_weights_with_intervals_above_the_checks(found: nr.Recovery, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    found.to_html(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert 0 < page.index('id="coefficients"') < page.index('id="checks"')
    for name in found.parameter_names():
        assert f'<td class="name">{name}</td>' in page


def test_outputs_with_unequal_noise_have_intervals_of_their_own(tmp_path: Path) -> None:
    """Noise of 0.3 and 0.01: the loud output's intervals hold 0.95 of 2,000 samples, to four standard deviations.

    Errors of the network, which all samples share, are a good part of the quiet one's, so that these may hold more. The
    least errors that dividing by the noise could give are √(mean(v)·mean(1/v)) ≈ 15 times smaller.
    """
    truth, noise = nr.simulate.teacher(3, 2, 2, random_state=3), np.array([0.3, 0.01])
    rng = np.random.default_rng(0)
    X, fresh = rng.standard_normal((1_000, 3)), rng.standard_normal((2_000, 3))
    made = nr.recover(X, truth(X) + noise * rng.standard_normal((1_000, 2)), n_hidden=2, random_state=0)
    assert made.certificate.verdict == "statistical"
    made.save(tmp_path / "r.npz")
    read = nr.Recovery.load(tmp_path / "r.npz")
    Y = truth(fresh) + noise * rng.standard_normal((2_000, 2))
    ends = read.predict_interval(fresh)
    np.testing.assert_array_equal(ends, made.predict_interval(fresh))
    covered = np.mean((ends[:, :, 0] <= Y) & (ends[:, :, 1] >= Y), axis=0)
    four = 4 * np.sqrt(0.95 * 0.05 / 2_000)
    assert abs(covered[0] - 0.95) < four
    assert covered[1] > 0.95 - four
    assert np.all(np.ptp(ends[:, 1], axis=1) < 0.3 * np.ptp(ends[:, 0], axis=1))
    stated = read.certificate.noise_variances
    assert stated is not None
    assert stated.mean() == pytest.approx(read.certificate.noise_variance)
    said = next(check.sentence for check in made.certificate.checks if check.name == "noise")
    assert "in output 1 to 0.3" in said
    gain = np.sqrt(stated.mean() * np.mean(1.0 / stated))
    assert 9.0 < gain < 16.0  # the error of the fit is a part of what the quiet output leaves
    assert f"up to {gain:.2g} times smaller" in said
    # An error of 0.1 in the quiet output hides in the noise of the other, and is no noise of its own.
    assert nr.verify(made.network, fresh, Y).within_noise(made.certificate)
    assert not nr.verify(made.network, fresh, Y + np.array([0.0, 0.1])).within_noise(made.certificate)
