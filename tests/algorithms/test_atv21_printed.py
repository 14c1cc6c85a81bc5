"""Algorithms 4, 5 and 6 of [ATV21] as printed: thresholds, ball, truncation, signs and the order that was taken."""

import numpy as np
import pytest

from neurecover.activations import get
from neurecover.algorithms.atv21.printed import (
    PrintedOptions,
    algorithm_4,
    algorithm_6,
    learn_as_printed,
    least_ell,
)
from neurecover.algorithms.atv21.steps import population_coefficients
from neurecover.data import ArraySource
from neurecover.exceptions import UnsolvableError
from neurecover.matching import compare
from neurecover.models import Network
from neurecover.pipeline import estimate
from neurecover.simulate import sample, teacher
from neurecover.tensors import multiplicities

RELU = get("relu")


def with_errors(truth: Network, orders: int, error: float, rng: np.random.Generator) -> dict[int, np.ndarray]:
    """Return T_0 to T_orders with errors of Frobenius norm `error` each."""
    tensors = {}
    for j, T in population_coefficients(truth, tuple(range(orders + 1))).items():
        E = rng.standard_normal(T.shape)
        tensors[j] = T + error * E / np.sqrt(np.sum(multiplicities(truth.n_inputs, j) * E**2))
    return tensors


@pytest.mark.parametrize("error", [1e-10, 1e-7])
def test_algorithm_6_converges_with_the_tensors(error: float) -> None:
    """With η₂ and η₃ between the terms and the errors every unit comes once, and errors are those of the tensors.

    Lemma 5.4 and Theorem 3.1 allow a factor polynomial in 1/s_m(W): here up to 1e4.
    """
    for seed in range(6):
        rng = np.random.default_rng(seed)
        truth = Network(
            teacher(5, 5, kind="orthonormal", random_state=seed).W, rng.uniform(-0.8, 0.8, 5), np.ones((1, 5))
        )
        tensors = with_errors(truth, 4, error, rng)
        eta = dict.fromkeys((3, 4), 0.02)
        units = algorithm_4(tensors, 5, 1, RELU, rng, 5, eta_1=dict.fromkeys((3, 4), error), eta_2=eta, eta_3=0.2)
        assert len(units.W) == 5
        fixed = algorithm_6(units, tensors[1])
        c = compare(Network(fixed.W, fixed.b, fixed.A), truth)
        assert max(c.weight_error, c.bias_error, c.output_weight_error) < 1e4 * error


def test_thresholds_of_zero_keep_every_unit_twice() -> None:
    truth = teacher(4, 4, kind="orthonormal", random_state=0)
    rng = np.random.default_rng(0)
    tensors = with_errors(truth, 4, 1e-6, rng)
    none = dict.fromkeys((3, 4), 0.0)
    assert len(algorithm_4(tensors, 4, 1, RELU, rng, 4, eta_1=none, eta_2=none, eta_3=0.0).W) == 8


def test_more_samples_bring_a_smaller_error() -> None:
    """The mean over six networks of the relative error of Algorithm 5 on fresh inputs."""
    means = []
    for n in (5_000, 320_000):
        errors = []
        for seed in range(6):
            truth = teacher(3, 3, random_state=seed)
            X, Y = sample(truth, n, random_state=seed)
            found = estimate(X, Y, 3, method="hermite", form="paper", random_state=seed).network
            fresh = np.random.default_rng(1).standard_normal((4_000, 3))
            errors.append(1.0 if found is None else np.mean((found(fresh) - truth(fresh)) ** 2) / np.var(truth(fresh)))
        means.append(np.median(errors))
    assert means[1] < 0.5 * means[0]


def test_the_order_that_more_units_than_inputs_take() -> None:
    assert [least_ell(m, 3) for m in (1, 3, 4, 6, 7, 10)] == [1, 1, 2, 2, 3, 3]
    with pytest.raises(UnsolvableError, match="one dimension"):
        least_ell(2, 1)
    truth = teacher(3, 7, random_state=0)
    X, Y = sample(truth, 3_000, random_state=0)
    e = estimate(X, Y, 7, method="hermite", form="paper", options=PrintedOptions(eta_1=0.0, eta_2=0.0), random_state=0)
    assert e.details.ell == 3
    assert "orders 7 and 8 (ℓ = 3)" in e.notes[-1]
    with pytest.raises(ValueError, match="HermiteOptions in the form 'best'"):
        estimate(X, Y, 7, method="hermite", options=PrintedOptions(), random_state=0)


def test_algorithm_5_keeps_to_its_ball_and_its_bound() -> None:
    truth = teacher(4, 3, random_state=0)
    X, Y = sample(truth, 40_000, random_state=0)
    source = ArraySource(X, Y)
    free, inside, cut = (
        learn_as_printed(source, RELU, np.random.default_rng(0), 3, PrintedOptions(eta_1=0.0, eta_2=0.0, **how))
        for how in ({}, {"radius": 0.05}, {"tau": 1e-3})
    )
    z = X @ inside.units.W.T + inside.units.b
    size = np.minimum(np.abs(inside.units.A), 10.0 * np.sqrt(np.mean(Y**2)) * 1.1)
    features = np.hstack([size * RELU(z), size * RELU(-z), X, np.ones((len(X), 1))])
    # f = β·φ with ‖β‖ ≤ radius, whatever units β is consolidated to.
    assert np.all(np.abs(inside.network(X)[:, 0]) <= 0.05 * np.linalg.norm(features, axis=1) + 1e-9)
    assert np.abs(free.network(X)[:, 0]).max() > 0.5 * np.abs(Y).max()
    assert free.network.n_hidden <= len(free.units.W) + 2
    # No sample has features that small, the constant being 1, so nothing is left to regress on.
    np.testing.assert_allclose(cut.network(X), 0.0, atol=1e-12)
