"""Several hidden layers from chosen queries: whole networks, up to the symmetries of a network."""

import itertools

import numpy as np
import pytest

from neurecover.exceptions import UnsolvableError
from neurecover.matching import compare
from neurecover.models import DeepNetwork
from neurecover.queries.box.black_box import Box
from neurecover.queries.deep.extract import extract_deep, measure_residual
from neurecover.solve.deadline import Deadline


def he_network(widths: tuple[int, ...], seed: int) -> DeepNetwork:
    rng = np.random.default_rng(seed)
    return DeepNetwork(
        [
            (rng.standard_normal((k, d)) * np.sqrt(2.0 / d), 0.1 * rng.standard_normal(k))
            for d, k in itertools.pairwise(widths)
        ]
    )


def extracted(network: DeepNetwork, seed: int, **told):
    box = Box(network, network.n_inputs)
    return extract_deep(box, rng=np.random.default_rng(seed), deadline=Deadline(), **told)


def solved(network: DeepNetwork, seed: int, **told) -> bool:
    try:
        found = extracted(network, seed, **told)
    except UnsolvableError:
        return False
    if found.network.n_hidden != network.n_hidden:
        return False
    errors = compare(found.network, network)
    return max(errors.weight_error, errors.bias_error, errors.output_weight_error) < 1e-9


@pytest.mark.parametrize(
    ("widths", "least"),
    [((6, 6, 5, 1), 3), ((5, 8, 6, 1), 3), ((30, 6, 5, 1), 3), ((8, 6, 5, 2), 3)],
    ids=["square", "expansive", "many inputs", "two outputs"],
)
def test_two_hidden_layers_are_found_without_their_widths(widths, least):
    assert sum(solved(he_network(widths, seed), 100 + seed) for seed in range(4)) >= least


# Three hidden layers are a golden case (tests/goldens/queries.py).
def test_four_hidden_layers_are_found():
    # One of two seeds of those that docs/results is not made of, and first the one that takes less time.
    assert any(solved(he_network((20, 16, 12, 8, 4, 1), seed), seed) for seed in (11, 3))


def test_one_hidden_layer_comes_out_as_one():
    network = he_network((8, 6, 1), 0)
    found = extracted(network, 1)
    assert found.network.n_hidden == (6,)
    assert compare(found.network, network).weight_error < 1e-10


def test_an_unsolved_network_does_not_claim_to_be_exact():
    # A smooth box has no kinks: whatever comes back must say that it does not reproduce the oracle.
    W = np.random.default_rng(0).standard_normal((5, 4))
    box = Box(lambda X: np.tanh(X @ W.T).sum(axis=1), 4, budget=20_000)
    try:
        found = extract_deep(box, rng=np.random.default_rng(1), deadline=Deadline())
    except UnsolvableError:
        return
    assert not found.exact
    assert found.residual > 1e-4


def test_errors_to_expect_cover_the_errors_made():
    network = he_network((6, 6, 5, 1), 1)
    found = extracted(network, 101)
    errors = compare(found.network, network)
    assert errors.weight_error < 100.0 * found.errors.max()


def test_residual_sees_a_wrong_weight():
    network = he_network((6, 6, 5, 1), 2)
    (W, b), *above = network.layers
    wrong = W.copy()
    wrong[0, 0] += 1e-3
    box, rng = Box(network, 6), np.random.default_rng(0)
    assert measure_residual(box, network, 300, rng)[0] < 1e-12
    before = box.queries
    assert measure_residual(box, DeepNetwork([(wrong, b), *above]), 300, rng)[0] > 1e-5
    assert box.queries - before >= max(200, network.n_parameters)


def test_same_seed_same_answer():
    network = he_network((6, 6, 5, 1), 3)
    first, second = extracted(network, 7), extracted(network, 7)
    assert first.queries == second.queries
    assert np.array_equal(first.network.layers[0][0], second.network.layers[0][0])


def test_budget_is_kept():
    network = he_network((6, 6, 5, 1), 4)
    box = Box(network, 6, budget=500)
    with pytest.raises(UnsolvableError):
        extract_deep(box, rng=np.random.default_rng(0), deadline=Deadline())
    assert box.queries <= 500


def test_widths_and_depth_must_agree():
    box = Box(he_network((4, 3, 3, 1), 0), 4)
    with pytest.raises(ValueError, match="expected as many widths"):
        extract_deep(box, n_hidden=(3, 3), depth=3, rng=np.random.default_rng(0), deadline=Deadline())
