"""All weights at once, fitted to answers of the oracle by Gauss–Newton.

For y_n = f(x_n; θ) and residuals r_n = y_n − f(x_n; θ), each weighted by the size of its answer,

    (JᵀJ + λ D) δ = Jᵀr,    D = diag(JᵀJ).

Near the truth, with every sample in the right cell, f is smooth in θ and one step reduces an error e to about e². A
tiny λ fixes what no answer determines: the scale that may move from a unit's row to the column above it.

Up to some thousand weights JᵀJ is formed and factorised; beyond, the steps are those of `fit.descent`, by conjugate
gradients with products J v and Jᵀu, whose cost grows like the number of weights and not like its cube.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count

import numpy as np

from neurecover.fit import FitOptions
from neurecover.fit.descent import descend
from neurecover.fit.samples import Samples
from neurecover.models import DeepNetwork, as_network, as_student, with_constant
from neurecover.models.derivatives import free_directions, jacobian, parameters, with_parameters
from neurecover.queries.box.limits import Limits
from neurecover.queries.deep.boundaries.ascent import find_jointly_active
from neurecover.queries.deep.boundaries.points import draw_points, find_boundary_points
from neurecover.queries.deep.cells import KnownLayers
from neurecover.queries.deep.fits.output import answer_sizes
from neurecover.queries.deep.options import DeepOptions
from neurecover.solve import Damping, Deadline, DenseSystem, Loop, Tolerances

_BLOCK = 2**22  # numbers of a Jacobian in memory at a time: 32 MB


@dataclass(frozen=True, eq=False)
class Polished:
    """The best network of a fit and its residuals; `formed` says whether JᵀJ was formed as a matrix."""

    network: DeepNetwork
    formed: bool
    _end: _Point
    _least: float
    _ridge: float

    @property
    def loss(self) -> float:
        """Σ r² of the residuals relative to the answers' sizes."""
        return self._end.loss

    def errors(
        self,
        before: DeepNetwork,
        measured: np.ndarray,
        options: DeepOptions,
        rng: np.random.Generator,
        deadline: Deadline,
    ) -> np.ndarray:
        """Return the expected errors (k₁ + … + k_L,) of the hidden rows, layer after layer, of rows of length one.

        They follow from the residuals and (JᵀJ)⁻¹, and are large where the answers do not determine a weight. If JᵀJ is
        too large, they are at most those that the rows had before, as `measured` or as far as the fit moved, and at
        most those that the same fit makes in a network whose weights are known (`_errors_of_twin`).
        """
        if self.formed:
            return _row_errors(self._end, max(np.sqrt(self._end.loss / self._end.Y.size), self._least), self._ridge)
        bound = np.hypot(_row_distances(before, self.network), measured)
        return bound if deadline.passed else np.minimum(bound, _errors_of_twin(self._end, options, rng, deadline))


def polish(
    network: DeepNetwork,
    X: np.ndarray,
    Y: np.ndarray,
    options: DeepOptions,
    deadline: Deadline,
    sizes: np.ndarray | None = None,
    coarse: bool = False,
    steps: int | None = None,
) -> Polished:
    """Take a few Gauss–Newton steps from `network`, while they improve it; return the best network.

    Residuals are divided by `sizes` (n,), by default the sizes of the answers. With `coarse` answers the start is
    rough: there are more steps, damped at first, and the loss ends at rounding instead of at zero.
    """
    start = _Point(network.normal_form(), X, Y, 1.0 / (answer_sizes(Y) if sizes is None else sizes))
    if network.n_parameters > options.formed:
        return _polish_by_products(start, options, deadline, steps)
    if coarse:
        tolerances = Tolerances(rounding=1e-32, promise=options.gain_coarse, gain=options.gain_coarse)
        damping, least, most = Damping(options.damping, smallest=options.ridge_coarse), 1.0, options.polish_steps_coarse
    else:
        tolerances = Tolerances(rounding=1e-32, promise=options.promise, gain=options.gain)
        damping, least = Damping(options.ridge, smallest=options.ridge), float(np.finfo(float).eps)
        most = options.polish_steps
    end = Loop(start, tolerances, damping).advance(steps or most, deadline).point
    return Polished(end.network, True, end, least, options.ridge)


