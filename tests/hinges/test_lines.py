"""Broken lines of one input: identities, agreement with independent computations, sizes of tests."""

from itertools import combinations, pairwise
from math import factorial

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import binom, t

import neurecover as nr
from neurecover.hinges.checks.further import Rows, _mean_likelihood, further_hinges
from neurecover.hinges.checks.rivals import best_rival
from neurecover.hinges.checks.serial import serial_correlation
from neurecover.hinges.checks.spread import unequal_noise
from neurecover.hinges.counting import rounding_floor
from neurecover.hinges.mixture import Mixture, break_interval, linear
from neurecover.hinges.options import DEFAULTS
from neurecover.hinges.points import Points
from neurecover.hinges.posterior import log_evidence, posterior
from neurecover.hinges.projection import Projection, hinge_columns, solve_sets
from neurecover.hinges.search import BrokenLine, best_breaks, refine
from neurecover.hinges.segmented import segment

TRUTHS = {1: ([4.0], [1.0]), 2: ([3.0, 7.0], [1.0, -1.5]), 3: ([2.5, 5.0, 7.5], [1.5, -1.5, 1.5])}


def draw(seed: int | list[int], K: int, n: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 10.0, n)
    breaks, changes = TRUTHS[K]
    return x, 1.0 + 0.5 * x + np.maximum(x[:, None] - breaks, 0.0) @ changes + noise * rng.standard_normal(n)


def test_gathering_keeps_the_sum_of_squares() -> None:
    rng = np.random.default_rng(0)
    x, y, weight = rng.integers(0, 8, 60).astype(float), rng.standard_normal(60), rng.uniform(0.0, 2.0, 60)
    points = Points.of(x, y, weight)
    fit = BrokenLine.at(points, np.array([0.1]))
    z = (x - points.centre) / points.size
    assert fit.rss == pytest.approx(float(weight @ (y - points.level - fit(z)) ** 2), rel=1e-12)


def test_sums_over_suffixes_are_least_squares() -> None:
    points = Points.of(*draw(0, 2, 80, 1.0), np.random.default_rng(1).uniform(0.5, 2.0, 80))
    places = np.array([-0.4, 0.1, 0.55])
    base = Projection.of(points, hinge_columns(points.z, np.zeros(0)))
    sums = base.hinges(places)
    sets = np.array([[0, 1, 2], [0, 0, 2]])[:1]
    gain = np.square(solve_sets(sums.A, sums.b, sets)[1]).sum(axis=0)
    assert base.rss - gain[0] == pytest.approx(BrokenLine.at(points, places).rss, rel=1e-10)


def test_one_break_is_the_global_optimum() -> None:
    for seed in range(5):
        points = Points.of(*draw(seed, 1, 60, 2.0))
        fit = best_breaks(points, 1)
        low, high = points.place(np.array([points.gap(DEFAULTS) - 1.0, len(points) - points.gap(DEFAULTS)]))
        grid = np.linspace(low, high, 51)

        def rss(p: float, points: Points = points) -> float:
            return BrokenLine.at(points, np.array([p])).rss

        least = min(minimize_scalar(rss, bounds=pair, method="bounded").fun for pair in pairwise(grid))
        assert fit.rss <= least * (1.0 + 1e-9)


@pytest.mark.parametrize("K", [2, 3])
def test_no_random_start_ends_lower(K: int) -> None:
    rng, tried = np.random.default_rng(0), 0
    for seed in range(3):
        points = Points.of(*draw(seed, K, 80, 1.0))
        fit = best_breaks(points, K)
        for _ in range(15):
            start = np.sort(rng.uniform(-0.9, 0.9, K))
            if points.apart(start, DEFAULTS):
                assert fit.rss <= refine(points, start, DEFAULTS).rss * (1.0 + 1e-9)
                tried += 1
    assert tried >= 20


def test_the_posterior_given_the_breaks_is_ordinary_least_squares() -> None:
    points = Points.of(*draw(3, 2, 100, 1.0))
    over = posterior(best_breaks(points, 2), np.random.default_rng(0))
    best = int(np.argmax(over.weight))
    X = hinge_columns(points.z, over.breaks[best])
    theta = np.linalg.lstsq(X, points.y, rcond=None)[0]
    np.testing.assert_allclose(over.mean[best], theta, rtol=1e-7, atol=1e-9)
    rss = float(np.sum((points.y - X @ theta) ** 2))
    np.testing.assert_allclose(over.scale[best], np.linalg.inv(X.T @ X) * rss / (100 - 4), rtol=1e-6)
    assert over.weight.sum() == pytest.approx(1.0)


