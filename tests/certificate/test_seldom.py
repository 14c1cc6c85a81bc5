"""Units that few samples see on one side: what that lets the others be is not vouched for."""

import numpy as np
import pytest

import neurecover as nr
from neurecover.certificate.determined.seldom_on import _may_be_on, others_may_turn, outputs_tell, seen_of_others
from neurecover.data import ArraySource


def _off_in_two(x2: tuple[float, float, float]) -> tuple[np.ndarray, nr.Network, nr.Network]:
    """Inputs, a network whose second unit is off in two of them, and one with the first unit turned beside it."""
    X = np.clip(np.random.default_rng(0).standard_normal((400, 3)), -2.5, 2.5)
    X = np.vstack([X, [0.3, -20.0, 0.0], x2])
    one = nr.Network([[1.0, 0.0, 0.0], [0.3, 1.0, 0.2]], [0.1, 10.0], [[0.5, 1.0]], [0.7])
    c = 0.7 + 0.5 * 0.4  # with what the first unit adds up in x1
    other = nr.Network([[-1.0, 0.0, 0.0], [0.8, 1.0, 0.2]], [-0.1, 10.05 + 0.7 - c], one.A, [c])
    return X, one, other


@pytest.mark.usefixtures("steps_for_seconds")
def test_two_networks_that_give_the_same_answers_are_neither_exact() -> None:
    """x1 and x2 differ in columns alone in which the first unit has no weights."""
    X, one, other = _off_in_two((0.3, -21.0, 1.0))
    assert np.abs(one(X) - other(X)).max() < 1e-13
    assert others_may_turn(one, 1, ArraySource(X, one(X)))
    for seed in range(3):
        assert nr.recover(X, other(X), 2, random_state=seed, time_budget=2.0).certificate.verdict == "approximate"


def test_two_samples_that_tell_them_apart_are_enough() -> None:
    X, one, other = _off_in_two((0.9, -21.0, 1.0))
    assert np.abs(one(X) - other(X)).max() > 0.1
    assert not others_may_turn(one, 1, ArraySource(X, one(X)))


def test_samples_that_are_nearly_one_prove_as_little_as_one() -> None:
    """Three rows that differ by rounding: after their mean is taken out nothing but rounding is left."""
    rng = np.random.default_rng(1)
    net = nr.simulate.teacher(4, 4, random_state=1)
    x = rng.standard_normal(4)
    unit = int(np.argmax(net.W @ x + net.b))
    others = nr.Network(np.delete(net.W, unit, 0), np.delete(net.b, unit), np.delete(net.A, unit, 1), net.c)
    assert _may_be_on(net, unit, others, x * (1.0 + 1e-15 * rng.standard_normal((3, 1))))
    assert not _may_be_on(net, unit, others, x + 0.1 * rng.standard_normal((6, 4)))


@pytest.mark.usefixtures("steps_for_seconds")
@pytest.mark.parametrize("p", [1, 3])
def test_a_unit_that_is_alone_and_seldom_on_ends_in_an_answer(p: int) -> None:
    X = np.random.default_rng(p).standard_normal((300, 4))
    w = np.array([1.0, -0.5, 0.3, 0.2])
    z = np.sort(X @ w)
    truth = nr.Network(w[None], [-0.5 * (z[-4] + z[-5])], np.ones((p, 1)), np.full(p, 0.3))
    assert nr.recover(X, truth(X), 1, random_state=0, time_budget=2.0).certificate.verdict in ("approximate", "failed")


def _on_in_one(a: list[float]) -> tuple[np.ndarray, nr.Network, nr.Network]:
    """Inputs, a network whose second unit is on in one of them, and one with the first unit turned beside it.

    With z₁ = −30 and z₂ = 1 in that row, A₁ relu(z₁) = A₁ relu(−z₁) + A₁ (z₁ + 29) − 29 A₁ in all others, and the
    second unit may be z₁ + 29, off where it was on, if `a`, its column, is the column of the first.
    """
    X = np.vstack([np.random.default_rng(0).standard_normal((400, 3)), [-30.1, 31.0, 0.4]])
    column = np.array([1.0, 0.5, -0.5])
    one = nr.Network([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [0.1, -30.0], np.column_stack([column, a]), np.zeros(3))
    other = nr.Network([[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]], [-0.1, 29.1], one.A, -29.0 * column)
    return X, one, other


def test_outputs_tell_signs_unless_a_column_repeats() -> None:
    few, low, seen = np.array([False, True]), np.zeros(2, dtype=bool), (np.ones((1, 3)), np.ones((3, 1)))
    X, one, other = _on_in_one([1.0, 0.5, -0.5])
    assert np.abs(one(X) - other(X)).max() < 1e-13
    assert not outputs_tell(one, few, low, X, *seen)
    X, one, other = _on_in_one([1.0, 0.5, 0.5])
    assert np.abs(one(X) - other(X)).max() > 1.0
    assert outputs_tell(one, few, low, X, *seen)
    assert not outputs_tell(one, few, low, X, seen[0], np.array([[1.0], [np.inf], [np.inf]]))


@pytest.mark.parametrize("p", [2, 4])
def test_two_units_of_few_samples_leave_the_others_determined_if_there_are_more_outputs(p: int) -> None:
    """One on and one off in few samples: with as many outputs as such units nothing is vouched for."""
    net = nr.simulate.teacher(4, 5, p, random_state=3).normal_form()
    X = np.random.default_rng(3).standard_normal((600, 4))
    Z = np.sort(X @ net.W.T, axis=0)
    b = net.b.copy()
    b[1], b[3] = -0.5 * (Z[-3, 1] + Z[-4, 1]), -0.5 * (Z[2, 3] + Z[3, 3])
    net, few = nr.Network(net.W, b, net.A, net.c), np.isin(np.arange(5), (1, 3))
    seen = seen_of_others(net, ArraySource(X, net(X)), True, 1e-15, few, 6)
    closed = {name: np.isfinite(error) for name, error in seen.errors.items()}
    assert not closed["W"][few].any()
    assert not closed["c"].any()
    assert closed["W"][~few].all() == closed["W"].any() == closed["A"][:, ~few].all() == (p > 2)
