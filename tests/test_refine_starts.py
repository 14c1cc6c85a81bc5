"""Starts: greedy selection finds what is in its pool, and kinks drawn through samples pass through samples."""

import itertools

import numpy as np

from neurecover import simulate
from neurecover.activations import get
from neurecover.data import ArraySource
from neurecover.refine.search import hops
from neurecover.refine.starts import greedy_units, random_units, units_through_samples
from neurecover.refine.task import Task
from neurecover.solve import Deadline


def test_greedy_selection_finds_orthogonal_units_hidden_in_a_pool() -> None:
    found = 0
    for seed in range(10):
        truth = simulate.teacher(6, 3, kind="orthonormal", random_state=seed)
        X, Y = simulate.sample(truth, 2_000, random_state=seed)
        units = np.hstack([truth.W, truth.b[:, None]])
        pool = np.vstack([random_units(np.random.default_rng(seed), 50, 6, True), units])
        task = Task(get("relu"), 6, 1, 2_000, True, 3)
        chosen = greedy_units(ArraySource(X, Y), task.student(pool, affine=True), 3)
        found += sum(any(np.array_equal(unit, row) for row in chosen) for unit in units)
    assert found >= 27  # of 30: a random unit close to a true one may go first


def test_greedy_selection_is_that_of_refitting_with_every_candidate() -> None:
    rng = np.random.default_rng(1)
    X, Y = rng.standard_normal((200, 3)), rng.standard_normal((200, 2))
    pool = random_units(rng, 12, 3, True)
    task = Task(get("relu"), 3, 2, 200, True, 4)
    chosen = greedy_units(ArraySource(X, Y), task.student(pool, affine=True), 4)
    base = np.hstack([X, np.ones((200, 1))])
    values = np.maximum(base @ pool.T, 0.0)
    for row in chosen:
        losses = []
        for j in range(12):
            design = np.hstack([base, values[:, [j]]])
            losses.append(np.sum((Y - design @ np.linalg.lstsq(design, Y, rcond=None)[0]) ** 2))
        best = int(np.argmin(losses))
        np.testing.assert_array_equal(row, pool[best])
        base = np.hstack([base, values[:, [best]]])


def test_kinks_through_samples() -> None:
    rng = np.random.default_rng(2)
    X = rng.standard_exponential((100, 4))
    V = units_through_samples(ArraySource(X, X[:, 0]), rng, 7)
    values = np.hstack([X, np.ones((100, 1))]) @ V.T
    assert V.shape == (7, 5)
    np.testing.assert_allclose(np.abs(values).min(axis=0), 0.0, atol=1e-12)


def test_every_kind_of_round_gives_a_descent() -> None:
    for bias in (True, False):
        truth = simulate.teacher(4, 3, 2, bias=0.5 * bias, random_state=0)
        source = ArraySource(*simulate.sample(truth, 100, noise=1.0, random_state=0))
        runs = hops(source, Task(get("relu"), 4, 2, 100, bias, 3), 5, np.random.default_rng(0), Deadline(), iter(()))
        widths = {next(runs).student.n_hidden for _ in range(40)}
        assert widths == {5}


def test_no_units_through_samples_are_none() -> None:
    source = ArraySource(np.ones((5, 3)), np.ones((5, 1)))
    assert units_through_samples(source, np.random.default_rng(0), 0).shape == (0, 4)


def test_starts_as_wide_as_the_student_last_for_every_kind_of_round() -> None:
    truth = simulate.teacher(3, 2, random_state=0)
    X, Y = simulate.sample(truth, 60, noise=1.0, random_state=0)
    task = Task(get("relu"), 3, 1, 60, True, 2)
    given = random_units(np.random.default_rng(1), 3, 3, True)
    runs = hops(ArraySource(X, Y), task, 3, np.random.default_rng(0), Deadline.after(0.0), itertools.repeat(given))
    for _ in range(300):  # a few rounds of each kind: past its deadline a descent ends where it began
        assert next(runs).student.n_hidden == 3
