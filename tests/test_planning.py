"""How many samples are needed: the bound, the counts at kinks, and predictions against runs."""

import numpy as np
import pytest

from neurecover import Network, Plan, estimate, recover, samples_needed
from neurecover.matching import compare
from neurecover.planning import unit_variances
from neurecover.simulate import sample, teacher


def test_the_bound_of_one_unit_that_is_always_on_is_that_of_a_regression() -> None:
    """y = a·w·x for x₁ > 0 and w = e₁: δw across w and δa are a regression on (a x₂, a x₃, x₁)."""
    X = np.random.default_rng(0).standard_normal((500, 3))
    X[:, 0] = np.abs(X[:, 0]) + 0.1
    (found,) = unit_variances(Network([[1.0, 0.0, 0.0]], None, [[2.0]]), X, bias=False)
    J = np.column_stack([2.0 * X[:, 1:], X[:, 0]])
    assert found == pytest.approx(np.trace(np.linalg.inv(J.T @ J)[:2, :2]), rel=1e-6)


def test_samples_grow_with_the_square_of_noise_over_error() -> None:
    network = teacher(4, 3, random_state=0)
    coarse, fine = (samples_needed(network, noise=0.3, error=e, random_state=0).n_samples for e in (0.02, 0.01))
    assert fine == pytest.approx(4 * coarse, rel=1e-3)
    noisier = samples_needed(network, noise=0.6, error=0.02, random_state=0)
    assert noisier.n_samples == pytest.approx(4 * coarse, rel=1e-3)
    assert noisier.error == pytest.approx(0.02, rel=1e-3)
    assert "Cramér–Rao" in noisier.because


def test_errors_of_runs_are_those_that_were_planned_and_larger_with_a_third_of_the_samples() -> None:
    """Six networks: the mean square of the worst unit's error over the planned one.

    Each worst error is about a χ² of 3 degrees of freedom over its own mean, or the largest of a few units whose bounds
    are alike: a mean of six lies between 0.3 and 3 with all but 1e-3. A third of the samples makes three times as much
    of it: the ratio of two such means, F with 18 degrees of freedom each, is below one with probability 0.01.
    """
    planned, fewer = [], []
    for seed in range(6):
        truth = teacher(4, 2, bias=0.4, random_state=seed)
        plan = samples_needed(truth, noise=0.1, error=0.02, random_state=seed)
        for n, ratios in ((plan.n_samples, planned), (plan.n_samples // 3, fewer)):
            X, Y = sample(truth, n, noise=0.1, random_state=seed)
            ratios.append(compare(recover(X, Y, 2, random_state=seed).network, truth).weight_error / plan.error)
    assert 0.3 < np.mean(np.square(planned)) < 3.0
    assert np.mean(np.square(fewer)) > np.mean(np.square(planned))


@pytest.mark.slow
@pytest.mark.usefixtures("steps_for_seconds")
def test_recovery_without_noise_is_exact_at_the_planned_number_and_not_always_with_a_third_of_it() -> None:
    """98 in 100 and better in the table that the number is from: all of six but one, with all but 0.6 %.

    With a third of it 7 of 12 were exact on other seeds: all of eight would be with probability 0.013.
    """
    exact = {1: 0, 3: 0}
    for part, seeds, seconds in ((1, 6, 20.0), (3, 8, 1.5)):
        for seed in range(seeds):
            truth = teacher(5, 4, random_state=100 + seed)
            n = samples_needed(truth, random_state=seed).n_samples
            X, Y = sample(truth, n // part, random_state=seed)
            exact[part] += recover(X, Y, 4, random_state=seed, time_budget=seconds).certificate.verdict == "exact"
    assert exact[1] >= 5
    assert exact[3] < 8


def test_a_unit_that_is_rarely_on_asks_for_more_samples() -> None:
    network = Network(np.eye(3), [0.0, 0.0, -2.0], [[1.0, 1.0, 1.0]])
    plan = samples_needed(network, random_state=0)
    assert "kink" in plan.because
    on = 0.02275  # Φ(−2)
    rng = np.random.default_rng(0)
    enough = rng.binomial(plan.n_samples, on, 10_000) > 4
    assert enough.mean() > 0.99
    with pytest.raises(ValueError, match="Unit 0 does not switch on"):
        samples_needed(Network([[1.0]], [-9.0], [[1.0]]))


def test_typical_sizes_and_bad_input() -> None:
    plan = samples_needed(n_inputs=5, n_hidden=4, noise=0.1, random_state=0)
    assert isinstance(plan, Plan)
    assert plan == samples_needed(n_inputs=5, n_hidden=4, noise=0.1, random_state=0)
    assert plan.n_samples == max(plan.needs.values())
    assert f"{plan.n_samples:,} for 25 parameters" in plan.summary()
    found = samples_needed(n_inputs=5, n_hidden=4, told=False, random_state=0)
    assert found.needs["11 equations per parameter"] == 11 * 25
    for wrong in ({}, {"n_inputs": 3}, {"noise": -1.0}, {"noise": np.nan}, {"error": 0.0}):
        with pytest.raises(ValueError, match="Got"):
            samples_needed(**wrong)  # type: ignore[arg-type]


def test_the_plan_of_an_estimate_is_measured() -> None:
    """The error at the planned number of samples, on fresh ones, is the one wanted, within a factor of three."""
    truth = teacher(3, 2, random_state=5)
    plan = samples_needed(truth, method="hermite", error=0.05, random_state=0)
    assert len(plan.curve) >= 1
    assert plan.curve[-1][1] <= 0.05
    assert "Lemma 5.2" in next(iter(plan.bounds))
    errors = []
    for seed in range(5):
        X, Y = sample(truth, plan.n_samples, random_state=seed)
        found = estimate(X, Y, 2, method="hermite", random_state=seed).network
        errors.append(np.inf if found is None else compare(found, truth).weight_error)
    assert np.median(errors) < 0.15
    for method, words in (("exact_tensor", "without biases"), ("lowest_layer", "first layer")):
        with pytest.raises(ValueError, match=words):
            samples_needed(truth, method=method, error=0.1, random_state=0)
