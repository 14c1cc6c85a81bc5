"""When two fits to noisy samples count as one optimum."""

from dataclasses import replace

import numpy as np
import pytest

import neurecover as nr
from neurecover.data import ArraySource
from neurecover.refine.model_fit import fit_model, model_rss
from neurecover.refine.optima import one_optimum


def moved(network: nr.Network, size: float, seed: int) -> nr.Network:
    return replace(network, W=network.W + size * np.random.default_rng(seed).standard_normal(network.W.shape))


@pytest.mark.parametrize("seed", range(4))
def test_pits_of_one_optimum_are_one_and_other_optima_are_not(seed: int) -> None:
    """Fits from starts within a hundredth of each other; and a fit with one unit turned to look elsewhere."""
    truth = nr.simulate.teacher(20, 4, random_state=seed).normal_form()
    source = ArraySource(*nr.simulate.sample(truth, 4_000, noise=0.3, random_state=seed))
    a, b = (fit_model(source, moved(truth, 0.01, start)) for start in (1, 2))
    assert one_optimum(source, a.network, b.network, a.rss, b.rss, 4_000)
    W = a.network.W.copy()
    W[0] = W[0][::-1]
    other = fit_model(source, replace(a.network, W=W))
    if other.rss > a.rss + 0.1 * a.rss / 4_000:  # it may find the way back
        assert not one_optimum(source, a.network, other.network, a.rss, other.rss, 4_000)


def test_outputs_decide_where_sums_of_squares_are_near() -> None:
    """Σ r² within one share of each other: one by outputs that are alike, two by outputs that are not."""
    truth = nr.simulate.teacher(6, 3, random_state=0)
    X, Y = nr.simulate.sample(truth, 2_000, noise=0.5, random_state=0)
    source = ArraySource(X, Y)
    rss = model_rss(source, truth)
    share = rss / 2_000
    assert one_optimum(source, truth, moved(truth, 1e-4, 0), rss + 0.5 * share, rss, 2_000)
    assert not one_optimum(source, truth, moved(truth, 0.1, 0), rss + 0.5 * share, rss, 2_000)
    assert not one_optimum(source, truth, moved(truth, 1e-4, 0), rss + 2.0 * share, rss, 2_000)
    weighted = ArraySource(X, Y, weight=np.full(2_000, 4.0))
    assert one_optimum(weighted, truth, moved(truth, 1e-4, 0), 4.0 * rss + 2.0 * share, 4.0 * rss, 2_000)
