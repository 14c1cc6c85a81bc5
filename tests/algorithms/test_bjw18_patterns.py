"""Patterns of units being on: enumeration for any inputs, and samples on which one unit is on alone."""

import itertools

import numpy as np
import pytest

from neurecover import activations
from neurecover.algorithms import Call
from neurecover.algorithms.bjw18 import enumeration, parallel
from neurecover.data import ArraySource
from neurecover.matching import compare
from neurecover.models import Network
from neurecover.pipeline import estimate, run_algorithm
from neurecover.reproduce.bjw18 import pattern_inputs
from neurecover.search import Task
from neurecover.simulate import sample, teacher
from neurecover.simulate.hard import separability_samples, unsatisfiable_formula
from neurecover.solve import Deadline

RELU = activations.get("relu")
BOUND = 1e-11


@pytest.mark.parametrize("kind", ["uniform", "integer", "repeated"])
@pytest.mark.parametrize(("k", "n"), [(1, 20), (2, 30), (3, 30)])
def test_sign_patterns_are_exact_for_any_inputs(kind: str, k: int, n: int) -> None:
    determined = 0
    for seed in range(4):
        net = teacher(3, k, 3, bias=0.0, random_state=seed)
        X = pattern_inputs(kind, np.random.default_rng([seed, 99]), n, 3)
        found = enumeration.sign_patterns(X, net(X), k)
        assert found.exact
        determined += found.determined
        if found.determined:
            assert compare(found.network, net).weight_error <= 1e-10
    assert determined >= (3 if kind != "repeated" else 2)


def test_the_faces_hold_every_unit_and_only_supports_of_the_cone() -> None:
    rng = np.random.default_rng(0)
    H = np.maximum(rng.standard_normal((25, 3)), 0.0)
    Q = H @ rng.standard_normal((3, 3))
    patterns = {p.tobytes() for p in enumeration.face_patterns(Q)}
    for i in range(3):
        assert (H[:, i] > 0.0).tobytes() in patterns
    # In the coordinates of H the cone is h ≥ 0, whose faces are the 7 non-empty sets of units.
    supports = [(H[:, list(s)] > 0.0).any(axis=1) for r in (1, 2, 3) for s in itertools.combinations(range(3), r)]
    assert patterns == {support.tobytes() for support in supports}


def test_a_pattern_that_leaves_weights_open_is_reported_and_still_fits() -> None:
    net = teacher(4, 2, 2, bias=0.0, random_state=0)
    X = np.random.default_rng(1).standard_normal((200, 4))
    on = X @ net.W[0] > 0.0
    X = np.vstack([X[~on], X[on][:2]])  # unit 0 is on at two inputs only
    found = enumeration.sign_patterns(X, net(X), 2)
    assert found.exact
    assert found.unique.count(False) == 1


def test_another_network_of_the_same_outputs_is_counted() -> None:
    # On the axes relu(x₁) + relu(x₂) = relu(x₁ + x₂), so a unit along (1, 1) may stand for one of the two.
    X = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    net = Network(np.eye(2), None, np.eye(2))
    few = enumeration.sign_patterns(X, net(X), 2)
    assert few.exact
    assert few.alternatives > 0
    assert not few.determined
    rng = np.random.default_rng(0)
    many = np.vstack([X, rng.standard_normal((30, 2))])
    whole = enumeration.sign_patterns(many, net(many), 2)
    assert whole.alternatives == 0
    assert whole.determined


def test_progress_is_logged_to_the_total_and_the_budget_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    net = teacher(3, 3, 3, bias=0.0, random_state=0)
    X = pattern_inputs("uniform", np.random.default_rng([0, 99]), 20, 3)
    with caplog.at_level("INFO"):
        enumeration.sign_patterns(X, net(X), 3)
    done, total = (int(word) for word in caplog.messages[-1].split() if word.isdigit())
    assert done == total <= enumeration.n_rays(20, 3)
    refusal = enumeration.ALGORITHM.refuse(Task(RELU, 5, 5, 1_000, False, 5))
    assert refusal is not None
    assert "4.1e+10 null vectors" in refusal
    assert "budget of 600 s" in refusal


def test_outputs_that_no_network_gives_are_not_called_exact() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((30, 3)), rng.standard_normal((30, 2))
    source = ArraySource(X, Y)
    estimate = run_algorithm(enumeration.ALGORITHM, Call(source, Task(RELU, 3, 2, 30, False, 2), rng, Deadline()))
    assert estimate.network is None
    assert "no 2 ReLU units" in estimate.notes[0]


