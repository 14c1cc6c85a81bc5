"""Units taken away and added: what they cost, what stays the same, and that the least useful go first."""

from dataclasses import replace

import numpy as np
import pytest

from neurecover.activations import get
from neurecover.fit import FitOptions
from neurecover.fit.point import Point
from neurecover.fit.samples import Samples
from neurecover.models import Network, as_student
from neurecover.models.student import Student
from neurecover.search.units import joined, most_useful, narrow, random_units, with_fresh, without, worth
from students import Shape, at, readout_columns, samples_of

SHAPES = [Shape("relu", (4,), p=2), Shape("leaky_relu(0.2)", (4, 3), p=2, bias=0), Shape("tanh", (4, 3, 3))]
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


def _point(student: Student, noise: float = 0.3, weighted: bool = False) -> Point:
    return at(samples_of(student, noise=noise, weighted=weighted), student)


@every_shape
@pytest.mark.parametrize("weighted", [False, True])
def test_the_cost_of_a_top_unit_is_what_the_best_readout_loses(shape: Shape, weighted: bool) -> None:
    point, top = _point(shape.student(), weighted=weighted), len(shape.widths) - 1
    worths = worth(point, top)
    cost, beta = worths.cost, worths.beta
    for unit in range(shape.widths[-1]):
        less = without(point.student, top, unit, beta[:, unit])
        assert less.widths[-1] == shape.widths[-1] - 1
        assert at(point.samples, less).loss - point.loss == pytest.approx(cost[unit], rel=1e-5)
        # What reads β in place of the unit is the best readout already.
        left = point.samples.weigh(point.samples.Y - less(point.samples.F))
        assert np.sum(left**2) == pytest.approx(point.loss + cost[unit], rel=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_cost_of_a_lower_unit_is_to_first_order_what_outputs_change_by(weighted: bool) -> None:
    """With an act of little curvature first order is all there is: the square of the change of outputs."""
    student = Shape("leaky_relu(0.999)", (4, 3), p=2).student()
    point = _point(student, weighted=weighted)
    worths = worth(point, 0)
    cost, beta = worths.cost, worths.beta
    for unit in range(4):
        less = without(point.student, 0, unit, beta[:, unit])
        change = point.samples.weigh(less(point.samples.F) - point.student(point.samples.F))
        assert np.sum(change**2) == pytest.approx(cost[unit], rel=0.05)


def _with_unit(student: Student, layer: int, row: np.ndarray) -> Student:
    """One more unit in a layer, read by everything above with random weights."""
    rng = np.random.default_rng(8)
    widths = tuple(m + (at_ == layer) for at_, m in enumerate(student.widths))
    grown = with_fresh(student, widths, lambda layer, count, columns: np.tile(row, (count, 1)))
    V, place = [rows.copy() for rows in grown.V], grown.n_base + grown.own(layer).stop - 1
    V[layer][-1] = row
    for above in range(layer + 1, grown.depth):
        V[above][:, place] = rng.standard_normal(len(V[above]))
    theta = grown.theta.copy()
    theta[place] = 1.0
    return replace(grown, V=tuple(V), theta=theta)


@pytest.mark.parametrize("shape", SHAPES[:2], ids=str)
@pytest.mark.parametrize("factor", [2.0, -0.5])
def test_a_unit_that_repeats_another_or_looks_the_other_way_goes_at_no_cost(shape: Shape, factor: float) -> None:
    student = shape.student()
    for layer in range(student.depth):
        spare = _with_unit(student, layer, factor * student.V[layer][1])
        samples = samples_of(spare)
        point = Point(samples, spare, at(samples, spare).options)
        worths = worth(point, layer)
        cost, beta = worths.cost, worths.beta
        unit, scale = int(np.argmin(cost)), float(np.sum(samples.Y**2))
        assert unit in (1, spare.widths[layer] - 1)
        # The ridge of 1e-13 per column shows where two of them are the same.
        assert cost[unit] < 1e-11 * scale
        assert np.sort(cost)[2] > 1e-6 * scale
        less = without(point.student, layer, unit, beta[:, unit])
        np.testing.assert_allclose(less(samples.F), samples.Y, atol=1e-6 * np.sqrt(scale / len(samples.F)))


def test_a_unit_that_is_on_for_every_sample_goes_at_no_cost() -> None:
    student = SHAPES[0].student()
    spare = _with_unit(student, 0, np.array([100.0, 1.0, 0.0, -1.0, 0.5]))
    point = _point(spare, noise=0.0)
    cost = worth(point, 0).cost
    assert int(np.argmin(cost)) == 4
    assert cost[4] < 1e-11 * point.samples.squares
    assert np.sort(cost)[1] > 1e-7 * point.samples.squares


@every_shape
def test_fresh_units_change_nothing_until_they_are_read(shape: Shape) -> None:
    student, rng = shape.student(), np.random.default_rng(0)
    F = samples_of(student).F
    grown = with_fresh(student, tuple(2 * m for m in shape.widths), random_units(rng, shape.bias))
    assert grown.widths == tuple(2 * m for m in shape.widths)
    np.testing.assert_allclose(grown(F), student(F), atol=1e-12)
    own = with_fresh(student, tuple(0 for _ in shape.widths), random_units(rng, shape.bias))
    assert own is student


def test_fresh_units_are_directions_of_unit_length_with_kinks_within_reach() -> None:
    V = random_units(np.random.default_rng(0), 1)(0, 500, 5)
    np.testing.assert_allclose(np.linalg.norm(V[:, 1:], axis=1), 1.0)
    without_bias = random_units(np.random.default_rng(0), 0)(0, 500, 4)
    np.testing.assert_allclose(np.linalg.norm(without_bias, axis=1), 1.0)


@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[2], Shape("tanh", (5,), skips=False)], ids=str)
def test_the_path_of_elimination_is_that_of_refitting_without_each_unit(shape: Shape) -> None:
    point = _point(shape.student())
    m = shape.widths[-1]
    none, path = most_useful(point, 0)
    assert none.widths[-1] == 0
    assert len(path) == m
    assert np.all(np.diff([point.loss, *path]) >= -1e-9)
    Y = point.samples.Y
    for gone in range(1, m + 1):
        few, short = most_useful(point, m - gone)
        np.testing.assert_allclose(short, path[:gone])
        B = readout_columns(few, point.samples.F)
        rss = float(np.sum((Y - B @ np.linalg.lstsq(B, Y, rcond=None)[0]) ** 2))
        assert path[gone - 1] == pytest.approx(rss, rel=1e-6)
        assert np.sum((Y - few(point.samples.F)) ** 2) == pytest.approx(rss, rel=1e-6)  # its readout is the best