def test_quadrature_agrees_with_a_fine_grid() -> None:
    points = Points.of(*draw(1, 1, 100, 1.0))
    over = posterior(best_breaks(points, 1), np.random.default_rng(0))
    low, high = points.place(np.array([points.gap(DEFAULTS) - 1.0, len(points) - points.gap(DEFAULTS)]))
    grid = np.linspace(low, high, 1_500)
    logs = np.array([-0.5 * 97 * np.log(BrokenLine.at(points, np.array([p])).rss) for p in grid])
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    mean = weight @ grid
    spread = np.sqrt(weight @ (grid - mean) ** 2)
    assert over.weight @ over.breaks[:, 0] == pytest.approx(mean, abs=0.02 * spread)


@pytest.mark.parametrize(("K", "size"), [(1, 1_000), (2, 90)])
def test_the_evidence_is_a_mean_over_all_places(K: int, size: int) -> None:
    """Weighted by the gaps between breaks and ends, and where breaks keep their distance in rows."""
    points = Points.of(*draw(1, K, 60, 1.0))
    gap = points.gap(DEFAULTS)
    low, high = points.place(np.array([gap - 1.0, len(points) - gap]))
    grid = low + (np.arange(size) + 0.5) * (high - low) / size
    sets = np.array([own for own in combinations(grid, K) if points.apart(np.array(own), DEFAULTS)])
    straight = BrokenLine.at(points, np.zeros(0)).rss
    ratios = np.array([BrokenLine.at(points, own).rss / straight for own in sets])
    gaps = np.prod(np.diff(sets, axis=1, prepend=-1.0, append=1.0), axis=1)
    expected = np.log(np.average(ratios ** (-0.5 * (60 - 2 - K)), weights=gaps)) - 0.5 * K * np.log(60)
    # A tenth is the coarser grid of the pairs.
    assert log_evidence(best_breaks(points, K)) == pytest.approx(expected, abs=0.02 if K == 1 else 0.1)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_mean_likelihood_is_that_of_every_set(k: int) -> None:
    rng = np.random.default_rng(k)
    H = np.linalg.qr(rng.standard_normal((30, 6)))[0] @ rng.standard_normal((6, 6))
    H, outputs = H / np.linalg.norm(H, axis=0), rng.standard_normal((30, 4))
    rss = np.square(outputs).sum(axis=0)
    left = [
        np.square(outputs - own @ np.linalg.lstsq(own, outputs, rcond=None)[0]).sum(axis=0)
        for own in (H[:, list(chosen)] for chosen in combinations(range(6), k))
    ]
    expected = np.log(np.mean((np.array(left) / rss) ** -14.0, axis=0))
    np.testing.assert_allclose(_mean_likelihood(H, outputs, rss, k, 28.0), expected, rtol=1e-9)


def test_without_hinges_the_intervals_are_students() -> None:
    x, y = draw(2, 1, 30, 1.0)
    points = Points.of(x, y)
    over = posterior(best_breaks(points, 0), np.random.default_rng(0))
    low, high = linear(over, np.array([0.0, 1.0 / points.size])).interval(0.9)
    slope, covariance = np.polyfit(x, y, 1, cov=True)
    reach = t.ppf(0.95, 28) * np.sqrt(covariance[0, 0])
    np.testing.assert_allclose([low, high], [slope[0] - reach, slope[0] + reach], rtol=1e-6)


def test_gathered_mixtures_keep_their_quantiles() -> None:
    rng = np.random.default_rng(0)
    centre, scale, weight = rng.standard_normal(3_000), rng.uniform(0.1, 0.5, 3_000), rng.uniform(size=3_000)
    mixture = Mixture(centre, scale, weight / weight.sum(), 30.0, np.zeros(3_000))
    low, high = mixture.interval(0.95)
    below = [weight @ t.cdf((end - centre) / scale, 30.0) / weight.sum() for end in (low, high)]
    np.testing.assert_allclose(below, [0.025, 0.975], atol=0.002)


@pytest.mark.parametrize("kind", ["plain", "unequal"])
def test_the_test_of_no_hinge_has_its_size(kind: str) -> None:
    sets, rejected = 200, 0
    for seed in range(sets):
        rng = np.random.default_rng([seed, 1])
        x = np.sort(rng.uniform(0.0, 10.0, 60))
        y = 0.5 * x + rng.standard_normal(60) * (1.0 + 0.8 * x if kind == "unequal" else 1.0)
        points = Points.of(x, y)
        rejected += further_hinges(points, Rows.of(points, x, y, None), np.zeros(0), rng).p_value <= 0.05
    assert binom.ppf(1e-4, sets, 0.05) <= rejected <= binom.ppf(1 - 1e-4, sets, 0.05)


