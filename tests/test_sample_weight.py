"""`recover` with weights: what rows count for in the fit, in the standard errors and in every check."""

from functools import cache

import numpy as np
import pytest

import neurecover as nr
from neurecover.data import ArraySource, load_samples, prepare_samples
from neurecover.data.views.weights import moderate_weights, with_weights
from neurecover.fit.model_fit import fit_model
from neurecover.models import jacobian

TRUTH = nr.Network([[1.0, 0.5], [-0.4, 1.0]], [0.3, -0.2], [[1.0, -1.5]], [0.5]).normal_form()
NOISE, N, DRAWS = 0.05, 400, 24


def _flat(network: nr.Network) -> np.ndarray:
    """All weights, the unit that looks more along the first input first."""
    order = np.argsort(-network.W[:, 0])
    return np.concatenate([network.W[order].ravel(), network.b[order], network.A[:, order].ravel(), network.c])


def _flat_errors(recovery: nr.Recovery) -> np.ndarray:
    errors, order = recovery.certificate.standard_errors, np.argsort(-recovery.network.W[:, 0])
    assert errors is not None
    return np.concatenate([errors["W"][order].ravel(), errors["b"][order], errors["A"][:, order].ravel(), errors["c"]])


def _drawn(seed: int, informed: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Samples and weights; the noise has variance NOISE²/w if they are informed, else NOISE² whatever they are."""
    rng = np.random.default_rng(seed)
    X, w = rng.standard_normal((N, 2)), np.exp(rng.standard_normal(N))
    deviation = NOISE / np.sqrt(w) if informed else np.full(N, NOISE)
    return X, TRUTH(X) + deviation[:, None] * rng.standard_normal((N, 1)), w


@cache
def _recovered(seed: int, informed: bool, weighted: bool = True) -> nr.Recovery:
    X, Y, w = _drawn(seed, informed)
    return nr.recover(X, Y, 2, random_state=seed, sample_weight=w if weighted else None)


@pytest.mark.parametrize("informed", [True, False])
def test_intervals_cover_whether_the_weights_know_the_noise_or_not(informed: bool) -> None:
    """What 95 % intervals cover of a draw has a variance of 0.95·0.05 at the most, and 3.1 deviations are allowed.

    z² of a draw, error over standard error, has a mean of one and a variance of 2 at the most, were all its weights off
    together: 2.5 deviations are allowed. Standard errors that take w for one over the variance where it is not give
    1.85 (measured).
    """
    found = [_recovered(seed, informed) for seed in range(DRAWS)]
    sure = [recovery for recovery in found if recovery.certificate.verdict == "statistical"]
    assert len(sure) >= 0.75 * DRAWS  # the others say which weight rests on too few residuals
    z = np.array([(_flat(recovery.network) - _flat(TRUTH)) / _flat_errors(recovery) for recovery in sure])
    assert abs(np.mean(np.abs(z) < 1.96) - 0.95) < 3.1 * np.sqrt(0.95 * 0.05 / len(sure))
    # Nor are the errors wider than they have to be.
    assert 0.6 < np.mean(z**2) < 1.0 + 2.5 * np.sqrt(2.0 / len(sure))


def test_weights_that_know_the_noise_lower_the_error() -> None:
    """With Var e = σ²/w variances fall by 1/(E[w] E[1/w]) = e⁻¹ for w = exp(z), z normal."""
    errors = {
        weighted: np.mean(
            [(_flat(_recovered(seed, True, weighted).network) - _flat(TRUTH)) ** 2 for seed in range(DRAWS // 2)]
        )
        for weighted in (True, False)
    }
    assert errors[True] < 0.6 * errors[False]


def test_the_noise_is_that_of_a_row_of_weight_one() -> None:
    """σ² = Var(√w r) for weights of mean one: E[w] σ₀² here, E[w] = e^½; N squares have a relative deviation √(2/N)."""
    for seed in range(3):
        variance = _recovered(seed, True).certificate.noise_variance
        mean = _drawn(seed, True)[2].mean()
        assert variance == pytest.approx(NOISE**2 / mean, rel=5.0 * np.sqrt(2.0 / N))


def test_only_ratios_matter_and_equal_weights_are_none() -> None:
    X, Y, w = _drawn(0, True)
    found = _recovered(0, True)
    for scale in (2.0**-40, 2.0**30):
        other = nr.recover(X, Y, 2, random_state=0, sample_weight=scale * w)
        np.testing.assert_array_equal(other.network.W, found.network.W)
    np.testing.assert_array_equal(
        nr.recover(X, Y, 2, random_state=0, sample_weight=np.full(N, 3.7)).network.W,
        _recovered(0, True, False).network.W,
    )


@pytest.mark.parametrize("n_hidden", [2, None])
def test_a_weight_of_zero_is_no_row(n_hidden: int | None) -> None:
    X, Y, w = _drawn(1, True)
    gone = np.arange(N) % 7 == 0
    wrong = np.where(gone[:, None], 1e6, Y)
    with_zeros = nr.recover(X, wrong, n_hidden, random_state=0, sample_weight=np.where(gone, 0.0, w))
    without = nr.recover(X[~gone], Y[~gone], n_hidden, random_state=0, sample_weight=w[~gone])
    np.testing.assert_array_equal(with_zeros.network.W, without.network.W)
    assert with_zeros.certificate.checks == without.certificate.checks
    assert with_zeros.certificate.n_samples == N - int(gone.sum())


def test_whole_weights_are_copies_of_one_observation() -> None:
    X, Y, _ = _drawn(2, False)
    times = np.random.default_rng(2).integers(1, 5, N)
    weighted = nr.recover(X, Y, 2, random_state=0, sample_weight=times)
    copies = nr.recover(
        np.repeat(X, times, axis=0), np.repeat(Y, times, axis=0), 2, random_state=0, sample_weight=np.ones(times.sum())
    )
    np.testing.assert_array_equal(copies.network.W, weighted.network.W)
    np.testing.assert_array_equal(_flat_errors(copies), _flat_errors(weighted))
    assert copies.certificate.n_samples == N


def test_the_optimum_is_that_of_weighted_least_squares() -> None:
    """At the answer the gradient Σ w Jᵀr vanishes beside its own size, and that without weights does not."""
    X, Y, w = _drawn(3, True)
    network = _recovered(3, True).network
    J, r = jacobian(network, X)[:, 0], (Y - network(X))[:, 0]
    scores = (w * r)[:, None] * J
    assert np.abs(scores.sum(axis=0)).max() < 1e-6 * np.sqrt(np.sum(scores**2, axis=0)).max()
    assert np.abs((r[:, None] * J).sum(axis=0)).max() > 0.01 * np.sqrt(np.sum((r[:, None] * J) ** 2, axis=0)).max()


@pytest.mark.parametrize("spread", [1.0, 6.0, 10.0])
@pytest.mark.parametrize("seed", range(3))
def test_without_noise_weights_change_nothing(spread: float, seed: int) -> None:
    """Weights over up to 26 orders of magnitude: the same verdict, and the same network to rounding."""
    truth = nr.simulate.teacher(4, 3, 2, random_state=seed)
    X, Y = nr.simulate.sample(truth, 500, random_state=seed)
    w = np.exp(spread * np.random.default_rng(seed).standard_normal(500))
    weighted, plain = (nr.recover(X, Y, random_state=seed, sample_weight=weight) for weight in (w, None))
    assert weighted.certificate.verdict == plain.certificate.verdict == "exact"
    assert nr.compare(weighted.network, plain.network).weight_error < 1e-12
    names = [check.name for check in plain.certificate.checks]
    assert [check.name for check in weighted.certificate.checks] == names


def test_rows_of_little_weight_are_not_passed_over_where_the_others_are_exact() -> None:
    """A tenth of the rows has noise and next to no weight: the network is right, and it is not said to be exact."""
    truth = nr.simulate.teacher(3, 2, random_state=0)
    X, Y = nr.simulate.sample(truth, 600, random_state=0)
    rough = np.arange(600) % 10 == 0
    Y = Y + 0.1 * rough[:, None] * np.random.default_rng(0).standard_normal(Y.shape)
    found = nr.recover(X, Y, 2, random_state=0, sample_weight=np.where(rough, 1e-20, 1.0))
    assert nr.compare(found.network, truth).weight_error < 1e-8
    assert found.certificate.verdict != "exact"


def test_what_is_not_noise_is_seen_through_the_weights() -> None:
    """Where weights are large, and the noise is small, the function has a step that no two units make."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((1_500, 2))
    heavy = np.abs(X[:, 0]) < 0.5
    Y = TRUTH(X) + 0.05 * np.sign(X[:, :1] - 0.2) * heavy[:, None]
    Y = Y + 0.02 * np.where(heavy, 1.0, 5.0)[:, None] * rng.standard_normal(Y.shape)
    found = nr.recover(X, Y, 2, random_state=0, sample_weight=np.where(heavy, 25.0, 1.0))
    assert "structure" in {check.name for check in found.certificate.checks if not check.passed}
    assert found.certificate.verdict == "approximate"


@pytest.mark.usefixtures("steps_for_seconds")
def test_several_layers_with_weights() -> None:
    """The last fit ends where the weighted scores add up to nothing beside their own size."""
    rng = np.random.default_rng(2)
    truth = nr.DeepNetwork([(rng.standard_normal(shape), None) for shape in ((3, 3), (2, 3), (1, 2))])
    X, w = rng.standard_normal((1_500, 3)), np.exp(rng.standard_normal(1_500))
    Y = truth(X) + 0.02 / np.sqrt(w)[:, None] * rng.standard_normal((1_500, 1))
    fit = fit_model(ArraySource(X, Y, weight=w), truth)
    J, r = jacobian(fit.network, X)[:, 0], (Y - fit.network(X))[:, 0]
    scores = (w * r)[:, None] * J
    assert np.abs(scores.sum(axis=0)).max() < 0.05 * np.sqrt(np.sum(scores**2, axis=0)).max()
    assert fit.rss == pytest.approx(float(w @ r**2), rel=1e-12)
    found = nr.recover(X, Y, (3, 2), random_state=0, sample_weight=w, time_budget=0.3)
    assert found.certificate.n_samples == 1_500


BAD = [
    ([1.0, -1.0, *[1.0] * 8], r"row 1: expected a finite number from 0\. Got -1\.0"),
    ([1.0, np.nan, *[1.0] * 8], r"row 1: expected a finite number from 0\. Got nan"),
    ([np.inf, *[1.0] * 9], r"row 0: expected a finite number from 0\. Got inf"),
    ([1.0] * 9, r"expected shape \(10,\), one weight per row\. Got shape \(9,\)"),
    (np.ones((10, 1)), r"expected shape \(10,\), one weight per row\. Got shape \(10, 1\)"),
    ([0.0] * 10, r"expected some positive weight\. Got zeros alone"),
    (["a"] * 10, "expected one number for each of 10 rows"),
    ([1.0, 1.0, 1.0, *[0.0] * 7], r"at least 5 samples, to hold one out\. Got 3"),
]


@pytest.mark.parametrize(("weight", "message"), BAD)
def test_bad_weights_get_one_sentence(weight: object, message: str) -> None:
    X = np.random.default_rng(0).standard_normal((10, 2))
    with pytest.raises(ValueError, match=message):
        nr.recover(X, X[:, :1], 1, sample_weight=weight)


def test_methods_without_a_weighted_form_say_so() -> None:
    X, Y, w = _drawn(0, True)
    with pytest.raises(ValueError, match="exact_ica has no form for weighted samples"):
        nr.recover(X, Y, 2, method="exact_ica", sample_weight=w)


@pytest.mark.parametrize("method", ["hermite", "symmetric"])
def test_averages_of_the_papers_are_weighted(method: str) -> None:
    """Noise of variance 1/w, w = exp(1.5 z), z normal: of its weighted mean it is e^(−2.25) that of the plain one."""
    errors: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        truth = nr.Network(np.eye(3, 4) + 0.3 * rng.standard_normal((3, 4)), None, np.eye(3))
        X, w = rng.standard_normal((20_000, 4)), np.exp(1.5 * rng.standard_normal(20_000))
        Y = truth(X) + 0.3 / np.sqrt(w)[:, None] * rng.standard_normal((20_000, 3))
        for weighted in (True, False):
            weight = w if weighted else None
            found = nr.estimate(X, Y, 3, method=method, bias=False, random_state=0, sample_weight=weight)
            assert found.network is not None
            errors[weighted].append(nr.compare(found.network, truth).weight_error)
    assert np.mean(errors[True]) < 0.8 * np.mean(errors[False])


def test_copies_add_up_and_weights_have_mean_one() -> None:
    X, Y = np.arange(12.0).reshape(6, 2), np.arange(6.0)
    source = with_weights(ArraySource(np.vstack([X, X[1:3]]), np.r_[Y, Y[1:3]]), [1, 2, 3, 4, 5, 0, 20, 30])
    given = prepare_samples(load_samples(source, None), True, np.random.default_rng(0))
    expected = np.array([1.0, 22.0, 33.0, 4.0, 5.0])
    np.testing.assert_allclose(given.source.weights(), expected / expected.mean(), rtol=1e-14)
    np.testing.assert_array_equal(given.source.collect()[0], X[:5])
    assert given.output_mean[0] == pytest.approx(np.average(Y[:5], weights=expected))


def test_a_search_is_not_led_by_few_rows() -> None:
    w = np.r_[np.ones(50), 1e9, 1e-9]
    source = ArraySource(np.zeros((52, 1)), np.zeros(52), weight=w)
    moderate = moderate_weights(source).weights()
    assert moderate is not None
    assert np.ptp(np.log(moderate)) < 2.0 * np.log(101.0)
    assert moderate_weights(source.with_weight(np.ones(52))).weights() is not None
