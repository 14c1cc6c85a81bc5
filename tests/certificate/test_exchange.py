"""Networks of which another one fits all samples as well: exchanged weights, and outputs that repeat each other."""

import numpy as np
import pytest

import neurecover as nr
from benchmarks.tables import vouched_for
from neurecover.certificate.information.sole_equations import sole_equations
from neurecover.certificate.signs.exchange import least_apart
from neurecover.data import ArraySource
from neurecover.models import Network, jacobian
from neurecover.simulate import teacher


def _pair(seed: int, apart: float = 0.0) -> tuple[Network, Network, np.ndarray]:
    """Two units of the same slopes on two numbers, a rival with other weights on a column of two values, and inputs."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.standard_normal((300, 2)), rng.random(300) < 0.5]).astype(float)
    truth = Network([[1.0, 0.5 + apart, 0.5], [1.0, 0.5, -0.3]], [0.2, -0.4], [[1.0, 1.0]], [0.0])
    rival = Network([[1.0, 0.5, -0.9], [1.0, 0.5, 1.1]], [0.2, -0.4], [[1.0, 1.0]], [0.0])
    return truth, rival, X


@pytest.mark.usefixtures("steps_for_seconds")
@pytest.mark.parametrize("noise", [0.0, 1e-6])
def test_units_that_may_have_exchanged_weights_are_not_claimed(noise: float) -> None:
    for seed in range(5):
        truth, rival, X = _pair(seed)
        np.testing.assert_allclose(rival(X), truth(X), atol=1e-13)  # another network, the same outputs
        Y = truth(X) + noise * np.random.default_rng(seed).standard_normal((300, 1))
        found = nr.recover(X, Y, 2, random_state=seed, time_budget=5.0)
        assert found.certificate.verdict == "approximate"
        assert found.certificate.determined is None
        assert any("exchanged their weights" in reason for reason in found.certificate.reasons) or noise


@pytest.mark.usefixtures("steps_for_seconds")
def test_units_whose_slopes_differ_are_claimed() -> None:
    truth, _, X = _pair(0, apart=0.01)
    found = nr.recover(X, truth(X), 2, random_state=0, time_budget=5.0)
    assert found.certificate.verdict == "exact"
    assert nr.compare(found.network, truth).weight_error < 1e-10


def test_only_columns_of_two_values_matter() -> None:
    truth, _, X = _pair(0)
    assert least_apart(truth, None, ArraySource(X, truth(X))) == 0.0
    three = np.column_stack([X[:, :2], X[:, 2] + (np.arange(len(X)) % 3 == 0)])
    assert least_apart(truth, None, ArraySource(three, truth(three))) == np.inf
    other = _pair(0, apart=0.01)[0]
    assert least_apart(other, None, ArraySource(X, other(X))) > 1e4


@pytest.mark.usefixtures("steps_for_seconds")
@pytest.mark.parametrize("mix", [[[1.0], [1.0]], [[1.0], [-1.0]], [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]])
def test_outputs_that_depend_on_each_other_count_once(mix: list[list[float]]) -> None:
    """A column that differs in two rows: with outputs repeated it is no better seen, and nothing false is claimed."""
    repeated = np.array(mix)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = np.hstack([rng.standard_normal((300, 4)), np.zeros((300, 1))])
        X[rng.choice(300, 2, replace=False), 4] = 1.0
        single = teacher(5, 3, repeated.shape[1], random_state=seed)
        truth = Network(single.W, single.b, repeated @ single.A, repeated @ single.c)
        found = nr.recover(X, truth(X), 3, random_state=seed, time_budget=5.0)
        assert not vouched_for(found, truth)[1]


def test_an_equation_is_alone_in_every_basis_of_the_outputs() -> None:
    """One row shows a weight, through two outputs that are the same: what it says is said once."""
    rng = np.random.default_rng(0)
    X = np.hstack([rng.standard_normal((60, 2)), np.zeros((60, 1))])
    X[0] = [2.0, 2.0, 1.0]
    model = Network([[0.6, 0.8, 0.5], [0.8, -0.6, 0.2]], [0.1, 0.2], [[1.0, 0.7]], [0.0])
    twice = Network(model.W, model.b, np.vstack([model.A, model.A]), [0.0, 0.0])
    for network in (model, twice):
        J = jacobian(network, X).reshape(60 * network.n_outputs, -1)
        _, sizes, right = np.linalg.svd(J, full_matrices=False)
        kept = sizes > 1e-10 * sizes[0]
        root = right[kept].T / sizes[kept]
        rows = sole_equations(network, np.arange(J.shape[1]), root, ArraySource(X, network(X)))
        assert len(rows) == 1
        assert abs(rows[0, 2]) > 0.1  # the weight of the column that this row alone shows
