"""Weights marked as determined are right, whatever the samples leave open."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import neurecover as nr
from neurecover.certificate import Case, Evidence, certify, scaled_to_determined
from neurecover.certificate.determined.rare_columns import seldom
from neurecover.certificate.determined.sentence import open_weights
from neurecover.certificate.determined.weights import _without_scale, seen_weights
from neurecover.certificate.information.sole_equations import sole_equations
from neurecover.data import ArraySource, prepare_samples, reduce
from neurecover.models import jacobian
from neurecover.statistics import Residuals

Change = Callable[[nr.Network, np.ndarray, np.random.Generator], np.ndarray]
RIGHT = 1e-6  # EXACT_WEIGHTS times a hundred, as matching divides by the norm of a part of a row


def rare(truth: nr.Network, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    for column in rng.choice(X.shape[1], 2, replace=False):
        seen = rng.choice(len(X), int(rng.integers(1, 8)), replace=False)
        X[:, column] = np.where(np.isin(np.arange(len(X)), seen), X[:, column], 0.0)
    return X


def one_hot(truth: nr.Network, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    X[:, :2] = np.eye(2)[rng.integers(0, 2, len(X))]
    return X


def dead(truth: nr.Network, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Column 0 is zero wherever unit 0 is on, with it or without."""
    without = X[:, 1:] @ truth.W[0, 1:] + truth.b[0]
    X[(without > 0) | (X @ truth.W[0] + truth.b[0] > 0), 0] = 0.0
    return X


