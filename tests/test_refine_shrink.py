"""Merging, dropping and turning units: the function on the samples stays, the units become fewer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neurecover import simulate
from neurecover.activations import get
from neurecover.data import ArraySource, reduce
from neurecover.models import Student
from neurecover.refine.settling import as_network
from neurecover.refine.shrink import elimination_order, keep_units, merged
from neurecover.refine.signs import find_flips
from neurecover.statistics import ReadoutSums


def _student(V: np.ndarray, A: np.ndarray, affine: np.ndarray | None = None) -> Student:
    rows = [A.T] + ([] if affine is None else [affine.T]) + [np.zeros((1, len(A)))]
    return Student(get("relu"), V, np.vstack(rows), True, affine is not None)


def test_a_unit_in_pieces_becomes_one() -> None:
    rng = np.random.default_rng(0)
    v, other = rng.standard_normal((2, 5))
    pieces = np.array([v, v * 0.3, v * 2.0, other])
    A = rng.standard_normal((2, 1)) * np.array([[1.0, 2.0, -0.5, 0.0]]) + np.array([[0, 0, 0, 1.0], [0, 0, 0, -1.0]])
    student = _student(pieces, A)
    single = merged(student, 1e-3)
    assert single.n_hidden == 2
    X = rng.standard_normal((50, 4))
    np.testing.assert_allclose(single(X), student(X), atol=1e-12)


def test_units_that_look_the_other_way_are_one_up_to_an_affine_part() -> None:
    rng = np.random.default_rng(1)
    v = rng.standard_normal(4)
    student = _student(np.array([v, -v]), np.array([[1.5, 0.5]]), affine=np.zeros((1, 3)))
    single = merged(student, 1e-3)
    assert single.n_hidden == 1
    # 1.5 relu(z) + 0.5 relu(−z) = 2 relu(z) − 0.5 z: the difference is linear.
    X = rng.standard_normal((50, 3))
    design = np.hstack([X, np.ones((50, 1))])
    difference = student(X) - single(X)
    assert np.abs(difference - design @ np.linalg.lstsq(design, difference, rcond=None)[0]).max() < 1e-12


def test_without_an_affine_part_opposite_units_stay_apart() -> None:
    v = np.array([1.0, 2.0, 0.5])
    assert merged(_student(np.array([v, -v]), np.ones((1, 2))), 1e-3).n_hidden == 2


def test_the_elimination_path_is_that_of_refitting_without_each_unit() -> None:
    teacher = simulate.teacher(4, 5, 2, random_state=3)
    X, Y = simulate.sample(teacher, 300, noise=0.1, random_state=3)
    student = _student(np.hstack([teacher.W, teacher.b[:, None]]), teacher.A)
    order, path = elimination_order(ArraySource(X, Y), student)
    assert sorted(order) == list(range(5))
    for gone in range(1, 6):
        kept = np.sort(order[gone:])
        h = np.hstack([teacher.hidden(X)[:, kept], np.ones((300, 1))])
        rss = np.sum((Y - h @ np.linalg.lstsq(h, Y, rcond=None)[0]) ** 2)
        assert path[gone - 1] == pytest.approx(rss, rel=1e-8)


def test_duplicate_and_dead_units_cost_nothing_to_drop() -> None:
    rng = np.random.default_rng(2)
    V = rng.standard_normal((3, 5))
    V = np.vstack([V, V[0], [0, 0, 0, 0, -1.0]])
    X = rng.standard_normal((200, 4))
    Y = _student(V[:3], rng.standard_normal((1, 3)))(X)
    student = _student(V, np.array([[0.5, 1.0, 1.0, 0.5, 3.0]]))
    source = ArraySource(X, Y)
    order, path = elimination_order(source, student)
    # The ridge of 1e-13 per feature shows in the path where two features are the same.
    assert path[1] < 1e-10 * np.sum(Y**2)
    assert path[2] > 1e-3 * np.sum(Y**2)
    rest = keep_units(student, order[2:])
    assert float(reduce(source, ReadoutSums(rest)).n) == 200
    assert rest.n_hidden == 3


@settings(max_examples=40, deadline=None)
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
    net, other = simulate.sign_ambiguous(3, 5, random_state=0)
    search = find_flips(net.A, net.W, np.zeros((1, 3)), 1.0, tolerance=1e-9)
    assert len(search.flips) >= 2
    X = np.random.default_rng(0).standard_normal((100, 3))
    for flip in search.flips:
        turned = type(net)(np.where(flip[:, None], -net.W, net.W), None, net.A)
        np.testing.assert_allclose(turned(X), net(X), atol=1e-10)
    np.testing.assert_allclose(other(X), net(X), atol=1e-12)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu(0.3)"])
@pytest.mark.parametrize("p", [1, 3])
def test_a_student_with_an_affine_part_is_the_same_function_as_a_network(activation: str, p: int) -> None:
    rng = np.random.default_rng(4)
    V, readout = rng.standard_normal((4, 6)), rng.standard_normal((4 + 5 + 1, p))
    student = Student(get(activation), V, readout, True, True)
    X = rng.standard_normal((60, 5))
    network = as_network(student)
    np.testing.assert_allclose(network(X), student(X), atol=1e-11)
    assert network.n_hidden == 4 + 2 * min(p, 5)
