"""The directions of the inputs that matter, if the first layer has fewer units than there are inputs.

Every gradient of the oracle is a combination of the first layer's rows, so gradients at random points span them all
once their rank r stops growing. In a basis B (d, r) of that span the oracle is f(B y), a network with r inputs, and all
further gradients cost r + 1 queries instead of d + 1. At the end, with the layers above known, the rows of W are found
in all d inputs: every gradient is

    g_c = Σ_j u_cj w_j,

with u_cj known, those that gave the span as well as others in well-chosen cells, with steps as long as the cell allows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.models import DeepNetwork
from neurecover.queries.box.black_box import Box
from neurecover.queries.box.gradients import Gradients, choose_steps, draw_basis, measure_gradients
from neurecover.queries.box.regions import Regions
from neurecover.queries.deep.cells import KnownLayers
from neurecover.queries.deep.options import DeepOptions


@dataclass(frozen=True, eq=False)
class Span:
    """An orthonormal `basis` (d, r), and the gradients that span it: `jacobians` (m, p, d) at `points` (m, d).

    `weight` (m,) is one over the rounding of their components.
    """

    basis: np.ndarray
    points: np.ndarray
    jacobians: np.ndarray
    weight: np.ndarray

    @classmethod
    def empty(cls, d: int, p: int) -> Span:
        return cls(np.zeros((d, 0)), np.zeros((0, d)), np.zeros((0, p, d)), np.zeros(0))

    @classmethod
    def of_regions(cls, regions: Regions, options: DeepOptions) -> Span:
        """Return the span of gradients that were measured for another purpose, those of little rounding first."""
        regions = regions.take(np.isfinite(regions.sigma))
        regions = regions.take(np.argsort(regions.sigma, kind="stable"))
        d = regions.points.shape[1]
        basis = np.zeros((d, 0))
        for gradient, sigma in zip(regions.gradients, regions.sigma):
            basis = _grow(basis, gradient, float(sigma) * np.sqrt(d), options)
        return cls(basis[:, :d], regions.points, regions.gradients, 1.0 / np.maximum(regions.sigma, 1e-300))

    @property
    def rank(self) -> int:
        """The number r of directions."""
        return self.basis.shape[1]

    def shows_directions(self, options: DeepOptions) -> bool:
        """Return whether the last gradient would show the direction of a usual unit, in spite of its rounding."""
        rounding = np.sqrt(2.0 * len(self.basis)) / self.weight[-1]
        return bool(options.new_direction * rounding < options.span_sight * np.linalg.norm(self.jacobians[-1], 2))

    def with_gradient(self, measured: Gradients, basis: np.ndarray) -> Span:
        """Return the span with one more gradient, and the basis that includes it."""
        return Span(
            basis,
            np.vstack([self.points, measured.points]),
            np.concatenate([self.jacobians, measured.full()]),
            np.append(self.weight, _weights(measured)),
        )


def find_gradient_span(box: Box, rng: np.random.Generator, before: Span | None = None) -> Span:
    """Find an orthonormal basis (d, r) of the span of the oracle's gradients; r = d if they span everything.

    Gradients are added to those `before` until a few in a row bring no new direction. Where the oracle is constant
    there is none to add. When answers are coarse, moves outside the span then show what these gradients have missed; a
    gradient whose rounding would hide a new direction says nothing, and after a few of them all of not too many inputs
    are taken.
    """
    options = box.options.deep
    d = box.n_inputs
    basis = draw_basis(rng, d)
    span = Span.empty(d, box.n_outputs) if before is None else before
    idle = flat = blind = 0
    while idle < options.spare_gradients and flat < options.flat and span.rank < d:
        X = box.limits.pull_inside(rng.standard_normal((1, d)) * rng.choice([0.5, 1.0, 3.0]), box.options.box.inside)
        u = rng.standard_normal((1, d))
        if np.array_equal(*box(np.vstack([X, X + 1e-3 * box.limits.shorten(X, u, 1e-3)]))):
            flat += 1
            continue
        grown = _with_gradient(box, span, X, basis, rng)
        if grown is None:
            flat += 1
            continue
        blind += grown.rank == span.rank and not grown.shows_directions(options)
        if blind == options.spare_gradients and d <= options.whole:
            return replace(grown, basis=np.eye(d))
        idle = 0 if grown.rank > span.rank else idle + grown.shows_directions(options)
        span = grown
        if idle == options.spare_gradients and span.rank < d and box.coarse:
            for x in _find_moved(box, span, rng):
                grown = _with_gradient(box, span, x[None], basis, rng)
                idle = 0 if grown is not None and grown.rank > span.rank else idle
                span = span if grown is None else grown
    return replace(span, basis=np.eye(d)) if span.rank >= d else span


def _with_gradient(box: Box, span: Span, X: np.ndarray, basis: np.ndarray, rng: np.random.Generator) -> Span | None:
    """Return the span with the gradient at X (1, d); None if that could not be measured."""
    options, d = box.options.deep, box.n_inputs
    steps, values = np.full(1, options.span_step * np.sqrt(d)), None
    if box.coarse or d >= options.span_many:
        values, longest = box(X), np.full(1, options.span_longest * np.sqrt(d))
        steps = choose_steps(box, X, values, basis, longest, rng=rng)
    measured = measure_gradients(box, X, basis, steps, rng=rng, values=values)
    if not measured.sound[0]:
        return None
    # What rounding leaves in a gradient of d components.
    rounding = float(measured.noise[0]) * np.sqrt(2.0 * np.sum(measured.steps[0] ** -2.0))
    return span.with_gradient(measured, _grow(span.basis, measured.full()[0], rounding, options))


def _find_moved(box: Box, span: Span, rng: np.random.Generator) -> np.ndarray:
    """Return the two ends (2, d) of the move outside the span that changes the answer most; None if no move changes it.

    A gradient is one of d + 1 queries and sees the units that are active at one point; a move is one of two.
    """
    options, (n, d) = box.options.deep, (box.options.deep.span_moves, box.n_inputs)
    X = rng.standard_normal((n, d)) * rng.choice([0.5, 1.0, 3.0], (n, 1))
    V = rng.standard_normal((n, d))
    V -= V @ span.basis @ span.basis.T
    ends = np.stack([X, X + V * (np.sqrt(d) / np.linalg.norm(V, axis=1, keepdims=True))])
    answers = box(ends.reshape(-1, d)).reshape(2, n, -1)
    moved = np.abs(answers[1] - answers[0]).max(axis=1)
    most = int(np.argmax(moved))
    return ends[:, most] if moved[most] > options.span_moved * box.growth else ends[:, 0][:0]


def _grow(basis: np.ndarray, jacobian: np.ndarray, rounding: float, options: DeepOptions) -> np.ndarray:
    """Return the basis (d, r) with the new directions of a gradient (p, d) that is known up to `rounding`.

    Directions are added in the order of their sizes, so that the remainder of a small one does not count as a new one.
    """
    _, sizes, directions = np.linalg.svd(jacobian, full_matrices=False)
    for size, u in zip(sizes, directions):
        rest = u - basis @ (basis.T @ u)
        rest -= basis @ (basis.T @ rest)
        if size > 0.0 and np.linalg.norm(rest) > max(options.rank, options.new_direction * rounding / size):
            basis = np.column_stack([basis, rest / np.linalg.norm(rest)])
    return basis


def lift(box: Box, network: DeepNetwork, span: Span, rng: np.random.Generator) -> tuple[DeepNetwork, np.ndarray]:
    """Return the network of y ↦ f(B y) as a network of x, with its first rows measured in all inputs, and their errors.

    The errors (k,) of the rows follow from how well the gradients agree; they are zero where none is left to compare.
    """
    options = box.options.deep
    (W, b), *above = network.layers
    rough = DeepNetwork([(W @ span.basis.T, b), *above])
    span = span if not box.coarse else Span.empty(box.n_inputs, box.n_outputs)
    known = _upper_gradients(rough, KnownLayers(rough.n_inputs, rough.layers[:-1]).values(span.points))
    # A cell that is not the expected one would spoil all rows.
    off = np.linalg.norm(known @ rough.layers[0][0] - span.jacobians, axis=(1, 2))
    sure = off <= options.exact * np.linalg.norm(span.jacobians, axis=(1, 2))
    U, gradients, weight = known[sure], span.jacobians[sure], span.weight[sure]
    share = options.lift_cells if len(U) > len(b) else options.lift_all_cells
    points, added = choose_cells(rough, int(share * len(b)) + 4, rng, weight[:, None, None] * U)
    if not len(points) and not len(U):
        return rough, np.zeros(len(b))
    if len(points):
        directions = draw_basis(rng, box.n_inputs)
        steps = np.array([_choose_steps(rough, x, directions) for x in points])
        measured = measure_gradients(box, points, directions, steps, rng=rng, check=False)
        U, gradients = np.concatenate([U, added]), np.concatenate([gradients, measured.full()])
        weight = np.append(weight, _weights(measured))
    # Longer steps give better gradients, so they have more weight.
    weight = np.repeat(weight / weight.max(), network.n_outputs)[:, None]
    columns, gradients = weight * U.reshape(-1, len(b)), weight * gradients.reshape(-1, box.n_inputs)
    rows = np.linalg.lstsq(columns, gradients, rcond=1e-12)[0]
    # Σ over the inputs of the variances of a row: s² (UᵀU)⁻¹ for every one, s² from what the fit leaves.
    left = float(np.sum((gradients - columns @ rows) ** 2)) / max(len(columns) - len(b), 1)
    spread = np.linalg.pinv(columns, rcond=1e-12)
    return DeepNetwork([(rows, b), *above]), np.sqrt(left) * np.linalg.norm(spread, axis=1)


def _weights(measured: Gradients) -> np.ndarray:
    """Return weights in proportion to the inverse rounding of the components of every gradient."""
    return np.asarray(np.abs(measured.steps).min(axis=1) / measured.noise)


def choose_cells(
    network: DeepNetwork, count: int, rng: np.random.Generator, before: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Choose points (c, d) deep inside their cells whose upper gradients u (c, p, k) determine every first-layer unit.

    Greedy: of many points, take the one that adds most of what the others, and those `before` (m, p, k), lack, as in a
    pivoted QR factorisation.
    """
    from scipy.linalg import qr

    known = KnownLayers(network.n_inputs, network.layers[:-1])
    X = rng.standard_normal((40 * count, network.n_inputs)) * rng.choice([0.5, 1.0, 3.0], (40 * count, 1))
    values = known.values(X)
    U = _upper_gradients(network, values)
    # The smallest |q| relative to the largest: how deep inside its cell a point lies.
    depth = np.abs(values).min(axis=1) / np.abs(values).max(axis=1)
    keep = np.argsort(-depth)[: 10 * count]
    flat = U[keep].reshape(len(keep), -1) if U.shape[1] == 1 else U[keep].sum(axis=1)
    lacking = np.eye(flat.shape[1])
    if len(before):
        # Units that the gradients before show well count less: u R⁻¹ for RᵀR = Σ u uᵀ.
        sizes, axes = np.linalg.svd(before.reshape(-1, before.shape[2]), full_matrices=True)[1:]
        sizes = np.maximum(np.append(sizes, np.zeros(len(axes) - len(sizes))), 1e-9 * sizes.max())
        lacking = axes.T / sizes * sizes.min()
    chosen: list[int] = []
    left = np.arange(len(keep))
    while len(chosen) < count and left.size:
        size = np.linalg.norm(flat[left], axis=1)
        size[size == 0.0] = 1.0
        weighted = flat[left] * (depth[keep[left]] / size)[:, None]
        order = qr((weighted @ lacking).T, mode="r", pivoting=True)[1][: min(len(flat[0]), count - len(chosen))]
        chosen.extend(left[order].tolist())
        left = np.delete(left, order)
    index = keep[np.array(chosen, dtype=int)]
    return X[index], U[index]


