"""The algorithms of [ATV21] on exact tensors."""

import numpy as np
import pytest

from neurecover import simulate
from neurecover.activations import get
from neurecover.algorithms.atv21.coefficients import Coefficients
from neurecover.algorithms.atv21.steps import (
    Units,
    algorithm_1,
    consolidate,
    distinct,
    fix_signs,
    population_coefficients,
    recover_scalars,
    tensor_directions,
)
from neurecover.algorithms.atv21.units import seen_units
from neurecover.matching import compare
from neurecover.models import Network
from neurecover.models.risk import population_risk
from neurecover.reproduce.atv21 import network_with_roots
from neurecover.statistics.moments.hermite import hermite_features, root_factorials
from neurecover.tensors import n_packed

RELU = get("relu")


def error(W: np.ndarray, b: np.ndarray, A: np.ndarray, truth: Network, signs: bool) -> float:
    assert W.shape == truth.W.shape
    c = compare(Network(W, b, A, activation=truth.activation), truth, up_to_sign=not signs)
    return max(c.weight_error, c.bias_error, c.output_weight_error)


@pytest.mark.parametrize(("d", "k", "ell", "seeds"), [(8, 8, 1, 8), (8, 5, 1, 4), (6, 12, 2, 4), (4, 9, 2, 4)])
def test_algorithm_1_recovers_every_unit(d: int, k: int, ell: int, seeds: int) -> None:
    for seed in range(seeds):
        truth = network_with_roots(seed, d, k)
        tensors = population_coefficients(truth, tuple(range(2 * ell + 3)))
        found = algorithm_1(tensors, d, ell, RELU, np.random.default_rng(seed))
        assert error(found.W, found.b, found.A, truth, signs=ell == 1) < 1e-8


def test_a_unit_that_one_order_misses_is_seen_in_the_other() -> None:
    plain = simulate.teacher(4, 4, random_state=0)
    for b in ([0.0, 0.5, -0.5, 1.5], [1.0, 0.5, -0.5, -1.0]):  # roots of He_1 (order 3) and of He_2 (order 4)
        truth = Network(plain.W, b, plain.A)
        tensors = population_coefficients(truth, (3, 4))
        W = tensor_directions(tensors, 4, 1, np.random.default_rng(0))
        assert np.abs(truth.W @ W.T).max(axis=1).min() > 1 - 1e-12
        assert len(W) == 4


@pytest.mark.parametrize("p", [2, 5])
def test_several_outputs_share_their_units(p: int) -> None:
    truth = simulate.teacher(6, 6, p, random_state=p)
    tensors = population_coefficients(truth, (1, 2, 3, 4))
    found = algorithm_1(tensors, 6, 1, RELU, np.random.default_rng(0))
    assert error(found.W, found.b, found.A, truth, signs=True) < 1e-9


@pytest.mark.parametrize("ell", [1, 2, 3])
def test_scalars_at_known_directions(ell: int) -> None:
    # The corrected recurrence; b = ±1 and ±√3 are roots of He_2 and He_3, 0 of He_1 and He_3.
    plain = simulate.teacher(6, 6, 2, random_state=1)
    truth = Network(plain.W, [0.0, 1.0, -1.0, 3**0.5, 0.4, -2.0], plain.A)
    tensors = population_coefficients(truth, tuple(range(1, 8)))
    signs = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    found = recover_scalars(signs[:, None] * truth.W, tensors, ell, RELU)
    np.testing.assert_allclose(found.b, signs * truth.b, atol=1e-10)
    np.testing.assert_allclose(found.A, truth.A, atol=1e-10)
    turned = fix_signs(found, tensors[1], RELU)
    np.testing.assert_allclose(turned.W, truth.W, atol=1e-12)


@pytest.mark.parametrize("spec", ["leaky_relu(0.3)", "leaky_relu(-0.5)", "abs"])
def test_other_piecewise_linear_units(spec: str) -> None:
    plain = simulate.teacher(5, 5, random_state=2)
    truth = Network(plain.W, plain.b, plain.A, activation=spec)
    found = algorithm_1(population_coefficients(truth, (1, 2, 3, 4)), 5, 1, get(spec), np.random.default_rng(0))
    assert error(found.W, found.b, found.A, truth, signs=True) < 1e-9


def test_scalars_need_a_piecewise_linear_activation() -> None:
    with pytest.raises(ValueError, match="relu"):
        recover_scalars(np.eye(2), {}, 1, get("sigmoid"))


