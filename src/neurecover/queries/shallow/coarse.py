"""One hidden layer from coarse answers: all units are fitted at once to many answers.

Gradients of answers in float32 give units to two or three digits, too few to solve for the signs. But the hyperplanes
with a free affine part,

    f(x) = L x + c + Σ_j J_j relu(w_j·x + b_j),

can be fitted to n answers by damped least squares. That reduces the errors to the rounding of one answer times
√(parameters / n), and then the signs can be solved for. If possible, every unit is then queried by itself
(`single_units`). Last, the network without an affine part is fitted to all these answers, each weighted by its
rounding, which gives the error bars (`queries.weighted`). If no line shows the units, random samples may
(`from_samples`).

Two kinks too close to each other on a line look like one kink of a unit that does not exist. Such a unit has no kink on
other lines, so only units that were seen on a second line are accepted.

The queries are rounded to float32 first, so that an oracle that works in float32 sees the inputs that the model is
fitted to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from neurecover.activations import Activation
from neurecover.data import ArraySource
from neurecover.exceptions import UnsolvableError
from neurecover.fit import FitOptions
from neurecover.fit.descent import descend
from neurecover.fit.samples import Samples
from neurecover.models import Network, as_network, as_student
from neurecover.queries.box.black_box import Box
from neurecover.queries.lines.scan import scan_line
from neurecover.queries.shallow.from_samples import fit_from_samples, n_search_answers
from neurecover.queries.shallow.line_units import find_units_on_line
from neurecover.queries.shallow.options import ShallowOptions
from neurecover.queries.shallow.planes import Planes, orient
from neurecover.queries.shallow.search import SeveralLayersError
from neurecover.queries.shallow.single_units import refine_single_units
from neurecover.queries.weighted import Weighted, fit_weighted
from neurecover.solve import Deadline


class UnseenError(UnsolvableError):
    """No unit was met on a second line, so that longer lines would not help."""


_ENDING = "Most hyperplanes end: on other lines they have no kink, as with several layers."
_UNFIT = "Neither units found on lines nor those found from samples fit the answers to their rounding."


@dataclass(frozen=True, eq=False)
class CoarseNetwork:
    """A network and the expected errors (k,) of its rows; `weighted` is the fit with error bars, if there is one."""

    network: Network
    errors: np.ndarray
    weighted: Weighted | None


def extract_coarse(
    box: Box,
    activation: Activation,
    rng: np.random.Generator,
    deadline: Deadline,
    farther: float,
    tell: Callable[[str, float], object],
    maybe_deep: bool = False,
) -> CoarseNetwork:
    """Find the network behind an oracle with coarse answers; raise UnsolvableError if none fits them to rounding.

    With `maybe_deep`, raise SeveralLayersError if most hyperplanes are not met again on later lines.
    """
    options = box.options.shallow
    maybe_deep = maybe_deep and box.resolution < options.ending_resolution
    if maybe_deep and box.n_inputs > options.slice_inputs and not box.limits:
        _look_at_slice(box, rng)
    units = _Candidates.empty(box)
    # Where kinks stand out over no way that is free of others, lines are not worth more than that.
    unseen = options.coarse_lines_unseen if box.crowding < 1.0 else options.coarse_lines_least
    source: ArraySource | None = None
    most = 0
    for _ in range(options.coarse_lines if box.resolution <= options.visible else 0):
        if deadline.passed:
            raise UnsolvableError("Time ran out before all units were found: give a larger time_budget.")
        line = scan_line(box, rng, farther)
        new = find_units_on_line(box, line.x, line.v, line.kinks, units.planes, rng=rng)
        units = units.with_line(new.seen, new.planes)
        tell("units", float(len(units.planes)))
        if maybe_deep and units.mostly_end(options.ending, options.ending_least):
            raise SeveralLayersError(_ENDING)
        confirmed = _drop_duplicates(units.confirmed())
        most = max(most, len(line.kinks.positions))
        if units.lines == options.coarse_lines_least and most == 0:
            raise UnsolvableError("The oracle has no kinks along a line, so no hidden unit is visible.")
        if units.lines == unseen and not units.seen.any():
            break  # as little as this is seen of one layer only where answers are too coarse for lines
        if units.lines < options.coarse_lines_least or not new.explained.all() or len(confirmed) < most:
            continue
        source = source or sample_answers(box, len(units.planes), rng)
        fitted, left = _fit_pruned(box, source, confirmed, deadline)
        tell("fit", left)
        if is_rounding(box, left):
            network = orient(fitted, activation, 1e-2).network
            return _finish(box, source, network, fitted.error, rng, deadline)
    if farther > 1.0:
        raise UnsolvableError(_UNFIT)  # the samples would be the same
    # No more answers than the search takes, before it has found anything.
    few = source or sample_answers(box, most or options.guess, rng, n_search_answers(box, most))
    try:
        network, left = fit_network(few, fit_from_samples(box, few, most, activation, rng, deadline), options, deadline)
        if source is None and is_rounding(box, left):
            source = sample_answers(box, most or options.guess, rng)
            network, left = fit_network(source, network, options, deadline)
    except UnsolvableError as error:
        raise (UnsolvableError if units.seen.any() else UnseenError)(str(error)) from None
    tell("fit", left)
    if source is not None and is_rounding(box, left):
        return _finish(box, source, network, np.full(network.n_hidden, np.inf), rng, deadline)
    raise (UnsolvableError if units.seen.any() else UnseenError)(_UNFIT)


def _look_at_slice(box: Box, rng: np.random.Generator) -> None:
    """Raise SeveralLayersError if most hyperplanes end on a slice of few dimensions, where gradients cost few queries.

    On x = S y a network has as many layers as before, and its inputs are y.
    """
    options, d = box.options.shallow, box.n_inputs
    S = np.linalg.qr(rng.standard_normal((d, options.slice_inputs)))[0] * np.sqrt(d / options.slice_inputs)
    across = Box(lambda Y: box(Y @ S.T), options.slice_inputs, options=box.options)
    units = _Candidates.empty(across)
    for _ in range(options.slice_lines):
        line = scan_line(across, rng)
        new = find_units_on_line(across, line.x, line.v, line.kinks, units.planes, rng=rng)
        units = units.with_line(new.seen, new.planes)
        if units.mostly_end(options.ending, options.ending_least):
            raise SeveralLayersError(_ENDING)


def _finish(
    box: Box, source: ArraySource, network: Network, error: np.ndarray, rng: np.random.Generator, deadline: Deadline
) -> CoarseNetwork:
    """Query every unit by itself if possible, fit all answers together, and return the network with its errors."""
    single = refine_single_units(box, network, error, rng)
    X, Y = next(iter(source.blocks(source.count())))
    if single is None:
        network = fit_network(source, network, box.options.shallow, deadline)[0]
    else:
        network, error = single.network, single.error
        X, Y = np.concatenate([X, single.X]), np.concatenate([Y, single.Y])
    weighted = None
    if network.n_parameters <= box.options.weighted_parameters and not deadline.passed:
        kept = _informative_rows(network, X)
        x = box.inputs(X[kept])
        weighted = fit_weighted(network, x, Y[kept], box.whitening, box.rounding, least=box.least_variances)
    if weighted is None:
        return CoarseNetwork(network, error, None)
    return CoarseNetwork(weighted.fitted.normal_form(), weighted.errors_of_rows(), weighted)


def _informative_rows(network: Network, X: np.ndarray) -> np.ndarray:
    """Return the indices of the queries at which some unit is active, and of one query at which none is.

    Answers without active units are all c with the same rounding, so that more of them say nothing more.
    """
    shows = np.any(network.activation.derivative(X @ network.W.T + network.b) != 0.0, axis=1)
    return np.union1d(np.flatnonzero(shows), np.flatnonzero(~shows)[:1])


@dataclass(frozen=True, eq=False)
class _Candidates:
    """Candidate units, with the numbers of later lines that should have shown each one, and of those that did."""

    planes: Planes
    chances: np.ndarray
    seen: np.ndarray
    lines: int

    @classmethod
    def empty(cls, box: Box) -> _Candidates:
        """Return no candidates."""
        return cls(Planes.empty(box.n_inputs, box.n_outputs), np.zeros(0), np.zeros(0), 0)

    def with_line(self, seen: np.ndarray, new: Planes) -> _Candidates:
        """Return the candidates after one more line, on which `seen` marks those that showed again and `new` ones were
        found.
        """
        zeros = np.zeros(len(new))
        return _Candidates(
            Planes.join([self.planes, new]),
            np.concatenate([self.chances + 1, zeros]),
            np.concatenate([self.seen + seen, zeros]),
            self.lines + 1,
        )

    def mostly_end(self, share: float, least: int) -> bool:
        """Return whether more than `share` of the units that a later line should show, and at least `least`, were not
        seen.
        """
        expected = self.chances > 0
        gone = int(np.count_nonzero(expected & (self.seen == 0)))
        return gone >= least and gone > share * int(np.count_nonzero(expected))

    def confirmed(self) -> Planes:
        """Return the units that were seen again, and those that no later line could have shown."""
        return self.planes.take((self.seen > 0) | (self.chances == 0))


def _drop_duplicates(planes: Planes) -> Planes:
    """Return the units, only the most accurate of those that share a place."""
    order = np.argsort(planes.error, kind="stable")
    points = np.column_stack([planes.W, planes.b])[order]
    error = planes.error[order]
    near = np.minimum(
        np.linalg.norm(points[:, None] - points, axis=2), np.linalg.norm(points[:, None] + points, axis=2)
    ) < 4.0 * (error[:, None] + error)
    keep: list[int] = []
    for i in range(len(order)):
        if not near[i, keep].any():
            keep.append(i)
    return planes.take(order[keep])


def sample_answers(box: Box, n_units: int, rng: np.random.Generator, count: int | None = None) -> ArraySource:
    """Query x ~ N(0, I) often enough to fit `n_units` units, or `count` times; return the samples."""
    options = box.options.shallow
    parameters = n_units * (box.n_inputs + 1 + box.n_outputs) + (box.n_inputs + 1) * box.n_outputs
    per_parameter = np.clip(options.answers_work / parameters**2, options.answers_least, options.answers_most)
    affordable = options.answers_share * box.affordable * box.n_outputs / parameters
    per_parameter = min(per_parameter, max(affordable, options.answers_least))
    count = count or int(parameters * per_parameter) // box.n_outputs + 64
    X = box.limits.pull_inside(rng.standard_normal((count, box.n_inputs)))
    X = box.round_queries(X.astype(np.float32).astype(float))
    Y = box(X)
    if box.rounding is None:
        return ArraySource(X, Y)
    # Answers of unequal rounding, each counted in units of its own.
    return ArraySource(X, Y, weight=(box.resolution * box.scale / box.noise(X, Y)) ** 2)


def fit_planes(
    source: ArraySource, planes: Planes, options: ShallowOptions, deadline: Deadline
) -> tuple[Planes, float]:
    """Fit the hyperplanes to the answers; return them and the root mean square of the residuals."""
    start = Network(planes.W, planes.b, planes.J, planes.c, C=planes.L)
    fitted, left = fit_network(source, start, options, deadline)
    d, size = fitted.n_inputs, np.linalg.norm(fitted.W, axis=1)
    J = fitted.A * size
    # The error of a unit is the rounding over how strongly n answers depend on it; it is active for half of them.
    n = source.n_samples or 1
    error = options.caution * left * np.sqrt(2.0 * d / n) / np.maximum(np.linalg.norm(J, axis=0), 1e-300)
    assert fitted.C is not None
    return Planes(fitted.W / size[:, None], fitted.b / size, J, fitted.C, fitted.c, error), left


def _fit_pruned(box: Box, source: ArraySource, planes: Planes, deadline: Deadline) -> tuple[Planes, float]:
    """Fit the hyperplanes without those that the answers do not need; return them and the root mean square residual.

    A unit measured badly on two lines appears as two neighbours that share its jump; one unit between them replaces
    both.
    """
    options = box.options.shallow
    fitted, left = fit_planes(source, planes, options, deadline)
    for prune in (_merge_neighbours, _drop_doubtful):
        fewer = prune(fitted, options)
        if len(fewer) < len(fitted):
            refitted, left_by_fewer = fit_planes(source, fewer, options, deadline)
            if is_rounding(box, left_by_fewer) or not is_rounding(box, left):
                fitted, left = refitted, left_by_fewer
    return fitted, left


def _drop_doubtful(planes: Planes, options: ShallowOptions) -> Planes:
    """Return the hyperplanes without those that are too inaccurate to exist."""
    return planes.take(planes.error <= options.doubtful)


def _merge_neighbours(planes: Planes, options: ShallowOptions) -> Planes:
    """Replace neighbouring hyperplanes by one with the sum of their jumps, at their mean weighted by these."""
    points = np.column_stack([planes.W, planes.b])
    size = np.linalg.norm(planes.J, axis=0)
    order = np.argsort(-size, kind="stable")
    W, b, J, kept = planes.W.copy(), planes.b.copy(), planes.J.copy(), np.ones(len(planes), dtype=bool)
    for i in order:
        sign = np.where(points @ points[i] >= 0.0, 1.0, -1.0)
        near = kept & (np.linalg.norm(sign[:, None] * points - points[i], axis=1) < options.neighbours)
        if not kept[i] or np.count_nonzero(near) == 1:
            continue
        middle = (sign * size * near) @ points / np.sum(size * near)
        length = np.linalg.norm(middle[:-1])
        W[i], b[i], J[:, i] = middle[:-1] / length, middle[-1] / length, planes.J[:, near].sum(axis=1)
        kept[near] = False
        kept[i] = True
    return replace(planes, W=W, b=b, J=J).take(kept)


def fit_network(
    source: ArraySource, network: Network, options: ShallowOptions, deadline: Deadline
) -> tuple[Network, float]:
    """Fit the network to the answers; return it and the root mean square of the residuals."""
    steps = FitOptions(window=2, slow=options.fit_gain, max_steps=options.fit_steps)
    fit = descend(Samples.of(source, True), as_student(network, True), steps, deadline)
    fitted = as_network(fit.student)
    assert isinstance(fitted, Network)
    return fitted, float(np.sqrt(fit.rss / fit.point.samples.n_equations))


def is_rounding(box: Box, left: float) -> bool:
    """Return whether a root mean square residual is explained by the rounding of the answers to x ~ N(0, I)."""
    options = box.options.shallow
    return left < np.sqrt(options.rounding) * 2.0 * box.resolution * box.scale
