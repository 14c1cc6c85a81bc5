"""Which units are on in rows with rare values: told by outputs, by a mixed-integer program, by what units leave."""

from dataclasses import replace

import numpy as np
import pytest

import neurecover as nr
from neurecover.data import ArraySource
from neurecover.fit import FitOptions
from neurecover.fit.descent import descend
from neurecover.fit.samples import Samples
from neurecover.models import Network, as_student
from neurecover.search import Task
from neurecover.search.find import settled_on
from neurecover.search.gates.explain import by_program, by_span, explain, explain_all, with_new_unit
from neurecover.search.gates.few_rows import explain_aside, with_units_of_few_rows
from neurecover.search.gates.state import GateOptions, State, move_apart, null_space
from neurecover.search.race import Setting
from neurecover.simulate import teacher
from neurecover.solve import Deadline

COMMON, RARE = 4, 6


def _rows(seed: int, shown: int, n: int = 400, size: float = 3.0) -> np.ndarray:
    """Four inputs that vary and six that do in `shown` rows each."""
    rng = np.random.default_rng(seed)
    X = np.hstack([rng.standard_normal((n, COMMON)), np.zeros((n, RARE))])
    for j in range(COMMON, COMMON + RARE):
        X[rng.choice(n, shown, replace=False), j] = size * (1.0 + rng.random(shown))
    return X


def _without_rare_weights(truth: Network, X: np.ndarray) -> State:
    """What is known once the rows without rare values are explained."""
    return State.of(replace(truth, W=np.where(np.arange(COMMON + RARE) < COMMON, truth.W, 0.0)), X, truth(X))


@pytest.mark.parametrize("seed", range(6))
def test_outputs_that_tell_all_units_give_rare_columns_at_once(seed: int) -> None:
    truth = teacher(COMMON + RARE, 4, 5, random_state=seed)
    state = by_span(_without_rare_weights(truth, _rows(seed, 12)))
    assert state is not None
    assert state.explained.all()


def test_rows_with_as_many_open_units_as_outputs_are_told_where_no_other_row_is_left() -> None:
    """One output, and two rows that alone show one unit each a column: their values are what is left.

    Such a row says nothing by itself: with a third that is wrong nothing is changed.
    """
    X = np.zeros((202, 4))
    X[:, :2] = np.random.default_rng(0).standard_normal((202, 2))
    X[:, 2:] = X[:, :2] < -0.5  # the column varies where the unit is far off, and in one row where it is on
    X[:2] = [[2.0, 1.0, 1.0, 0.0], [1.0, 2.0, 0.0, 1.0]]
    blind = Network(np.eye(2, 4), np.zeros(2), np.array([[1.0, -2.0]]))
    truth = replace(blind, W=np.hstack([np.eye(2), 0.5 * np.eye(2)]))
    state = State.of(blind, X, truth(X))
    assert len(state.left) == 2
    assert explain(state, 2, Deadline()).explained.all()
    wrong = replace(state, Y=state.Y + (np.arange(202) == 201)[:, None])
    assert explain(wrong, 2, Deadline()).n_explained == 199


def test_fewer_outputs_than_units_tell_which_are_on() -> None:
    """Nine units, six outputs: rows with less than six units on say so by themselves, the others with the program.

    Of eight networks six or more answer every row, with most weights of a column in twelve rows being the true ones.
    """
    answered = 0
    for seed in range(8):
        truth = teacher(COMMON + RARE, 9, 6, random_state=seed)
        state = explain(_without_rare_weights(truth, _rows(seed, 12)), 9, Deadline())
        if state.explained.all():
            answered += 1
            assert np.mean(np.abs(state.V[:, 1:] - truth.W)[:, COMMON:] < 1e-7) > 0.5
    assert answered >= 6


@pytest.mark.parametrize("seed", range(6))
def test_a_unit_that_is_on_in_rare_rows_alone_is_found_from_them(seed: int) -> None:
    """Three units are known, the fourth is off in all usual rows: what the three cannot give says where it is on."""
    X = _rows(seed, 12)
    truth, usual = teacher(COMMON + RARE, 4, 6, random_state=seed), ~X[:, COMMON:].any(axis=1)
    w = np.where(np.arange(COMMON + RARE) < COMMON, truth.W[3], np.abs(truth.W[3]) + 0.2)
    truth = Network(np.vstack([truth.W[:3], w]), np.append(truth.b[:3], -0.01 - (X[usual] @ w).max()), truth.A, truth.c)
    assert np.count_nonzero(X @ w + truth.b[3] > 0) >= 5
    known = _without_rare_weights(truth, X)
    state = explain(replace(known, V=known.V[:3], A=known.A[:, :3]), 4, Deadline())
    assert state.explained.all()
    assert len(state.V) == 4


