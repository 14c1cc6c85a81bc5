"""The damped Gauss–Newton loop on problems with known answers, and its linear solvers against each other."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest

from neurecover.solve import (
    ConjugateSystem,
    Damping,
    Deadline,
    DenseSystem,
    Direction,
    Loop,
    Outcome,
    Readout,
    Tolerances,
    conjugate_gradients,
)


def _curvature(q: int, seed: int, spread: float = 1e3) -> np.ndarray:
    """A symmetric positive definite matrix with eigenvalues from 1 to `spread`."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((q, q)))[0]
    return (Q * np.geomspace(1.0, spread, q)) @ Q.T


def _systems(S: np.ndarray, g: np.ndarray, tolerance: float = 1e-12) -> dict[str, Direction]:
    D = np.diag(S).copy()
    matrix_free = ConjugateSystem(
        lambda v: S @ v, g, D, lambda damping: lambda v: v / D, tolerance=tolerance, max_products=500, offset=0.25
    )
    return {"dense": DenseSystem(S, g, D, 0.25), "conjugate": matrix_free}


@dataclass(frozen=True)
class _Exponentials:
    """r_i = y_i − exp(−θ₁ t_i) − exp(−θ₂ t_i), with noise or without."""

    t: np.ndarray
    y: np.ndarray
    theta: np.ndarray
    solver: str = "dense"

    @property
    def residual(self) -> np.ndarray:
        return self.y - np.exp(-np.outer(self.t, self.theta)).sum(axis=1)

    @property
    def loss(self) -> float:
        return float(self.residual @ self.residual)

    @property
    def scale(self) -> float:
        return float(self.y @ self.y)

    @property
    def jacobian(self) -> np.ndarray:
        return -self.t[:, None] * np.exp(-np.outer(self.t, self.theta))

    def system(self) -> Direction:
        J = self.jacobian
        S, g = J.T @ J, J.T @ self.residual
        if self.solver == "dense":
            return DenseSystem(S, g, np.diag(S).copy())
        return ConjugateSystem(
            lambda v: S @ v, g, np.diag(S), lambda damping: lambda v: v, tolerance=0.1, max_products=2
        )

    def moved(self, step: np.ndarray) -> _Exponentials | None:
        theta = self.theta + step
        return None if np.abs(theta).max() > 50 else _Exponentials(self.t, self.y, theta, self.solver)


def _exponentials(noise: float, solver: str) -> _Exponentials:
    t = np.linspace(0.0, 3.0, 60)
    y = np.exp(-0.5 * t) + np.exp(-2.0 * t) + noise * np.random.default_rng(0).standard_normal(60)
    return _Exponentials(t, y, np.array([0.1, 4.0]), solver)


@pytest.mark.parametrize("solver", ["dense", "conjugate"])
def test_without_noise_the_loop_ends_at_rounding_and_at_the_truth(solver: str) -> None:
    loop = Loop(_exponentials(0.0, solver)).advance(200)
    assert loop.outcome is Outcome.EXACT
    np.testing.assert_allclose(np.sort(loop.point.theta), [0.5, 2.0], rtol=1e-10)


@pytest.mark.parametrize("solver", ["dense", "conjugate"])
def test_with_noise_it_goes_down_and_ends_where_the_gradient_vanishes(solver: str) -> None:
    loop = Loop(_exponentials(0.01, solver))
    losses = [loop.point.loss]
    while loop.outcome is Outcome.RUNNING and loop.iterations < 200:
        losses.append(loop.advance(1).point.loss)
    assert loop.outcome is Outcome.CONVERGED
    assert all(later <= earlier for earlier, later in pairwise(losses))
    J, r = loop.point.jacobian, loop.point.residual
    # A decrease of 1e-12 of L is the square of a gradient of 1e-6 of |J||r|.
    assert np.linalg.norm(J.T @ r) <= 1e-5 * np.linalg.norm(J) * np.linalg.norm(r)


