"""Descents: they go down, they end at a stationary point, and all ways of taking a step agree."""

import warnings
from itertools import pairwise

import numpy as np
import pytest

from neurecover import simulate
from neurecover.activations import get
from neurecover.data import ArraySource, reduce
from neurecover.models import Network, Student
from neurecover.refine import descent as descent_module
from neurecover.refine.descent import Descent
from neurecover.refine.finisher import finish
from neurecover.refine.matrix_free import product_system
from neurecover.refine.search import descend
from neurecover.refine.settling import as_student
from neurecover.refine.starts import random_units
from neurecover.refine.steps import ReadoutFactor, dense_system
from neurecover.refine.task import Task
from neurecover.solve import Deadline
from neurecover.statistics import GaussNewtonSums, ReadoutSums

STUDENTS = [
    ("relu", 1, True, True),
    ("relu", 3, False, False),
    ("leaky_relu(0.2)", 2, True, True),
    ("sigmoid", 1, True, False),
    ("power(2)", 2, True, False),
]


def _case(activation: str, p: int, bias: bool, affine: bool, seed: int = 0) -> tuple[ArraySource, Student]:
    rng = np.random.default_rng(seed)
    teacher = simulate.teacher(4, 3, p, bias=0.5 * bias, activation=activation, random_state=seed)
    X, Y = simulate.sample(teacher, 200, noise=0.05, random_state=seed)
    task = Task(get(activation), 4, p, 200, bias, 3)
    student = task.student(random_units(rng, 5, 4, bias), affine)
    source = ArraySource(X, Y)
    readout = ReadoutFactor(reduce(source, ReadoutSums(student)).sums)
    return source, Student(student.activation, student.V, student.readout + readout.step, bias, affine)


@pytest.mark.parametrize("case", STUDENTS, ids=str)
def test_the_readout_is_the_least_squares_solution(case: tuple[str, int, bool, bool]) -> None:
    source, student = _case(*case)
    X, Y = source.collect()
    extended = student.extended(X)
    h = student.features(extended, extended @ student.V.T)
    expected = np.linalg.lstsq(h, Y, rcond=None)[0]
    np.testing.assert_allclose(h @ student.readout, h @ expected, atol=1e-8)