def _polish_by_products(start: _Point, options: DeepOptions, deadline: Deadline, steps: int | None) -> Polished:
    """Fit all weights by conjugate gradients, if that improves them."""
    samples = Samples(with_constant(start.X, True), start.Y, 1, start.weight[:, None])
    fit = descend(
        samples,
        as_student(start.network, True),
        FitOptions(),
        deadline,
        steps=steps or options.product_steps,
        target=options.product_rounding,
    )
    network = as_network(fit.student)
    assert isinstance(network, DeepNetwork)
    found = replace(start, network=network.normal_form())
    end = found if found.loss < start.loss else start
    return Polished(end.network, False, end, 0.0, options.ridge)


def _errors_of_twin(end: _Point, options: DeepOptions, rng: np.random.Generator, deadline: Deadline) -> np.ndarray:
    """Estimate the errors of the rows by fitting a network whose truth is known: θ + δ with a random δ, started at θ.

    Answers are computed at the same points. A weight that they do not determine keeps its δ as error. The residuals
    may be smaller than those of the oracle, whose answers are rounded elsewhere, and the draw is a single one: the
    errors are raised accordingly.
    """
    theta = parameters(end.network)
    delta = options.twin_moves * rng.standard_normal(len(theta)) / np.sqrt(end.network.n_inputs)
    truth = with_parameters(end.network, theta + delta)
    twin = _polish_by_products(replace(end, Y=truth(end.X)), options, deadline, None)
    larger = max(1.0, float(np.sqrt(end.loss / max(twin._end.loss, 1e-300))))
    return options.twin_margin * larger * _row_distances(truth, twin.network)


def _row_distances(one: DeepNetwork, other: DeepNetwork) -> np.ndarray:
    """Return how far apart the hidden rows (w, b) of two networks are in normal form, layer after layer."""
    pairs = zip(one.normal_form().layers[:-1], other.normal_form().layers[:-1])
    rows = [np.linalg.norm(np.column_stack([W, b]) - np.column_stack([V, a]), axis=1) for (W, b), (V, a) in pairs]
    return np.concatenate(rows)


