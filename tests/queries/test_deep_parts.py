"""The parts of the extraction of several layers, each against the mathematics it stands for."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from neurecover.exceptions import UnsolvableError
from neurecover.matching import compare
from neurecover.models import DeepNetwork, Network, parameters, with_parameters
from neurecover.queries.box.black_box import Box
from neurecover.queries.box.limits import EVERYWHERE
from neurecover.queries.deep.boundaries.ascent import feature_gradients, find_extreme_points, find_jointly_active
from neurecover.queries.deep.boundaries.boundary import start_boundary
from neurecover.queries.deep.boundaries.check import boundary_holds
from neurecover.queries.deep.boundaries.points import draw_points, find_boundary_points
from neurecover.queries.deep.boundaries.tracing import trace
from neurecover.queries.deep.cells import KnownLayers
from neurecover.queries.deep.fits.output import fit_output
from neurecover.queries.deep.fits.polish import choose_polishing_points, polish
from neurecover.queries.deep.fits.spare import find_spare_unit, without_unit
from neurecover.queries.deep.options import DeepOptions
from neurecover.queries.deep.signs import apply_signs, find_signs_by_moving, find_signs_from_above
from neurecover.queries.deep.span import find_gradient_span, lift
from neurecover.queries.shallow.extract import SeveralLayersError, extract_shallow
from neurecover.solve.deadline import Deadline


def he_network(widths: tuple[int, ...], seed: int) -> DeepNetwork:
    rng = np.random.default_rng(seed)
    layers = [
        (rng.standard_normal((k, d)) * np.sqrt(2.0 / d), 0.1 * rng.standard_normal(k))
        for d, k in itertools.pairwise(widths)
    ]
    return DeepNetwork(layers).normal_form()


def aligned(a: np.ndarray, b: np.ndarray) -> float:
    """The sine of the angle between two rows, up to sign."""
    a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
    return float(np.linalg.norm(a - np.copysign(1.0, a @ b) * b))


@pytest.mark.parametrize("open_layer", [False, True])
def test_features_are_affine_in_a_cell(open_layer):
    network = he_network((5, 4, 6, 3, 1), 0)
    known = KnownLayers(5, network.layers[:1], network.layers[1]) if open_layer else KnownLayers(5, network.layers[:2])
    X = draw_points(known, 50, np.random.default_rng(1))
    for x in X:
        cell = known.cell_at(x)
        assert np.allclose(cell.Phi @ x + cell.phi0, known.features(x[None])[0])
        assert np.allclose(cell.Q @ x + cell.q0, known.values(x[None])[0])


def boundary_of_unit(known: KnownLayers, theta: np.ndarray, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = draw_points(known, 200, rng)
    side = known.features(X) @ theta > 0.0
    low, high = X[~side][0], X[side][0]
    for _ in range(60):
        middle = 0.5 * (low + high)
        if known.features(middle[None])[0] @ theta > 0.0:
            high = middle
        else:
            low = middle
    return low


def test_tracing_reads_off_every_weight_behind_open_signs():
    # More units than inputs: no cell shows all weights at once, and the signs of the first layer are not known.
    network = he_network((5, 8, 6, 1), 3)
    flips = np.random.default_rng(0).choice([-1.0, 1.0], 8)
    (W, b), (V, c), _ = network.layers
    known = KnownLayers(5, (), (flips[:, None] * W, flips * b))
    rng = np.random.default_rng(1)
    traced = []
    for unit in range(6):
        # V relu(q) + c = ½ V|q| + ½ V q + c, and q = W x + b does not depend on the flips.
        theta = np.concatenate([0.5 * V[unit], 0.5 * V[unit] @ W, [c[unit] + 0.5 * V[unit] @ b]])
        x = boundary_of_unit(known, theta, unit)
        cell = known.cell_at(x)
        normal = cell.Phi.T @ theta
        box = Box(network, 5)
        sigma = known.options.least_slope
        normal /= np.linalg.norm(normal)
        boundary, gap = start_boundary(cell, x, normal, box.growth, sigma, 1e-12, known.options)
        assert gap < 10.0
        boundary = trace(box, known, boundary, x, rng)
        if boundary.complete:
            traced.append(boundary.theta)
            assert aligned(boundary.theta, theta) < 1e-6
    assert len(traced) >= 4
    signs = find_signs_from_above(known, np.array(traced))
    assert signs is not None
    assert np.array_equal(signs, flips)
    closed, T = apply_signs(known, signs)
    rows = np.array(traced) @ T.T
    assert np.allclose(closed.layers[0][0], W)
    assert min(aligned(rows[0], np.append(v, k)) for v, k in zip(V, c)) < 1e-6


def test_too_few_boundaries_do_not_settle_the_signs():
    rng = np.random.default_rng(0)
    known = KnownLayers(3, (), (rng.standard_normal((8, 3)), rng.standard_normal(8)))
    assert find_signs_from_above(known, rng.standard_normal((2, 12))) is None


def test_moving_one_unit_tells_its_sign_and_a_missing_unit_shows():
    network = he_network((6, 6, 6, 1), 5)
    W, b = network.layers[0]
    flips = np.random.default_rng(1).choice([-1.0, 1.0], 6)
    known, rows = KnownLayers(6), np.column_stack([W, b]) * flips[:, None]
    points = np.array([-b[i] * W[i] for i in range(6)])
    signs = find_signs_by_moving(Box(network, 6), known, rows, points, np.random.default_rng(2))
    assert signs.unanimous
    assert np.array_equal(signs.signs, flips)
    fewer = find_signs_by_moving(Box(network, 6), known, rows[:5], points[:5], np.random.default_rng(2))
    assert not fewer.unanimous


def test_output_fit_gives_signs_and_tells_a_missing_unit():
    network = he_network((5, 5, 6, 2), 4)
    known = KnownLayers(5, network.layers[:1])
    V, c = network.layers[1]
    flips = np.random.default_rng(1).choice([-1.0, 1.0], 6)
    rows = np.column_stack([V, c]) * flips[:, None]
    X = draw_points(known, 80, np.random.default_rng(2))
    on = (network.hidden(X)[1] > 0.0).sum(axis=0)
    assert on.min() > 4
    assert on.max() < 76
    output = fit_output(known, rows, X, network(X))
    assert output is not None
    assert np.allclose(output.network.layers[1][0], V)
    assert np.allclose(output.network.layers[2][0], network.layers[2][0])
    assert fit_output(known, rows[:-1], X, network(X)) is None


def test_a_weight_that_no_boundary_shows_is_read_off_the_straight_part():
    network = he_network((5, 5, 6, 2), 4)
    known = KnownLayers(5, network.layers[:1])
    V, c = (part.copy() for part in network.layers[1])
    # Unit 2 is on, far from its boundary, wherever unit 3 below is on.
    V[2, 3], c[2] = 50.0, 1.0
    changed = DeepNetwork([network.layers[0], (V, c), network.layers[2]])
    X = draw_points(known, 120, np.random.default_rng(2))
    h = known.hidden(X)
    X = X[(h[:, 3] == 0.0) | (h @ np.where(np.arange(5) == 3, 0.0, V[2]) + c[2] > 0.0)]
    rows, unseen = np.column_stack([V, c]), np.zeros((6, 6), dtype=bool)
    rows[2, 3], unseen[2, 3] = 0.0, True
    without = fit_output(known, rows, X, changed(X))
    output = fit_output(known, rows, X, changed(X), unseen)
    assert without is not None
    assert without.always_on
    assert output is not None
    assert output.always_on == 0
    # fit_output gives the rows it was told length one, without the weight that it was not.
    size = np.linalg.norm(rows[2, :-1])
    np.testing.assert_allclose(output.network.layers[1][0][2] * size, V[2], rtol=1e-8)


def test_a_boundary_holds_or_is_refuted_where_the_box_is_not_flat():
    network = he_network((8, 6, 5, 4, 1), 3)
    box, rng = Box(network, 8), np.random.default_rng(0)
    held = refuted = 0
    for layer in (1, 2):
        known = KnownLayers(8, network.layers[:layer])
        for row in np.column_stack(network.layers[layer]):
            where = find_boundary_points(known, row, 40, rng, np.zeros(8))
            moved = find_boundary_points(known, row + 0.1 * rng.standard_normal(len(row)), 40, rng, np.zeros(8))
            held += boundary_holds(box, where, np.zeros(len(where.points)))
            refuted += not boundary_holds(box, moved, np.zeros(len(moved.points)))
    assert held == 9
    assert refuted == 9


def test_polish_squares_the_error():
    network = he_network((5, 5, 4, 1), 7)
    rng = np.random.default_rng(3)
    rough = DeepNetwork([(W + 1e-7 * rng.standard_normal(W.shape), b) for W, b in network.layers])
    anchors = (np.array([-b * w for w, b in zip(*network.layers[0])]),)
    X = choose_polishing_points(rough, anchors, 200, rng, EVERYWHERE, DeepOptions())
    polished = polish(rough, X, network(X), DeepOptions(), Deadline())
    assert max(np.abs(V - W).max() for (V, _), (W, _) in zip(polished.network.layers, network.layers)) < 1e-11
    assert polished.errors(rough, np.zeros(9), DeepOptions(), np.random.default_rng(0), Deadline()).max() < 1e-11


def test_errors_say_when_no_answer_sees_a_weight():
    network = he_network((4, 4, 3, 1), 8)
    X = np.random.default_rng(0).standard_normal((400, 4))
    X = X[network.hidden(X)[0][:, 0] == 0.0]
    polished = polish(network, X, network(X), DeepOptions(), Deadline())
    assert polished.errors(network, np.zeros(7), DeepOptions(), np.random.default_rng(0), Deadline())[0] > 1e-6


def test_gradients_span_the_rows_and_rows_are_lifted():
    network = he_network((25, 4, 3, 1), 9)
    box, rng = Box(network, 25), np.random.default_rng(0)
    span = find_gradient_span(box, rng)
    basis = span.basis
    W = network.layers[0][0]
    assert basis.shape == (25, 4)
    assert np.abs(W - W @ basis @ basis.T).max() < 1e-7
    rough = DeepNetwork([(W @ basis, network.layers[0][1]), *network.layers[1:]])
    lifted, errors = lift(box, rough, span, rng)
    assert np.abs(lifted.layers[0][0] - W).max() < 1e-11
    assert np.all(np.linalg.norm(lifted.layers[0][0] - W, axis=1) < 5.0 * errors)


def test_points_on_a_boundary_lie_on_it():
    network = he_network((5, 7, 4, 1), 10)
    known = KnownLayers(5, network.layers[:1])
    theta = np.append(network.layers[1][0][0], network.layers[1][1][0])
    near = boundary_of_unit(known, theta, 0)
    where = find_boundary_points(known, theta, 30, np.random.default_rng(0), near)
    assert len(where.points) >= 20
    assert np.abs(known.features(where.points) @ theta).max() < 1e-9


def test_gradients_are_those_of_differences():
    known = KnownLayers(5, he_network((5, 6, 4, 1), 0).layers[:2])
    rng = np.random.default_rng(0)
    X, theta = rng.standard_normal((20, 5)), rng.standard_normal(5)
    steps = 1e-7 * np.eye(5)
    ahead = np.stack([(known.features(X + h) - known.features(X - h)) @ theta for h in steps], axis=1) / 2e-7
    np.testing.assert_allclose(feature_gradients(known, theta, X), ahead, atol=1e-6)


def a_rare_pair() -> tuple[KnownLayers, np.ndarray]:
    """A unit above that is on together with unit 0 of the layer below only in a corner of the inputs."""
    network = he_network((8, 8, 6, 1), 1)
    known = KnownLayers(8, network.layers[:1])
    X = draw_points(known, 4000, np.random.default_rng(0))
    H = known.hidden(X)
    w = np.append(-np.ones(8), 0.0)
    w[0], w[3] = 0.2, 1.5
    together = H @ w[:-1] / np.linalg.norm(X, axis=1)
    w[-1] = -float(np.quantile(together[H[:, 0] > 0.0], 0.999)) * 2.0
    return known, w


def test_units_are_brought_on_together_where_random_points_hardly_do():
    known, theta = a_rare_pair()
    rng = np.random.default_rng(1)
    X = draw_points(known, 400, rng)
    assert np.mean((known.features(X) @ theta > 0.0) & (known.hidden(X)[:, 0] > 0.0)) < 0.05
    found = find_jointly_active(known, theta, 0, X[0], rng)
    assert len(found) >= 10
    assert np.all(known.features(found) @ theta > 0.0)
    assert np.all(known.hidden(found)[:, 0] > 0.0)


@pytest.mark.parametrize(("seed", "layer", "unit"), [(2000, 4, 2), (2005, 3, 2)])
def test_extreme_points_switch_units_that_hardly_ever_change(seed: int, layer: int, unit: int):
    # Units of four hidden layers that one usual input in ten thousand switches.
    layers = he_network((20, 16, 12, 8, 4, 1), seed).layers
    known, row = KnownLayers(20, layers[: layer - 1]), np.column_stack(layers[layer - 1])[unit]
    rng = np.random.default_rng(0)
    usual = known.features(rng.standard_normal((20_000, 20))) @ row > 0.0
    rare = usual.mean() < 0.5
    extreme = known.features(find_extreme_points(known, 300, rng)) @ row > 0.0
    assert np.mean(usual == rare) < 5e-4
    assert np.mean(extreme == rare) > 5e-3


def test_one_layer_is_told_from_several():
    told = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        try:
            extract_shallow(
                Box(he_network((10, 10, 8, 1), seed), 10), maybe_deep=True, rng=rng, deadline=Deadline.after(None)
            )
        except SeveralLayersError:
            told += 1
        except UnsolvableError:
            pass
        (W, b), (A, c) = he_network((10, 10, 1), seed).layers
        box = Box(Network(W, b, A, c), 10)
        assert extract_shallow(box, maybe_deep=True, rng=rng, deadline=Deadline.after(None)).exact
    assert told >= 7


def test_many_weights_are_polished_by_products_and_their_errors_bound_what_is_left():
    truth = he_network((6, 8, 7, 2), 4)
    rng, options = np.random.default_rng(0), DeepOptions(formed=10)
    X = rng.standard_normal((900, 6)) * rng.choice([0.3, 1.0, 3.0], (900, 1))
    shifted = with_parameters(truth, parameters(truth) * (1.0 + 1e-7 * rng.standard_normal(truth.n_parameters)))
    polished = polish(shifted, X, truth(X), options, Deadline())
    assert not polished.formed
    before, after = (
        np.concatenate(
            [
                np.linalg.norm(np.column_stack(mine) - np.column_stack(own), axis=1)
                for mine, own in zip(network.normal_form().layers[:-1], truth.normal_form().layers[:-1])
            ]
        )
        for network in (shifted, polished.network)
    )
    # From 1e-7 to rounding times the condition of the equations; what the fit moved by is what was wrong before.
    assert after.max() < 1e-4 * before.max()
    errors = polished.errors(shifted, np.zeros(15), options, rng, Deadline())
    assert np.all(after <= errors)
    assert errors.max() < 1e-3 * before.max()
    # Without time for a twin they are what the fit moved by, or what was measured before.
    late = Deadline(0.0)
    np.testing.assert_allclose(polished.errors(shifted, np.zeros(15), options, rng, late), before, rtol=1e-2)
    assert polished.errors(shifted, np.full(15, 1e-3), options, rng, late).min() >= 1e-3


def test_gradients_that_gave_the_span_are_used_again_and_a_wrong_one_is_not():
    network = he_network((40, 6, 5, 1), 12)
    box, rng = Box(network, 40), np.random.default_rng(0)
    span = find_gradient_span(box, rng)
    W, b = network.layers[0]
    rough = DeepNetwork([(W @ span.basis, b), *network.layers[1:]])
    wrong = replace(span, jacobians=span.jacobians + np.eye(1, len(span.points))[0][:, None, None])
    for gradients in (span, wrong):
        before = box.queries
        assert np.abs(lift(box, rough, gradients, rng)[0].layers[0][0] - W).max() < 1e-10
        assert box.queries - before < (1.2 * 6 + 4) * 41  # as many cells as without them


@pytest.mark.parametrize("seed", range(3))
def test_errors_without_the_matrix_are_above_the_true_ones_and_show_what_no_answer_determines(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = he_network((6, 5, 4, 1), seed).normal_form()
    X = 2.0 * rng.standard_normal((2_000, 6))
    X = X[X @ truth.layers[0][0][0] + truth.layers[0][1][0] < 0.0]  # the first unit is off at every point
    options = replace(DeepOptions(), formed=0)
    theta = parameters(truth)
    start = with_parameters(truth, theta * (1.0 + 1e-5 * rng.standard_normal(len(theta))))
    polished = polish(start, X, truth(X), options, Deadline())
    errors = polished.errors(start, np.full(9, 1e-5), options, rng, Deadline())
    W, b = polished.network.normal_form().layers[0]
    true = np.linalg.norm(np.column_stack([W, b]) - np.column_stack(truth.layers[0]), axis=1)
    assert errors[0] > 1e-7  # no answer shows its weights
    assert np.all(true[1:] <= errors[1:5])
    assert errors[1:5].max() < 1e-9


@pytest.mark.parametrize("layer", [0, 1])
def test_a_unit_that_the_answers_neither_determine_nor_need_is_spare_and_no_other(layer: int) -> None:
    rng, options = np.random.default_rng(layer), DeepOptions()
    truth = he_network((6, 4, 3, 2), layer)
    X = rng.standard_normal((400, 6))
    layers = [list(pair) for pair in truth.layers]
    W, b = layers[layer]
    layers[layer] = [np.vstack([W, rng.standard_normal(W.shape[1])]), np.append(b, 0.1)]
    A, c = layers[layer + 1]
    layers[layer + 1] = [np.column_stack([A, np.zeros(len(A))]), c]
    larger = DeepNetwork([(W, b) for W, b in layers])

    def spare(network: DeepNetwork, open_rows: tuple[int, ...], rounding: float = 0.0) -> tuple[int, int] | None:
        Y = truth(X) + rounding * rng.standard_normal((len(X), 2))
        sizes = np.full(len(X), rounding) if rounding else None
        polished = polish(network, X, Y, options, Deadline(None), sizes, sizes is not None)
        errors = np.zeros(sum(network.n_hidden))
        errors[list(open_rows)] = np.inf
        found = find_spare_unit(polished, errors, X, Y, options, Deadline(None), sizes)
        if found is None:
            return None
        assert compare(found.fit.network, truth).weight_error < max(1e-9, 1e3 * rounding)
        return found.layer, found.unit

    added = 4 if layer == 0 else 7
    for rounding in (0.0, 1e-6):
        assert spare(larger, (added,), rounding) == (layer, truth.n_hidden[layer])
        assert spare(larger, (), rounding) is None
        assert spare(without_unit(larger, layer, truth.n_hidden[layer]), tuple(range(7)), rounding) is None
    assert spare(larger, tuple(range(8))) == (layer, truth.n_hidden[layer])
    assert spare(larger, tuple(i for i in range(8) if i != added)) is None