def test_duplicate_and_dead_units_are_the_first_to_go() -> None:
    student = Shape("relu", (3,)).student()
    V = student.V[0]
    dead = np.array([-50.0, 0.1, 0.0, 0.0, 0.0])
    wide = replace(student, V=(np.vstack([V, V[:1], dead]),), theta=np.vstack([student.theta, [[0.5], [3.0]]]))
    samples = samples_of(student)
    point = at(samples, wide)
    few, path = most_useful(point, 3)
    # The ridge of 1e-13 per feature shows in the path where two features are the same.
    assert path[1] < 1e-10 * samples.squares
    assert most_useful(point, 2)[1][2] > 1e-5 * samples.squares
    np.testing.assert_allclose(few(samples.F), samples.Y, atol=1e-5)


@pytest.mark.parametrize("steps", [0, 4])
def test_narrowing_ends_at_the_widths_and_keeps_what_the_samples_came_from(steps: int) -> None:
    """A student with units to spare in every layer, all of them copies."""
    truth = Shape("relu", (3, 2)).student()
    wide = _with_unit(truth, 0, -2.0 * truth.V[0][2])
    wide = _with_unit(wide, 1, 0.5 * wide.V[1][0])
    point = _point(wide, noise=0.0)
    few, dearest = narrow(point, (3, 2), steps)
    assert few.student.widths == (3, 2)
    assert few.relative < 1e-15
    assert dearest < 1e-12 * point.scale
    fewer, costly = narrow(point, (2, 2), steps)
    assert fewer.student.widths == (2, 2)
    assert costly > 1e-6 * point.scale
    assert narrow(few, (3, 2))[0] is few


