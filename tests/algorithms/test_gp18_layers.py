"""[GP18]: the signs of Step 1, upper parts that are networks, and layers peeled from the lowest up (App. E)."""

import numpy as np
import pytest

import neurecover as nr
from neurecover.activations import get
from neurecover.algorithms.gp18.landscape.step_one import Directions
from neurecover.algorithms.gp18.layers.peeling import can_be_peeled, peel
from neurecover.algorithms.gp18.layers.whole import fit_upper
from neurecover.algorithms.gp18.union import fit as union
from neurecover.algorithms.gp18.union.ascent import AscentPoint
from neurecover.data import ArraySource, reduce
from neurecover.models import Composite, Network, Or
from neurecover.reproduce.gp18_layers import switching_teacher
from neurecover.simulate import matrices
from neurecover.solve import Deadline
from neurecover.tensors import best_weights, rank_one


@pytest.mark.parametrize("activation", ["relu", "step", "sigmoid"])
def test_signs_come_from_the_second_and_third_weight(activation: str) -> None:
    """Whatever the signs of the outputs' weights and of the rows that the decomposition returns."""
    rng = np.random.default_rng(0)
    W = matrices.unit_rows(rng, 5, 6)
    c, t = rng.choice([-1.0, 1.0], 5) * rng.uniform(0.5, 2.0, 5), rng.uniform(1.5, 2.5, 5)
    h = get(activation).hermite(-t, 3)
    turned = W * np.array([1.0, -1.0, 1.0, -1.0, -1.0])[:, None]
    weights = {j: best_weights(rank_one(W, j, c * h[j])[None], turned, j) for j in (2, 3)}
    found = Directions(turned, weights).signed(get(activation))
    np.testing.assert_array_equal(found.W, W)
    np.testing.assert_allclose(found.weights[3][0], c * h[3], rtol=1e-8)


@pytest.mark.parametrize(
    ("widths", "upper", "seed"),
    [((4, 3), "network", 1), ((4, 3), "deep", 2)],
)
def test_every_layer_of_a_network_is_found(widths: tuple[int, ...], upper: str, seed: int) -> None:
    truth = switching_teacher(6, widths, 1.0, seed)
    X = np.random.default_rng([seed, 1]).standard_normal((60_000, 6))
    n_upper = widths[1] if upper == "network" else widths[1:]
    r = nr.recover_lowest_layer(X, truth(X), widths[0], upper=upper, n_upper=n_upper, random_state=seed)
    assert isinstance(r.network, Composite)
    assert isinstance(r.network.upper, Network)
    deep, sought = r.network.to_deep(), truth.to_deep()
    assert deep is not None
    assert sought is not None
    assert deep.n_hidden == widths
    comparison = nr.compare(deep, sought)
    assert all(layer.max_angle < 1e-8 for layer in comparison.layers)
    assert r.certificate.verdict == "exact"


def test_an_upper_network_of_the_right_width_and_one_too_narrow() -> None:
    truth = switching_teacher(6, (4, 3), 1.0, 0)
    X = np.random.default_rng(0).standard_normal((20_000, 6))
    train, layer = ArraySource(X, truth(X)), Composite(truth.W, truth.threshold, Or())
    found = {k: fit_upper(train, layer, "network", rng=np.random.default_rng(0), n_upper=k) for k in (2, 3)}
    left = {k: float(np.mean((network(X) - truth(X)) ** 2) / truth(X).var()) for k, network in found.items()}
    assert found[3].upper.n_hidden == 3
    assert left[3] < 1e-20
    assert left[2] > 1e-6  # a unit is missing


def test_a_first_layer_that_is_a_little_off_is_put_right() -> None:
    truth = switching_teacher(6, (4, 3), 1.0, 3)
    rng = np.random.default_rng(3)
    X = rng.standard_normal((20_000, 6))
    off = Composite(truth.W + 1e-3 * rng.standard_normal(truth.W.shape), truth.threshold + 1e-3, Or())
    found = peel(ArraySource(X, truth(X)), off, (3,), rng, Deadline())
    assert nr.compare(found, truth).layers[0].max_angle < 1e-10
    np.testing.assert_allclose(found(X), truth(X), atol=1e-9)


def test_what_can_be_peeled() -> None:
    layer = Composite(np.eye(2), 1.0, Or(), "relu")
    assert can_be_peeled(layer, get("relu"))
    assert not can_be_peeled(layer, get("sigmoid"))
    assert not can_be_peeled(layer, get("leaky_relu(0.1)"))
    assert not can_be_peeled(Composite(np.eye(2), 1.0, Or(), "sigmoid"), get("sigmoid"))


def test_a_step_without_bound_stays_a_direction() -> None:
    X = np.random.default_rng(0).standard_normal((200, 3))
    fit = union.UnionFit(np.eye(3)[:2], np.ones(2), np.full(2, 0.3), None)
    labels = ArraySource(X, (X[:, 0] > 1.0).astype(float))
    here = AscentPoint(labels, fit.tan_alpha, reduce(labels, fit.likelihood()))
    step = np.zeros(here.system().g.size)
    step[0] = 1e200  # of a unit that no sample tells anything of
    moved = here.moved(step)
    assert moved is not None
    np.testing.assert_allclose(np.linalg.norm(moved.score.V, axis=1), 1.0 / fit.tan_alpha, rtol=1e-12)