def test_the_moments_of_the_serial_test_are_exact() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(25), np.arange(25.0), np.maximum(np.arange(25.0) - 12.0, 0.0)])
    E = rng.standard_normal((25, 4_000))
    E -= X @ np.linalg.lstsq(X, E, rcond=None)[0]
    z = np.array([serial_correlation(X, e).z for e in E.T])
    # Mean and variance over 4,000 draws, to five standard errors.
    assert abs(z.mean()) < 5.0 / 4_000**0.5
    assert abs(z.var() - 1.0) < 5.0 * (2.0 / 4_000) ** 0.5


def test_rivals_at_low_noise() -> None:
    false = 0
    for seed in range(20):
        points = Points.of(*draw(seed, 2, 200, 0.3))
        false += best_rival(best_breaks(points, 2), rounding_floor(points)) is not None
    assert false <= binom.ppf(1 - 1e-3, 20, 0.05)


def test_the_number_of_hinges() -> None:
    right = 0
    for seed in range(10):
        x, y = draw(seed, 2, 200, 0.5)
        right += segment(x, y, None, None, "squared", "posterior", np.random.default_rng(0)).n_hinges == 2
    assert right >= 8


def test_numbers_of_breaks_are_those_of_a_poisson_process_beforehand() -> None:
    """With one break expected K of them have the odds 1/K! over none, times what the data say."""
    x, y = draw(3, 2, 200, 0.5)
    found = segment(x, y, None, None, "squared", "posterior", np.random.default_rng(0))
    points = Points.of(x, y)
    assert len(found.log_odds) > 2
    for K, odds in enumerate(found.log_odds[:4]):
        assert odds == pytest.approx(log_evidence(best_breaks(points, K)) - np.log(factorial(K)), rel=1e-12)


def test_two_breaks_in_fifty_rows() -> None:
    """Noise as large as the changes of slope: 0.7 of such sets are right, and half of them by BIC."""
    right = 0
    for seed in range(60):
        x, y = draw([seed, 50], 2, 50, 1.0)
        right += segment(x, y, None, None, "squared", "posterior", np.random.default_rng(0)).n_hinges == 2
    assert right >= binom.ppf(1e-3, 60, 0.7)


def test_more_than_three_breaks_are_sampled() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 10.0, 300)
    y = np.maximum(x[:, None] - [2.0, 4.0, 6.0, 8.0], 0.0) @ [2.0, -2.0, 2.0, -2.0] + 0.2 * rng.standard_normal(300)
    points = Points.of(x, y)
    over = posterior(best_breaks(points, 4), rng)
    mean = over.weight @ over.breaks
    spread = np.sqrt(over.weight @ (over.breaks - mean) ** 2)
    np.testing.assert_allclose((points.x(mean) - [2.0, 4.0, 6.0, 8.0]) / (points.size * spread), 0.0, atol=4.0)