def test_a_unit_of_two_rows_that_leave_two_directions_is_found_from_one_of_them() -> None:
    """In the other row a unit with an open weight is on as well: the new unit's column is known from the first."""
    rng = np.random.default_rng(1)
    X = np.hstack([rng.standard_normal((80, 3)), np.zeros((80, 1))])
    X[0], X[1] = (9.0, 0.0, 0.0, 0.0), (8.0, 1.0, 0.0, 1.0)
    W = [[0.3, 1.0, 0.0, 2.0], [0.0, -0.5, 1.0, 0.5], [1.0, 0.0, 0.0, 0.0]]
    truth = Network(W, [0.2, -0.1, -6.0], rng.standard_normal((4, 3)), np.ones(4))
    known = State.of(Network(np.where(np.arange(4) < 3, W, 0.0)[:2], truth.b[:2], truth.A[:, :2], truth.c), X, truth(X))
    assert known.left.tolist() == [0, 1]
    assert with_new_unit(known, 3) is None
    state = with_new_unit(known, 3, sure=False)
    assert state is not None
    assert state.explained.all()
    assert with_new_unit(known, 2, sure=False) is None


def test_a_unit_open_in_all_its_weights_is_told_by_rare_rows_too() -> None:
    """A unit that is on in two of the usual rows, and one that fits those: rare rows give the other equations."""
    X = _rows(0, 12)
    truth, usual = teacher(COMMON + RARE, 7, 5, random_state=0), ~X[:, COMMON:].any(axis=1)
    z = np.sort(X[usual] @ truth.W[0])
    truth = replace(truth, b=np.append(-0.5 * (z[-2] + z[-3]), truth.b[1:]))
    known = _without_rare_weights(truth, X)
    on = usual & (known.Z[:, 0] > 0.0)
    free = null_space(known.X[on], 1e-9)
    other = known.moved(
        np.zeros(known.X.shape[1]), np.eye(known.X.shape[1]), known.X[on], known.Z[on, 0], known.X[usual & ~on]
    )
    assert np.abs((other - known.V[0])[1 : COMMON + 1]).max() > 0.01
    assert len(free) > RARE
    state = explain(replace(known, V=np.vstack([other, known.V[1:]])), 7, Deadline())
    assert state.explained.all()


def test_a_program_finds_the_units_of_rows_that_do_not_tell() -> None:
    """Two outputs, four units, one open weight each: no row tells by itself, and the rows together do."""
    rng = np.random.default_rng(3)
    X = np.hstack([rng.standard_normal((60, 3)), np.zeros((60, 1))])
    X[:8, 3] = rng.uniform(1.0, 2.0, 8)
    truth = Network(rng.standard_normal((4, 4)), None, rng.standard_normal((2, 4)))
    known = State.of(replace(truth, W=np.where(np.arange(4) < 3, truth.W, 0.0)), X, truth(X))
    assert known.left.tolist() == list(range(8))
    state = by_program(known, Deadline())
    assert state is not None
    assert state.explained.all()
    np.testing.assert_allclose(state.V[:, 1:], truth.W, atol=1e-8)
    noisy = replace(known, Y=known.Y + np.where(X[:, [3]] > 0.0, rng.standard_normal((60, 2)), 0.0))
    assert by_program(noisy, Deadline()) is None  # noise is no network


def test_a_program_moves_a_unit_in_directions_that_its_rows_do_not_show() -> None:
    """The row that is left switches unit 0 on by its third weight, and a row of E, that off by its fourth."""
    rng = np.random.default_rng(0)
    X = np.hstack([rng.standard_normal((60, 2)), np.zeros((60, 2))])
    X[0], X[1] = (0.0, 0.0, 1.0, 0.0), (0.0, 0.0, 1.0, 1.0)
    truth = Network([[1.0, 0.5, 4.0, -9.0], [-0.5, 1.0, 0.0, 0.0]], [-1.0, 0.3], [[1.0, 0.2], [0.4, -1.0]])
    known = State.of(replace(truth, W=np.where(np.arange(4) < 2, truth.W, 0.0)), X, truth(X))
    assert known.left.tolist() == [0]
    state = by_program(known, Deadline())
    assert state is not None
    assert state.explained.all()


