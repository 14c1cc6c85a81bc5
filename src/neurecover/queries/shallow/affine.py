"""Hyperplanes with an affine part that no choice of the units' signs explains.

In region r, with D_rj = 1 where w_j·x + b_j > 0 and 0 elsewhere,

    G_r = Σ_j D_rj J_j w_jᵀ + L,       f_r − G_r x_r = Σ_j D_rj J_j b_j + c,

linear in (W, L) and in (b, c). There are two reasons for an L that is not a sum of A_j w_jᵀ over some of the units: two
units with the same hyperplane and opposite directions (`opposite_units`), and units that are active in the whole range
in which the oracle may be queried. The sum of the latter is an affine function; one always-active unit per output
represents it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.activations import Activation
from neurecover.models import Network
from neurecover.queries.box.black_box import Box
from neurecover.queries.box.regions import Regions
from neurecover.queries.shallow.design import TYPICAL, add_regions
from neurecover.queries.shallow.joint import CORRECTIONS, measure_output_weights, solve_weighted
from neurecover.queries.shallow.planes import Planes, slopes_of


def refine_affine(
    box: Box, planes: Planes, regions: Regions, accuracy: float, rng: np.random.Generator
) -> tuple[Planes, Regions]:
    """Fit the hyperplanes and their affine part to the gradients of many regions; return both, with their errors."""
    options = box.options.shallow
    if box.n_outputs > 1:
        planes = _fit(_measure_jumps(box, planes, rng), regions)
        planes = _measure_jumps(box, planes, rng)
    most = int(np.ceil(options.regions * len(planes) / box.n_outputs)) + options.affine_regions
    regions = add_regions(box, _bending_part(planes), regions, accuracy, most, rng=rng)
    return _fit(planes, regions), regions


def _bending_part(planes: Planes) -> Network:
    """Return the hyperplanes as a network, without their affine part."""
    return Network(planes.W, planes.b, planes.J, None)


def _measure_jumps(box: Box, planes: Planes, rng: np.random.Generator) -> Planes:
    """Return the hyperplanes with the directions of their jumps measured."""
    return replace(planes, J=measure_output_weights(box, _bending_part(planes), rng).A)


def _fit(planes: Planes, regions: Regions) -> Planes:
    """Return the hyperplanes and the affine part that fit the regions best."""
    regions = regions.take(np.isfinite(regions.sigma))
    R, p, d = regions.gradients.shape
    k = len(planes)
    on = regions.points @ planes.W.T + planes.b > 0.0
    design = np.hstack([(on[:, None, :] * planes.J).reshape(R * p, k), np.tile(np.eye(p), (R, 1))])
    heavy, light = np.repeat(1.0 / regions.sigma, p), np.repeat(1.0 / regions.noise, p)
    rows, offsets = np.vstack([planes.W, planes.L]), np.append(planes.b, planes.c)
    for _ in range(CORRECTIONS):
        left = regions.gradients.reshape(R * p, d) - design @ rows
        rows = rows + solve_weighted(design, left, heavy)
        # Subtract the fitted slopes, which are more accurate than the measured ones.
        slopes = (design @ rows).reshape(R, p, d)
        left = regions.values - np.einsum("rpd,rd->rp", slopes, regions.points)
        offsets = offsets + solve_weighted(design, left.reshape(R * p, 1) - (design @ offsets)[:, None], light)[:, 0]
    size = np.linalg.norm(rows[:k], axis=1)
    inverse = np.linalg.pinv(design * heavy[:, None])
    error = TYPICAL * np.sqrt(d) * np.linalg.norm(inverse[:k], axis=1) / size
    W, b, J = rows[:k] / size[:, None], offsets[:k] / size, planes.J * size
    return Planes(W, b, J, rows[k:], offsets[k:], error)


@dataclass(frozen=True, eq=False)
class StraightUnits:
    """A network whose last `extra` units represent an affine part."""

    network: Network
    extra: int


def add_straight_units(box: Box, planes: Planes, activation: Activation) -> StraightUnits:
    """Return the hyperplanes as units in one direction each, and the affine part as units active in the whole range."""
    options = box.options.shallow
    alpha, kappa = slopes_of(activation)
    A = planes.J / kappa
    # act(z) = α z + κ relu(z), so that α z is subtracted again.
    L, c = planes.L - alpha * A @ planes.W, planes.c - alpha * A @ planes.b
    size = np.linalg.norm(L, axis=1)
    outputs = np.flatnonzero(size > options.negligible * np.linalg.norm(planes.J))
    V = L[outputs] / size[outputs, None]
    shift = 1.0 - box.limits.minimum(V)
    added = np.zeros((len(L), len(outputs)))
    right = alpha + kappa
    added[outputs, np.arange(len(outputs))] = size[outputs] / right
    network = Network(
        np.vstack([planes.W, V]),
        np.append(planes.b, shift),
        np.hstack([A, added]),
        c - right * added @ shift,
        activation,
    )
    return StraightUnits(network, len(outputs))
