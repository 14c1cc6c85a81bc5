"""The steps between kinks and weights: signs, lattices, well-centred points, joint fits."""

import numpy as np
import pytest

from neurecover.activations import get
from neurecover.exceptions import UnsolvableError
from neurecover.matching import compare
from neurecover.models import Network, replace_arrays
from neurecover.queries.box.black_box import Box
from neurecover.queries.box.gradients import draw_basis, measure_gradients
from neurecover.queries.box.regions import Regions
from neurecover.queries.lines.kinks import find_kinks
from neurecover.queries.lines.scan import scan_line
from neurecover.queries.shallow.centres import Centres, choose_clear_steps
from neurecover.queries.shallow.design import add_regions, expected_errors
from neurecover.queries.shallow.joint import measure_offsets, measure_output_weights, refine_jointly
from neurecover.queries.shallow.line_units import find_units_on_line, match_kinks
from neurecover.queries.shallow.options import ShallowOptions
from neurecover.queries.shallow.planes import Planes, orient, slopes_of
from neurecover.queries.shallow.single_units import refine_single_units
from query_networks import a_network, in_float32


def planes_of(network: Network, turned: np.ndarray) -> Planes:
    """The same function by its planes, with some of them the wrong way round."""
    normal = network.normal_form()
    alpha, kappa = slopes_of(normal.activation)
    sign = np.where(turned, -1.0, 1.0)
    # α z + κ relu(z), with z = −z′ for a plane turned round, is κ relu(z′) − (α + κ) z′.
    extra = normal.A * np.where(turned, -(alpha + kappa), alpha)
    W, b = sign[:, None] * normal.W, sign * normal.b
    return Planes(W, b, kappa * normal.A, extra @ W, normal.c + extra @ b, np.full(len(W), 1e-14))


@pytest.mark.parametrize("activation", ["relu", "leaky_relu(0.2)", "abs"])
@pytest.mark.parametrize(("d", "k", "p"), [(12, 9, 1), (6, 15, 2), (10, 22, 1)])
def test_signs_are_solved_for(activation: str, d: int, k: int, p: int):
    network = replace_arrays(a_network(2, d, k, p))
    network = Network(network.W, network.b, network.A, network.c, activation)
    rng = np.random.default_rng(0)
    planes = planes_of(network, rng.random(k) < 0.5)
    X = rng.standard_normal((50, d))
    np.testing.assert_allclose(planes(X), network(X), atol=1e-12)
    found = orient(planes, get(activation), 1e-8).network
    np.testing.assert_allclose(found(X), network(X), atol=1e-12)
    assert compare(found, network).weight_error < 1e-12


def test_an_affine_part_that_is_no_units_is_refused():
    planes = planes_of(a_network(2, 12, 9), np.zeros(9, dtype=bool))
    odd = Planes(planes.W, planes.b, planes.J, planes.L + 0.1, planes.c, planes.error)
    with pytest.raises(UnsolvableError, match="affine part"):
        orient(odd, get("relu"), 1e-6)
    with pytest.raises(ValueError, match="two linear pieces"):
        slopes_of(get("square"))


@pytest.mark.parametrize(("d", "k"), [(20, 12), (6, 14)])
def test_steps_from_centred_points_cross_no_plane(d: int, k: int):
    network = a_network(4, d, k).normal_form()
    rng = np.random.default_rng(0)
    points = Centres.around(Box(network, network.n_inputs), network, rng).draw(20, rng)
    basis = draw_basis(rng, d)
    steps = choose_clear_steps(Box(network, network.n_inputs), network, points, basis)
    there = points[:, None, :] + steps[:, :, None] * basis.T
    before = points @ network.W.T + network.b > 0
    after = there @ network.W.T + network.b > 0
    assert np.all(after == before[:, None, :])
    # They are farther from the planes than random points of the same length.
    random = rng.standard_normal((2000, d))
    random *= np.linalg.norm(points, axis=1).mean() / np.linalg.norm(random, axis=1, keepdims=True)
    margin, usual = (np.median(np.abs(X @ network.W.T + network.b).min(axis=1)) for X in (points, random))
    assert margin > 2 * usual


def test_patterns_can_be_chosen_where_rows_are_independent():
    network = a_network(4, 20, 12)
    rng = np.random.default_rng(0)
    active = rng.random((30, 12)) < 0.5
    points = Centres.around(Box(network, network.n_inputs), network, rng).at(active)
    np.testing.assert_array_equal(points @ network.W.T + network.b > 0, active)


def some_regions(box: Box, d: int, count: int) -> Regions:
    rng = np.random.default_rng(7)
    points = rng.standard_normal((count, d))
    return Regions.from_gradients(measure_gradients(box, points, draw_basis(rng, d), np.full(count, 1e-4), rng=rng))


