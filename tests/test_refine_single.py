"""Steps for many weights: single-precision products give the double-precision step, whatever the inputs look like."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest

from neurecover import simulate
from neurecover.activations import get
from neurecover.data import ArraySource, reduce
from neurecover.models import Student
from neurecover.refine import descent as descent_module
from neurecover.refine import held as held_module
from neurecover.refine.descent import Descent
from neurecover.refine.held import Held, hold, readout_sums
from neurecover.refine.settling import as_student
from neurecover.refine.single import SingleProducts, SingleSystem
from neurecover.refine.starts import random_units
from neurecover.refine.steps import ReadoutFactor, dense_system
from neurecover.refine.task import Task
from neurecover.refine.warm_up import warm_up
from neurecover.solve import ConjugateSystem, Deadline, DenseSystem, conjugate_gradients
from neurecover.statistics import GaussNewtonSums, ReadoutSums

N, D, M = 1_500, 6, 8
STUDENTS = [("relu", 1, True, True), ("relu", 3, False, False), ("sigmoid", 2, True, False), ("relu", 3, True, True)]
every_student = pytest.mark.parametrize("case", STUDENTS, ids=str)


def _case(activation: str, p: int, bias: bool, affine: bool, inputs: str = "gaussian") -> tuple[Held, Student]:
    """Held samples and a student with its best readout."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((N, D))
    if inputs == "skewed":  # exponential
        X = rng.exponential(1.0, (N, D)) - 1.0
    elif inputs == "stretched":  # along axes that are not the coordinates', standard deviations from 0.3 to 3
        X = X * np.geomspace(0.3, 3.0, D) @ np.linalg.qr(rng.standard_normal((D, D)))[0]
    Y = rng.standard_normal((N, p)) + X[:, :1]
    task = Task(get(activation), D, p, N, bias, M)
    student = task.student(random_units(rng, M, D, bias), affine)
    weight = rng.uniform(0.1, 2.0, N) if inputs == "weighted" else None
    held = Held(ArraySource(X, Y, weight=weight), bias)
    return held, replace(student, readout=ReadoutFactor(readout_sums(held, student)).step)


def _features(held: Held, student: Student) -> np.ndarray:
    return replace(student, readout=np.eye(len(student.readout)))(held.collect()[0])


def _single(held: Held, student: Student, tolerance: float = 1e-5) -> SingleSystem:
    return SingleSystem(held, student, readout_sums(held, student)["hh"], tolerance, Deadline())


@every_student
@pytest.mark.parametrize("inputs", ["gaussian", "skewed", "stretched", "weighted"])
def test_the_step_is_the_dense_one(case: tuple[str, int, bool, bool], inputs: str) -> None:
    held, student = _case(*case, inputs=inputs)
    single, dense = _single(held, student), dense_system(reduce(held, GaussNewtonSums(student)))
    assert isinstance(dense.equations, DenseSystem)
    np.testing.assert_allclose(single.products.gradient.ravel(), dense.equations.g, rtol=1e-7, atol=1e-7 * N)
    same = replace(dense.equations, D=single.equations.D.astype(np.float64))
    expected, step = same.solve(0.1), single.solve(0.1)
    assert expected is not None
    assert step is not None
    # Single precision loses what the condition number, at most 1/λ times that of D, makes of 6e-8.
    assert np.linalg.norm(step - expected) <= 1e-3 * np.linalg.norm(expected)
    change = step.reshape(student.V.shape)
    # A unit that no sample switches is an affine feature: the readout is not unique, what it gives is.
    h = _features(held, student)
    follow, exact = h @ single.follow(change), h @ dense.readout.follow(change)
    assert np.linalg.norm(follow - exact) <= 1e-3 * np.linalg.norm(exact)
    assert single.predicted_decrease(step, 0.1) == pytest.approx(same.predicted_decrease(expected, 0.1), rel=1e-3)


@pytest.mark.parametrize("inputs", ["gaussian", "skewed", "stretched"])
def test_the_preconditioner_saves_products_whatever_the_inputs(inputs: str) -> None:
    held, student = _case("relu", 1, True, True, inputs)
    single = _single(held, student, tolerance=1e-2)
    single.solve(1e-3)
    plain = ConjugateSystem(
        single.equations.product,
        single.equations.g,
        single.equations.D,
        lambda damping: lambda v: v,
        tolerance=1e-2,
        max_products=60,
        dtype=np.float32,
    )
    plain.solve(1e-3)
    assert single.equations.n_products < plain.n_products


