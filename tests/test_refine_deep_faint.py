"""Faint units under noise: the lowest optimum is found from a wrong one, and rivals are noticed."""

import numpy as np
import pytest

from neurecover.activations import get
from neurecover.data import ArraySource
from neurecover.models import DeepNetwork
from neurecover.refine.deep_faint import _Alone, _faint, with_faint_units_sought
from neurecover.refine.deep_problem import Problem
from neurecover.refine.deep_runs import Runs
from neurecover.refine.deep_settling import Settled
from neurecover.refine.model_fit import ModelFit, fit_model
from neurecover.solve import Deadline


def _noisy(seed: int, faint: float) -> tuple[DeepNetwork, ArraySource, np.random.Generator]:
    """A network of 4-4-3-1 units, the first of the top layer with that output weight, and noise of 0.05."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((6_000, 4))
    W, V = rng.standard_normal((4, 4)), rng.standard_normal((3, 4))
    V -= np.median(V, axis=1, keepdims=True)  # so that each of them switches
    truth = DeepNetwork([(W, 0.3 * rng.standard_normal(4)), (V, None), ([[faint, 1.0, -1.0]], None)]).normal_form()
    return truth, ArraySource(X, truth(X) + 0.05 * rng.standard_normal((6_000, 1))), rng


def _sought(source: ArraySource, fit: ModelFit[DeepNetwork], rng: np.random.Generator) -> Runs:
    problem = Problem.of(source, get("relu"), True, None)
    return with_faint_units_sought(
        problem, Runs(Settled(fit, (), 1), fit.rss / problem.total, 2, True), rng, Deadline()
    )


def test_a_wrong_faint_unit_gives_way_to_the_right_one() -> None:
    """Of five networks with another unit in its place, fitted to the end, four or more come to the lowest optimum."""
    came, wrong = 0, 0
    for seed in range(5):
        truth, source, rng = _noisy(seed, 0.03)
        best = fit_model(source, truth)
        variance = best.rss / 6_000
        (W, b), (V, c), top = truth.layers
        V, c = V.copy(), c.copy()
        V[0], c[0] = rng.standard_normal(4), 0.0
        start = fit_model(source, DeepNetwork([(W, b), (V, c), top]))
        wrong += start.rss > best.rss + variance
        found = _sought(source, start, rng)
        assert found.best.fit.rss <= start.rss
        came += found.best.fit.rss <= best.rss + variance
    assert wrong >= 2
    assert came >= 4


def test_a_network_of_strong_units_stays_as_it_is() -> None:
    truth, source, rng = _noisy(0, 2.0)
    fit = fit_model(source, truth)
    found = _sought(source, fit, rng)
    assert found.best.fit is fit
    assert found.unrivalled


@pytest.mark.parametrize("p", [1, 2])
def test_the_others_give_way_to_first_order(p: int) -> None:
    """The slopes are those of finite differences, and nothing is left along the derivatives of the others."""
    rng = np.random.default_rng(p)
    X = rng.standard_normal((300, 3))
    network = DeepNetwork(
        [
            (rng.standard_normal((4, 3)), rng.standard_normal(4)),
            (rng.standard_normal((3, 4)), rng.standard_normal(3)),
            (rng.standard_normal((p, 3)), None),
        ]
    )
    Y = network(X) + rng.standard_normal((300, p))
    alone = _Alone.of(network, 1, X, Y)
    theta = rng.standard_normal(alone.h.shape[1] + 1 + p)
    step = 1e-6
    for slope, direction in zip(alone._slopes(theta).T, np.eye(len(theta))):
        apart = (alone._left(theta + step * direction) - alone._left(theta - step * direction)) / (2.0 * step)
        assert np.linalg.norm(apart - slope) < 1e-4 * np.linalg.norm(slope)
    flat = alone.Q.reshape(300 * p, -1)
    assert np.abs(flat.T @ alone._left(theta)).max() < 1e-10
    assert list(_faint(network, X, Y))  # noise as large as the outputs leaves every unit faint
