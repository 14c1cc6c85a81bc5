"""The information of more weights than a matrix is formed for, known by its products."""

from pathlib import Path

import numpy as np
import pytest

import neurecover as nr
from neurecover.certificate import CertificateOptions
from neurecover.certificate.information.many_weights import ManyWeights, System, by_products
from neurecover.certificate.information.matrix import Information
from neurecover.certificate.information.normal_form import ToNormalForm
from neurecover.certificate.information.sole_equations import sole_equations
from neurecover.data import ArraySource, Whitening, reduce
from neurecover.fit import FitOptions
from neurecover.fit.point import Point
from neurecover.fit.products import Products
from neurecover.fit.samples import Samples
from neurecover.models import DeepNetwork, Network, as_student, free_directions, jacobian
from neurecover.pipeline.options import PipelineOptions
from neurecover.simulate import sample, teacher
from neurecover.statistics import InformationSums

D, K, N = 12, 10, 1_500
OPTIONS = CertificateOptions()


def asked(network: Network | DeepNetwork, X: np.ndarray, bias: bool = True) -> ManyWeights:
    return by_products(network, bias, ArraySource(X, network(X)))


def system_of(network: Network | DeepNetwork, X: np.ndarray) -> System:
    samples = Samples.of(ArraySource(X, network(X)), bias=True)
    student = as_student(network, True)
    G = free_directions(network)[np.argsort(student.parameter_order)[: student.size]]
    return System(Products(Point(samples, student, FitOptions())), G, OPTIONS.by_products)


def dense(network: Network, X: np.ndarray, bias: bool = True) -> Information:
    return Information.of(reduce(ArraySource(X, network(X)), InformationSums.of(network, bias)))


@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["relu", "leaky_relu"])
def test_a_network_that_is_seen_is_said_to_be(p: int, bias: bool, activation: str) -> None:
    truth = teacher(D, K, p, bias=0.7 * bias, activation=activation, random_state=1)
    X, _ = sample(truth, N, random_state=1)
    seen, exact = asked(truth, X, bias), dense(truth, X, bias)
    assert seen.weakest > 0.0
    assert seen.n_alone == 0
    assert seen.n_determinable == exact.n_determinable
    np.testing.assert_array_equal(seen.free, exact.free)


def test_the_bound_is_below_the_smallest_eigenvalue() -> None:
    """Of S against the preconditioner, both formed column by column."""
    truth = teacher(6, 5, random_state=2)
    X, _ = sample(truth, 400, random_state=2)
    system = system_of(truth, X)
    S = np.array([system.products.product(e) for e in np.eye(system.products.student.size, dtype=np.float32)])
    root = np.kron(*system.roots[0])
    values = np.linalg.eigvalsh(root.T @ S @ root)
    weakest = asked(truth, X).weakest
    smallest = values[truth.n_hidden]  # above those of the free scales
    assert np.abs(values[: truth.n_hidden]).max() < 1e-4 * smallest
    assert 0.01 * smallest < weakest <= smallest


@pytest.mark.parametrize("case", ["twin", "off", "column", "alone"])
def test_what_is_not_seen_is_not_said_to_be(case: str) -> None:
    truth = teacher(D, K, 2, random_state=3)
    X, _ = sample(truth, N, random_state=3)
    W, b = truth.W.copy(), truth.b.copy()
    if case == "twin":
        W[1], b[1] = W[0], b[0]
    if case == "off":
        b[1] = -100.0
    if case == "column":
        X[:, 3] = X[:, 4]
    if case == "alone":
        X[1:, 3] = 0.0
    seen = asked(Network(W, b, truth.A, truth.c), X)
    assert seen.weakest == 0.0 or seen.n_alone > 0


def near_twins(seed: int) -> tuple[Network, np.ndarray]:
    """Two units at 1e-3 to 1e-1 from each other, few samples or none between their kinks, on whitened inputs."""
    rng = np.random.default_rng(seed)
    d, k, p = (int(size) for size in rng.integers((4, 2, 2), (8, 5, 4)))
    truth, apart = teacher(d, k, p, random_state=seed), 10.0 ** rng.uniform(-3.0, -1.0)
    W, b = truth.W.copy(), truth.b.copy()
    W[1], b[1] = W[0] + apart * rng.standard_normal(d), b[0] + apart * rng.standard_normal()
    X = rng.standard_normal((2 * k * (d + p), d))
    X = (X - X.mean(axis=0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(X.T))).T
    return Network(W, b, truth.A, truth.c), X


def test_near_twins_are_seen_where_the_matrix_says_so_and_nowhere_else() -> None:
    """In single precision their difference has few digits, which must be taken neither for more nor for nothing."""
    n_determined = n_claimed = 0
    for seed in range(120):
        network, X = near_twins(seed)
        exact, seen = dense(network, X), asked(network, X)
        determined = exact.weakest >= OPTIONS.singular
        determined = determined and not len(sole_equations(network, exact.free, exact.root, ArraySource(X, network(X))))
        claimed = seen.weakest > 0.0 and seen.n_alone == 0
        assert determined or not claimed, seed
        n_determined, n_claimed = n_determined + determined, n_claimed + claimed
    assert n_claimed >= 0.7 * n_determined > 0  # single precision refuses some more