@pytest.mark.parametrize("outputs", [1, 10])
def test_without_an_affine_part_the_mean_gate_is_in_the_preconditioner(
    outputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = simulate.teacher(60, 30, outputs, random_state=1)
    held = Held(ArraySource(*simulate.sample(truth, 6_000, random_state=1)), True)
    student = as_student(truth, True)

    def n_products() -> int:
        system = _single(held, student).products
        b = system.product(np.random.default_rng(0).standard_normal(student.V.size).astype(np.float32))
        found = conjugate_gradients(system.product, b, system.preconditioner(1e-6), tolerance=1e-2, max_products=100)
        return found.n_products

    partly = n_products()
    monkeypatch.setattr(SingleProducts, "_explained", lambda products: 1.0)
    assert partly < 0.7 * n_products()


def test_duplicate_and_dead_units_leave_a_finite_step_downhill() -> None:
    held, student = _case("relu", 1, True, True)
    V = student.V.copy()
    V[1], V[2, :D], V[2, D] = V[0], 0.0, -1.0
    student = replace(student, V=V)
    student = replace(student, readout=student.readout + ReadoutFactor(readout_sums(held, student)).step)
    system = _single(held, student)
    step = system.solve(1e-2)
    assert step is not None
    assert np.isfinite(step).all()
    assert system.predicted_decrease(step, 1e-2) > 0.0
    assert np.vdot(step, system.products.gradient.ravel()) > 0.0


@every_student
@pytest.mark.parametrize("inputs", ["gaussian", "weighted"])
def test_known_inputs_give_the_same_sums(case: tuple[str, int, bool, bool], inputs: str) -> None:
    held, student = _case(*case, inputs=inputs)
    expected, sums = reduce(held, ReadoutSums(student)).sums, readout_sums(held, student)
    for name, value in expected.items():
        np.testing.assert_allclose(sums[name], value, rtol=1e-10, atol=1e-8)


def test_samples_are_held_once_and_only_while_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).standard_normal((50, 3))
    source = ArraySource(X, X[:, 0])
    held = hold(source, True)
    assert isinstance(held, Held)
    assert hold(held, True) is held
    np.testing.assert_allclose(held.inputs[:, 3], 1.0)
    monkeypatch.setattr(held_module, "MOST_BYTES", 50 * 4 * 4 - 1)
    assert hold(source, True) is source


@pytest.mark.parametrize("most_bytes", [2**30, 0], ids=["held", "streamed"])
def test_noise_does_not_keep_a_large_descent_from_the_dense_optimum(
    most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_module, "MOST_BYTES", most_bytes)
    teacher = simulate.teacher(5, 3, random_state=0)
    source = ArraySource(*simulate.sample(teacher, 800, noise=0.1, random_state=0))
    V = np.hstack([teacher.W, teacher.b[:, None]]) + 0.05
    start = Student(teacher.activation, V, np.zeros((4, 1)), True, False)
    dense = Descent(source, start).advance(100)
    monkeypatch.setattr(descent_module, "DENSE_LIMIT", 0)
    large = Descent(source, start).advance(200)
    # One optimum has many shallow pits, between the kinks: a tenth of one sample's share of the residual.
    assert large.rss <= dense.rss * (1.0 + 0.1 / 800)


def test_the_first_order_start_is_better_than_a_random_one_and_repeats() -> None:
    teacher = simulate.teacher(10, 5, bias=0.7, random_state=0)
    held = Held(ArraySource(*simulate.sample(teacher, 2_000, random_state=0)), True)
    task = Task(get("relu"), 10, 1, 2_000, True, 5)
    start = task.student(random_units(np.random.default_rng(0), 8, 10, True), True)
    warm = [warm_up(held, start, 400, np.random.default_rng(1), Deadline()) for _ in range(2)]
    np.testing.assert_array_equal(warm[0].V, warm[1].V)
    assert Descent(held, warm[0]).rss < 0.25 * Descent(held, start).rss


def test_no_batch_is_begun_after_the_deadline() -> None:
    held, student = _case("relu", 1, True, True)
    same = warm_up(held, student, 100, np.random.default_rng(0), Deadline.after(0.0))
    np.testing.assert_allclose(same.V, student.V, rtol=1e-6)


def test_what_a_step_took_up_is_free_at_once() -> None:
    """Gates and features are as large as the samples; one in a cycle would stay until the collector comes by."""
    truth = simulate.teacher(30, 30, random_state=0)
    X, Y = simulate.sample(truth, 2_000, random_state=0)
    held = hold(ArraySource(X, Y), True)
    assert isinstance(held, Held)
    gc.disable()
    try:
        system = _single(held, as_student(truth, True))
        system.solve(1e-3)
        gates = weakref.ref(system.products)
        del system
        assert gates() is None
    finally:
        gc.enable()