@pytest.mark.parametrize("p", [1, 3])
def test_a_joint_fit_is_as_accurate_as_it_expects(p: int):
    d, k = 20, 12
    network = a_network(8, d, k, p).normal_form()
    rng = np.random.default_rng(3)
    box = Box(network, d)
    regions = some_regions(box, d, k)
    rough = replace_arrays(
        network, W=network.W + 1e-6 * rng.standard_normal((k, d)), b=network.b + 1e-6 * rng.standard_normal(k)
    )
    before = expected_errors(rough, regions)
    more = add_regions(box, rough, regions, 1e-11, 40, rng=rng)
    after = expected_errors(rough, more)
    assert before.max() > 1e-11 >= after.max()
    assert len(more) > len(regions)
    fitted = refine_jointly(rough, more).normal_form()
    errors = np.linalg.norm(fitted.W - network.W, axis=1)
    # Rounding is not Gaussian noise; a factor of four is for that.
    assert np.all(errors < 4 * after)
    assert np.abs(fitted.b - network.b).max() < 1e-10


def test_output_weights_are_measured_to_rounding():
    network = a_network(9, 20, 12, 4).normal_form()
    rng = np.random.default_rng(0)
    A = network.A * (1 + 1e-3 * rng.standard_normal(network.A.shape))
    rough = replace_arrays(network, A=A, W=network.W + 1e-7 * rng.standard_normal(network.W.shape))
    found = measure_output_weights(Box(network, 20), rough, rng)
    cosine = np.sum(found.A * network.A, axis=0) / np.linalg.norm(found.A, axis=0) / np.linalg.norm(network.A, axis=0)
    assert np.all(1 - cosine < 1e-14)


@pytest.mark.parametrize("seed", range(3))
def test_a_chain_tells_n_bad_units_by_n_and_one_regions(seed: int):
    d, k = 100, 50
    network = a_network(seed, d, k).normal_form()
    box, rng = Box(network, d), np.random.default_rng(seed)
    line = scan_line(box, rng)
    regions = find_units_on_line(box, line.x, line.v, line.kinks, Planes.empty(d, 1), rng=rng).regions
    errors = expected_errors(network, regions)
    accuracy = float(np.quantile(errors, 0.93))
    more = add_regions(box, network, regions, accuracy, 4 * k, rng=rng)
    assert len(more) - len(regions) <= np.count_nonzero(errors > accuracy) + 1
    assert expected_errors(network, more).max() <= accuracy


def test_offsets_are_measured_to_rounding():
    network = a_network(9, 200, 12, 2).normal_form()
    rng = np.random.default_rng(0)
    rough = replace_arrays(network, b=network.b + 1e-8 * rng.standard_normal(12), c=network.c + 1e-8)
    found = measure_offsets(Box(network, 200), rough, rng)
    # Answers of size one rounded to 2e-16, over the smallest output weight, by the safety of a few roundings.
    assert np.abs(found.b - network.b).max() < 50 * 2.2e-16 / np.linalg.norm(network.A, axis=0).min()
    assert np.abs(found.c - network.c).max() < 1e-13


def test_units_alone_are_sharper_in_float32():
    network = a_network(10, 30, 12)
    A = network.A.copy()
    A[0, 0] = 1e-3
    network = Network(network.W, network.b, A, network.c)
    rng = np.random.default_rng(0)
    rough = replace_arrays(network, W=network.W + 1e-4 * rng.standard_normal((12, 30)))
    alone = refine_single_units(Box(in_float32(network), 30), rough, np.full(12, 1e-3), rng)
    assert alone is not None
    comparison = compare(alone.network, network)
    assert comparison.weight_error < 4 * alone.error.max()
    # From answers rounded to 6e-8 of their own size, in 30 dimensions.
    assert alone.error.max() < 1e-5
    # The faintest unit is not the worst by the factor of a hundred that it is fainter by.
    assert alone.error[0] < 10 * np.median(alone.error)


def test_known_units_explain_their_kinks_and_no_others():
    network = a_network(11, 15, 10)
    planes = planes_of(network, np.zeros(10, dtype=bool))
    rng = np.random.default_rng(0)
    x, v = rng.standard_normal((2, 15))
    kinks = find_kinks(Box(network, 15), x, v, -1e4, 1e4)
    explained, seen = match_kinks(kinks, x, v, planes.take(np.arange(7)), ShallowOptions())
    assert np.count_nonzero(explained) == 7
    assert seen.all()
    moved = Planes(planes.W, planes.b + 0.05, planes.J, planes.L, planes.c, planes.error)
    explained, seen = match_kinks(kinks, x, v, moved, ShallowOptions())
    assert not explained.any()
    assert not seen.any()


def test_a_line_finds_the_units_that_are_not_known_yet():
    network = a_network(12, 15, 10, 2)
    known = planes_of(network, np.zeros(10, dtype=bool)).take(np.arange(6))
    rng = np.random.default_rng(0)
    x, v = rng.standard_normal((2, 15))
    box = Box(network, 15)
    kinks = find_kinks(box, x, v, -1e4, 1e4)
    line = find_units_on_line(box, x, v, kinks, known, rng=rng)
    assert line.explained.all()
    assert line.seen.all()
    normal = network.normal_form()
    found = np.abs(line.planes.W @ normal.W[6:].T)
    np.testing.assert_allclose(found.max(axis=0), 1.0, atol=1e-12)
    assert len(line.planes) == 4