def test_hard_instances_are_outside_the_assumption() -> None:
    X, _ = separability_samples(unsatisfiable_formula(7, random_state=0))
    refusal = enumeration.ALGORITHM.refuse(Task(RELU, X.shape[1], 1, len(X), False, 2))
    assert refusal is not None
    assert "rank(Y) = k" in refusal


@pytest.mark.parametrize("opposite", [False, True])
def test_one_sparse_with_fewer_outputs_than_units(opposite: bool) -> None:
    reached = 0
    for seed in range(10):
        net = teacher(6, 4, 2, bias=0.0, random_state=seed)
        if opposite:
            A = net.A.copy()
            A[:, 1] = -1.3 * A[:, 0]
            net = Network(net.W, None, A)
        X, Y = sample(net, 1_000, random_state=seed)
        found = parallel.one_sparse(X, Y, 4, np.random.default_rng(seed))
        reached += found.exact and compare(found.network, net).weight_error <= BOUND
    assert reached >= 9


def test_the_number_of_units_is_found() -> None:
    net = teacher(5, 5, 3, bias=0.0, random_state=1)
    X, Y = sample(net, 4_000, random_state=1)
    found = parallel.one_sparse(X, Y, None, np.random.default_rng(0))
    assert found.network.n_hidden == 5
    assert compare(found.network, net).weight_error <= BOUND


def test_two_linear_pieces_on_one_line_are_told_apart() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 5))
    p, q = rng.standard_normal((2, 5))
    first = rng.random(120) < 0.6
    pieces = parallel.linear_pieces(X, np.where(first, X @ p, X @ q), rng)
    assert len(pieces) == 2
    for truth in (p, q):
        assert min(np.linalg.norm(piece - truth) for piece in pieces) < 1e-12
    few = np.arange(120) < 3  # too few for a piece of their own
    (only,) = parallel.linear_pieces(X, np.where(few, X @ p, X @ q), rng)
    assert np.linalg.norm(only - q) < 1e-12


def test_groups_are_the_pairs_that_a_full_comparison_finds() -> None:
    net = teacher(5, 4, 3, bias=0.0, random_state=2)
    X, Y = sample(net, 400, random_state=2)
    groups = parallel.parallel_groups(Y, np.random.default_rng(0), float(np.abs(Y).max()))
    alone = np.count_nonzero(net.hidden(X) > 0.0, axis=1) == 1
    grouped = np.concatenate([group.rows for group in groups])
    assert set(grouped) <= set(np.flatnonzero(alone))
    live = np.linalg.norm(Y, axis=1) > 1e-4 * np.abs(Y).max()
    sizes = np.count_nonzero(net.hidden(X)[alone & live] > 0.0, axis=0)
    assert sorted(len(group.rows) for group in groups) == sorted(sizes[sizes >= 2])


def test_one_output_noise_and_biases_are_refused_or_said() -> None:
    refusal = parallel.ALGORITHM.refuse(Task(RELU, 4, 1, 100, False, 3))
    assert refusal is not None
    assert "least_squares" in refusal
    net = teacher(4, 3, 2, bias=0.0, random_state=0)
    X, Y = sample(net, 1_000, noise=1e-6, random_state=0)
    source = ArraySource(X, Y)
    estimate = run_algorithm(
        parallel.ALGORITHM, Call(source, Task(RELU, 4, 2, 1_000, False, 3), np.random.default_rng(0), Deadline())
    )
    assert estimate.network is None
    assert "0 of 3 units" in estimate.notes[0]


@pytest.mark.parametrize("activation", ["relu", "power(2)", "power(3)"])
def test_one_sparse_for_powers_and_for_one_output(activation: str) -> None:
    """[BJW18, §9.1 and Theorem 11]: one output and a unit of each sign; powers where no two columns share a line."""
    net = teacher(5, 4, 3, bias=0.0, activation=activation, random_state=2)
    X, Y = sample(net, 4_000, random_state=2)
    e = estimate(X, Y, 4, method="one_sparse", activation=activation, bias=False, random_state=0)
    assert e.network is not None, e.notes
    assert compare(e.network, net).weight_error < 1e-9
    if activation == "relu":
        pair = Network(teacher(4, 2, 1, bias=0.0, random_state=1).W, None, np.array([[1.0, -0.7]]))
        X, Y = sample(pair, 2_000, random_state=1)
        e = estimate(X, Y, 2, method="one_sparse", bias=False, random_state=0)
        assert e.network is not None, e.notes
        assert compare(e.network, pair).weight_error < 1e-9
        few = estimate(X, Y, 3, method="one_sparse", bias=False, random_state=0)
        assert few.network is None
        assert "at most two units" in few.notes[0]