@pytest.mark.parametrize("case", STUDENTS, ids=str)
@pytest.mark.parametrize("damping", [1e-4, 1.0])
def test_the_step_is_that_of_the_full_damped_gauss_newton_system(
    case: tuple[str, int, bool, bool], damping: float
) -> None:
    # The full system in (V, Θ), damped in V alone, solved densely with an explicit Jacobian.
    source, student = _case(*case)
    X, Y = source.collect()
    (m, D), (q, p), n = student.V.shape, student.readout.shape, len(X)
    extended = student.extended(X)
    Z = extended @ student.V.T
    h = student.features(extended, Z)
    M = student.activation.derivative(Z)[:, :, None] * extended[:, None, :]
    J = np.zeros((n, p, m * D + p * q))
    for o in range(p):
        J[:, o, : m * D] = (M * student.A[o][None, :, None]).reshape(n, -1)
        J[:, o, m * D + o * q : m * D + (o + 1) * q] = h
    J = J.reshape(n * p, -1)
    r = (Y - student(X)).ravel()
    solver = dense_system(reduce(source, GaussNewtonSums(student)))
    matrix = J.T @ J
    matrix[range(m * D), range(m * D)] += damping * solver.equations.D
    joint = np.linalg.solve(matrix + 1e-13 * np.diag(np.diag(matrix)), J.T @ r)
    step = solver.solve(damping)
    assert step is not None
    np.testing.assert_allclose(step.ravel(), joint[: m * D], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(
        solver.readout.follow(step.reshape(m, D)),
        joint[m * D :].reshape(p, q).T,
        rtol=1e-5,
        atol=1e-6 * np.abs(joint).max(),
    )
    # The linear model's decrease, by its own definition.
    predicted = r @ r - np.sum((r - J @ joint) ** 2)
    assert solver.predicted_decrease(step, damping) == pytest.approx(predicted, rel=1e-5)


@pytest.mark.parametrize("case", STUDENTS, ids=str)
def test_conjugate_gradients_give_the_dense_step(case: tuple[str, int, bool, bool]) -> None:
    source, student = _case(*case)
    dense = dense_system(reduce(source, GaussNewtonSums(student))).solve(0.1)
    products = product_system(source, student).solve(0.1)
    assert dense is not None
    assert products is not None
    assert np.linalg.norm(products - dense) <= 2e-2 * np.linalg.norm(dense)


@pytest.mark.parametrize("projected", [True, False])
def test_every_iteration_goes_down_and_the_end_is_stationary(projected: bool) -> None:
    # As many units as the teacher has: with more, the optimum is a valley that is followed for ever.
    teacher = simulate.teacher(4, 3, activation="sigmoid", random_state=0)
    source = ArraySource(*simulate.sample(teacher, 400, noise=0.01, random_state=0))
    V = np.hstack([teacher.W, teacher.b[:, None]]) + 0.3
    run = Descent(source, Student(teacher.activation, V, np.zeros((4, 1)), True, False), projected=projected)
    values = [run.rss]
    while run.running and run.iterations < 400:
        values.append(run.advance(1).rss)
    assert all(later <= earlier for earlier, later in pairwise(values))
    sums = reduce(source, GaussNewtonSums(run.student))
    gradient = np.einsum("jdo,oj->jd", sums.sums["mr"].reshape(*run.student.V.shape, -1), run.student.A)
    size = np.abs(run.student.A).max() * np.sqrt(np.diag(sums.curvature()[0]).max() * run.rss)  # |J||r|
    assert np.abs(gradient).max() <= 1e-4 * size


@pytest.mark.parametrize("limit", [3_000, 0], ids=["dense", "products"])
def test_both_solvers_reach_rounding_level(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descent_module, "DENSE_LIMIT", limit)
    solved = 0
    for seed in range(6):
        teacher = simulate.teacher(5, 3, kind="gaussian", random_state=seed)
        source = ArraySource(*simulate.sample(teacher, 300, random_state=seed))
        task = Task(get("relu"), 5, 1, 300, True, 3)
        solved += finish(source, task, np.random.default_rng(seed), Deadline()).relative_rss < 1e-26
    assert solved == 6


def test_a_block_size_of_one_row_changes_nothing_but_rounding() -> None:
    source, student = _case("relu", 2, True, True)
    whole, single = (
        dense_system(reduce(source, GaussNewtonSums(student), block_bytes=size)).solve(0.5) for size in (2**25, 1)
    )
    assert whole is not None
    assert single is not None
    np.testing.assert_allclose(single, whole, rtol=1e-9, atol=1e-12)


def test_a_passed_deadline_stops_before_the_first_step() -> None:
    source, student = _case("relu", 1, True, True)
    assert descend(source, student, Deadline.after(0.0)).iterations == 0


def test_steps_that_overflow_are_rejected() -> None:
    rng = np.random.default_rng(0)
    X = 30 * rng.standard_normal((100, 2))
    source = ArraySource(X, rng.standard_normal(100))
    V = np.array([[20.0, 5.0, 0.0], [-3.0, 9.0, 1.0]])
    run = Descent(source, Student(get("exp"), V / 30, np.zeros((3, 1)), True, False)).advance(50)
    assert np.isfinite(run.rss)


def test_a_start_beyond_all_numbers_explains_nothing() -> None:
    """e^z overflows at the start: that is no fit, exact or not, and no warning reaches the user."""
    X = np.linspace(-1.0, 1.0, 50)[:, None]
    student = Student(get("exp"), np.array([[3_000.0, 0.0]]), np.zeros((2, 1)), bias=True, affine=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        descent = Descent(ArraySource(X, np.sin(X)), student)
        descent.advance(3)
    assert descent.relative_rss == np.inf
    assert not descent.running


@pytest.mark.parametrize("seed", range(4))
def test_weights_that_few_samples_show_come_to_an_end_too(seed: int) -> None:
    """A unit on in 33 samples for its 31 weights, and 682 weights in all, more than the dense solver takes at first."""
    truth = simulate.teacher(30, 22, 10, random_state=seed)
    X = np.random.default_rng(seed).standard_normal((1_500, 30))
    z = np.sort(X @ truth.W[0])
    truth = Network(truth.W, np.append(-0.5 * (z[-33] + z[-34]), truth.b[1:]), truth.A, truth.c)
    near = truth.W + 1e-4 * np.random.default_rng(1).standard_normal(truth.W.shape)
    source, start = ArraySource(X, truth(X)), as_student(Network(near, truth.b, truth.A, truth.c), True)
    end = descend(source, start, Deadline(), patient=True)
    assert end.relative_rss < 1e-28
    found, true = (W / np.linalg.norm(W, axis=1, keepdims=True) for W in (end.student.V[:, :-1], truth.W))
    np.testing.assert_allclose(found, true, atol=1e-9)
    # Dense steps from the same start end there as well, in few iterations.
    dense = Descent(source, start, dense=True).advance(15)
    assert not dense.large
    assert dense.relative_rss < 1e-28
