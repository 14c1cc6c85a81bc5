"""The covariance of scores from sums over pairs of gates, against scores formed sample by sample."""

import numpy as np
import pytest

from neurecover.certificate.information.matrix import Information
from neurecover.models import Network, are_biases, jacobian
from neurecover.statistics import InfluenceSums, InformationSums, ScoreSums
from neurecover.statistics.fits.regions import divide

D, K = 4, 3


def _problem(activation: str, bias: bool, p: int, n: int, seed: int = 0) -> tuple[Network, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    W, A = rng.standard_normal((K, D)), rng.standard_normal((p, K))
    b, c = (rng.standard_normal(K), rng.standard_normal(p)) if bias else (np.zeros(K), np.zeros(p))
    network = Network(W, b, A, c, activation)
    X = rng.standard_normal((n, D))
    spread = 0.1 * (1.0 + np.abs(X[:, :1])) * (1.0 + np.arange(p))
    return network, X, network(X) + spread * rng.standard_normal((n, p))


@pytest.mark.parametrize("activation", ["relu", "leaky_relu(0.2)", "abs"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("sorted_", [True, False])
def test_the_covariance_is_the_sum_of_outer_products_of_scores(
    activation: str, bias: bool, p: int, sorted_: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether rows are sorted by region or not."""
    monkeypatch.setattr("neurecover.statistics.fits.regions.CALL", 0.0 if sorted_ else 1e9)
    network, X, Y = _problem(activation, bias, p, 400)
    assert (divide(network.preactivations(X)[0], D + bias) is None) != sorted_
    sums = ScoreSums(network, bias)
    sums.update(X, Y)
    scores = np.einsum("nop,no->np", jacobian(network, X), Y - network(X))
    scores = scores[:, np.ones(scores.shape[1], dtype=bool) if bias else ~are_biases(network)]
    found = sums.covariance()
    np.testing.assert_allclose(found, scores.T @ scores, rtol=1e-10, atol=1e-10 * np.abs(found).max())
    assert sums.sums["off"] == np.count_nonzero(np.all(X @ network.W.T + network.b <= 0.0, axis=1))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("p", [1, 2])
def test_variances_are_those_with_leverages_where_samples_are_many(bias: bool, p: int) -> None:
    """Noise grows with x. Leverages are 0.1 % on average; D/ν in their place is larger by a few % at most."""
    network, X, Y = _problem("relu", bias, p, 20_000)
    curvature, scores = InformationSums.of(network, bias), ScoreSums(network, bias)
    for sums in (curvature, scores):
        sums.update(X, Y)
    information = Information.of(curvature)
    every = np.zeros((network.n_parameters, len(information.free)))
    every[information.free] = information.inverse
    exact = InfluenceSums(network, information.free, every, information.root)
    exact.update(X, Y)
    wanted = exact.influence()
    B = scores.covariance()
    found = scores.influence(np.einsum("ij,jk,ik->i", every, B, every), information.n_determinable, D)
    moved = wanted.variances > 0.0
    ratio = found.variances[moved] / wanted.variances[moved]
    assert 0.995 < ratio.min() <= ratio.max() < 1.1
    assert found.left_out == pytest.approx(wanted.left_out, rel=1e-3)
    assert found.freedom == pytest.approx(wanted.freedom, rel=1e-2)
    assert np.all(found.carried_by[moved] > 100.0)
    assert np.all(found.carried_by[moved] < 20_000)


def test_a_weight_that_few_samples_carry_has_few_degrees_of_freedom() -> None:
    """One unit is on for 40 of 10,000 rows."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((10_000, 2))
    b = -np.sort(X[:, 0])[-40]
    network = Network(np.eye(2), [b, 0.3], [[1.0, 1.0]])
    sums = ScoreSums(network)
    sums.update(X, network(X) + rng.standard_normal((10_000, 1)))
    found = sums.influence(np.ones(network.n_parameters), 7, 2)
    assert np.all(found.carried_by[[0, 1, 4, 6]] < 40)
    assert np.all(found.carried_by[[2, 3, 5, 7, 8]] > 400)
    assert np.all(found.variances[[0, 1, 4]] > 1.05)