def test_a_trusted_step_is_not_looked_at_and_ends_near_the_optimum() -> None:
    looked: list[np.ndarray] = []

    class _Watched(_Exponentials):
        @property
        def loss(self) -> float:
            if not any(self.theta is other for other in looked):
                looked.append(self.theta)
            return super().loss

        def moved(self, step: np.ndarray) -> _Watched | None:
            return _Watched(self.t, self.y, self.theta + step)

    plain, trusted = _exponentials(0.01, "dense"), 1e-6
    start = _Watched(plain.t, plain.y, np.array([0.4, 2.3]))
    loop = Loop(start, Tolerances(trusted=trusted), Damping(1e-12, smallest=1e-12)).advance(50)
    assert loop.outcome is Outcome.CONVERGED
    assert loop.ahead is not None
    assert not any(loop.ahead.theta is theta for theta in looked)
    assert len(looked) == loop.iterations  # the start and every trial but the last
    best = Loop(plain).advance(200).point
    assert best.loss <= loop.ahead.loss * (1.0 + 1e-12) <= best.loss * (1.0 + trusted)


def test_a_rejected_step_comes_again_with_a_damping_that_changes_it() -> None:
    loop = Loop(_Wall(), Tolerances(), Damping(1e-12, retry=1e-3)).advance(1)
    assert loop.damping.value == 1e-3
    assert loop.advance(1).damping.value == 4e-3
    assert Damping(1e-3, smallest=1e-12, fall=0.01).after_gain(1.0).value == pytest.approx(1e-5)


def test_a_run_advanced_in_parts_is_the_same_run() -> None:
    whole = Loop(_exponentials(0.01, "dense")).advance(9)
    parts = Loop(_exponentials(0.01, "dense")).advance(4).advance(5)
    np.testing.assert_array_equal(whole.point.theta, parts.point.theta)
    assert whole.iterations == parts.iterations


def test_a_start_at_rounding_is_exact_without_a_step() -> None:
    start = _exponentials(0.0, "dense")
    loop = Loop(_Exponentials(start.t, start.y, np.array([0.5, 2.0]))).advance(10)
    assert loop.outcome is Outcome.EXACT
    assert loop.iterations == 0


def test_no_step_is_tried_after_the_deadline() -> None:
    assert Loop(_exponentials(0.0, "dense")).advance(10, Deadline.after(0.0)).iterations == 0


@dataclass(frozen=True)
class _Wall:
    """A point from which every step leads beyond floating point."""

    loss: float = 1.0
    scale: float = 1.0

    def system(self) -> Direction:
        return DenseSystem(np.eye(1), np.ones(1), np.ones(1))

    def moved(self, step: np.ndarray) -> _Wall | None:
        return None


def test_where_every_step_is_refused_the_damping_runs_out() -> None:
    loop = Loop(_Wall(), Tolerances(), Damping(1.0)).advance(100)
    assert loop.outcome is Outcome.CONVERGED
    assert loop.damping.exhausted
    # ν doubles, so λ = 2^(i(i+1)/2) passes 1e12 at i = 9.
    assert loop.iterations == 9


@pytest.mark.parametrize("damping", [0.0, 0.3, 10.0])
def test_both_solvers_give_the_step_and_what_the_model_says_of_it(damping: float) -> None:
    S, g = _curvature(12, 0), np.random.default_rng(1).standard_normal(12)
    expected = np.linalg.solve(S + damping * np.diag(np.diag(S)), g)
    systems = _systems(S, g)
    for name in ("dense", "conjugate"):
        system = systems[name]
        step = system.solve(damping)
        assert step is not None
        np.testing.assert_allclose(step, expected, rtol=1e-8, atol=1e-10)
        model = 2 * step @ g - step @ S @ step + 0.25
        assert system.predicted_decrease(step, damping) == pytest.approx(model, rel=1e-9)


