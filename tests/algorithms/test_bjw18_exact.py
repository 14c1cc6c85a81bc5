"""Exact methods: the truth to rounding whatever the start, and a plain word where an assumption is broken."""

import numpy as np
import pytest

from neurecover import activations
from neurecover.algorithms import Call
from neurecover.algorithms.bjw18 import from_symmetric, ica, tensor
from neurecover.algorithms.bjw18.common import gaussian_notes
from neurecover.algorithms.bjw18.patterns import exact_weights, null_vector, output_rank, zero_group
from neurecover.algorithms.bjw18.printed import Mixture, unmixing
from neurecover.data import ArraySource, Mapped, Source, Whitening
from neurecover.matching import compare
from neurecover.models import Network
from neurecover.pipeline import estimate, run_algorithm
from neurecover.reproduce.bjw18 import conditioned_teacher, rotated
from neurecover.search import Task
from neurecover.simulate import Gaussian, sample, teacher
from neurecover.solve import Deadline

BOUND = 1e-11


def task_of(source: Source, n_hidden: int | None, activation: str = "relu", bias: bool = False) -> Task:
    assert source.n_samples is not None
    act = activations.get(activation)
    return Task(act, source.n_inputs, source.n_outputs, source.n_samples, bias, n_hidden)


@pytest.mark.parametrize("angle", [0.0, 0.05, 0.3])
def test_the_start_does_not_enter_the_result(angle: float) -> None:
    net = conditioned_teacher(1)
    X, Y = sample(net, 5_000, random_state=1)
    found = exact_weights(X, Y, rotated(net.W, angle, np.random.default_rng(7)), net.activation)
    assert found.exact
    errors = compare(found.network, net)
    assert max(errors.weight_error, errors.output_weight_error) <= BOUND


@pytest.mark.parametrize("activation", ["relu", "power(2)", "power(3)"])
def test_exact_tensor(activation: str) -> None:
    net = conditioned_teacher(2, activation)
    X, Y = sample(net, 5_000, random_state=2)
    found = tensor.exact_tensor(ArraySource(X, Y), 10, net.activation, np.random.default_rng(0))
    assert compare(found.network, net).weight_error <= BOUND
    assert all(unit.n_off > 2_000 for unit in found.units)


def test_any_covariance_and_more_outputs_than_units() -> None:
    net = teacher(6, 4, 9, kind="gaussian", bias=0.0, random_state=0)
    covariance = np.diag(np.geomspace(0.01, 100.0, 6))
    X, Y = sample(net, 3_000, inputs=Gaussian(0.0, covariance), random_state=0)
    found = tensor.exact_tensor(ArraySource(X, Y), 4, net.activation, np.random.default_rng(0))
    assert compare(found.network, net).weight_error <= BOUND


def test_missing_units_are_found_once_the_others_are_exact() -> None:
    net = conditioned_teacher(3)
    X, Y = sample(net, 5_000, random_state=3)
    rng = np.random.default_rng(0)
    start = net.W.copy()
    start[4:7] = rng.standard_normal((3, 10))
    assert exact_weights(X, Y, start, net.activation).found < 10
    found = tensor.until_exact(X, Y, start, net.activation, rng)
    assert found.exact
    assert compare(found.network, net).weight_error <= BOUND


def test_exact_ica_with_a_sketch() -> None:
    net = teacher(8, 6, 11, kind="orthonormal", bias=0.0, random_state=0)
    X, Y = sample(net, 5_000, random_state=0)
    found = ica.exact_ica(X, Y, 6, net.activation, np.random.default_rng(0))
    assert compare(found.network, net).weight_error <= BOUND


def test_independent_components_are_unmixed() -> None:
    """Skewed components come out with their signs."""
    rng = np.random.default_rng(0)
    sources = np.maximum(rng.standard_normal((20_000, 5)), 0.0)
    Q = sources @ rng.standard_normal((5, 5))
    correlation = np.corrcoef(sources.T, (Q @ unmixing(Mixture.of(Q), rng)).T)[:5, 5:]
    assert np.all(correlation.max(axis=1) > 0.99)
    assert len(set(correlation.argmax(axis=1))) == 5


def test_exact_symmetric() -> None:
    net = teacher(6, 6, 6, kind="gaussian", bias=0.0, random_state=4)
    X, Y = sample(net, 4_000, inputs="laplace", random_state=4)
    found = from_symmetric.exact_symmetric(X, Y, 6, np.random.default_rng(0))
    assert compare(found.network, net).weight_error <= BOUND


@pytest.mark.parametrize("module", [tensor, ica, from_symmetric])
def test_as_methods_they_find_the_number_of_units_and_return_the_network(module) -> None:  # type: ignore[no-untyped-def]
    net = teacher(6, 4, 7, kind="orthonormal", bias=0.0, random_state=1)
    X, Y = sample(net, 4_000, random_state=1)
    whitening = Whitening.of(np.zeros(6), X.T @ X / len(X))
    source = Mapped(ArraySource(X, Y), whitening)
    estimate = run_algorithm(
        module.ALGORITHM, Call(source, task_of(source, None), np.random.default_rng(0), Deadline())
    )
    assert estimate.network is not None
    W = estimate.network.W @ whitening.matrix.T
    assert compare(Network(W, None, estimate.network.A).normal_form(), net).weight_error <= BOUND
    assert "all 4 units exact" in estimate.notes[-1]