def _upper_gradients(network: DeepNetwork, values: np.ndarray) -> np.ndarray:
    """Return ∂f/∂q of the first layer's values q, (n, p, k₁), from all values (n, K) layer after layer."""
    A = network.layers[-1][0]
    G = np.broadcast_to(A, (len(values), *A.shape))
    stop = values.shape[1]
    for index in range(len(network.layers) - 2, -1, -1):
        k = len(network.layers[index][1])
        on = values[:, stop - k : stop] > 0.0
        G = G * on[:, None, :]
        stop -= k
        if index > 0:
            G = G @ network.layers[index][0]
    return G


def _choose_steps(network: DeepNetwork, x: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Return half the distance to the next unit along every direction, on the side where it is longer."""
    known = KnownLayers(network.n_inputs, network.layers[:-1])
    cell = known.cell_at(x)
    q, speeds = cell.Q @ x + cell.q0, cell.Q @ directions
    with np.errstate(divide="ignore", invalid="ignore"):
        ways = -q[:, None] / speeds
    forward = np.where(ways > 0.0, ways, np.inf).min(axis=0)
    backward = np.where(ways < 0.0, -ways, np.inf).min(axis=0)
    longest = 10.0 * (1.0 + float(np.linalg.norm(x)))
    return np.where(forward > backward, np.minimum(0.5 * forward, longest), -np.minimum(0.5 * backward, longest))