def test_more_units_than_a_program_takes_are_left_alone() -> None:
    many = teacher(3, 400, 2, random_state=0)
    X = np.random.default_rng(0).standard_normal((4, 3))
    assert by_program(State.of(many, X, many(X) + 1.0), Deadline()) is None


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_moves_that_switch_a_unit_off_are_no_larger_than_it_takes(side: float) -> None:
    """A room of a tenth is asked for: 1.1 does as well as 9e7 in a direction that goes on for ever."""
    sums, moves = np.array([1.0, -1.0, -0.1]), np.array([[-side], [1e-8 * side], [0.0]])
    assert side * move_apart(sums, moves, 1.0, 0.1, 0.1)[0] == pytest.approx(1.1)


def test_many_rows_take_no_square_matrix() -> None:
    T = np.random.default_rng(0).standard_normal((100_000, 3))
    assert len(null_space(T, 1e-9)) == 0


def _with_a_unit_of_few_rows(seed: int, d: int, k: int, p: int, rows: int) -> tuple[Network, np.ndarray]:
    """A network whose unit 0 is on in so many of 30·d·k samples, and the samples."""
    truth = teacher(d, k, p, random_state=seed)
    X = np.random.default_rng(seed).standard_normal((30 * d * k, d))
    z = np.sort(X @ truth.W[0])
    return replace(truth, b=np.append(-0.5 * (z[-rows] + z[-rows - 1]), truth.b[1:])), X


def test_units_are_added_for_what_others_leave_but_not_for_noise() -> None:
    truth, X = _with_a_unit_of_few_rows(0, 6, 5, 3, 6)
    others = State.of(Network(truth.W[1:], truth.b[1:], truth.A[:, 1:], truth.c), X, truth(X))
    assert len(others.left) == 6
    whole = with_new_unit(others, 5)
    assert whole is not None
    assert whole.explained.all()
    assert with_new_unit(others, 4) is None
    Y = others.Y.copy()
    Y[others.left[0]] += 1.0  # one of six samples is something else
    more = with_new_unit(replace(others, Y=Y), 5)
    assert more is not None
    assert more.left.tolist() == [others.left[0]]
    noise = np.random.default_rng(0).standard_normal(Y.shape)
    assert explain_all(replace(others, Y=Y + noise), 5, Deadline()) is None


@pytest.mark.parametrize(("p", "rows"), [(1, 4), (1, 7), (3, 5)])
def test_the_other_units_are_found_and_vouched_for(p: int, rows: int) -> None:
    """Eight inputs, four units, ten seeds: every sample is answered and the weights of three units are exact."""
    vouched = 0
    for seed in range(10):
        truth, X = _with_a_unit_of_few_rows(seed, 8, 4, p, rows)
        found = nr.recover(X, truth(X), 4, random_state=seed, time_budget=5)
        mask = found.certificate.determined
        if mask is None:
            continue
        vouched += 1
        assert found.certificate.verdict == "approximate"
        np.testing.assert_allclose(found.network(X), truth(X), atol=1e-9)
        assert mask["W"].all(axis=1).sum() == 3
        for w, a in zip(found.network.W[mask["W"].all(axis=1)], found.network.A.T[mask["W"].all(axis=1)]):
            same = np.abs(truth.W - w).max(axis=1) < 1e-8
            assert same.sum() == 1
            np.testing.assert_allclose(truth.A.T[same][0], a, atol=1e-8)
        assert any("whose kink too few samples show" in reason for reason in found.certificate.reasons)
    assert vouched >= 4


def test_one_sample_says_nothing_of_the_signs_of_others() -> None:
    """A unit on in one sample may be on everywhere else instead, with other units turned: nothing is vouched for."""
    for seed in range(6):
        truth, X = _with_a_unit_of_few_rows(seed, 5, 3, 1, 1)
        found = nr.recover(X, truth(X), 3, random_state=seed, time_budget=2)
        mask = found.certificate.determined
        assert mask is None or not mask["W"].any() or np.all(np.abs(found.network(X) - truth(X)) < 1e-6)
        assert found.certificate.verdict not in ("exact", "statistical")


def test_a_student_that_is_nearly_exact_is_completed() -> None:
    """A unit on in six samples, of which the student has two rough pieces: it is found on 4 of 6 networks."""
    completed = 0
    for seed in range(6):
        truth, X = _with_a_unit_of_few_rows(seed, 6, 5, 3, 6)
        pieces = truth.W[[0, 0]] + 0.02 * np.random.default_rng(seed).standard_normal((2, 6))
        start = Network(
            np.vstack([truth.W[1:], pieces]),
            np.append(truth.b[1:], np.repeat(truth.b[0], 2)),
            np.hstack([truth.A[:, 1:], truth.A[:, [0, 0]]]),
            truth.c,
        )
        samples, task = Samples.of(ArraySource(X, truth(X)), True), Task(truth.activation, 6, 3, len(X), True, 5)
        wide = descend(samples, as_student(start, True, skips=True), FitOptions(), Deadline(), steps=2)
        assert wide.relative > 1e-15
        setting = replace(Setting.plain(task, np.random.default_rng(seed), Deadline()), whole=samples)
        found = with_units_of_few_rows(wide, setting)
        if found is not None:
            completed += 1
            np.testing.assert_allclose(found.student(samples.F), truth(X), atol=1e-9)
            assert found.student.widths == (5,)
    assert completed >= 4


