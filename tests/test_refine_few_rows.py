"""Networks with a unit that is on in fewer samples than it has weights."""

import numpy as np
import pytest

import neurecover as nr
from neurecover.data import ArraySource
from neurecover.models import Network
from neurecover.refine.descent import Descent
from neurecover.refine.few_rows import with_rest, with_units_of_few_rows
from neurecover.refine.settling import as_student
from neurecover.refine.task import Task
from neurecover.solve import Deadline


def with_a_unit_of_few_rows(seed: int, d: int, k: int, p: int, rows: int) -> tuple[Network, np.ndarray]:
    """A network whose unit 0 is on in so many of 30·d·k samples, and the samples."""
    truth = nr.simulate.teacher(d, k, p, random_state=seed)
    X = np.random.default_rng(seed).standard_normal((30 * d * k, d))
    z = np.sort(X @ truth.W[0])
    return Network(truth.W, np.append(-0.5 * (z[-rows] + z[-rows - 1]), truth.b[1:]), truth.A, truth.c), X


@pytest.mark.parametrize(("p", "rows"), [(1, 4), (1, 7), (3, 5)])
def test_the_other_units_are_found_and_vouched_for(p: int, rows: int) -> None:
    """Eight inputs, four units, ten seeds: every sample is answered and the weights of three units are exact."""
    vouched = 0
    for seed in range(10):
        truth, X = with_a_unit_of_few_rows(seed, 8, 4, p, rows)
        found = nr.recover(X, truth(X), 4, random_state=seed, time_budget=5)
        mask = found.certificate.determined
        if mask is None:
            continue
        vouched += 1
        assert found.certificate.verdict == "approximate"
        np.testing.assert_allclose(found.network(X), truth(X), atol=1e-9)
        assert mask["W"].all(axis=1).sum() == 3
        for w, a in zip(found.network.W[mask["W"].all(axis=1)], found.network.A.T[mask["W"].all(axis=1)]):
            same = np.abs(truth.W - w).max(axis=1) < 1e-8
            assert same.sum() == 1
            np.testing.assert_allclose(truth.A.T[same][0], a, atol=1e-8)
        assert any("whose kink too few samples show" in reason for reason in found.certificate.reasons)
    assert vouched >= 6


def test_one_sample_says_nothing_of_the_signs_of_others() -> None:
    """A unit on in one sample may be on everywhere else instead, with other units turned: nothing is vouched for."""
    for seed in range(6):
        truth, X = with_a_unit_of_few_rows(seed, 5, 3, 1, 1)
        found = nr.recover(X, truth(X), 3, random_state=seed, time_budget=2)
        mask = found.certificate.determined
        assert mask is None or not mask["W"].any() or np.all(np.abs(found.network(X) - truth(X)) < 1e-6)
        assert found.certificate.verdict not in ("exact", "statistical")


def test_a_student_that_is_nearly_exact_is_completed() -> None:
    """A unit on in six samples, of which the student has two rough pieces: it is found on 4 of 6 networks."""
    completed = 0
    for seed in range(6):
        truth, X = with_a_unit_of_few_rows(seed, 6, 5, 3, 6)
        task = Task(truth.activation, 6, 3, len(X), True, 5)
        rng = np.random.default_rng(seed)
        pieces = truth.W[[0, 0]] + 0.02 * rng.standard_normal((2, 6))
        start = Network(
            np.vstack([truth.W[1:], pieces]),
            np.append(truth.b[1:], np.repeat(truth.b[0], 2)),
            np.hstack([truth.A[:, 1:], truth.A[:, [0, 0]]]),
            truth.c,
        )
        source = ArraySource(X, truth(X))
        wide = Descent(source, as_student(start, True)).advance(2)
        assert wide.relative_rss > 1e-15
        found = with_units_of_few_rows(source, task, wide, Deadline())
        if found is not None:
            completed += 1
            np.testing.assert_allclose(found.network(X), truth(X), atol=1e-9)
            assert found.network.n_hidden == 5
    assert completed >= 4


def test_units_are_added_for_what_others_leave_but_not_for_noise() -> None:
    truth, X = with_a_unit_of_few_rows(0, 6, 5, 3, 6)
    others = Network(truth.W[1:], truth.b[1:], truth.A[:, 1:], truth.c)
    Y = truth(X)
    whole = with_rest(others, X, Y, 5)
    assert whole is not None
    np.testing.assert_allclose(whole(X), Y, atol=1e-9)
    missed = np.flatnonzero(np.abs(others(X) - Y).max(axis=1) > 1e-6)
    Y[missed[0]] += 1.0  # one of six samples is something else
    assert with_rest(others, X, Y, 5) is None
    more = with_rest(others, X, Y, 5, unexplained=0.5)
    assert more is not None
    rows = np.arange(len(X)) != missed[0]
    np.testing.assert_allclose(more(X[rows]), Y[rows], atol=1e-9)
    assert with_rest(others, X, Y + np.random.default_rng(0).standard_normal(Y.shape), 5, unexplained=0.5) is None