@pytest.mark.parametrize("module", [tensor, ica, from_symmetric])
def test_noise_and_missing_rank_are_said_with_their_figure(module) -> None:  # type: ignore[no-untyped-def]
    net = teacher(5, 3, 5, kind="orthonormal", bias=0.0, random_state=2)
    X, Y = sample(net, 2_000, noise=1e-3, random_state=2)
    noisy = ArraySource(X, Y)
    estimate = run_algorithm(module.ALGORITHM, Call(noisy, task_of(noisy, 3), np.random.default_rng(0), Deadline()))
    assert estimate.network is None
    assert "σ_4/σ_1" in estimate.notes[0]
    A = net.A.copy()
    A[:, 2] = A[:, 0] - A[:, 1]
    flat = ArraySource(X, Network(net.W, None, A)(X))
    estimate = run_algorithm(module.ALGORITHM, Call(flat, task_of(flat, 3), np.random.default_rng(0), Deadline()))
    assert estimate.network is None
    assert "rank 2" in estimate.notes[0]


def test_noise_that_fills_all_outputs_is_never_called_exact() -> None:
    net = teacher(5, 5, 5, kind="gaussian", bias=0.0, random_state=3)
    X, Y = sample(net, 3_000, noise=1e-6, random_state=3)
    source = ArraySource(X, Y)
    estimate = run_algorithm(tensor.ALGORITHM, Call(source, task_of(source, 5), np.random.default_rng(0), Deadline()))
    assert estimate.network is None
    assert "0 of 5 units exact" in estimate.notes[-1]
    assert len(estimate.starts) == 1


def test_inputs_that_are_not_gaussian_are_measured() -> None:
    rng = np.random.default_rng(0)
    assert gaussian_notes(rng.standard_normal((5_000, 6))) == ()
    (sentence,) = gaussian_notes(rng.laplace(size=(5_000, 6)))
    assert sentence is not None
    assert "not Gaussian" in sentence
    assert "standard errors off" in sentence


def test_units_that_are_not_orthonormal_are_told_by_ica() -> None:
    net = teacher(5, 3, 4, kind="near_parallel", angle=0.9, bias=0.0, random_state=0)
    X, Y = sample(net, 5_000, random_state=0)
    source = ArraySource(X, Y)
    estimate = run_algorithm(ica.ALGORITHM, Call(source, task_of(source, 3), np.random.default_rng(0), Deadline()))
    assert any("two of its rows have cosine 0.62" in note for note in estimate.notes)


@pytest.mark.parametrize("module", [tensor, ica, from_symmetric])
@pytest.mark.parametrize(
    ("n_hidden", "activation", "bias", "words"),
    [(3, "relu", True, "bias=False"), (3, "sigmoid", False, "sigmoid"), (7, "relu", False, "7 units")],
)
def test_refusals_name_the_assumption(module, n_hidden: int, activation: str, bias: bool, words: str) -> None:  # type: ignore[no-untyped-def]
    source = ArraySource(np.ones((10, 5)), np.ones((10, 4)))
    assert words in module.ALGORITHM.refuse(task_of(source, n_hidden, activation, bias))


def test_null_vector_and_rank_against_a_direct_computation() -> None:
    rng = np.random.default_rng(0)
    u = rng.standard_normal(6)
    rows = rng.standard_normal((40, 6))
    rows -= np.outer(rows @ u, u) / (u @ u)
    found, null, second = null_vector(rows)
    assert abs(found @ u) / np.linalg.norm(u) == pytest.approx(1.0, abs=1e-14)
    assert null < 1e-15
    assert second == pytest.approx(np.linalg.svd(rows, compute_uv=False)[-2] / np.sqrt(40))
    assert output_rank(rows) == 5


def test_the_threshold_is_put_into_the_gap() -> None:
    rng = np.random.default_rng(0)
    values = np.concatenate([1e-15 * rng.standard_normal(50), np.abs(rng.standard_normal(50))])
    off, gap = zero_group(values, 1e-13)
    assert np.array_equal(off, np.arange(100) < 50)
    assert gap > 1e6


def test_units_nearly_parallel_are_found_where_a_single_one_is_on() -> None:
    """κ(W) from 100 to 700: the tensor's directions are further off than the units are apart."""
    found = []
    for seed in (0, 1, 3, 5):
        rng = np.random.default_rng(seed)
        common = rng.standard_normal(5)
        W = common / np.linalg.norm(common) + 0.03 / np.sqrt(5) * rng.standard_normal((5, 5))
        net = Network(W, None, rng.standard_normal((6, 5))).normal_form()
        X, Y = sample(net, 150_000, random_state=seed)
        e = estimate(X, Y, 5, method="exact_tensor", bias=False, random_state=0)
        found.append(e.network is not None and compare(e.network, net).weight_error < 1e-9)
    assert np.count_nonzero(found) >= 3


def test_orthonormal_rows_are_not_called_otherwise() -> None:
    """In ten networks a false note has probability 0.01; rows of cosine 0.6 are noted."""
    notes = 0
    for seed in range(10):
        net = teacher(6, 6, 8, kind="orthonormal", bias=0.0, random_state=seed)
        X, Y = sample(net, 400, random_state=seed)
        e = estimate(X, Y, 6, method="exact_ica", bias=False, random_state=0)
        notes += any("not orthonormal" in note for note in e.notes)
    assert notes <= 1
    slanted = Network(np.array([[1.0, 0.0], [0.6, 0.8]]), None, np.eye(2))
    X, Y = sample(slanted, 400, random_state=0)
    e = estimate(X, Y, 2, method="exact_ica", bias=False, random_state=0)
    assert any("not orthonormal" in note for note in e.notes)
