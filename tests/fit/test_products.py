"""Steps for many weights: conjugate gradients in single precision give the step that is formed in double precision."""

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest

from neurecover.fit.point import Point, dense_system
from neurecover.fit.products import Products, ProductSystem
from neurecover.fit.samples import Samples
from neurecover.models import as_student
from neurecover.solve import ConjugateSystem, conjugate_gradients
from students import Shape, at, features, network

N = 1_000
SHAPES = [
    Shape("relu", (8,)),
    Shape("tanh", (6,), p=3, bias=0, skips=False),
    Shape("relu", (6,), p=2, skips=False, affine=True),
    Shape("relu", (6, 4)),
    Shape("tanh", (5, 3, 3), p=2, skips=False),
]
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


def _samples(shape: Shape, inputs: str) -> Samples:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((N, 5))
    if inputs == "skewed":  # exponential
        X = rng.exponential(1.0, (N, 5)) - 1.0
    elif inputs == "stretched":  # along axes that are not the coordinates', standard deviations from 0.3 to 3
        X = X * np.geomspace(0.3, 3.0, 5) @ np.linalg.qr(rng.standard_normal((5, 5)))[0]
    root = np.sqrt(rng.uniform(0.1, 2.0, (N, 1))) if inputs == "weighted" else None
    return Samples(features(X, shape.bias), rng.standard_normal((N, shape.p)) + X[:, :1], shape.bias, root)


def _point(shape: Shape, inputs: str = "gaussian", **options: float) -> Point:
    return at(_samples(shape, inputs), shape.student(d=5), **{"double": np.inf, **options})


def _system(point: Point, tolerance: float) -> ProductSystem:
    point.tolerance = tolerance
    return ProductSystem(point)


@every_shape
@pytest.mark.parametrize("inputs", ["gaussian", "skewed", "stretched", "weighted"])
def test_the_step_is_the_formed_one(shape: Shape, inputs: str) -> None:
    point = _point(shape, inputs)
    products, formed = _system(point, 1e-5), dense_system(point)
    same = replace(formed, D=products.equations.D.astype(np.float64))
    expected, step = same.solve(0.1), products.solve(0.1)
    assert expected is not None
    assert step is not None
    # Single precision loses what the condition number, at most 1/λ times that of D, makes of 6e-8.
    assert np.linalg.norm(step - expected) <= 1e-3 * np.linalg.norm(expected)
    assert products.predicted_decrease(step, 0.1) == pytest.approx(same.predicted_decrease(expected, 0.1), rel=1e-3)


@every_shape
@pytest.mark.parametrize("damping", [1e-3, 1.0])
def test_the_step_is_that_of_all_weights_damped_in_the_hidden_ones_alone(shape: Shape, damping: float) -> None:
    """(Σ JᵀJ + λD on V) δ = Σ Jᵀr over V and Θ together: the readout that follows the step is not in its way."""
    point = _point(shape)
    student, values = point.student, point.values
    one = [replace(student, theta=student.theta[:, o : o + 1]) for o in range(shape.p)]
    base, hidden = student.reads(student.depth)
    B = np.hstack([values.F[:, :base], values.H[:, hidden]])
    q, P = B.shape[1], student.size
    J = np.zeros((N, shape.p, P + shape.p * q))
    for output, part in enumerate(one):
        J[:, output, :P] = part.jacobian(values, np.ones((N, 1)), np.empty((P, N))).T
        J[:, output, P + output * q : P + (output + 1) * q] = B
    J = J.reshape(N * shape.p, -1)
    formed, matrix = dense_system(point), J.T @ J
    matrix[range(P), range(P)] += damping * formed.D
    joint = np.linalg.lstsq(matrix, J.T @ point.R.ravel(), rcond=1e-13)[0]
    step = formed.solve(damping)
    assert step is not None
    np.testing.assert_allclose(step, joint[:P], atol=1e-5 * np.abs(joint[:P]).max())
    predicted = point.loss - float(np.sum((point.R.ravel() - J @ joint) ** 2))
    assert formed.predicted_decrease(step, damping) == pytest.approx(predicted, rel=1e-5)


@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[3]], ids=str)
@pytest.mark.parametrize("inputs", ["gaussian", "skewed", "stretched"])
def test_the_preconditioner_saves_products_whatever_the_inputs(shape: Shape, inputs: str) -> None:
    equations = _system(_point(shape, inputs), 1e-2).equations
    equations.solve(1e-3)
    plain = ConjugateSystem(
        equations.product,
        equations.g,
        equations.D,
        lambda damping: lambda v: v,
        tolerance=1e-2,
        max_products=60,
        dtype=np.float32,
    )
    plain.solve(1e-3)
    assert equations.n_products < plain.n_products


@pytest.mark.parametrize("p", [1, 10])
def test_without_skips_the_mean_gate_is_in_the_preconditioner(p: int) -> None:
    truth = network((60, 30, p), seed=1)
    X = np.random.default_rng(1).standard_normal((4_000, 60))
    point = at(Samples(features(X), truth(X), 1), as_student(truth, True))

    def n_products(products: Products) -> int:
        b = products.product(np.random.default_rng(0).standard_normal(point.student.size).astype(np.float32))
        found = conjugate_gradients(products.product, b, products.preconditioner(1e-6), tolerance=1e-2, max_products=99)
        return found.n_products

    class Whole(Products):
        def _unit_factor(self, layer: int) -> tuple[np.ndarray, np.ndarray]:
            factor, scale = super()._unit_factor(layer)
            means = [by_layer[layer].mean(axis=0, dtype=np.float64) for by_layer in self.by_outputs()]
            return factor - len(X) * sum(np.outer(mean, mean) for mean in means), scale

    assert n_products(Products(point)) < 0.7 * n_products(Whole(point))


@pytest.mark.parametrize(("shape", "layer"), [(SHAPES[0], 0), (SHAPES[3], 0), (SHAPES[3], 1)], ids=str)
def test_duplicate_and_dead_units_leave_a_finite_step_downhill(shape: Shape, layer: int) -> None:
    student = shape.student(d=5)
    V = student.V[layer].copy()
    V[1], V[2] = V[0], -np.eye(1, V.shape[1])[0]
    hidden = tuple(V if own == layer else rows for own, rows in enumerate(student.V))
    system = _system(at(_samples(shape, "gaussian"), replace(student, V=hidden)), 1e-3)
    step = system.solve(1e-2)
    assert step is not None
    assert np.isfinite(step).all()
    assert system.predicted_decrease(step, 1e-2) > 0.0
    assert step @ system.point.gradient > 0.0


def test_large_students_take_products_and_values_out_of_range_do_not() -> None:
    """Single precision has no squares beyond 1e38."""
    point = _point(SHAPES[0], dense=10, dense_deep=10)
    assert point.large
    assert isinstance(point.system(), ProductSystem)
    assert not _point(SHAPES[0]).large
    huge = replace(point.student, V=(1e12 * point.student.V[0],))
    assert not at(point.samples, huge, dense=10, dense_deep=10).large


def test_what_a_step_took_up_is_free_at_once() -> None:
    """Gates and features are as large as the samples; one in a cycle would stay until the collector comes by."""
    point = _point(SHAPES[0])
    gc.disable()
    try:
        system = _system(point, 1e-2)
        system.solve(1e-3)
        products = weakref.ref(system.products)
        del system
        assert products() is None
    finally:
        gc.enable()
