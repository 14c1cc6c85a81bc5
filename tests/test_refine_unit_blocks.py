"""Every unit's own block as a preconditioner: what it is made of, and what it is worth where gates tell of inputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from neurecover.activations import get
from neurecover.data import ArraySource
from neurecover.models import Student
from neurecover.refine.descent import Descent
from neurecover.refine.held import Held, readout_sums
from neurecover.refine.single import MAX_PRODUCTS, SingleProducts, SingleSystem
from neurecover.refine.starts import random_units
from neurecover.refine.steps import ReadoutFactor
from neurecover.refine.task import Task
from neurecover.refine.unit_blocks import RATE, RIDGE, UnitBlocks
from neurecover.solve import Deadline, conjugate_gradients

LAMBDA = 1e-3


def _products(activation: str, p: int, affine: bool, weighted: bool = False) -> SingleProducts:
    rng = np.random.default_rng(2)
    X = rng.exponential(1.0, (400, 5)) - 1.0
    Y = rng.standard_normal((400, p))
    weight = rng.uniform(0.1, 2.0, 400) if weighted else None
    held = Held(ArraySource(X, Y, weight=weight), bias=True)
    student = Task(get(activation), 5, p, 400, True, 3).student(random_units(rng, 3, 5, bias=True), affine)
    sums = readout_sums(held, student)
    student = replace(student, readout=ReadoutFactor(sums).step)
    return SingleProducts(held, student, sums["hh"])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("activation", "p"), [("relu", 1), ("relu", 2), ("tanh", 2)])
@pytest.mark.parametrize("affine", [False, True])
def test_a_block_is_what_the_affine_part_leaves_of_the_units_own_curvature(
    activation: str, p: int, affine: bool, weighted: bool
) -> None:
    """‖A_j‖² Mᵀ(I − P)M with M the gated inputs and P the projector onto (x, 1), or none: by least squares."""
    products = _products(activation, p, affine, weighted)
    student, blocks = products.student, UnitBlocks(products).blocks
    X, _ = products.held.collect()
    weight = products.held.weights()
    inputs = np.hstack([X, np.ones((len(X), 1))]) * np.sqrt(1.0 if weight is None else weight[:, None])
    gates = student.activation.derivative(np.hstack([X, np.ones((len(X), 1))]) @ student.V.T)
    for j, block in enumerate(blocks):
        M = gates[:, [j]] * inputs
        left = M - inputs @ np.linalg.lstsq(inputs, M, rcond=None)[0] if affine else M
        expected = student.A[:, j] @ student.A[:, j] * (M.T @ left)
        np.testing.assert_allclose(block, expected, atol=1e-5 * np.abs(M.T @ M).max() * np.sum(student.A[:, j] ** 2))


def test_the_preconditioner_has_the_blocks_on_its_diagonal() -> None:
    """(L (K ⊗ 1) Lᵀ)_jj = K_jj L_j L_jᵀ = B_j + λD_j, as K has a unit diagonal."""
    products = _products("relu", 1, affine=False)
    blocks = UnitBlocks(products)
    apply, D = blocks.preconditioner(products, LAMBDA), blocks.blocks.shape[1]
    inverse = np.array([apply(e) for e in np.eye(3 * D, dtype=np.float32)], dtype=np.float64)
    np.testing.assert_allclose(inverse, inverse.T, atol=1e-5 * np.abs(inverse).max())
    C = np.linalg.inv(inverse)
    for j in range(3):
        own = slice(j * D, (j + 1) * D)
        expected = blocks.blocks[j] + np.diag(LAMBDA * products.diagonal[j])
        np.testing.assert_allclose(C[own, own], expected, atol=1e-4 * np.abs(expected).max())


def _pixels(n: int, d: int, seed: int) -> tuple[Held, Student]:
    """Inputs mostly zero whose units, on in one row of six, hardly see some columns; a student near its teacher."""
    rng = np.random.default_rng(seed)
    X = (rng.random((n, d)) < np.geomspace(0.01, 0.5, d)) * rng.exponential(1.0, (n, d))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    V = random_units(rng, 12, d, bias=True)
    V[:, -1] = -1.0
    truth = Task(get("relu"), d, 3, n, True, 12).student(V, affine=False)
    truth = replace(truth, readout=rng.standard_normal(truth.readout.shape))
    held = Held(ArraySource(X, truth(X)), bias=True)
    return held, replace(truth, V=V + 1e-3 * rng.standard_normal(V.shape))


@pytest.mark.parametrize("seed", range(3))
def test_where_gates_tell_of_inputs_a_step_takes_a_fraction_of_the_products(seed: int) -> None:
    """After some steps what is left lies along the columns that units hardly see: a fifth of the products is enough."""
    held, student = _pixels(4_000, 80, seed)
    point = Descent(held, student).advance(4)._loop.point
    products = SingleProducts(held, point.student, point.hh)
    right = (products.gradient / np.linalg.norm(products.gradient)).ravel().astype(np.float32)
    needed = [
        conjugate_gradients(
            lambda v: products.product(v) + np.float32(RIDGE) * products.diagonal.ravel().astype(np.float32) * v,
            right,
            preconditioner,
            tolerance=1e-2,
            max_products=2_000,
        ).n_products
        for preconditioner in (products.preconditioner(RIDGE), UnitBlocks(products).preconditioner(products, RIDGE))
    ]
    assert needed[1] <= needed[0] / 5, needed


def test_blocks_are_made_when_products_run_out_and_kept_for_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    held, student = _pixels(4_000, 80, 0)
    point = Descent(held, student).advance(4)._loop.point
    system = SingleSystem(held, point.student, point.hh, 1e-6, Deadline())
    assert system.blocks is None
    system.solve(RIDGE)
    assert system.blocks is not None
    assert system.equations.n_products < 2 * MAX_PRODUCTS + 1
    again = SingleSystem(held, point.student, point.hh, 1e-2, Deadline(), system.blocks)
    again.solve(RIDGE)
    assert again.blocks is system.blocks  # the equations were solved with those of the step before
    assert not again.equations.cut_short
    assert not UnitBlocks.possible(system.products, 4_000 * 12 * 81**2 / RATE)  # half of the time that they take
    monkeypatch.setattr("neurecover.refine.unit_blocks.MOST_BYTES", 0)
    large = SingleSystem(held, point.student, point.hh, 1e-6, Deadline())
    large.solve(RIDGE)
    assert large.blocks is None