def test_narrowing_stops_descending_when_time_is_up_and_still_comes_to_the_widths() -> None:
    from neurecover.solve import Deadline

    student = Shape("relu", (5, 4)).student()
    samples = samples_of(student, noise=0.3)
    point = Point(samples, student, at(samples, student).options, Deadline.after(0.0))
    assert narrow(point, (2, 1), 50)[0].student.widths == (2, 1)


def test_out_of_time_copies_go_all_the_same_and_what_they_copy_stays() -> None:
    from neurecover.solve import Deadline

    truth = Shape("relu", (3, 2)).student()
    wide = _with_unit(_with_unit(truth, 0, -2.0 * truth.V[0][2]), 0, 0.7 * truth.V[0][1])
    wide = _with_unit(wide, 1, 0.5 * wide.V[1][0])
    samples = samples_of(wide)
    point = Point(samples, wide, at(samples, wide).options, Deadline.after(0.0))
    few, dearest = narrow(point, (3, 2))
    assert few.student.widths == (3, 2)
    assert few.relative < 1e-12
    assert dearest < 1e-11 * point.scale
    assert narrow(point, (2, 2))[1] > 1e-6 * point.scale


def test_a_unit_that_is_on_wherever_outputs_depend_on_it_goes_at_no_cost() -> None:
    """max(s, relu(z)) = s + relu(relu(z) − s): outputs depend on the lower unit only where the upper one is on, and
    there z > 0 in every sample, so that z may stand for relu(z)."""
    rng = np.random.default_rng(0)
    F = np.hstack([np.ones((3_000, 1)), rng.standard_normal((3_000, 3))])
    lower, s = np.array([0.1, 1.0, 0.3, -0.2]), np.array([0.2, -0.4, 0.1, 0.5])
    z, level = F @ lower, F @ s
    F = F[(np.maximum(z, 0.0) < level) | (z > 0.0)]
    V = (np.vstack([lower, [0.3, 0.2, -1.0, 0.4]]), np.append(-s, [1.0, 0.0])[None])
    theta = np.concatenate([s, [0.0, 0.7], [1.0]])[:, None]
    student = Student(get("relu"), V, theta, 4, 1)
    point = Point(Samples(F, student(F), 1), student, FitOptions())
    assert point.relative < 1e-25
    found = worth(point, 0)
    assert found.cost[0] < 10.0 * FitOptions().everywhere * point.scale  # what rows that do not count are given
    assert found.cost[1] > 1e-3 * point.scale
    narrower = without(point.student, 0, 0, found.beta[:, 0])
    assert Point(point.samples, narrower, FitOptions()).relative < 1e-12


@pytest.mark.parametrize("turned", [False, True])
def test_pieces_of_a_unit_are_one_again(turned: bool) -> None:
    """A unit in two pieces with the same gates, one of them the other way round beside skips: three units, not four."""
    rng = np.random.default_rng(0)
    F = np.hstack([np.ones((200, 1)), rng.standard_normal((200, 4))])
    network = Network(rng.standard_normal((3, 4)), rng.standard_normal(3), rng.standard_normal((2, 3)))
    student = as_student(network, True, skips=True)
    base, apart, (V,) = student.reads(1)[0], 1e-4 * rng.standard_normal(5), student.V
    theta, V = np.vstack([student.theta, 2.0 * student.theta[base + 1]]), np.vstack([V, (0.7 * V[1] - apart) / 2.0])
    V[1] = 0.3 * V[1] + apart
    if turned:
        theta[:base] += np.outer(V[3], theta[-1])
        V[3] = -V[3]
    pieces = replace(student, V=(V,), theta=theta)
    np.testing.assert_allclose(pieces(F), student(F), atol=1e-12)
    assert joined(pieces, F).widths == (3,)
    np.testing.assert_allclose(joined(pieces, F)(F), student(F), atol=1e-12)
    assert joined(student, F).widths == (3,)
