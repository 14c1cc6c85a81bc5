"""Answers of few digits: rows outside the directions that matter, a span that was too narrow, and an early refusal."""

import numpy as np
import pytest

import neurecover as nr
from neurecover.exceptions import UnsolvableError
from neurecover.models import DeepNetwork
from neurecover.queries.box.black_box import Box
from neurecover.queries.deep.extract import FewDigitsError, extract_deep
from neurecover.queries.deep.outside import measure_outside
from neurecover.queries.deep.span import find_gradient_span
from neurecover.queries.weighted import fit_weighted
from neurecover.solve import Deadline
from query_networks import default_network, in_single


def test_rows_outside_their_span_have_the_errors_that_are_stated():
    z = []
    for seed in range(3):
        network = default_network((60, 8, 6, 1), seed).normal_form()
        network = DeepNetwork([(W.astype(np.float32), b.astype(np.float32)) for W, b in network.layers])
        rng = np.random.default_rng(seed)
        (W, b), *above = network.layers
        # A tenth of this is left at the most.
        rough = DeepNetwork([(W + 1e-6 * rng.standard_normal(W.shape), b), *above])
        found, outside = measure_outside(Box(in_single(network), 60), rough, rng)
        rest = np.linalg.svd(outside.basis)[0][:, 8:]
        apart = (found.normal_form().layers[0][0] - network.normal_form().layers[0][0]) @ rest
        assert np.sqrt(np.mean(apart**2)) < 1e-7
        z.append((apart / np.sqrt(np.diag(outside.covariance))[:, None]).ravel())
    # 1,248 parts, of which those of one network share a regression; the part of rounding that repeats comes on top.
    assert 0.7 < np.sqrt(np.mean(np.concatenate(z) ** 2)) < 1.4


def test_a_fit_inside_the_span_is_that_of_all_weights():
    network = default_network((9, 6, 5, 2), 2).normal_form()
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((3_000, 9)) * rng.choice([0.5, 1.0, 3.0], (3_000, 1))).astype(np.float32).astype(float)
    box = Box(in_single(network), 9)
    nearer, outside = measure_outside(box, network, rng)
    inside, whole = fit_weighted(nearer, X, box(X), outside=outside), fit_weighted(network, X, box(X))
    assert inside is not None
    assert whole is not None
    flat = [np.concatenate([np.append(W, b) for W, b in fit.network.layers]) for fit in (inside, whole)]
    apart = np.abs(flat[0] - flat[1]) / np.sqrt(inside.variances + whole.variances)
    assert apart.max() < 6.0
    # The directions outside take nothing from what is known inside.
    np.testing.assert_allclose(inside.on_z.layers[0][0], inside.network.layers[0][0], atol=1e-9)


def test_moves_outside_the_span_show_a_unit_that_gradients_miss():
    rng = np.random.default_rng(0)
    W = np.linalg.qr(rng.standard_normal((12, 5)))[0].T
    # The last unit is active at one point in fifty of scale one: gradients meet it rarely, a hundred moves do.
    b = np.append(0.1 * rng.standard_normal(4), -2.0)
    network = DeepNetwork([(W, b), (rng.standard_normal((4, 5)), np.ones(4)), (np.ones((1, 4)), np.zeros(1))])
    found = [find_gradient_span(Box(in_single(network), 12), np.random.default_rng(seed)).rank for seed in range(10)]
    # A move from scale one or three shows it more often than not; all ten but for chance.
    assert sum(rank >= 5 for rank in found) >= 8


def test_too_few_digits_for_several_layers_are_told():
    network = default_network((10, 10, 10, 1), 5)
    box = Box(lambda X: np.round(network(X), 4), 10)
    with pytest.raises(FewDigitsError, match="more digits"):
        extract_deep(box, rng=np.random.default_rng(0), deadline=Deadline(None))
    assert box.queries < 200
    assert issubclass(FewDigitsError, UnsolvableError)
    # The coarser the answers, the more crowded are kinks, in proportion.
    coarser = Box(lambda X: np.round(network(X), 3), 10)
    assert 3.0 < coarser.crowding / box.crowding < 30.0


@pytest.mark.usefixtures("steps_for_seconds")
def test_few_digits_end_early_and_are_not_claimed():
    # The rest is spent on one hidden layer for these samples, of which 3,000 steps have to do.
    network = default_network((10, 10, 10, 1), 5)
    found = nr.extract(nr.oracle(lambda X: np.round(network(X), 4), 10), random_state=0, time_budget=3.0)
    assert found.certificate.verdict == "failed"
    assert found.n_queries < 5_000
    assert "more digits" in " ".join(found.certificate.reasons)
