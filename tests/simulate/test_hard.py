"""Formulas become samples and networks become assignments: both directions of the reduction, checked exhaustively."""

import numpy as np
import pytest

from neurecover.models import Network
from neurecover.simulate.hard import (
    Formula,
    decode,
    encode,
    near_parallel_pair,
    planted_formula,
    separability_samples,
    unsatisfiable_formula,
)


@pytest.mark.parametrize("seed", range(20))
def test_planted_assignments_encode_to_residual_zero_and_decode_back(seed: int) -> None:
    formula, assignment = planted_formula(6 + seed, 15 + seed, random_state=seed)
    X, Y = separability_samples(formula)
    network = encode(assignment)
    assert np.array_equal(network(X), Y)
    assert np.array_equal(decode(network), assignment)
    assert formula.satisfied(assignment)
    assert formula.satisfied(-assignment)


def test_the_samples_are_fitted_by_exactly_the_satisfying_assignments() -> None:
    formula, _ = planted_formula(7, 25, random_state=0)
    X, Y = separability_samples(formula)
    solutions = {tuple(solution) for solution in formula.solutions()}
    assert 0 < len(solutions) < 2**7
    for number in range(2**7):
        assignment = np.array([1 if number >> i & 1 else -1 for i in range(7)])
        assert np.array_equal(encode(assignment)(X), Y) == (tuple(assignment) in solutions)


def test_formulas_are_reversible() -> None:
    formula, _ = planted_formula(9, 30, random_state=1)
    clauses = {frozenset(clause.tolist()) for clause in formula.clauses}
    assert {frozenset((-clause).tolist()) for clause in formula.clauses} == clauses
    assert {tuple(-s) for s in formula.solutions()} == {tuple(s) for s in formula.solutions()}


@pytest.mark.parametrize("seed", range(3))
def test_unsatisfiable_formulas_have_no_solution(seed: int) -> None:
    assert len(unsatisfiable_formula(9, 5, random_state=seed).solutions()) == 0


def test_decoding_undoes_any_positive_rescaling_and_either_order() -> None:
    formula, assignment = planted_formula(8, 20, random_state=3)
    net = encode(assignment)
    scaled = Network(net.W[::-1] * np.array([[3.0], [0.2]]), None, net.A / np.array([3.0, 0.2]))
    X, Y = separability_samples(formula)
    assert np.allclose(scaled(X), Y, atol=1e-14)
    assert np.array_equal(decode(scaled), assignment)


def test_the_near_parallel_pair_agrees_exactly_where_the_lemma_says(rng: np.random.Generator) -> None:
    a = 0.01
    first, second = near_parallel_pair(a)
    X = rng.standard_normal((20_000, 2))
    same = np.abs(X[:, 0]) > 2 * a * np.abs(X[:, 1])
    difference = np.abs(first(X) - second(X))[:, 0]
    assert difference[same].max() < 1e-15
    assert np.all(difference[~same] > 0.0)
    assert np.linalg.cond(first.W) == pytest.approx(1 / a)
    assert np.linalg.cond(second.W) == pytest.approx(1 / (2 * a))


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="Got n_variables=5"):
        planted_formula(5, 3)
    with pytest.raises(ValueError, match="between 0 and ½"):
        near_parallel_pair(0.7)
    with pytest.raises(ValueError, match="two units"):
        decode(Network(np.ones((3, 12)), None, np.ones((1, 3))))
    with pytest.raises(ValueError, match="±1"):
        encode(np.array([1, 0, 1]))
    with pytest.raises(ValueError, match="24 variables"):
        Formula(30, np.arange(1, 7)[None]).solutions()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
