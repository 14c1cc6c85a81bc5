"""Kinks that are rounded leave a residual of one sign next to them; noise of any distribution leaves none."""

import numpy as np
import pytest
from scipy.stats import binom

import neurecover as nr
from benchmarks import hostile
from neurecover.certificate.residuals.corners import corner_test
from neurecover.data import ArraySource
from neurecover.fit.model_fit import fit_model
from neurecover.models import Network

NOISES = {
    "gaussian": lambda rng, n: rng.standard_normal(n),
    "skewed": lambda rng, n: rng.exponential(1.0, n) - 1.0,
    "heavy": lambda rng, n: rng.standard_t(2.0, n),
    "a sign": lambda rng, n: rng.choice([-1.0, 1.0], n),
}


@pytest.mark.parametrize("noise", NOISES)
def test_noise_is_doubted_as_often_as_it_says(noise: str) -> None:
    doubted, runs = 0, 300
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        truth = nr.simulate.teacher(3, 4, random_state=seed)
        X = rng.standard_normal((400, 3))
        Y = truth(X) + 0.1 * NOISES[noise](rng, 400)[:, None]
        doubted += corner_test(truth, ArraySource(X, Y)) < 0.02
    assert doubted <= binom.ppf(1.0 - 1e-6, runs, 0.02)


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_so_is_noise_that_a_network_was_fitted_to(scale: float) -> None:
    """Least squares ends in creases of Σ r², with samples of one sign next to the kinks: sixteen seeds."""
    doubted, runs = 0, 16
    for seed in range(runs):
        truth = nr.simulate.teacher(10, 5, random_state=seed)
        samples = ArraySource(*nr.simulate.sample(truth, 2_000, noise=scale, random_state=seed))
        doubted += corner_test(fit_model(samples, truth.normal_form()).network, samples) < 0.02
    assert doubted <= binom.ppf(1.0 - 1e-4, runs, 0.02)


@pytest.mark.parametrize("seed", range(5))
def test_a_rounded_kink_is_seen(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = nr.simulate.teacher(3, 4, 2, random_state=seed)
    X = rng.standard_normal((500, 3))
    Z = X @ truth.W.T + truth.b
    Y = np.logaddexp(0.0, 30.0 * Z) / 30.0 @ truth.A.T + truth.c
    Y += 1e-3 * rng.standard_normal(Y.shape)
    assert corner_test(truth, ArraySource(X, Y)) < 1e-4
    # Neither the order of the samples nor that of the units matters.
    order, units = rng.permutation(500), rng.permutation(4)
    shuffled = corner_test(truth.take(units), ArraySource(X[order], Y[order]))
    assert shuffled == pytest.approx(corner_test(truth, ArraySource(X, Y)), rel=1e-9)


def test_few_samples_are_not_asked() -> None:
    net = Network([[1.0]], [0.0], [[1.0]])
    X = np.linspace(-1.0, 1.0, 15)[:, None]
    assert corner_test(net, ArraySource(X, net(X) + 0.1)) == 1.0


@pytest.mark.usefixtures("steps_for_seconds")
def test_a_steep_softplus_is_no_noise() -> None:
    """Without noise, 458 samples: the residual of the fit passes every other test of noise."""
    case = hostile.draw("other_activation", 0)
    found = nr.recover(case.X, case.Y, case.n_hidden, random_state=0, time_budget=1)
    assert found.certificate.verdict not in ("exact", "statistical")
    assert any("one sign" in reason for reason in found.certificate.reasons)