def test_two_breaks_at_a_rounded_corner_have_a_rival() -> None:
    """A corner that is a parabola over 4 of 10 is followed by two breaks, and said to be one that is rounded."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 10.0, 200)
    corner = 2.0 * np.clip((x - 3.0) / 4.0, 0.0, 1.0) ** 2 + np.maximum(x - 7.0, 0.0)
    y = 2.0 * corner + 0.1 * rng.standard_normal(200)
    points = Points.of(x, y)
    rival = best_rival(best_breaks(points, 2), rounding_floor(points))
    assert rival is not None
    assert rival.name == "one hinge fewer with rounded corners"
    x, y = draw(0, 2, 200, 0.3)
    points = Points.of(x, y)
    assert best_rival(best_breaks(points, 2), rounding_floor(points)) is None


def test_noise_that_is_not_alike_is_seen() -> None:
    """The p-value is uniform under heavy tails too, and small where the variance grows 81-fold."""
    rng, sets = np.random.default_rng(0), 400
    z, one = np.linspace(-1.0, 1.0, 200), np.ones(200)
    plain = sum(unequal_noise(z, rng.standard_normal(200), one) <= 0.05 for _ in range(sets))
    tails = sum(unequal_noise(z, rng.laplace(size=200), one) <= 0.05 for _ in range(sets))
    grown = sum(unequal_noise(z, (5.0 + 4.0 * z) * rng.standard_normal(200), one) <= 0.02 for _ in range(100))
    for rejected in (plain, tails):
        assert binom.ppf(1e-4, sets, 0.05) <= rejected <= binom.ppf(1 - 1e-4, sets, 0.05)
    assert grown >= 99


def test_a_weight_is_that_many_rows_for_the_noise_too() -> None:
    rng = np.random.default_rng(0)
    z, residual, weight = np.linspace(-1.0, 1.0, 30), rng.standard_normal(30), rng.integers(0, 4, 30)
    repeated = unequal_noise(np.repeat(z, weight), np.repeat(residual, weight), np.ones(weight.sum()))
    assert unequal_noise(z, residual, weight.astype(float)) == pytest.approx(repeated, rel=1e-9)


@pytest.mark.parametrize("K", [1, 3, 4])
def test_errors_are_proportional_to_small_noise(K: int) -> None:
    """Sums of squares that differ by less than the last digit of the largest one still weigh the breaks."""
    rng = np.random.default_rng(0)
    x, noise = rng.uniform(0.0, 10.0, 120), rng.standard_normal(120)
    y = np.maximum(x[:, None] - np.array([2.0, 4.0, 6.0, 8.0])[:K], 0.0) @ np.array([2.0, -2.0, 2.0, -2.0])[:K]
    errors = []
    for size in (1e-3, 1e-9):
        fit = best_breaks(Points.of(x, y + size * noise), K)
        over = posterior(fit, np.random.default_rng(0))
        errors.append(np.sqrt(over.weight @ (over.breaks - over.weight @ over.breaks) ** 2) / size)
    np.testing.assert_allclose(errors[1], errors[0], rtol=0.1)


def test_few_rows_of_a_line_have_no_rival() -> None:
    """A curve with nearly as many parameters as rows leaves next to nothing, which says nothing."""
    false = 0
    for seed in range(100):
        rng = np.random.default_rng([seed, 8])
        x = rng.uniform(0.0, 10.0, 8)
        points = Points.of(x, x + rng.standard_normal(8))
        false += best_rival(best_breaks(points, 0), rounding_floor(points)) is not None
    assert false <= binom.ppf(1 - 1e-3, 100, 0.02)


def test_breaks_side_by_side_are_covered() -> None:
    """Half a unit of ten apart: fewer inputs than breaks keep between each other where there is any doubt."""
    covered = 0
    for seed in range(20):
        rng = np.random.default_rng([seed, 20])
        x = rng.uniform(0.0, 10.0, 150)
        y = 4.0 * np.maximum(x - 5.0, 0.0) - 4.0 * np.maximum(x - 5.5, 0.0) + 0.3 * rng.standard_normal(150)
        fit = best_breaks(Points.of(x, y), 2)
        over = posterior(fit, rng)
        for j, truth in enumerate((5.0, 5.5)):
            low, high = fit.points.x(break_interval(over, j, 0.95))
            covered += low <= truth <= high
    assert covered >= binom.ppf(1e-3, 40, 0.93)


def test_a_break_near_the_end_is_found_where_it_is_beyond_doubt() -> None:
    x = np.linspace(0.0, 10.0, 401)
    points = Points.of(x, np.maximum(x - 9.81, 0.0))
    np.testing.assert_allclose(points.x(best_breaks(points, 1).breaks), 9.81, rtol=1e-12)


def test_a_jump_in_few_rows_is_named() -> None:
    named = 0
    for seed in range(20):
        rng = np.random.default_rng([seed, 21])
        x = rng.uniform(0.0, 10.0, 60)
        y = 0.5 * x + 2.0 * (x > 6.0) + 0.5 * rng.standard_normal(60)
        points = Points.of(x, y)
        named += best_rival(best_breaks(points, 2), rounding_floor(points)) is not None
    assert named >= binom.ppf(1e-3, 20, 0.9)


def test_noise_that_is_drawn_in_parts_has_the_same_p_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """To five standard errors of two times 999 draws."""
    x, y = draw(5, 1, 60, 12.0)
    points = Points.of(x, y)
    p = []
    for at_once in (2**22, 60 * 100):
        monkeypatch.setattr("neurecover.hinges.checks.further._AT_ONCE", at_once)
        test = further_hinges(points, Rows.of(points, x, y, None), np.zeros(0), np.random.default_rng(0))
        p.append(test.p_value)
    assert abs(p[0] - p[1]) <= 5.0 * (2.0 * p[0] * (1.0 - p[0]) / 999) ** 0.5
    assert 0.02 < p[0] < 0.98


def test_one_row_off_at_an_end_is_no_sure_break() -> None:
    """A break before the last but one row needs two rows behind it, and nothing tells it from one wrong row."""
    for seed in range(6):
        x, noise = np.linspace(0.0, 10.0, 60), np.random.default_rng(seed).normal(size=60)
        y = 1.0 + 0.5 * x + 0.1 * noise
        y[-1] += 1.0
        found = nr.HingeRegression().fit(x[:, None], y)
        assert found.n_hinges_ == 0 or found.recovery_.certificate.verdict == "approximate"
