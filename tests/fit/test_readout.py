"""A student on samples: its best readout, Σr², and what weights and whitening make of them."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from neurecover.activations import get
from neurecover.data import ArraySource
from neurecover.fit import EXACT
from neurecover.fit.point import dense_system
from neurecover.fit.samples import Samples
from neurecover.models.student import Student
from neurecover.solve import Readout
from students import Shape, at, features, readout_columns, samples_of

SHAPES = [
    Shape("relu", (5,)),
    Shape("tanh", (4,), p=3, bias=0, skips=False),
    Shape("relu", (4,), p=2, skips=False, affine=True),
    Shape("relu", (4, 3), p=2),
    Shape("tanh", (4, 3), skips=False),
    Shape("tanh", (3, 2, 2)),
]
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


@every_shape
@pytest.mark.parametrize("weighted", [False, True])
def test_the_readout_is_the_least_squares_solution(shape: Shape, weighted: bool) -> None:
    student = shape.student()
    samples = samples_of(student, noise=0.3, weighted=weighted)
    point = at(samples, replace(student, theta=np.zeros_like(student.theta)))
    B, Y = samples.weigh(readout_columns(student, samples.F)), samples.weigh(samples.Y)
    best = B @ np.linalg.lstsq(B, Y, rcond=None)[0]
    np.testing.assert_allclose(B @ point.student.theta, best, atol=1e-8)
    np.testing.assert_allclose(point.R, Y - best, atol=1e-8)
    assert point.loss == pytest.approx(np.sum((Y - best) ** 2))
    assert point.relative == pytest.approx(point.loss / samples.total)
    assert point.share == pytest.approx(point.loss / (Y.size - student.n_parameters))
    np.testing.assert_allclose(point.gram, B.T @ B, atol=1e-10 * np.abs(B.T @ B).max())


def test_equal_and_empty_columns_leave_a_finite_readout() -> None:
    student = Shape("relu", (4,)).student()
    V = student.V[0].copy()
    V[1], V[2] = V[0], [-1.0, 0.0, 0.0, 0.0, 0.0]  # a duplicate, and a unit that is never on
    point = at(samples_of(student, noise=0.1), replace(student, V=(V,)))
    assert np.isfinite(point.student.theta).all()
    assert point.loss == pytest.approx(at(point.samples, replace(student, V=(V[[0, 3]],), theta=np.zeros((7, 1)))).loss)


def test_the_factor_of_a_singular_matrix_solves_what_can_be_solved() -> None:
    B = np.random.default_rng(0).standard_normal((50, 3))[:, [0, 1, 2, 2]] * [1.0, 1e3, 1e-3, 1e-3]
    readout, right = Readout(B.T @ B), B.T @ np.ones((50, 1))
    np.testing.assert_allclose(B.T @ B @ readout.solve(right), right, atol=1e-6 * np.abs(right).max())
    plain = Readout(np.diag([4.0, 9.0]))
    np.testing.assert_allclose(plain.solve(np.eye(2)), np.diag([1 / 4, 1 / 9]), rtol=1e-10)
    np.testing.assert_allclose(plain.whiten(np.eye(2)) ** 2, np.diag([1 / 4, 1 / 9]), rtol=1e-10)
    np.testing.assert_allclose(plain.inverse, np.eye(2), rtol=1e-10)


def test_values_beyond_all_numbers_explain_nothing_and_warn_of_nothing() -> None:
    F = features(np.linspace(-1.0, 1.0, 50)[:, None])
    student = Student(get("exp"), (np.array([[0.0, 3_000.0]]),), np.zeros((2, 1)), 2, 1, skips=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        point = at(Samples(F, np.sin(F[:, 1:]), 1), student)
    assert point.loss == np.inf
    assert point.relative == 1.0
    near = at(point.samples, replace(student, V=(np.ones((1, 2)),)))
    assert near.moved(np.array([0.0, 3_000.0])) is None


@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[1], SHAPES[3]], ids=str)
def test_a_weight_of_three_is_three_copies(shape: Shape) -> None:
    student = shape.student()
    plain = samples_of(student, 150, noise=0.3)
    times = np.random.default_rng(0).integers(1, 4, 150)
    weighted = replace(plain, root=np.sqrt(times)[:, None])
    copied = Samples(np.repeat(plain.F, times, axis=0), np.repeat(plain.Y, times, axis=0), plain.bias)
    assert weighted.total == pytest.approx(copied.total)
    assert weighted.squares == pytest.approx(copied.squares)
    one, other = (at(samples, student, double=np.inf) for samples in (weighted, copied))
    assert one.loss == pytest.approx(other.loss)
    np.testing.assert_allclose(one.student.theta, other.student.theta, atol=1e-9)
    np.testing.assert_allclose(one.gradient, other.gradient, atol=1e-9 * np.abs(other.gradient).max())
    first, second = dense_system(one), dense_system(other)
    np.testing.assert_allclose(first.S, second.S, atol=1e-9 * np.abs(second.S).max())


def test_samples_of_a_source() -> None:
    rng = np.random.default_rng(0)
    X, Y, w = rng.standard_normal((30, 3)), rng.standard_normal((30, 2)) + 5.0, rng.uniform(0.5, 2.0, 30)
    samples = Samples.of(ArraySource(X, Y, weight=w), bias=True)
    np.testing.assert_array_equal(samples.F, np.hstack([np.ones((30, 1)), X]))
    mean = np.average(Y, axis=0, weights=w)
    assert samples.total == pytest.approx(np.sum(w[:, None] * (Y - mean) ** 2))
    assert samples.squares == pytest.approx(np.sum(w[:, None] * Y**2))
    assert Samples.of(ArraySource(X, Y), bias=False).total == pytest.approx(np.sum(Y**2))
    root = samples.inverse_root
    np.testing.assert_allclose(root @ root.T @ samples.moments / 30, np.eye(4), atol=1e-6)
    few = samples.some(10, rng)
    assert len(few.F) == 10
    rows = [int(np.flatnonzero((row == samples.F).all(axis=1))[0]) for row in few.F]
    np.testing.assert_array_equal(few.root, samples.weigh(np.ones((30, 1)))[rows])
    assert samples.some(28, rng) is samples


def test_what_counts_as_rounding_grows_with_the_mean_and_with_the_rounding_of_outputs() -> None:
    """Of outputs around 1e6 that vary by one, 16 digits leave 1e-28·1e12 of the variance."""
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((100, 1))
    assert Samples(np.ones((100, 1)), Y, 1).level() == EXACT
    assert Samples(np.ones((100, 1)), Y + 1e6, 1).level() == pytest.approx(1e-16, rel=0.5)
    assert Samples(np.ones((100, 1)), Y, 1).level(1e-14) == pytest.approx(1e-14, rel=0.5)
    assert Samples(np.ones((100, 1)), Y, 1).level(EXACT) == EXACT
