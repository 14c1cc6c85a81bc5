"""Gauss–Newton sums against Jacobians that are differences of the student's own outputs."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from neurecover.activations import get
from neurecover.models import Student
from neurecover.statistics import GaussNewtonSums, ReadoutSums
from neurecover.statistics.base import FEW, row_products
from neurecover.statistics.regions import divide

N, D, K = 60, 3, 4
STEP = 1e-5


def _build(activation: str, bias: bool, affine: bool, p: int) -> Student:
    rng = np.random.default_rng(p)
    q = K + affine * D + bias
    return Student(get(activation), rng.standard_normal((K, D + bias)), rng.standard_normal((q, p)), bias, affine)


CASES = [
    _build(*case)
    for case in product(("relu", "sigmoid", "leaky_relu(0.1)", "power(2)"), (True, False), (True, False), (1, 3))
]
every_student = pytest.mark.parametrize(
    "student", CASES, ids=[f"{s.activation}-{s.bias}-{s.affine}-{s.n_outputs}" for s in CASES]
)


def _samples(student: Student) -> tuple[np.ndarray, np.ndarray]:
    """Inputs that no difference carries across a kink, and outputs at a distance from the student's."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4 * N, D))
    X = X[np.abs(student.extended(X) @ student.V.T).min(axis=1) > 1e-3][:N]
    return X, student(X) + rng.standard_normal((N, student.n_outputs))


def _features(student: Student, X: np.ndarray) -> np.ndarray:
    """h, read off the outputs: with an identity for a readout the student returns its features."""
    return replace(student, readout=np.eye(len(student.readout)))(X)


def _differences(student: Student, X: np.ndarray) -> np.ndarray:
    """∂ output / ∂ V, (n, p, m·D), by central differences."""
    columns = []
    for entry in np.ndindex(student.V.shape):
        step = np.zeros_like(student.V)
        step[entry] = STEP
        forwards, backwards = replace(student, V=student.V + step), replace(student, V=student.V - step)
        columns.append((forwards(X) - backwards(X)) / (2 * STEP))
    return np.stack(columns, axis=-1)


def _gated(student: Student, X: np.ndarray) -> np.ndarray:
    """m = ∂(Σ_j h_j)/∂V, (n, m·D): a weight moves its own unit alone."""
    readout = np.zeros((len(student.readout), 1))
    readout[:K] = 1.0
    return _differences(replace(student, readout=readout), X)[:, 0]


def _close(actual: np.ndarray, expected: np.ndarray) -> None:
    # Central differences of smooth functions of size ~10 err by STEP² or by 1e-15/STEP, times n terms.
    np.testing.assert_allclose(actual, expected, rtol=1e-7, atol=1e-7 * np.abs(expected).max(initial=1.0))


@every_student
def test_features_are_the_units_the_inputs_and_one(student: Student) -> None:
    X, _ = _samples(student)
    pre = X @ student.V[:, :D].T + (student.V[:, D] if student.bias else 0.0)
    expected = [student.activation(pre)]
    if student.affine:
        expected.append(X)
    if student.bias:
        expected.append(np.ones((N, 1)))
    np.testing.assert_allclose(_features(student, X), np.hstack(expected), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(student(X), np.hstack(expected) @ student.readout, rtol=1e-11, atol=1e-12)


@every_student
def test_readout_sums(student: Student) -> None:
    X, Y = _samples(student)
    statistic = ReadoutSums(student)
    statistic.update(X, Y)
    h, R = _features(student, X), Y - student(X)
    np.testing.assert_allclose(statistic.sums["hh"], h.T @ h, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(statistic.sums["hr"], h.T @ R, rtol=1e-10, atol=1e-11)
    assert float(statistic.sums["rr"]) == pytest.approx(np.sum(R**2), rel=1e-12)
    assert statistic.n == N


@every_student
def test_gauss_newton_sums_give_the_normal_equations_of_the_jacobian(student: Student) -> None:
    X, Y = _samples(student)
    statistic = GaussNewtonSums(student)
    statistic.update(X, Y)
    J, M, h, R = _differences(student, X), _gated(student, X), _features(student, X), Y - student(X)
    width = student.V.shape[1]
    mm, hm = statistic.curvature()
    weights = np.kron(student.A.T @ student.A, np.ones((width, width)))
    _close(weights * mm, np.einsum("noi,noj->ij", J, J))
    gradient = np.einsum("jdo,oj->jd", statistic.sums["mr"].reshape(K, width, -1), student.A).ravel()
    _close(gradient, np.einsum("noi,no->i", J, R))
    _close(mm, M.T @ M)
    _close(statistic.sums["mr"], M.T @ R)
    _close(hm, h.T @ M)


@every_student
def test_the_gradient_is_that_of_the_sum_of_squares(student: Student) -> None:
    X, Y = _samples(student)

    def rss(V: np.ndarray) -> float:
        statistic = ReadoutSums(replace(student, V=V))
        statistic.update(X, Y)
        return float(statistic.sums["rr"])

    full = GaussNewtonSums(student)
    full.update(X, Y)
    width = student.V.shape[1]
    gradient = -2 * np.einsum("jdo,oj->jd", full.sums["mr"].reshape(K, width, -1), student.A)
    direction = np.random.default_rng(2).standard_normal(student.V.shape)
    slope = (rss(student.V + STEP * direction) - rss(student.V - STEP * direction)) / (2 * STEP)
    assert slope == pytest.approx(np.vdot(gradient, direction), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("columns", [1, FEW, FEW + 1])
def test_products_of_rows_are_the_upper_triangle_of_outer_products(columns: int) -> None:
    Z = np.random.default_rng(columns).standard_normal((5, columns))
    outer = Z[:, None] * Z
    np.testing.assert_array_equal(row_products(Z), outer[np.triu_indices(5)])
    np.testing.assert_array_equal(row_products(Z, "a test"), outer[np.triu_indices(5)])


@pytest.mark.parametrize("activation", ["relu", "leaky_relu(0.1)", "abs"])
@pytest.mark.parametrize("n_probes", [0, 2])
def test_sums_by_region_are_those_over_pairs_of_units(
    activation: str, n_probes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows on the kinks among them, and a bias, so that some region is met by many rows."""
    student = _build(activation, True, False, 2)
    rng = np.random.default_rng(3)
    X, Y = rng.integers(-2, 3, (2_000, D)).astype(float), rng.standard_normal((2_000, 2))
    student = replace(student, V=np.round(student.V))
    probes = rng.standard_normal((n_probes, D + 1))
    monkeypatch.setattr("neurecover.statistics.regions.CALL", 0.0)
    assert divide(student.extended(X) @ student.V.T, D + 1) is not None
    by_region = GaussNewtonSums(student, probes)
    by_region.update(X, Y)
    monkeypatch.setattr("neurecover.statistics.gauss_newton.divide", lambda Z, n_inputs: None)
    monkeypatch.setattr("neurecover.statistics.gate_pairs.PIECE", 100_000)
    by_pairs = GaussNewtonSums(student, probes)
    by_pairs.update(X, Y)
    for name, value in by_pairs.sums.items():
        np.testing.assert_allclose(by_region.sums[name], value, rtol=1e-12, atol=1e-10, err_msg=name)


def test_many_regions_are_not_worth_sorting() -> None:
    Z = np.random.default_rng(0).standard_normal((1_000, 10))
    assert divide(Z, 10) is None
    few = divide(Z[:, :3], 50)
    assert few is not None
    assert np.all(np.diff(few.starts) > 0)
    np.testing.assert_array_equal(np.sort(few.order), np.arange(1_000))
