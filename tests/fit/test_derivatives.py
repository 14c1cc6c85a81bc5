"""The student's derivatives, and S = Jᵀ(I − P)J formed or by products, against differences and a projector."""

from dataclasses import replace

import numpy as np
import pytest

from neurecover.fit import point as dense
from neurecover.fit.point import Point, dense_system
from neurecover.fit.products import Products
from students import Shape, at, flat, jacobian, readout_columns, samples_of

SHAPES = [
    Shape("relu", (4,)),
    Shape("tanh", (4,), p=3),
    Shape("relu", (4,), p=2, bias=0, skips=False),
    Shape("tanh", (3,), p=2, skips=False, affine=True),
    Shape("relu", (4, 3)),
    Shape("tanh", (4, 3), p=2, skips=False),
    Shape("leaky_relu(0.2)", (3, 3), p=2, bias=0, skips=False, affine=True),
    Shape("tanh", (3, 3, 2), p=2),
    Shape("relu", (3, 3, 2), skips=False),
]
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
weighted_or_not = pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
DIFFERENCES = 1e-7  # central ones of functions of size ten err by step² or 1e-15/step


def _close(found: np.ndarray, expected: np.ndarray, tolerance: float = DIFFERENCES) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def _noisy(shape: Shape, weighted: bool, **options: float) -> Point:
    student = shape.student()
    return at(samples_of(student, noise=0.5, weighted=weighted), student, **options)


def _explicit(point: Point) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """J (n, p, size), and S and D from it."""
    J = jacobian(point.samples, point.student)
    B = point.samples.weigh(readout_columns(point.student, point.samples.F))
    P = B @ np.linalg.pinv(B)
    S = np.zeros((J.shape[2],) * 2)
    for one in J.transpose(1, 0, 2):
        S += one.T @ (one - P @ one)
    return J, S, np.einsum("noi,noi->i", J, J)


@every_shape
def test_outputs_are_the_readout_of_what_units_give(shape: Shape) -> None:
    student = shape.student()
    F = samples_of(student).F
    np.testing.assert_allclose(student(F), readout_columns(student, F) @ student.theta, atol=1e-12)
    single = student.cast(np.float32)(F.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, student(F), atol=1e-4)


@every_shape
def test_products_with_the_jacobian_are_those_of_differences(shape: Shape) -> None:
    student = shape.student()
    samples = samples_of(student)
    J, values, rng = jacobian(samples, student), student.forward(samples.F), np.random.default_rng(2)
    delta, G = rng.standard_normal(student.size), rng.standard_normal(samples.Y.shape)
    _close(student.tangent(values, student.split(delta)), J @ delta)
    _close(student.gradient(values, G), np.einsum("noi,no->i", J, G))
    for output in range(shape.p):
        one = replace(student, theta=student.theta[:, output : output + 1])
        rows = one.jacobian(values, G[:, output : output + 1], np.empty((student.size, len(G)))).T
        _close(rows, G[:, output, None] * J[:, output])


@every_shape
def test_derivatives_by_the_values_of_units_are_those_of_differences(shape: Shape) -> None:
    """∂y/∂h of every unit: a unit is moved by a bias beyond its activation, which nothing but what is above it sees."""
    student = shape.student()
    F, rng = samples_of(student, 50).F, np.random.default_rng(3)
    values, G = student.forward(F), rng.standard_normal((50, shape.p))
    found, step = student.by_values(values, G), 1e-6

    def loss(unit: int, move: float) -> np.ndarray:
        H = np.zeros((50, 0))
        for layer, V in enumerate(student.V):
            base, below = student.reads(layer)
            H = np.hstack([H, student.activation(np.hstack([F[:, :base], H[:, below]]) @ V.T)])
            own = student.own(layer)
            if own.start <= unit < own.stop:
                H[:, unit] += move
        base, hidden = student.reads(student.depth)
        return np.sum(G * (np.hstack([F[:, :base], H[:, hidden]]) @ student.theta), axis=1)

    for unit in range(sum(shape.widths)):
        slope = (loss(unit, step) - loss(unit, -step)) / (2.0 * step)
        np.testing.assert_allclose(found[:, unit], slope, atol=1e-7 * np.abs(found).max())


@every_shape
@weighted_or_not
def test_the_formed_equations_are_those_of_an_explicit_projector(shape: Shape, weighted: bool) -> None:
    point = _noisy(shape, weighted, double=np.inf)
    system, (J, S, D) = dense_system(point), _explicit(point)
    _close(system.S, S)
    _close(system.g, np.einsum("noi,no->i", J, point.R))
    _close(system.D, D)


@every_shape
def test_blocks_of_rows_and_single_precision_change_nothing_but_rounding(
    shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    double, single = (dense_system(_noisy(shape, True, double=level)) for level in (np.inf, 0.0))
    # Σ JᵀJ − EᵀE has the rounding of what is subtracted.
    np.testing.assert_allclose(single.S, double.S, atol=1e-5 * double.D.max())
    np.testing.assert_array_equal(single.g, double.g)  # the gradient decides where a descent ends
    monkeypatch.setattr(dense, "BLOCK_BYTES", 1)
    _close(dense_system(_noisy(shape, True, double=np.inf)).S, double.S, 1e-12)


@every_shape
@weighted_or_not
def test_products_are_those_of_an_explicit_projector(shape: Shape, weighted: bool) -> None:
    point = _noisy(shape, weighted)
    products, (J, S, _) = Products(point), _explicit(point)
    rng = np.random.default_rng(4)
    delta, u = rng.standard_normal(point.student.size).astype(np.float32), rng.standard_normal(point.R.shape)
    _close(products.product(delta), S @ delta, 1e-4)
    _close(products.forward(delta), J @ delta, 1e-5)
    _close(products.backward(u.astype(np.float32)), np.einsum("noi,no->i", J, u), 1e-5)
    B = point.samples.weigh(readout_columns(point.student, point.samples.F))
    best = np.linalg.lstsq(B, u, rcond=None)[0]
    _close(products.unexplained(u.astype(np.float32)), u - B @ best, 1e-4)
    _close(B @ products.readout_of(u.astype(np.float32)), B @ best, 1e-4)


@every_shape
@weighted_or_not
def test_the_gradient_is_that_of_the_least_sum_of_squares(shape: Shape, weighted: bool) -> None:
    """Variable projection: dL/dV = −2 Jᵀr with the readout following to its best."""
    point, step = _noisy(shape, weighted), 1e-6
    direction = np.random.default_rng(5).standard_normal(point.student.size)
    ends = [point.moved(sign * step * direction) for sign in (1.0, -1.0)]
    assert ends[0] is not None
    assert ends[1] is not None
    slope = (ends[0].loss - ends[1].loss) / (2.0 * step)
    assert slope == pytest.approx(-2.0 * point.gradient @ direction, rel=1e-5, abs=1e-6 * point.loss)


def test_moved_weights_are_split_as_they_were_joined() -> None:
    student = SHAPES[7].student()
    moved = student.moved(np.arange(student.size, dtype=float))
    np.testing.assert_allclose(flat(moved) - flat(student), np.arange(student.size), atol=1e-12)
    assert sum(part.size for part in student.split(flat(student))) == student.size
    assert student.n_parameters == student.size + student.theta.size
