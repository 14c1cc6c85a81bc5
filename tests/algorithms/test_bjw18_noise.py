"""With noise: signs by projection, sparse corruption, and noise that is arbitrary but independent of the inputs."""

import numpy as np
import pytest

from neurecover import activations
from neurecover.algorithms import Call
from neurecover.algorithms.bjw18 import corruption, guesses, projection
from neurecover.data import ArraySource
from neurecover.matching import compare
from neurecover.pipeline import estimate, recover, run_algorithm
from neurecover.reproduce.bjw18 import conditioned_teacher
from neurecover.reproduce.bjw18_noise import fixed_noises
from neurecover.search import Task
from neurecover.simulate import SparseGross, sample, teacher
from neurecover.solve import Deadline
from neurecover.tensors import consensus
from neurecover.tensors.robust import separate

RELU = activations.get("relu")


def test_signs_by_projection_are_those_of_every_projection_done_in_full() -> None:
    net = teacher(5, 4, 6, kind="gaussian", bias=0.0, random_state=0)
    X, Y = sample(net, 1_000, noise=0.5, random_state=0)
    rng = np.random.default_rng(0)
    V = rng.choice([-1.0, 1.0], (4, 1)) * net.normal_form().W + 0.05 * rng.standard_normal((4, 5))
    found = projection.projection_signs(ArraySource(X, Y), V, RELU)
    both = np.maximum(X @ np.vstack([V, -V]).T, 0.0)
    for i in range(4):
        left = []
        for out in (4 + i, i):  # P₊ leaves act(−vᵢ·x) out, P₋ the other
            rows = np.delete(both, out, axis=1)
            left.append(np.linalg.norm(Y - rows @ np.linalg.lstsq(rows, Y, rcond=None)[0]))
        sign = 1.0 if left[0] < left[1] else -1.0
        assert np.array_equal(found.W[i], sign * V[i])
    assert np.all(np.sum(found.W * net.W, axis=1) > 0.0)


@pytest.mark.parametrize("seed", range(3))
def test_noisy_tensor_at_noise_one_half(seed: int) -> None:
    net = conditioned_teacher(seed)
    X, Y = sample(net, 20_000, noise=0.5, random_state=seed)
    found = projection.noisy_tensor(ArraySource(X, Y), 10, RELU, np.random.default_rng(seed)).network
    assert compare(found, net).weight_error < 0.1


def test_errors_of_noisy_directions_are_those_that_are_given() -> None:
    ratios: list[float] = []
    for seed in range(6):
        net = teacher(5, 3, 4, bias=0.0, random_state=seed)
        X, Y = sample(net, 8_000, noise=0.3, random_state=seed)
        found = projection.noisy_tensor(ArraySource(X, Y), 3, RELU, np.random.default_rng(seed))
        assert found.direction_errors is not None
        gaps = np.linalg.norm(found.network.W[:, None] - net.W, axis=2).min(axis=1)
        ratios += list(gaps / found.direction_errors)
    # The root mean square of 18 ratios of about four directions each is one to within a tenth.
    assert 0.6 < np.sqrt(np.mean(np.square(ratios))) < 1.5


def test_sparse_corruption_is_masked_and_the_weights_are_exact() -> None:
    net = teacher(8, 5, 60, kind="gaussian", bias=0.0, random_state=11)
    X, Y = sample(net, 2_000, noise=SparseGross(0.05, 100.0), random_state=11)
    found = corruption.sparse_noise(ArraySource(X, Y), None, RELU, np.random.default_rng(0))
    assert np.array_equal(found.mask, np.abs(Y - net(X)) > 50.0)
    assert found.parts.rank == 5
    assert compare(found.exact.network, net).weight_error <= 1e-8


@pytest.mark.parametrize("magnitude", [0.3, 1e6])
def test_the_size_of_the_errors_does_not_matter(magnitude: float) -> None:
    rng = np.random.default_rng(0)
    L = rng.standard_normal((400, 3)) @ rng.standard_normal((3, 40))
    hit = rng.random(L.shape) < 0.04
    parts = separate(L + magnitude * hit * rng.choice([-1.0, 1.0], L.shape))
    assert parts.rank == 3
    assert np.array_equal(parts.mask, hit)
    assert np.abs(parts.L - L).max() < 1e-12