def test_the_model_is_right_about_a_step_that_was_cut_short() -> None:
    S, g = _curvature(30, 2), np.random.default_rng(3).standard_normal(30)
    system = _systems(S, g, tolerance=0.3)["conjugate"]
    step = system.solve(1e-2)
    assert step is not None
    assert np.linalg.norm(S @ step - g) > 1e-3 * np.linalg.norm(g)  # it was
    assert system.predicted_decrease(step, 1e-2) == pytest.approx(2 * step @ g - step @ S @ step + 0.25, rel=1e-9)


def test_single_precision_survives_a_gradient_below_its_range() -> None:
    S, g = _curvature(20, 4, 10.0), 1e-30 * np.random.default_rng(5).standard_normal(20)
    D = np.diag(S).copy()
    system = ConjugateSystem(
        lambda v: S.astype(np.float32) @ v,
        g,
        D,
        lambda damping: lambda v: v,
        tolerance=1e-4,
        max_products=100,
        dtype=np.float32,
    )
    step, expected = system.solve(0.0), np.linalg.solve(S, g)
    assert step is not None
    assert np.linalg.norm(step - expected) <= 1e-2 * np.linalg.norm(expected)


def test_a_matrix_that_is_not_positive_definite_has_no_step() -> None:
    assert DenseSystem(np.diag([1.0, -1.0]), np.ones(2), np.ones(2)).solve(0.5) is None


def test_conjugate_gradients_end_in_as_many_products_as_there_are_eigenvalues() -> None:
    rng = np.random.default_rng(6)
    Q = np.linalg.qr(rng.standard_normal((40, 40)))[0]
    S = (Q * np.repeat([1.0, 5.0, 20.0, 100.0], 10)) @ Q.T
    b = rng.standard_normal(40)
    found = conjugate_gradients(lambda v: S @ v, b, lambda v: v, tolerance=1e-10, max_products=100)
    assert found.n_products == 4
    np.testing.assert_allclose(found.residual, b - S @ found.x, atol=1e-10)
    exact = conjugate_gradients(lambda v: S @ v, b, lambda v: np.linalg.solve(S, v), tolerance=1e-10, max_products=100)
    assert exact.n_products == 1


def test_a_second_damping_is_solved_for_from_where_the_first_ended() -> None:
    rng = np.random.default_rng(7)
    Q = np.linalg.qr(rng.standard_normal((40, 40)))[0]
    S, g = (Q * np.geomspace(1e-2, 1.0, 40)) @ Q.T, rng.standard_normal(40)

    def system() -> ConjugateSystem:
        D, plain = np.diag(S).copy(), lambda damping: lambda v: v
        return ConjugateSystem(lambda v: S @ v, g, D, plain, tolerance=1e-3, max_products=100)

    again = system()
    again.solve(1e-6)
    once = again.n_products
    for damping in (1e-5, 1e-2, 10.0):
        before, fresh = again.n_products, system()
        step, expected = again.solve(damping), fresh.solve(damping)
        assert step is not None
        assert expected is not None
        M = S + damping * np.diag(np.diag(S))
        assert np.linalg.norm(g - M @ step) <= 1.001e-3 * np.linalg.norm(g)
        model = 2.0 * step @ g - step @ S @ step
        assert again.predicted_decrease(step, damping) == pytest.approx(model, rel=1e-6)
        assert again.n_products - before <= fresh.n_products
        if damping == 1e-5:
            assert again.n_products - before < 0.5 * once


def test_conjugate_gradients_make_no_product_after_the_deadline() -> None:
    system = ConjugateSystem(
        lambda v: v,
        np.ones(3),
        np.ones(3),
        lambda _: lambda v: v,
        tolerance=0.1,
        max_products=9,
        deadline=Deadline(0.0),
    )
    assert system.solve(1.0) is None
    assert system.n_products == 0


def test_a_readout_without_columns_solves_nothing() -> None:
    """A network of no units and no biases has no columns: nothing raises for eight samples of a near-parallel pair."""
    empty = Readout(np.zeros((0, 0)))
    assert empty.solve(np.zeros((0, 2))).shape == (0, 2)
    assert empty.whiten(np.zeros((0, 2))).shape == (0, 2)
