"""Algorithms 1 to 7 of [BJW18] as printed: sketch, score tensor, patterns cut at τ, linear systems, programmes."""

import numpy as np
import pytest

from neurecover.activations import get
from neurecover.algorithms.bjw18.enumeration import programs_of_remark_1, tight_patterns
from neurecover.algorithms.bjw18.patterns import output_span
from neurecover.algorithms.bjw18.printed import (
    PrintedOptions,
    algorithm_3,
    by_patterns,
    score_directions,
    score_order,
    sketched,
)
from neurecover.matching import compare
from neurecover.pipeline import estimate
from neurecover.simulate import sample, teacher

RELU = get("relu")


def test_the_printed_order_vanishes_for_relu_and_not_for_its_square() -> None:
    assert (score_order(RELU), score_order(get("power(2)"))) == (4, 3)
    assert abs(RELU.hermite(np.zeros(1), 3)[3, 0]) < 1e-15


@pytest.mark.parametrize("activation", ["relu", "power(2)"])
def test_algorithm_5_is_exact_from_right_patterns(activation: str) -> None:
    act = get(activation)
    for seed in range(5):
        net = teacher(4, 3, 5, bias=0.0, activation=activation, random_state=seed)
        X, Y = sample(net, 40, random_state=seed)
        on = X @ net.W.T > 0.0
        Q = sketched(Y, 3, np.random.default_rng(seed))
        found = by_patterns(X, Y, Q, np.hstack([~on, on]), net.W, act)  # the wrong sign first
        assert found.found == 3
        assert compare(found.network, net).weight_error < 1e-8
    # One sample whose sign is wrong leaves its unit without a solution.
    on[0, 0] = ~on[0, 0]
    assert by_patterns(X, Y, Q, on, net.W, act).found == 2


def test_algorithm_3_finds_more_units_with_more_samples() -> None:
    counts = []
    for n in (300, 100_000):
        found = 0
        for seed in range(8):
            net = teacher(3, 3, 5, kind="orthonormal", bias=0.0, random_state=seed)
            X, Y = sample(net, n, random_state=seed)
            found += algorithm_3(X, Y, 3, RELU, np.random.default_rng(seed), PrintedOptions()).found
        counts.append(found)
    assert counts[1] > counts[0] + 4


def test_directions_of_the_score_converge() -> None:
    """Of a squared relu, whose third order is not zero: the mean angle falls as 1/√n, or nearly so."""
    means = []
    for n in (2_000, 200_000):
        errors = []
        for seed in range(6):
            net = teacher(3, 2, 3, kind="orthonormal", bias=0.0, activation="power(2)", random_state=seed)
            X, Y = sample(net, n, random_state=seed)
            V = score_directions(X, Y, 2, net.activation, np.random.default_rng(seed), PrintedOptions())
            errors.append(np.arccos(np.clip(np.abs(net.W @ V.T).max(axis=1), 0.0, 1.0)).max())
        means.append(np.median(errors))
    assert means[1] < 0.5 * means[0]


def test_the_programmes_of_remark_1() -> None:
    for seed in range(3):
        net = teacher(2, 2, 3, bias=0.0, random_state=seed)
        X, Y = sample(net, 9, random_state=seed)
        true = {(X @ w > 0.0).tobytes() for w in net.W}
        assert true <= {on.tobytes() for on in tight_patterns(output_span(Y, 2).Q)}
        found = programs_of_remark_1(X, Y, 2)
        assert found.exact
        np.testing.assert_allclose(found.network(X), Y, atol=1e-8)
    e = estimate(X, Y, 2, method="sign_patterns", form="paper", bias=False, random_state=0)
    assert e.network is not None


def test_algorithm_7_looks_once() -> None:
    net = teacher(4, 4, 2, bias=0.0, random_state=1)
    X, Y = sample(net, 600, random_state=1)
    best, printed = (
        estimate(X, Y, 4, method="one_sparse", form=form, bias=False, random_state=0).details
        for form in ("best", "paper")
    )
    assert printed.network.n_hidden <= best.network.n_hidden
    many = sample(net, 20_000, random_state=1)
    e = estimate(*many, 4, method="one_sparse", form="paper", bias=False, random_state=0)
    assert compare(e.network, net).weight_error < 1e-9