def test_coefficients_are_means_over_the_inputs() -> None:
    truth = Network([[0.6, 0.8], [1.0, -1.0], [0.0, 0.0]], [0.3, -0.4, 1.0], [[1.0, -2.0, 0.5]], [0.7])
    X = np.random.default_rng(0).standard_normal((400_000, 2))
    values = hermite_features(X, 4) * truth(X)[:, 0]
    mean, spread = values.mean(axis=1), values.std(axis=1) / np.sqrt(len(X))
    start = 0
    for j, T in population_coefficients(truth, (0, 1, 2, 3, 4)).items():
        stop = start + n_packed(2, j)
        normalised = T[0] / root_factorials(2, j)
        assert np.all(np.abs(normalised - mean[start:stop]) < 5.0 * spread[start:stop])
        start = stop
    assert start == len(mean)


def test_duplicates_up_to_sign_are_merged() -> None:
    W = np.array([[1.0, 0.0], [-1.0, 1e-4], [0.0, 1.0], [0.6, 0.8]])
    kept = distinct(W, np.array([0.5, 1.0, 0.7, 0.1]), 1e-2)
    np.testing.assert_array_equal(kept, W[[1, 2, 3]])


@pytest.mark.parametrize("p", [1, 3])
def test_claim_b5(p: int) -> None:
    rng = np.random.default_rng(0)
    d, k = 5, 4
    W, b = rng.standard_normal((k, d)), rng.standard_normal(k)
    right, turned = rng.standard_normal((2, p, k))
    L, c = rng.standard_normal((p, d)), rng.standard_normal(p)
    X = rng.standard_normal((300, d))
    for spec in ("relu", "leaky_relu(0.2)"):
        act = get(spec)
        network = consolidate(W, b, right, turned, L, c, act)
        z = X @ W.T + b
        expected = act(z) @ right.T + act(-z) @ turned.T + X @ L.T + c
        np.testing.assert_allclose(network(X), expected, atol=1e-12)
        assert network.n_hidden == k + 2 * p
    with pytest.raises(ValueError, match="Claim B"):
        consolidate(W, b, right, turned, L, c, get("sigmoid"))


@pytest.mark.parametrize(
    ("spec", "k", "d"), [("relu", 6, 6), ("relu", 9, 5), ("leaky_relu(0.1)", 5, 7), ("sigmoid", 4, 5)]
)
def test_the_joint_fit_finds_number_units_and_signs(spec: str, k: int, d: int) -> None:
    kind = "gaussian" if spec == "sigmoid" else "sphere"
    for seed in range(2):
        truth = simulate.teacher(d, k, random_state=seed, activation=spec, kind=kind)
        coefficients = Coefficients.exact(truth, range(7 if k > d else 5))
        if k < d:
            basis = coefficients.span((1, 2, 3, 4)).basis
            coefficients = coefficients.projected(basis)
        fit = seen_units(coefficients, truth.activation, np.random.default_rng(seed))
        W = fit.W @ basis.T if k < d else fit.W
        assert error(W, fit.b, fit.A, truth, signs=True) < 1e-7
        assert not fit.affine
        assert population_risk(Network(W, fit.b, fit.A, fit.c, spec), truth) < 1e-12


def test_an_affine_part_is_kept_apart() -> None:
    plain = simulate.teacher(6, 5, random_state=3)
    always_on = np.append(plain.b[:4], 40.0)
    truth = Network(plain.W, always_on, plain.A)
    fit = seen_units(Coefficients.exact(truth, range(5)), RELU, np.random.default_rng(0), most=5)
    assert len(fit.W) == 4
    assert fit.asked is not None
    network = consolidate(fit.W, fit.b, fit.A, 0.0 * fit.A, fit.L, fit.c, RELU)
    assert network.n_hidden == 6
    assert population_risk(network, truth) < 1e-12


def test_ambiguous_signs_are_counted() -> None:
    truth, _ = simulate.sign_ambiguous(4, 6, random_state=0)
    fit = seen_units(Coefficients.exact(truth, range(7)), RELU, np.random.default_rng(0), most=6)
    assert fit.sign_choices == 2
    assert population_risk(Network(fit.W, fit.b, fit.A, fit.c), truth) < 1e-12


def test_signs_are_a_fact_of_the_lemma() -> None:
    # h_1(b) + h_1(−b) = Φ(b) + Φ(−b) = 1: the two solutions of Algorithm 3 are one apart.
    units = Units(np.eye(3), np.array([0.2, -1.0, 2.0]), np.array([[1.0, -0.5, 2.0]]))
    for signs in ([1, 1, 1], [-1, 1, -1], [-1, -1, -1]):
        truth = Network(np.diag(signs).astype(float), units.b * signs, units.A)
        found = fix_signs(units, population_coefficients(truth, (1,))[1], RELU)
        np.testing.assert_array_equal(np.sign(np.diag(found.W)), signs)
