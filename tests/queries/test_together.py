"""Rows of several layers corrected together, and what is seen of a boundary before it is traced."""

import itertools

import numpy as np
import pytest

from neurecover.models import DeepNetwork
from neurecover.queries.box.black_box import Box
from neurecover.queries.deep.boundaries.boundary import Boundary, start_boundary
from neurecover.queries.deep.boundaries.nearby import holds_in_cell
from neurecover.queries.deep.boundaries.points import find_boundary_points
from neurecover.queries.deep.cells import KnownLayers
from neurecover.queries.deep.fits.together import correct_together
from neurecover.queries.deep.level import Level
from neurecover.queries.deep.record import Record
from neurecover.queries.deep.units import Unit

OFF = (1e-10, 1e-9, 1e-8)  # errors of the rows of the three layers, as they are measured one on top of the other


def deep_network(seed: int) -> DeepNetwork:
    rng = np.random.default_rng(seed)
    layers = [
        (rng.standard_normal((k, d)) * np.sqrt(2.0 / d), 0.1 * rng.standard_normal(k))
        for d, k in itertools.pairwise((6, 6, 6, 6, 1))
    ]
    return DeepNetwork(layers).normal_form()


def measured_levels(network: DeepNetwork, box: Box, rng: np.random.Generator) -> Level:
    """Return the third level, on top of two others, with all rows off by OFF."""
    below, layers = None, ()
    for (W, b), off in zip(network.layers, OFF):
        errors = np.zeros(0) if below is None else below.errors
        known = KnownLayers(6, layers, options=box.options.deep, errors=errors)
        units = []
        for row in np.column_stack([W, b]):
            row = row + off * rng.standard_normal(7) / np.sqrt(7.0)
            row /= np.linalg.norm(row[:-1])
            near = np.zeros(6)
            point = find_boundary_points(known, row, 20, rng, near).points[0]
            boundary = Boundary(np.eye(7) * np.sqrt(7.0) / off, row * np.sqrt(7.0) / off, 1.0, box.options.deep)
            units.append(Unit(boundary, np.zeros(7, dtype=bool), point))
        below = Level(known, Record(), tuple(units), below=below)
        layers = (*layers, (below.theta[:, :-1], below.theta[:, -1]))
    return below


def row_errors(network: DeepNetwork, level: Level) -> list[np.ndarray]:
    layers = (*level.known.layers, (level.theta[:, :-1], level.theta[:, -1]))
    return [np.linalg.norm(np.column_stack([V - W, c - b]), axis=1) for (W, b), (V, c) in zip(network.layers, layers)]


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_rows_of_all_layers_end_at_rounding_and_their_errors_are_said(seed: int) -> None:
    network, rng = deep_network(seed), np.random.default_rng(seed)
    box = Box(network, 6)
    level = measured_levels(network, box, rng)
    better = correct_together(box, level, rng)
    first, _, last = row_errors(network, better)
    assert first.max() < 1e-2 * OFF[0]
    # A unit whose boundary no answer shows keeps the error that it had.
    shown = better.errors < 1e-10
    assert shown.sum() >= 4
    assert np.all(last <= 6.0 * better.errors + 1e-13)


def test_a_row_that_no_kink_confirms_keeps_its_error() -> None:
    network, rng = deep_network(0), np.random.default_rng(0)
    box = Box(network, 6)
    level = measured_levels(network, box, rng)
    wrong = level.units[2].boundary
    turned = wrong.theta + 0.3 * rng.standard_normal(7)
    units = list(level.units)
    units[2] = Unit(Boundary(wrong.R, wrong.R @ turned, 1.0, box.options.deep), units[2].unseen, units[2].point)
    better = correct_together(box, Level(level.known, level.record, tuple(units), below=level.below), rng)
    assert better.errors[2] > 0.1 * OFF[2]


def test_a_deeper_boundary_ends_within_the_cell_of_the_known_units() -> None:
    network, rng = deep_network(1), np.random.default_rng(1)
    box = Box(network, 6)
    unknown, first = KnownLayers(6, options=box.options.deep), KnownLayers(6, network.layers[:1])
    held = []
    for number, known, (W, b) in ((1, unknown, network.layers[0]), (2, first, network.layers[1])):
        for theta in np.column_stack([W, b]):
            x = find_boundary_points(known, theta, 1, rng, np.zeros(6)).points[0]
            normal = known.cell_at(x).Phi.T @ theta
            normal /= np.linalg.norm(normal)
            boundary = start_boundary(unknown.cell_at(x), x, normal, 0.3, 1e-9, 1e-12, box.options.deep)[0]
            held.append((number, holds_in_cell(box, unknown, boundary, x, rng)))
    assert all(holds for number, holds in held if number == 1)
    assert sum(holds for number, holds in held if number == 2) <= 1
