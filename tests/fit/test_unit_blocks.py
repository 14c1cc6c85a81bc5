"""Every unit's own block as a preconditioner: what it is made of, and what it is worth where gates tell of inputs."""

from dataclasses import replace

import numpy as np
import pytest

from neurecover.activations import get
from neurecover.fit import FitOptions
from neurecover.fit.descent import descend
from neurecover.fit.point import Point
from neurecover.fit.products import Products, ProductSystem, UnitBlocks
from neurecover.fit.samples import Samples
from neurecover.models.student import Student
from neurecover.solve import conjugate_gradients
from students import Shape, at, features, jacobian, samples_of

SHAPES = [
    Shape("relu", (3,)),
    Shape("tanh", (3,), p=2),
    Shape("relu", (3,), p=2, skips=False),
    Shape("relu", (3, 2)),
    Shape("tanh", (3, 2), p=2, skips=False),
]
LAMBDA = 1e-3

RIDGE = FitOptions().single


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_block_is_what_the_affine_part_leaves_of_the_units_own_curvature(shape: Shape, weighted: bool) -> None:
    """Jᵀ(I − P)J of one unit's weights with P on c₀, for one layer whose readout reads it; else JᵀJ."""
    student = shape.student()
    point = at(samples_of(student, noise=0.5, weighted=weighted), student)
    J = jacobian(point.samples, point.student)
    base = point.samples.weigh(point.samples.F)
    P = base @ np.linalg.pinv(base) if len(shape.widths) == 1 and shape.skips else np.zeros((len(base),) * 2)
    start = 0
    for blocks, V in zip(UnitBlocks(Products(point)).blocks, student.V):
        for block in blocks:
            own = J[:, :, start : start + V.shape[1]]
            start += V.shape[1]
            expected = sum(one.T @ (one - P @ one) for one in own.transpose(1, 0, 2))
            size = np.abs(np.einsum("noi,noj->ij", own, own)).max()
            np.testing.assert_allclose(block, expected, atol=1e-5 * size)
    assert start == student.size


@pytest.mark.parametrize("shape", [SHAPES[2], SHAPES[3]], ids=str)
def test_the_preconditioner_has_the_blocks_on_its_diagonal(shape: Shape) -> None:
    """(L (K ⊗ 1) Lᵀ)_jj = K_jj L_j L_jᵀ = B_j + λD_j, as K has a unit diagonal."""
    student = shape.student()
    products = Products(at(samples_of(student, noise=0.5), student))
    blocks = UnitBlocks(products)
    apply = blocks.preconditioner(products, LAMBDA)
    inverse = np.array([apply(e) for e in np.eye(student.size, dtype=np.float32)], dtype=np.float64)
    np.testing.assert_allclose(inverse, inverse.T, atol=1e-5 * np.abs(inverse).max())
    C, start = np.linalg.inv(inverse), 0
    diagonals = student.split(products.diagonal)
    for of_layer, diagonal in zip(blocks.blocks, diagonals):
        for block, own_diagonal in zip(of_layer, diagonal):
            own = slice(start, start + len(block))
            start = own.stop
            expected = block + np.diag(LAMBDA * own_diagonal)
            np.testing.assert_allclose(C[own, own], expected, atol=1e-3 * np.abs(expected).max())


def _pixels(seed: int) -> Point:
    """Inputs mostly zero whose units, on in one row of six, hardly see some columns; some steps from near the truth."""
    rng, n, d = np.random.default_rng(seed), 3_000, 80
    X = (rng.random((n, d)) < np.geomspace(0.01, 0.5, d)) * rng.exponential(1.0, (n, d))
    F = features((X - X.mean(axis=0)) / X.std(axis=0))
    V = rng.standard_normal((12, d + 1))
    V[:, 1:] /= np.linalg.norm(V[:, 1:], axis=1, keepdims=True)
    V[:, 0] = -1.0
    truth = Student(get("relu"), (V,), rng.standard_normal((13, 3)), d + 1, 1, skips=False)
    near = replace(truth, V=(V + 1e-3 * rng.standard_normal(V.shape),))
    return descend(Samples(F, truth(F), 1), near, FitOptions(), steps=4).point


@pytest.mark.parametrize("seed", range(2))
def test_where_gates_tell_of_inputs_a_step_takes_a_fraction_of_the_products(seed: int) -> None:
    """After some steps what is left lies along the columns that units hardly see: a fifth of the products is enough."""
    point = _pixels(seed)
    products, right = Products(point), (point.gradient / np.linalg.norm(point.gradient)).astype(np.float32)
    ridge = np.float32(RIDGE) * products.diagonal.astype(np.float32)
    needed = [
        conjugate_gradients(
            lambda v: products.product(v) + ridge * v, right, preconditioner, tolerance=1e-2, max_products=1_000
        ).n_products
        for preconditioner in (products.preconditioner(RIDGE), UnitBlocks(products).preconditioner(products, RIDGE))
    ]
    assert needed[1] <= needed[0] / 5, needed


def test_blocks_are_made_when_products_run_out_and_kept_for_the_next_step() -> None:
    begun = _pixels(0)
    point = at(begun.samples, begun.student)
    assert point.large
    assert point.blocks is None
    point.tolerance = 1e-6
    system = ProductSystem(point)
    system.solve(RIDGE)
    assert point.blocks is not None
    assert system.equations.n_products <= 2 * point.options.products + 1
    later = Point(point.samples, point.student, point.options, point.deadline, point)
    assert later.blocks is point.blocks
    later.tolerance = 1e-2
    again = ProductSystem(later)
    again.solve(RIDGE)
    assert not again.equations.cut_short
    cramped = at(point.samples, point.student, block_bytes=0)
    cramped.tolerance = 1e-6
    ProductSystem(cramped).solve(RIDGE)
    assert cramped.blocks is None