def test_a_least_squares_solution_is_found_to_the_end() -> None:
    """Student's inputs, one the sum of others in most rows: conjugate gradients end at their 150 products."""
    n_found = 0
    for seed in range(6):
        rng, network = np.random.default_rng(seed), teacher(9, 10, random_state=seed)
        X = rng.standard_t(1.5, (500, 9))
        X[40:, 8] = X[40:, :8].sum(axis=1)
        X = (X - X.mean(axis=0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(X.T))).T
        system = system_of(network, X)
        noise = rng.standard_normal((500, 1), dtype=np.float32)
        step = system.fitted(noise, asked(network, X).weakest)
        if step is None:
            continue
        J = jacobian(network, X)[:, 0]
        J = J / np.maximum(np.linalg.norm(J, axis=0), 1e-300)
        left = noise - J @ np.linalg.lstsq(J, noise, rcond=1e-12)[0]
        found = system.products.unexplained(noise - system.products.forward(step))
        assert np.max((found - left) ** 2) < OPTIONS.by_products.alone, seed
        n_found += 1
    assert n_found >= 3


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_outputs_may_be_of_any_size(size: float) -> None:
    truth = teacher(D, K, 2, random_state=9)
    X, _ = sample(truth, N, random_state=9)
    scaled = Network(truth.W, truth.b, size * truth.A, size * truth.c)
    plain, seen = asked(truth, X), asked(scaled, X)
    hidden = K * (D + 1)
    assert seen.n_alone == 0
    np.testing.assert_allclose(seen.weakest, plain.weakest, rtol=0.1)
    np.testing.assert_allclose(size * seen.moves[:hidden], plain.moves[:hidden], atol=1e-3 * np.abs(plain.moves).max())
    np.testing.assert_allclose(seen.moves[hidden:], plain.moves[hidden:], atol=1e-3 * np.abs(plain.moves).max())


def test_an_equation_that_no_other_contradicts_is_counted() -> None:
    """One sample alone shows a column, and with it one weight of each of two units: two equations of two outputs."""
    truth = teacher(4, 2, 2, random_state=4)
    X, _ = sample(truth, 400, random_state=4)
    X[1:, 3] = 0.0
    X[0] = np.linalg.lstsq(truth.W, 3.0 - truth.b, rcond=None)[0]  # both units on
    assert X[0, 3] != 0.0
    seen = asked(truth, X)
    assert seen.weakest == 0.0 or seen.n_alone >= 2


def test_drawn_errors_bound_those_of_the_matrix() -> None:
    truth = teacher(D, K, 3, random_state=5).normal_form()
    X, _ = sample(truth, N, random_state=5)
    seen, exact = asked(truth, X), dense(truth, X)
    white = Whitening(np.zeros(D), np.eye(D))
    drawn = seen.largest_errors(ToNormalForm(truth, seen.free, truth, white)(seen.moves), 1.0)
    half = ToNormalForm(truth, exact.free, truth, white)(exact.root)
    ratio = drawn / np.maximum(np.einsum("ij,ij->i", half, half), 1e-300)
    # widen² χ²₄/4: below one in 5 % of cases; its mean is widen².
    widen = OPTIONS.by_products.widen
    assert np.mean(ratio < 1.0) < 0.1
    assert 0.8 * widen**2 < ratio.mean() < 1.2 * widen**2


FEW_ARE_MANY = PipelineOptions(certificate=CertificateOptions(max_parameters=50))


@pytest.mark.parametrize("p", [1, 3])
def test_a_recovery_of_many_weights_is_exact(p: int, tmp_path: Path) -> None:
    truth = teacher(8, 8, p, random_state=6)
    X, Y = sample(truth, 600, random_state=6)
    found = nr.recover(X, Y, 8, random_state=6, options=FEW_ARE_MANY)
    assert found.certificate.verdict == "exact"
    assert nr.compare(found.network, truth).weight_error < 1e-10
    assert "tested by products" in next(c.sentence for c in found.certificate.checks if c.name == "size")
    assert found.certificate.standard_errors is not None
    assert found.certificate.standard_errors.largest() < 1e-10
    found.save(tmp_path / "found.npz")
    assert nr.Recovery.load(tmp_path / "found.npz").certificate.verdict == "exact"


def test_many_weights_under_noise_are_not_certified() -> None:
    truth = teacher(8, 8, random_state=7)
    X, Y = sample(truth, 1_500, noise=0.05, random_state=7)
    found = nr.recover(X, Y, 8, random_state=7, options=FEW_ARE_MANY)
    assert found.certificate.verdict in ("approximate", "failed")
    assert any(c.name == "size" and not c.passed for c in found.certificate.checks)


@pytest.mark.usefixtures("steps_for_seconds")
def test_many_weights_that_the_samples_leave_open_are_not_exact() -> None:
    truth = teacher(8, 8, random_state=8)
    X, _ = sample(truth, 900, random_state=8)
    X[:, 5] = np.where(np.arange(900) < 4, X[:, 5], 0.0)  # four samples show a column
    found = nr.recover(X, truth(X), 8, random_state=8, time_budget=2, options=FEW_ARE_MANY)
    assert found.certificate.verdict != "exact"