@pytest.mark.parametrize(("p", "share", "seed"), [(12, 0.05, 100), (30, 0.1, 101), (12, 0.2, 105), (8, 0.1, 103)])
def test_gross_errors_where_the_pursuit_fails(p: int, share: float, seed: int) -> None:
    net = teacher(8, 5, p, kind="gaussian", bias=0.0, random_state=seed)
    X, Y = sample(net, 2_000, noise=SparseGross(share, 3.0), random_state=seed)
    found = corruption.sparse_noise(ArraySource(X, Y), None, RELU, np.random.default_rng(seed))
    assert np.array_equal(found.mask, np.abs(Y - net(X)) > 1.5)
    assert found.parts.rank == 5
    assert compare(found.exact.network, net).weight_error <= 1e-8


def test_rows_with_too_few_clean_entries_are_masked_whole() -> None:
    rng = np.random.default_rng(0)
    L = np.maximum(rng.standard_normal((600, 3)), 0.0) @ rng.standard_normal((3, 9))
    hit = rng.random(L.shape) < 0.15
    hit[:5, :6] = True  # three clean entries, which any row space of rank three fits
    B, mask = consensus.low_rank_by_consensus(L + 2.0 * hit * rng.standard_normal(L.shape), 3, rng) or (None, None)
    assert B is not None
    assert np.linalg.norm(L - L @ B @ B.T) < 1e-9 * np.linalg.norm(L)
    few = np.count_nonzero(~hit, axis=1) < 5
    assert np.all(mask[few])
    # A row of zeros holds one more unknown than its errors can hide: it agrees with every row space.
    assert np.array_equal(mask[~few], hit[~few])


def test_no_row_space_is_agreed_upon_where_every_entry_is_off() -> None:
    rng = np.random.default_rng(0)
    L = rng.standard_normal((500, 2)) @ rng.standard_normal((2, 8))
    assert consensus.low_rank_by_consensus(L + 1e-4 * rng.standard_normal(L.shape), 2, rng) is None
    # A row space of three dimensions is not one of two, however many rows are clean.
    third = np.outer(rng.standard_normal(500), rng.standard_normal(8))
    assert consensus.low_rank_by_consensus(L + third, 2, rng) is None


def test_outputs_that_are_not_low_rank_plus_sparse_are_said_so() -> None:
    net = teacher(6, 3, 20, kind="gaussian", bias=0.0, random_state=0)
    X, Y = sample(net, 1_000, noise=0.3, random_state=0)
    task = Task(RELU, 6, 20, 1_000, False, 3)
    estimate = run_algorithm(corruption.ALGORITHM, Call(ArraySource(X, Y), task, np.random.default_rng(0), Deadline()))
    assert estimate.network is None
    assert "not low rank plus sparse" in estimate.notes[0]
    refusal = corruption.ALGORITHM.refuse(Task(RELU, 6, 3, 1_000, False, 3))
    assert refusal is not None
    assert "more outputs than units" in refusal


@pytest.mark.parametrize("k", [1, 2])
def test_fixed_noise_of_the_signals_size(k: int) -> None:
    rng = np.random.default_rng(k)
    net = teacher(6, k, 4, bias=0.0, random_state=k)
    X, Y = sample(net, 4_000, random_state=k)
    left = {name: guesses.arbitrary_noise(X, Y + E, k, rng).residual for name, E in fixed_noises(Y, rng)}
    assert len(left) == 5
    assert max(left.values()) <= 1.1 * np.linalg.norm(Y), left  # every noise is of the size of Y