def constant(truth: nr.Network, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    X[:, 1] = rng.choice([0.0, 2.0])
    return X


def doubled(truth: nr.Network, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    X[:, 1] = 2.0 * X[:, 0]
    return X


def counts(truth: nr.Network, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    some = rng.random(X.shape) < rng.choice([0.02, 0.3, 0.9], X.shape[1])
    return rng.integers(0, 4, X.shape) * some.astype(float)


def wrong_weights(found: nr.Recovery, truth: nr.Network) -> int:
    """How many weights that are marked as determined are not those of the truth, scaled alike."""
    mask, net, truth = found.certificate.determined, found.network, truth.normal_form()
    assert mask is not None
    known = mask.W.any(axis=1)  # a unit of which nothing is may be any of those that are left
    shared = mask.W[known].all(axis=0)
    size = {id(n): np.maximum(np.linalg.norm(n.W[:, shared], axis=1), 1e-300) for n in (net, truth)}
    ours, theirs = (np.hstack([n.W[:, shared] / size[id(n)][:, None], (n.A * size[id(n)]).T]) for n in (net, truth))
    rows, columns = linear_sum_assignment(np.sum((ours[known][:, None] - theirs[None]) ** 2, axis=2))
    assert len(rows) == np.count_nonzero(known)
    order = np.zeros(net.n_hidden, dtype=int)
    order[known] = columns[np.argsort(rows)]
    order[~known] = np.setdiff1d(np.arange(truth.n_hidden), columns)[: np.count_nonzero(~known)]
    same = scaled_to_determined(nr.Network(truth.W[order], truth.b[order], truth.A[:, order], truth.c), mask)
    wrong = 0
    for name in "WbAc":
        right = getattr(same, name)
        off = np.abs(getattr(net, name) - right) > RIGHT * np.maximum(1.0, np.abs(right))
        wrong += int(np.count_nonzero(off & mask[name]))
    return wrong


def certified(network: nr.Network, X: np.ndarray) -> nr.Certificate:
    """The certificate of a network as that of its own answers."""
    rng = np.random.default_rng(2)
    given = prepare_samples(ArraySource(X, network(X)), True, rng)
    matrix, mean = given.whitening.matrix, given.whitening.mean
    # What the inputs do not span has no effect.
    W = np.linalg.lstsq((X - mean) @ matrix, (X - mean) @ network.W.T, rcond=None)[0].T
    on_white = nr.Network(W, network.b + network.W @ mean, network.A, network.c)
    np.testing.assert_allclose(on_white((X - mean) @ matrix), network(X), atol=1e-12)
    holdout = reduce(given.holdout, Residuals(on_white, network.n_outputs, 2, given.output_mean))
    return certify(Case(on_white, given.whitening, given.samples, holdout, Evidence(network.n_hidden), rng))


@pytest.mark.usefixtures("steps_for_seconds")
@pytest.mark.parametrize(
    ("change", "least"), [(rare, 0), (one_hot, 3), (dead, 5), (constant, 3), (doubled, 3), (counts, 0)]
)
def test_nothing_marked_as_determined_is_wrong(change: Change, least: int) -> None:
    """Eight seeds each; `least` of them have a mask with open weights, where the search ends soon."""
    partly = 0
    for seed in range(500, 508):
        rng = np.random.default_rng(seed)
        d, k, p = int(rng.integers(4, 8)), int(rng.integers(2, 5)), int(rng.integers(1, 3))
        truth = nr.simulate.teacher(d, k, p, bias=0.7, random_state=seed)
        X = change(truth, rng.standard_normal((600, d)), rng)
        found = nr.recover(X, truth(X), k, random_state=seed, time_budget=0.5)
        if found.certificate.determined is None:
            continue
        assert found.certificate.verdict in ("exact", "approximate")
        assert wrong_weights(found, truth) == 0
        if found.certificate.verdict == "approximate":
            partly += 1
            errors = np.concatenate([error.ravel() for error in found.certificate.standard_errors.values()])
            assert np.isinf(errors).any()
            assert np.isfinite(errors).any()
            assert any("All weights are exact but" in reason for reason in found.certificate.reasons)
            np.testing.assert_allclose(found.network(X), truth(X), atol=1e-9)
    assert partly >= least


def test_a_kink_right_through_a_sample_proves_nothing() -> None:
    """Unit 0 is off wherever column 0 differs from zero but for one sample on its kink, which is on by rounding."""
    rng = np.random.default_rng(0)
    truth = nr.simulate.teacher(4, 2, 2, bias=0.3, random_state=2).normal_form()
    X = dead(truth, rng.standard_normal((500, 4)), rng)
    row = int(np.flatnonzero(X[:, 0])[0])
    W = truth.W.copy()
    W[0, 0] = (5e-15 - X[row, 1:] @ W[0, 1:] - truth.b[0]) / X[row, 0]
    other = nr.Network(W, truth.b, truth.A, truth.c)
    X = X[(X @ W[0] + truth.b[0] < 1e-12) | (X[:, 0] == 0.0)]
    np.testing.assert_allclose(other(X), truth(X), atol=1e-13)  # two networks, the same samples
    assert np.abs(W - truth.W).max() > 0.1
    certificate = certified(other, X)
    assert certificate.verdict == "approximate"
    assert certificate.determined is not None
    assert np.argwhere(~certificate.determined.W).tolist() == [[0, 0]]


def in_categories(n: int, n_categories: int) -> np.ndarray:
    """A uniform input, and the columns that indicate one of some categories."""
    rng = np.random.default_rng(5)
    return np.column_stack([rng.uniform(-1, 1, n), np.eye(n_categories)[np.arange(n) % n_categories]])


@pytest.mark.parametrize("n_off", [0, 1, 6])
def test_a_unit_can_be_turned_where_nothing_fixes_the_constant(n_off: int) -> None:
    """One unit is on for a category, the other for two more: of a fourth the samples with all units off show c.

    Without those the unit turned with its output weight fits as well, and one of them alone proves nothing.
    """
    X = in_categories(240, 3)
    X = np.vstack(
        [np.column_stack([X, np.zeros(240)]), np.column_stack([X[:n_off, :1], np.tile(np.eye(4)[3], (n_off, 1))])]
    )
    A, c = np.array([[1.5, -1.0]]), np.zeros(1)
    truth = nr.Network([[1.0, 2.0, -9.0, -9.0, -9.0], [0.5, -9.0, 6.0, 5.0, -9.0]], None, A, c)
    # 1.5 (x + 2) = −1.5 (−x + 2) + 6, and the other unit takes 6 off its own categories.
    turned = nr.Network([[-1.0, 2.0, -9.0, -9.0, -9.0], [0.5, -9.0, 12.0, 11.0, -9.0]], None, A * [[-1.0, 1.0]], [6.0])
    np.testing.assert_allclose(turned(X[:240]), truth(X[:240]), atol=1e-12)
    for network in (truth, turned) if n_off == 0 else (truth,):
        certificate = certified(network, X)
        assert certificate.verdict == "approximate"
        assert (certificate.determined is not None and certificate.determined.W[0, 0]) == (n_off == 6)


def test_two_units_in_proportion_may_be_one() -> None:
    """In the second category both units are x on the same samples, as good as one with the sum of their weights."""
    X = in_categories(200, 2)
    one = nr.Network([[1.0, -9.0, 0.0], [1.0, 0.0, -9.0]], None, [[2.0, 1.0], [1.0, -1.0]], [0.3, 0.4])
    two = nr.Network([[1.0, -9.0, 0.0], [1.0, 0.0, 0.0]], None, [[1.0, 1.0], [2.0, -1.0]], [0.3, 0.4])
    np.testing.assert_allclose(one(X), two(X), atol=1e-12)
    determined = certified(two, X).determined
    assert determined is None or not determined.A.any()


def test_a_scale_is_fixed_by_small_weights_where_the_large_ones_are_open() -> None:
    """A row of five weights in proportion along all null directions, beside thirty larger ones that are free."""
    rng = np.random.default_rng(0)
    theta = np.concatenate([rng.uniform(0.01, 0.1, 5), rng.uniform(0.5, 1.0, 30), [0.7]])  # one weight above
    direction = np.append(theta[:35], -theta[35])
    unseen, row = np.zeros(36, dtype=bool), np.arange(35)
    N = np.zeros((36, 8))
    N[5:35] = rng.standard_normal((30, 8))
    N += np.outer(direction, rng.standard_normal(8))
    left, members = _without_scale(N, direction, theta, row, unseen)
    assert sorted(members) == [0, 1, 2, 3, 4]
    assert np.abs(left[[*range(5), 35]]).max() < 1e-12


def test_an_equation_alone_is_found() -> None:
    """Against the leverages themselves, from an orthonormal basis: one sample has all units off and shows c, alone."""
    rng = np.random.default_rng(3)
    net = nr.simulate.teacher(3, 2, 1, bias=0.5, random_state=3).normal_form()
    X = rng.standard_normal((400, 3))
    on = X @ net.W.T + net.b > 0.0
    X = np.vstack([X[on.sum(axis=1) == 1], X[~on.any(axis=1)][:1]])
    J = jacobian(net, X)[:, 0]
    U, S, Vt = np.linalg.svd(J, full_matrices=False)
    kept = S[0] * 1e-9 < S
    left = 1.0 - np.sum(U[:, kept] ** 2, axis=1)
    np.testing.assert_array_equal(np.flatnonzero(left < 1e-8), [len(X) - 1])
    rows = sole_equations(net, np.arange(J.shape[1]), Vt[kept].T / S[kept], ArraySource(X, net(X)))
    np.testing.assert_allclose(rows, J[-1:], atol=1e-12)


def test_draws_that_fall_on_zero_by_chance_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 27,000 equations with 1 − h from 0.88 the first four draws left 8e-7 of one, an `exact` network of digits."""
    net = nr.simulate.teacher(3, 2, 1, bias=0.5, random_state=3).normal_form()
    X = np.random.default_rng(3).standard_normal((400, 3))
    _, S, Vt = np.linalg.svd(jacobian(net, X)[:, 0], full_matrices=False)
    kept = S[0] * 1e-9 < S

    class FirstZero:
        drawn = 0

        def standard_normal(self, shape: tuple[int, ...]) -> np.ndarray:
            self.drawn += 1
            return np.random.Generator(np.random.PCG64(1)).standard_normal(shape) * (self.drawn > 1)

    monkeypatch.setattr(np.random, "default_rng", lambda seed: FirstZero())
    assert len(sole_equations(net, np.arange(net.n_parameters), Vt[kept].T / S[kept], ArraySource(X, net(X)))) == 0


def test_sentences_name_units_and_columns() -> None:
    errors = {"W": np.zeros((3, 5)), "b": np.zeros(3), "A": np.zeros((1, 3)), "c": np.zeros(1)}
    unseen = {name: np.zeros(value.shape, dtype=bool) for name, value in errors.items()}
    errors["W"][2, [1, 4]] = np.inf
    unseen["W"][2, [1, 4]] = True
    sentence = open_weights(errors, unseen)
    assert "but those of unit 2 on columns 1 and 4, which too few samples with the unit on show: 2 of 22" in sentence
    errors["W"][:, 0] = np.inf
    assert "every unit on column 0, of which" in open_weights(
        errors | {"W": np.where(unseen["W"], 0.0, errors["W"])}, unseen
    )


@pytest.mark.parametrize(("rows", "each", "seen"), [(2, 1, True), (2, 4, False), (5, 4, True)])
def test_noisy_rows_that_show_a_column_have_to_be_more(rows: int, each: int, seen: bool) -> None:
    """A column that differs in few rows, where two units are on, and two outputs: 2·rows equations for two weights."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal((50, 2)), np.zeros(50)])
    X[:rows, 2] = 1.0
    network = nr.Network(np.eye(3)[[0, 1]] + 0.1, [9.0, 9.0], [[1.0, 1.0], [1.0, -1.0]])
    rare = seldom(network, ArraySource(X, network(X)), each)
    assert not rare[:, :2].any()
    assert rare[:, 2].all() == (not seen)
    # The same output twice: without noise it says nothing new, with noise it is another observation.
    twice = nr.Network(network.W, network.b, np.ones((2, 2)))
    assert seldom(twice, ArraySource(X, twice(X)), each)[:, 2].all() == (not seen or each == 1)


@pytest.mark.parametrize("seed", range(4))
def test_what_rests_on_a_gate_that_open_weights_move_is_not_determined(seed: int) -> None:
    """Column 3 is 1 in rows 0 to 3, where three units give two outputs: A δ = 0 for one δ, unless a unit is off.

    Unit 2 is off in row 0, for column 4. Another network has it on there, by a weight of column 4 that no other row
    with the unit on shows, and the weights of column 3 along δ: it answers every row as well.
    """
    rng = np.random.default_rng(seed)
    X = np.hstack([rng.standard_normal((300, 3)), np.zeros((300, 2))])
    X[:4, :3], X[:4, 3], X[[0, 4, 5, 6], 4] = 0.1 * X[:4, :3], 1.0, 1.0
    W = np.hstack([rng.standard_normal((3, 3)), [[2.0, 0.5], [2.0, 0.5], [2.0, -20.0]]])
    truth = nr.Network(W, np.zeros(3), rng.standard_normal((2, 3)))
    delta = np.linalg.svd(truth.A)[2][2]
    delta = 0.1 * delta * np.sign(delta[2])
    V = W.copy()
    V[:, 3] += delta
    V[2, 4] += delta[2] - float(X[0] @ V[2])
    other = nr.Network(V, np.zeros(3), truth.A)
    np.testing.assert_allclose(other(X), truth(X), atol=1e-12)
    none = np.zeros(3, dtype=bool)
    samples = ArraySource(X, truth(X))
    known = np.isfinite(seen_weights(other.normal_form(), samples, True, 1e-15, none, none).errors["W"])
    assert known[:, :3].all()
    normal = other.normal_form()
    order = [int(np.argmax(W[:, :3] @ w[:3] / np.linalg.norm(W[:, :3], axis=1))) for w in normal.W]
    assert not known[order.index(2), 4]
    known = np.isfinite(seen_weights(truth.normal_form(), samples, True, 1e-15, none, none).errors["W"])
    assert known[:, :3].all()
    assert not known[:, 3].any()  # where the unit is off its gate is as doubtful