@dataclass(frozen=True, eq=False)
class _Point:
    """A network in normal form with its residuals r, each weighted by 1/size of its answer; Σ r² is the loss."""

    network: DeepNetwork
    X: np.ndarray
    Y: np.ndarray
    weight: np.ndarray

    @cached_property
    def residual(self) -> np.ndarray:
        """The weighted residuals (n, p)."""
        return self.weight[:, None] * (self.Y - self.network(self.X))

    @cached_property
    def loss(self) -> float:
        """Σ r²."""
        return float(np.sum(self.residual**2))

    @property
    def scale(self) -> float:
        """The weighted Σ y²."""
        return float(np.sum((self.weight[:, None] * self.Y) ** 2))

    def system(self) -> DenseSystem:
        """Return the normal equations."""
        p = self.network.n_parameters
        matrix, right = np.zeros((p, p)), np.zeros(p)
        rows = max(1, _BLOCK // (p * self.network.n_outputs))
        for first in range(0, len(self.X), rows):
            part = slice(first, first + rows)
            J = (self.weight[part, None, None] * jacobian(self.network, self.X[part])).reshape(-1, p)
            matrix += J.T @ J
            right += J.T @ self.residual[part].ravel()
        diagonal = np.diag(matrix)
        return DenseSystem(matrix.T, right, np.where(diagonal > 0.0, diagonal, 1.0))  # symmetric, in Fortran order

    def moved(self, step: np.ndarray) -> _Point | None:
        """Return the point after a step; None if the step is not finite."""
        if not np.isfinite(step).all():
            return None
        return replace(self, network=with_parameters(self.network, parameters(self.network) + step).normal_form())


def _row_errors(end: _Point, noise: float, ridge: float) -> np.ndarray:
    """Return √Σ σ² (JᵀJ)⁻¹ over the weights of every row, leaving out the directions that do not change the function.

    For J with D δ = 0 along the free directions δ, (JᵀJ + δδᵀ)⁻¹ is the inverse on the others.
    """
    equations = end.system()
    scale = np.sqrt(equations.D)  # columns of J of unit length
    matrix = equations.S / (scale[:, None] * scale)
    free = free_directions(end.network) * scale[:, None]
    length = np.linalg.norm(free, axis=0)
    free = np.linalg.qr(free[:, length > 0.0] / length[length > 0.0])[0]
    beside = DenseSystem(matrix + free @ free.T, np.eye(len(free)), np.ones(len(free)))
    inverse = next(found for i in count() if (found := beside.solve(100.0**i * ridge)) is not None)
    spread = np.diag(inverse - free @ free.T)
    # A variance that only the ridge limits, or a zero column, belongs to a weight that no answer determines.
    seen = (spread < 0.01 / ridge) & (np.diag(matrix) > 0.0)
    variance = np.where(seen, noise**2 * np.maximum(spread, 0.0) / equations.D, np.inf)
    errors, first = [], 0
    for W, b in end.network.layers[:-1]:
        errors.append(np.sqrt(variance[first : first + W.size].reshape(W.shape).sum(axis=1)))
        first += W.size + b.size
    return np.concatenate(errors)


def choose_polishing_points(
    network: DeepNetwork,
    anchors: tuple[np.ndarray, ...],
    n: int,
    rng: np.random.Generator,
    limits: Limits,
    options: DeepOptions,
    errors: np.ndarray | None = None,
) -> np.ndarray:
    """Choose at least n points (·, d) so that every unit is active, and inactive, at more points than it has weights.

    anchors are points (k_l, d) on the units' boundaries, layer by layer. Random points come first. For a unit that is
    hardly ever active, or inactive, points beside its boundary are added; for one that is hardly ever active, or
    inactive, while a unit below is active, points where both are. `errors` are those of the first rows.
    """
    errors = np.zeros(0) if errors is None else errors
    first = KnownLayers(network.n_inputs, network.layers[:1], limits=limits, options=options, errors=errors)
    X = draw_points(first, n, rng)
    for number, points in enumerate(anchors):
        known = KnownLayers(network.n_inputs, network.layers[:number], limits=limits, options=options)
        theta = np.column_stack(network.layers[number])
        on = known.features(X) @ theta.T > 0.0
        needed = 3 * theta.shape[1]
        rare = np.minimum(on.sum(axis=0), (~on).sum(axis=0))[: len(points)]
        beside = [
            find_points_beside(known, theta[j], needed - rare[j], rng, points[j]) for j in np.flatnonzero(rare < needed)
        ]
        X = np.vstack([X, *beside])
        if number:
            X = np.vstack([X, *_find_pairs(known, theta[: len(points)], points, X, rng)])
    return X


def _find_pairs(
    known: KnownLayers, theta: np.ndarray, points: np.ndarray, X: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
    """Find points where a unit below is active and a unit of this layer is active, or inactive, for the pairs that X
    shows too rarely.

    A weight shows where the unit below is active, and it is told from the weights of other units if its own unit is
    active in some places and inactive in others.
    """
    options = known.options
    phi = known.features(X)
    found = []
    for side in (1.0, -1.0):
        counts = (side * (phi @ theta.T) > 0.0).T.astype(float) @ (phi[:, :-1] > 0.0)
        for j, i in np.argwhere(counts < options.paired)[: options.pairs]:
            start = find_jointly_active(known, side * theta[j], int(i), points[j], rng)

            def inside(X: np.ndarray, row: np.ndarray = side * theta[j], i: int = i) -> np.ndarray:
                phi = known.features(X)
                return (phi @ row > 0.0) & (phi[:, i] > 0.0) & known.limits.contains(X)

            found.append(_wander(inside, start[: 2 * options.paired], options.wanderings, rng))
    return found


def find_points_beside(
    known: KnownLayers, theta: np.ndarray, n: int, rng: np.random.Generator, x: np.ndarray
) -> np.ndarray:
    """Return 2 n points, half of them on either side of a boundary and spread out over that side."""
    where = find_boundary_points(known, theta, n, rng, x)
    way = np.minimum(0.5 * where.room, 0.3 * (1.0 + np.linalg.norm(where.points, axis=1)))
    shift = way[:, None] * where.normals
    inside = known.limits.contains
    above = _wander(
        lambda X: (known.features(X) @ theta > 0.0) & inside(X), where.points + shift, known.options.wanderings, rng
    )
    below = _wander(
        lambda X: (known.features(X) @ theta < 0.0) & inside(X), where.points - shift, known.options.wanderings, rng
    )
    return np.vstack([above, below])


def _wander(
    inside: Callable[[np.ndarray], np.ndarray], X: np.ndarray, steps: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the points X (n, d) after random steps of many lengths, each taken only if it ends inside."""
    for spread in rng.choice([0.03, 0.1, 0.3, 1.0], steps):
        size = spread * (1.0 + np.linalg.norm(X, axis=1, keepdims=True)) / np.sqrt(max(X.shape[1], 1))
        moved = X + size * rng.standard_normal(X.shape)
        X = np.where(inside(moved)[:, None], moved, X)
    return X
