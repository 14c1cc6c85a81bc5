"""Signs: subsets that solve linear equations, skips that turn into signs, and what noise leaves open of them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neurecover.activations import get
from neurecover.fit.descent import PATIENT, descend
from neurecover.fit.samples import Samples
from neurecover.matching import compare
from neurecover.models import DeepNetwork, Network, as_network, as_student
from neurecover.models.signs import find_flips, find_subsets, flips_beside_others, nearest_subsets
from neurecover.models.student import Student
from neurecover.search import SearchOptions, Task
from neurecover.search.race import Setting
from neurecover.search.settle import best_of, count_signs, networks_behind, on_more, same_units, settle
from neurecover.search.turning import Turning
from neurecover.simulate import sign_ambiguous
from neurecover.solve import Deadline
from students import at, features, network

OPTIONS = SearchOptions()
CASES = [
    ((4, 4, 1), "relu", True, False),
    ((4, 5, 4, 1), "relu", True, False),
    ((4, 4, 3, 2), "leaky_relu(0.2)", False, False),
    ((4, 4, 3, 3, 2), "relu", True, False),
    ((4, 4, 2), "relu", True, True),
    ((4, 4, 3, 2), "relu", True, True),
]
every_case = pytest.mark.parametrize(("sizes", "activation", "bias", "affine"), CASES)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from([(3, 6, 1), (6, 3, 1), (2, 12, 1), (4, 24, 1), (3, 5, 2)]),
    st.floats(0.5, 1.5),
)
def test_planted_signs_are_found(seed: int, shape: tuple[int, int, int], slope: float) -> None:
    d, k, p = shape
    rng = np.random.default_rng(seed)
    W, A = rng.standard_normal((k, d)), rng.standard_normal((p, k))
    flips = rng.random(k) < 0.5
    linear = slope * np.einsum("oj,jd->od", A[:, flips], W[flips])
    search = find_flips(A, W, linear, slope, tolerance=1e-9)
    assert search.complete
    assert any((found == flips).all() for found in search.flips)
    assert search.misfit[0] < 1e-12


def test_every_equally_good_choice_of_signs_is_listed() -> None:
    net, other = sign_ambiguous(3, 5, random_state=0)
    search = find_flips(net.A, net.W, np.zeros((1, 3)), 1.0, tolerance=1e-9)
    assert len(search.flips) >= 2
    X = np.random.default_rng(0).standard_normal((100, 3))
    for flip in search.flips:
        turned = Network(np.where(flip[:, None], -net.W, net.W), None, net.A)
        np.testing.assert_allclose(turned(X), net(X), atol=1e-10)
    np.testing.assert_allclose(other(X), net(X), atol=1e-12)
    assert count_signs(as_student(net, True), False, OPTIONS.signs) == len(search.flips)


def test_the_nearest_subsets_are_in_order_and_the_first_is_the_best_of_all() -> None:
    rng = np.random.default_rng(0)
    columns, target = rng.standard_normal((3, 6)), rng.standard_normal(3)
    every = ((np.arange(64)[:, None] >> np.arange(6)) & 1).astype(bool)
    misfits = np.linalg.norm(every @ columns.T - target, axis=1)
    near = nearest_subsets(columns, target, 5)
    found = np.linalg.norm(near @ columns.T - target, axis=1)
    assert np.all(np.diff(found) >= 0.0)
    assert found[0] == pytest.approx(misfits.min())
    best = find_subsets(columns, columns @ every[37], 1e-9)
    assert best.misfit[0] < 1e-12


def test_signs_beside_a_unit_that_is_always_on() -> None:
    rng = np.random.default_rng(3)
    W, A = rng.standard_normal((4, 5)), rng.standard_normal((3, 4))
    flips, a, w = rng.random(4) < 0.5, rng.standard_normal(3), rng.standard_normal(5)
    linear = np.einsum("oj,jd->od", A[:, flips], W[flips]) + np.outer(a, w)
    found = flips_beside_others(A, W, linear, 1.0, 1e-6)
    assert found is not None
    np.testing.assert_array_equal(found[0], flips)
    np.testing.assert_allclose(found[1], np.outer(a, w), atol=1e-8)
    assert flips_beside_others(A, W, linear + rng.standard_normal((3, 5)), 1.0, 1e-6) is None
    assert flips_beside_others(A[:1], W, linear[:1], 1.0, 1e-6) is None  # anything is of rank one


def _turned(net: Network | DeepNetwork, flips: list[np.ndarray], bias: bool) -> Student:
    """The same function as a student with the given units turned round, and skips that make up for it."""
    student, slope = as_student(net, bias, skips=True), net.activation.odd_slope or 0.0
    V = [rows.copy() for rows in student.V]
    above = [*V[1:], student.theta.T.copy()]
    for layer, flip in enumerate(flips):
        start = student.n_base + student.own(layer).start
        below = V[layer].copy()
        for rows in above[layer:]:  # act(z) = act(−z) + m z
            rows[:, :start] += slope * rows[:, start : start + len(flip)][:, flip] @ below[flip]
        V[layer][flip] *= -1.0
        V[layer + 1 :] = above[layer:-1]
    return replace(student, V=tuple(V), theta=above[-1].T, affine=False)


@every_case
def test_skips_turn_into_signs(sizes: tuple[int, ...], activation: str, bias: bool, affine: bool) -> None:
    net, rng = network(sizes, 1, activation, bias, affine), np.random.default_rng(6)
    X = rng.standard_normal((300, 4))
    exact = Samples(features(X, bias), net(X), int(bias))
    for _ in range(4):
        flips = [rng.random(m) < 0.5 for m in sizes[1:-1]]
        student = _turned(net, flips, bias)
        np.testing.assert_allclose(student(features(X, bias)), net(X), atol=1e-10)
        found = networks_behind(at(exact, student), affine, OPTIONS.signs)[0]
        assert not found.skips
        assert found.affine == affine
        np.testing.assert_allclose(found(features(X, bias)), net(X), atol=1e-9)
        if not affine or len(sizes) > 3:  # with an affine term the signs of one layer are a convention
            assert len(networks_behind(at(exact, student), affine, OPTIONS.signs)) == 1
            assert compare(as_network(found), net).weight_error < 1e-9
    assert count_signs(as_student(net, bias), affine, OPTIONS.signs) == 1


def test_signs_that_are_open_are_counted() -> None:
    # The first layer's two units are opposite ways of one plane's complement: w₁ + w₂ = 0 for whatever reads both.
    net = DeepNetwork([([[1.0, 0.0], [-1.0, 0.0], [0.3, 1.0]], None), ([[1.0, 1.0, 0.5]], None), ([[2.0]], None)])
    assert count_signs(as_student(net, True), False, OPTIONS.signs) == 2
    smooth = network((3, 2, 1), activation="tanh")
    assert count_signs(as_student(smooth, True), False, OPTIONS.signs) == 1


def _noisy(net: Network | DeepNetwork, n: int, seed: int, noise: float = 0.05) -> tuple[Samples, np.random.Generator]:
    rng = np.random.default_rng([seed, 7])
    X = rng.standard_normal((n, net.n_inputs))
    Y = net(X)
    return Samples(features(X), Y + noise * Y.std(axis=0) * rng.standard_normal(Y.shape), 1), rng


def _setting(net: Network | DeepNetwork, seed: int = 0, affine: bool = False) -> Setting:
    task = Task(net.activation, net.n_inputs, net.n_outputs, 1, True, None, depth=net.depth, affine=affine)
    return Setting.plain(task, np.random.default_rng(seed), Deadline())


@pytest.mark.parametrize(
    ("sizes", "activation"), [((4, 4, 2), "relu"), ((4, 4, 2), "softplus"), ((4, 4, 3, 2), "relu")]
)
def test_the_signs_that_leave_least_of_the_skips_under_noise_are_the_right_ones(
    sizes: tuple[int, ...], activation: str
) -> None:
    right = 0
    for seed in range(6):
        net = network(sizes, seed, activation)
        samples, rng = _noisy(net, 2_500, seed)
        flips = [rng.random(m) < 0.5 for m in sizes[1:-1]]
        fit = descend(samples, _turned(net, flips, True), OPTIONS.fit, steps=30)
        found = networks_behind(fit.point, False, OPTIONS.signs)
        truth = as_student(net, True)
        first = descend(samples, found[0], OPTIONS.fit, slow=PATIENT)
        right += same_units(first, descend(samples, truth, OPTIONS.fit, slow=PATIENT), OPTIONS.signs)
    # A unit that is hardly ever off, or on, leaves its sign open.
    assert right >= 4


@every_case
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_a_student_settles_to_the_network(
    sizes: tuple[int, ...], activation: str, bias: bool, affine: bool, noise: float
) -> None:
    if not bias:
        return
    net = network(sizes, 1, activation, bias, affine)
    samples, rng = _noisy(net, 2_500, 0, noise)
    fit = descend(samples, _turned(net, [rng.random(m) < 0.5 for m in sizes[1:-1]], bias), OPTIONS.fit)
    settled = settle(fit, _setting(net, affine=affine))
    assert not settled.fit.student.skips
    assert settled.sign_choices >= 1
    found, X = as_network(settled.fit.student), samples.F[:, 1:]
    if noise:
        reference = descend(samples, as_student(net, bias), OPTIONS.fit, slow=PATIENT)
        assert settled.fit.rss <= reference.rss * (1.0 + 2.0 / samples.n_equations)
    else:
        assert settled.sign_choices == 1
        np.testing.assert_allclose(found(X), net(X), atol=1e-9)
    assert (found.C is not None) == affine


def test_networks_of_other_signs_that_do_as_well_are_rivals_and_the_same_ones_are_not() -> None:
    """A unit off in a handful of samples: either sign explains them as well as noise tells."""
    net = network((3, 3, 1), 2)
    samples, _ = _noisy(net, 600, 0, 0.3)
    setting = _setting(net)
    fit = descend(samples, as_student(net, True), OPTIONS.fit, slow=PATIENT)
    student = fit.student
    order = [2, 0, 1]
    same = replace(
        student, V=(3.0 * student.V[0][order],), theta=np.vstack([student.theta[:1], student.theta[1:][order] / 3.0])
    )
    other = replace(student, V=(-student.V[0],))
    again, turned = (descend(samples, one, OPTIONS.fit, steps=0) for one in (same, other))
    assert same_units(fit, again, OPTIONS.signs)
    assert not same_units(fit, turned, OPTIONS.signs)
    settled = best_of([fit, again, turned], setting)
    assert settled.fit in (fit, again)
    assert settled.rivals == ()
    assert settled.sign_choices == 1
    coarse = replace(samples, Y=samples.Y + 100.0 * np.random.default_rng(1).standard_normal(samples.Y.shape))
    doubtful = best_of([descend(coarse, one, OPTIONS.fit, steps=0) for one in (student, other)], setting)
    assert doubtful.sign_choices == 1 + len(doubtful.rivals)
    assert len(doubtful.rivals) == 1
    assert len(on_more(coarse, doubtful, setting).rivals) <= 1


def test_a_student_without_skips_is_settled_as_it_is() -> None:
    net = network((3, 3, 1), 2, "tanh")
    samples, _ = _noisy(net, 400, 0)
    fit = at(samples, as_student(net, True))
    settled = settle(descend(samples, fit.student, OPTIONS.fit, steps=1), _setting(net))
    assert settled.sign_choices == 1
    assert settled.fit.converged


def test_turned_rows_leave_out_no_input_of_an_affine_term() -> None:
    student = _turned(network((3, 2, 2), affine=True), [np.array([True, False])], True)
    kept = Turning.of(student, 0, affine=True)
    assert kept.target.size == 0
    assert kept.columns.shape == (0, 2)
    assert Turning.of(student, 0, affine=False).target.size == 6
    assert get("relu").odd_slope == 1.0


def test_skips_that_the_samples_leave_open_do_not_hide_the_signs() -> None:
    """A unit of layer two that is on wherever one of layer one is: the output may read the lower unit in its place.

    The student then has a direction without curvature, along which skips grow that no signs explain.
    """
    W1, b1 = np.array([[1.0, 0.2, 0.1], [0.1, -1.0, 0.4], [-0.3, 0.5, 0.9]]), np.array([0.2, -0.1, 0.3])
    W2, b2 = np.array([[-0.7, 0.6, 0.8], [2.0, 0.9, -0.7]]), np.array([0.1, 0.2])
    net = DeepNetwork([(W1, b1), (W2, b2), (np.array([[1.0, -1.5]]), np.array([0.3]))])
    X = np.random.default_rng(0).standard_normal((4_000, 3))
    low, high = net.preactivations(X)
    X = X[(low[:, 0] <= 0.0) | (high[:, 1] > 0.5)]
    samples = Samples(features(X), net(X), 1)
    student = _turned(net, [np.array([False, True, True]), np.array([True, False])], True)
    V, theta, lower, upper = student.V[1].copy(), student.theta.copy(), student.n_base, student.n_base + 3 + 1
    V[1, lower] += 0.4  # where the lower unit is on the upper one is too, so that its own output may make up for it
    theta[lower] -= 0.4 * theta[upper]
    fit = descend(samples, replace(student, V=(student.V[0], V), theta=theta), OPTIONS.fit, steps=0)
    assert fit.relative < 1e-25
    top = Turning.of(fit.student, 1, affine=False)
    assert find_subsets(top.columns, top.target, OPTIONS.signs.misfit).misfit[0] > 1e-3
    settled = settle(fit, _setting(net))
    assert settled.fit.relative < 1e-25
    assert compare(as_network(settled.fit.student), net).weight_error < 1e-9
