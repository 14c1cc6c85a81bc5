"""Starts from a grid of kinks: the best sets of the grid, and fits that are never worse for knowing the width."""

from itertools import combinations

import numpy as np
import pytest

import neurecover as nr
from neurecover import activations
from neurecover.search import Task
from neurecover.search.kink_grid import GridOptions, grid_start


def broken(seed: int, n: int, breaks: list[float], changes: list[float], noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs (n, 1) on 0 to 10 and a line with these breaks."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 10.0, n)
    y = 1.0 + 0.5 * x + np.maximum(x[:, None] - np.array(breaks), 0.0) @ np.array(changes)
    return x[:, None], y + noise * rng.standard_normal(n)


def task(X: np.ndarray, k: int) -> Task:
    return Task(activations.get("relu"), X.shape[1], 1, len(X), True, k, 1e-20, affine=True)


def test_the_kinks_are_those_of_the_best_subset_of_the_grid() -> None:
    """Twelve places, all pairs of which are tried here; exchanges end at the best pair in at least 5 of 6 sets."""
    best = 0
    options = GridOptions(places=(12, 8))
    for seed in range(6):
        X, y = broken(seed, 120, [3.0, 7.0], [1.0, -1.5], 0.5)
        planes = grid_start(X, y[:, None], task(X, 2), options)
        assert planes is not None
        assert planes.shape == (2, 2)
        places = np.quantile(X[:, 0], np.linspace(options.margin, 1.0 - options.margin, 12))

        def left(pair: tuple[float, ...], X: np.ndarray = X, y: np.ndarray = y) -> float:
            F = np.column_stack([np.ones(len(X)), X, np.maximum(X - np.array(pair), 0.0)])
            return float(np.sum((y - F @ np.linalg.lstsq(F, y, rcond=None)[0]) ** 2))

        found = left(tuple(-planes[:, 1] / planes[:, 0]))
        least = min(left(pair) for pair in combinations(places, 2))
        assert found >= least * (1.0 - 1e-9)
        best += found <= least * (1.0 + 1e-9)
    assert best >= 5


def test_there_is_a_grid_for_one_and_two_inputs_of_units_with_kinks_alone() -> None:
    X = np.random.default_rng(0).standard_normal((50, 3))
    assert grid_start(X, X[:, :1], task(X, 2)) is None
    smooth = Task(activations.get("tanh"), 1, 1, 50, True, 2, 1e-20, affine=True)
    assert grid_start(X[:, :1], X[:, :1], smooth) is None


@pytest.mark.parametrize(
    ("breaks", "changes"), [([4.0], [1.0]), ([3.0, 7.0], [1.0, -1.5]), ([2.5, 5.0, 7.5], [1.5, -1.5, 1.5])]
)
def test_the_told_width_is_fitted_as_well_as_by_enumeration(breaks: list[float], changes: list[float]) -> None:
    """Σr² within one σ² of the enumeration of all breaks in at least 5 of 6 sets, and every kink among the data."""
    near = 0
    for seed in range(6):
        X, y = broken(seed, 60 if len(breaks) == 3 else 100, breaks, changes, 1.0)
        found = nr.recover(X, y, n_hidden=len(breaks), affine=True, random_state=0).network
        assert isinstance(found, nr.Network)
        kinks = -found.b / found.W[:, 0]
        assert np.all((kinks > X.min()) & (kinks < X.max()))
        line = nr.HingeRegression(len(breaks), estimate="least_squares").fit(X, y)
        rss, least = (float(np.sum((y - f(X).ravel()) ** 2)) for f in (found, line.predict))
        near += rss <= least + 1.0
    assert near >= 5


def test_units_stand_in_one_order_whatever_the_order_of_the_rows() -> None:
    truth = nr.simulate.teacher(4, 3, random_state=2)
    X, Y = nr.simulate.sample(truth, 400, random_state=3)
    first = nr.recover(X, Y, n_hidden=3, random_state=0).network
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(X))
        again = nr.recover(X[order], Y[order], n_hidden=3, random_state=seed).network
        assert isinstance(first, nr.Network)
        assert isinstance(again, nr.Network)
        np.testing.assert_allclose(again.W, first.W, atol=1e-8)