def test_every_row_of_a_left_inverse_has_a_guess_close_by() -> None:
    rng = np.random.default_rng(0)
    for k, farthest in ((1, 0.0), (2, np.pi / 180.0), (3, 0.35)):
        directions = guesses._sphere(k, rng, guesses.GUESSES.points(k))
        u = rng.standard_normal((2_000, k))
        u /= np.linalg.norm(u, axis=1, keepdims=True)
        nearest = np.arccos(np.clip((u @ directions.T).max(axis=1), -1.0, 1.0))
        assert nearest.max() <= farthest + 1e-6
    net = teacher(4, 2, 3, bias=0.0, random_state=0)
    X, Y = sample(net, 500, random_state=0)
    fit = guesses.arbitrary_noise(X, Y, 2, rng, printed=True)
    # 180 directions, each with the label smoothed and with the label itself: C(360, 2) pairs.
    assert fit.n_choices == 64_620
    assert fit.network.n_hidden == 2
    assert fit.residual == pytest.approx(np.linalg.norm(Y - fit.network(X)))


def test_smoothing_sees_a_halfspace_behind_an_offset() -> None:
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((20_000, 5))
    w = np.eye(5)[0]
    t = np.maximum(Z @ w, 0.0)[:, None] + 0.5  # positive everywhere: its sign says nothing
    one = np.ones((1, 1))
    smooth = guesses.candidates(Z, t, one, 1.0, rng)[0] @ w
    plain = guesses.candidates(Z, t, one, 1e-9, rng)[0] @ w
    # E[sign(t + σ g) z] = E[(2Φ(t/σ) − 1) z] points along w, with an error of about √(5/n) over its length 0.3.
    assert smooth > 0.99
    assert abs(plain) < 0.9


@pytest.mark.usefixtures("steps_for_seconds")
def test_two_units_stay_two_whatever_the_noise() -> None:
    net = teacher(6, 2, 4, bias=0.0, random_state=3)
    X, Y = sample(net, 2_000, random_state=3)
    noises = dict(fixed_noises(Y, np.random.default_rng(3)))
    for name in ("constant offset", "bursts of 50 samples"):
        Z = Y + noises[name]
        result = recover(X, Z, 2, method="arbitrary_noise", bias=False, random_state=3, time_budget=5.0)
        assert result.network.n_hidden == 2, name
        assert result.certificate.verdict != "exact", name


def test_more_than_two_units_under_any_noise() -> None:
    """Three and four units: the greedy choice fits as well as the truth, within a tenth, in three of four networks."""
    for k in (3, 4):
        good = 0
        for seed in range(4):
            net = teacher(5, k, 5, kind="orthonormal", bias=0.0, random_state=seed)
            X, Y = sample(net, 2_000, random_state=seed)
            E = 0.3 * np.sign(np.random.default_rng(seed).standard_normal(Y.shape))
            options = guesses.GuessOptions(most=400, first=5)
            fit = guesses.arbitrary_noise(X, Y + E, k, np.random.default_rng(seed), options=options)
            good += fit.residual <= 1.1 * np.linalg.norm(E)
        assert good >= 3, k


def test_greedy_choice_is_the_best_of_all_pairs() -> None:
    rng = np.random.default_rng(0)
    for seed in range(10):
        H = np.maximum(rng.standard_normal((60, 12)), 0.0)
        Y = H[:, :2] @ rng.standard_normal((2, 3)) + 0.1 * rng.standard_normal((60, 3))
        G, C = H.T @ H, H.T @ Y
        chosen, compared = guesses._greedy_choice(G, C, 2, 12)
        assert sorted(chosen) == sorted(guesses._best_choice(G, C, 2)), seed
        assert compared >= 12


def test_the_printed_form_refuses_more_choices_than_it_is_given() -> None:
    net = teacher(5, 4, 5, bias=0.0, random_state=0)
    X, Y = sample(net, 500, random_state=0)
    e = estimate(X, Y, 4, method="arbitrary_noise", form="paper", bias=False, random_state=0)
    assert e.network is None
    assert "all choices of 4" in e.notes[0]
    e = estimate(X, Y, 1, method="arbitrary_noise", form="paper", bias=False, random_state=0)
    assert e.network is not None