def test_a_unit_whose_lesser_side_was_set_aside_is_told_there_again() -> None:
    """Set aside are the six samples with one unit on, and six of the nine with another off: three are left to show it.

    Beside an affine part these three alone say what it is, whichever side it is written for; those set aside say the
    rest. On 5 of 6 networks both are found.
    """
    completed, d = 0, 6
    for seed in range(6):
        rng, drawn = np.random.default_rng(seed), teacher(d, 5, 3, random_state=seed)
        X = rng.standard_normal((900, d))
        z, y = np.sort(X @ drawn.W[0]), np.sort(X @ drawn.W[1])
        truth = replace(drawn, b=np.array([-0.5 * (z[-6] + z[-7]), -0.5 * (y[8] + y[9]), *drawn.b[2:]]))
        whole = Samples.of(ArraySource(X, truth(X)), True)
        away = (X @ truth.W[0] + truth.b[0] <= 0.0) & (X @ truth.W[1] > y[5])
        rest = Samples(whole.F[away], whole.Y[away], whole.bias)
        student = as_student(truth.take(np.arange(1, 5)), True, skips=True)
        off = rest.F @ student.V[0][0] < 0.0
        assert np.count_nonzero(off) < d
        # a relu(z) = a relu(z') + a (z − z') where z' is z in the samples in which they are off
        V, theta, free = student.V[0].copy(), student.theta.copy(), null_space(rest.F[off], 1e-9)
        V[0] += 1e-3 * rng.standard_normal(len(free)) @ free
        assert np.array_equal(rest.F @ V[0] < 0.0, off)
        theta[: d + 1] += np.outer(student.V[0][0] - V[0], truth.A[:, 1])
        fit = descend(rest, replace(student, V=(V,), theta=theta), FitOptions(), Deadline())
        found = explain_aside(fit, whole, 5, GateOptions())
        if found is not None:
            completed += 1
            np.testing.assert_allclose(found.student(whole.F), truth(X), atol=1e-9)
    assert completed >= 5


def test_rooms_are_shared_and_bounded() -> None:
    """θ₀ has 1.5 between two rows and is laid between them, away from both; θ₁ goes as far as one size and no farther.

    Where no θ meets all rows, as many are met as can be.
    """
    sums, moves = np.array([-1.4, -0.1, 0.3]), np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, -1.0]])
    theta = move_apart(sums, moves, 1.0, 0.1, 1.0)
    assert np.all(sums + moves @ theta <= -0.1 + 1e-9)
    assert theta[1] == pytest.approx(1.3)
    torn = move_apart(np.array([0.1, 0.1, 0.5]), np.array([[1.0], [1.0], [-1.0]]), 1.0, 0.1, 1.0)
    assert np.count_nonzero(np.array([0.1, 0.1, 0.5]) + np.array([1.0, 1.0, -1.0]) * torn[0] <= 1e-9) == 2


def test_rows_that_the_search_did_not_look_at_tell_what_its_own_leave_open() -> None:
    """No row of the part with a unit on has a level; where the unit is off in it, no descent finds its weight."""
    exact = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        truth, X = teacher(4, 3, random_state=seed), rng.standard_normal((600, 4))
        truth = replace(truth, W=truth.W + np.array([0.0, 0.0, 0.0, 1.0]) * (np.arange(3) == 0)[:, None])
        X[:, 3] = rng.random(600) < 0.2
        on = X @ truth.W[0] + truth.b[0] > 0.0
        whole, own = Samples.of(ArraySource(X, truth(X)), True), np.flatnonzero((X[:, 3] == 0.0) | ~on)
        blind = replace(truth, W=truth.W - 6.0 * np.eye(4)[3] * (np.arange(3) == 0)[:, None])
        part = replace(whole, F=whole.F[own], Y=whole.Y[own])
        fit = descend(part, as_student(blind, True), FitOptions())
        task = Task(truth.activation, 4, 1, 600, True, 3)
        settled = settled_on(whole, fit, Setting.plain(task, rng, Deadline()))
        exact.append(fit.relative < 1e-20 and settled.fit.relative < 1e-20)
    assert sum(exact) >= 5, exact
