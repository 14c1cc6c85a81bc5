"""Tests against larger models with a name: their statistic, size and power, and what the verdict makes of them."""

import numpy as np
import pytest
from scipy.stats import binom, f

import neurecover as nr
from neurecover.certificate.information.matrix import Information
from neurecover.certificate.options import NestedOptions
from neurecover.certificate.residuals.alternatives import Alternatives
from neurecover.certificate.residuals.nested import nested_tests
from neurecover.data import ArraySource, reduce
from neurecover.models import jacobian
from neurecover.statistics import InformationSums


def with_line(seed: int, n: int, slope: float) -> tuple[np.ndarray, np.ndarray]:
    """Return a line with one kink and noise of deviation one."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 10.0, n)
    return x[:, None], 1.0 + slope * x + 2.0 * np.maximum(x - 4.0, 0.0) + rng.standard_normal(n)


@pytest.mark.parametrize(("d", "p"), [(1, 1), (2, 2), (7, 1)])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_statistic_is_that_of_nested_least_squares(d: int, p: int, weighted: bool) -> None:
    """F of two linear least-squares problems, one of J alone, one of J and the columns of the larger model."""
    rng = np.random.default_rng(d)
    n, network = 300, nr.Network(rng.standard_normal((2, d)), 0.3 * rng.standard_normal(2), rng.standard_normal((p, 2)))
    X, Y = rng.standard_normal((n, d)), rng.standard_normal((n, p))
    weight = rng.uniform(0.5, 2.0, n) if weighted else np.ones(n)
    root = np.repeat(np.sqrt(weight), p)
    J = root[:, None] * jacobian(network, X).reshape(n * p, -1)
    # Residuals as a fit leaves them: without any part along J.
    U = np.linalg.svd(J, full_matrices=False)[0][:, : network.n_parameters - network.n_hidden]
    r = rng.standard_normal(n * p)
    r -= U @ (U.T @ r)
    Y = network(X) + (r / root).reshape(n, p)
    samples = ArraySource(X, Y, weight=weight if weighted else None)
    lacks = Alternatives.of(network, NestedOptions(refit=0.0))  # to first order, of the linear term too
    assert lacks is not None
    found = Information.of(reduce(samples, InformationSums.of(network, True, rng.standard_normal((3, d + 1)), lacks)))
    tests = {test.name: test for test in nested_tests(found, lacks, float(r @ r), n * p, samples)}
    Z = X @ network.W.T + network.b
    i, j = np.triu_indices(d) if d <= 5 else (np.arange(d), np.arange(d))
    size = np.linalg.norm(network.W, axis=1)
    on_all = [np.einsum("ne,oq->noqe", E, np.eye(p)).reshape(n * p, -1) for E in (X, X[:, i] * X[:, j])]
    shapes = [Z, *(s * size * np.logaddexp(0.0, -np.abs(Z) / (s * size)) for s in (0.25, 1.0))]
    columns = [*on_all, np.column_stack([(shape @ network.A.T).ravel() for shape in shapes])]
    for E, test in zip(columns, tests.values()):
        E = root[:, None] * E
        E = E - U @ (U.T @ E)
        values, sizes, _ = np.linalg.svd(E, full_matrices=False)
        Q = values[:, sizes > 1e-8 * sizes[0]]
        S, q, left = float(np.sum((Q.T @ r) ** 2)), Q.shape[1], n * p - U.shape[1] - Q.shape[1]
        assert test.n_columns == q
        assert test.p_value >= f.sf((S / q) / ((r @ r - S) / left), q, left) * (1.0 - 1e-6)
        if test.p_value >= test.level:
            np.testing.assert_allclose(test.p_value, f.sf((S / q) / ((r @ r - S) / left), q, left), rtol=1e-6)


def test_the_linear_term_is_tested_by_the_fit_that_has_it() -> None:
    """p of two fits, three parameters against four; the best larger one is found by enumerating all kinks.

    Σr² has a dent at every sample, so that the fit from the network without a line may end beside it: in 2 of 12.
    """
    best = 0
    for seed in range(12):
        X, y = with_line(seed, 100, 0.1 * (seed % 3))
        found = nr.recover(X, y, n_hidden=1, random_state=0)
        (check,) = (check for check in found.certificate.checks if "a linear term" in check.sentence)
        line = nr.HingeRegression(n_hinges=1, estimate="least_squares").fit(X, y)
        rss, larger = (float(np.sum((y - model.predict(X).ravel()) ** 2)) for model in (found, line))
        p = float(f.sf((rss - larger) / (larger / 96), 1, 96))
        assert check.figure is not None
        assert check.figure >= p * (1.0 - 1e-6)
        best += abs(check.figure - p) <= 1e-3 * p
    assert best >= 8


def test_unequal_noise_does_not_make_a_line() -> None:
    """Noise that is largest before the kink makes F alone reject the right law in 13 of 50 sets, at the level 0.035."""
    doubted, sets = 0, 12
    for seed in range(sets):
        rng = np.random.default_rng(seed)
        x = rng.uniform(0.0, 10.0, 200)
        y = 1.0 + 2.0 * np.maximum(x - 4.0, 0.0) + 0.2 * np.maximum(9.0 - 2.0 * x, 0.5) * rng.standard_normal(200)
        checks = nr.recover(x[:, None], y, n_hidden=1, random_state=0).certificate.checks
        doubted += any("follows a linear term" in check.sentence for check in checks)
    assert doubted <= binom.ppf(1 - 1e-3, sets, 0.035)


def test_a_line_beside_a_kink_is_not_certified_without_it() -> None:
    """Of n = 100 no more than 0.12 allows (measured on 100 others: 11), of n = 400 none."""
    made = [nr.recover(*with_line(seed, 100, 0.5), random_state=0).certificate for seed in range(14)]
    few = sum(one.verdict == "statistical" for one in made)
    assert few <= binom.ppf(1 - 1e-3, 14, 0.12)
    for seed in range(100, 104):
        one = nr.recover(*with_line(seed, 400, 0.5), random_state=0).certificate
        assert one.verdict == "approximate"
        assert any("linear term" in reason for reason in one.reasons)


def test_the_right_law_is_doubted_as_often_as_the_levels_say() -> None:
    """n = 400: three tests at the level 0.025."""
    doubted = 0
    for seed in range(16):
        checks = nr.recover(*with_line(seed, 400, 0.0), n_hidden=1, random_state=0).certificate.checks
        nested = [check for check in checks if check.name == "structure"][-3:]
        doubted += not all(check.passed for check in nested)
    assert doubted <= binom.ppf(1 - 1e-3, 16, 0.075)


def test_the_level_falls_with_the_samples_and_never_below_that_of_other_tests() -> None:
    options = NestedOptions()
    levels = [options.level(1, N) for N in (100, 400, 10_000, 10**9)]
    assert levels == sorted(levels, reverse=True)
    assert levels[-1] == options.least
    # Of many columns Akaike's criterion leaves less.
    assert options.level(20, 100) < 0.01
    # Few samples are judged at the usual level: a higher one takes true claims away.
    assert options.level(1, 100) <= 0.05
