"""The end of the way for a box whose answers are coarse: all units fitted at once to many answers.

Gradients taken from answers in float32 leave units with two or three digits, too few to solve for the signs. But the
planes with a free affine part,

    f(x) = L x + c + Σ_j J_j relu(w_j·x + b_j),

can be fitted to n answers by damped least squares as they are. That brings the errors down to the rounding of one
answer times √(parameters / n), and then the signs are solved for. Where that is possible every unit is asked for by
itself: `alone`. Last, the network without an affine part is fitted to all these answers, each weighted by its rounding,
which gives the error bars: `queries.weighted`. Where no lines show the units, samples may: `sampled`.

Two kinks too near each other on a line are taken for one of a unit that is not there. Such a unit has no kink on other
lines, so only units are believed that were seen on a second line.

The questions are rounded to float32 first, so that a box that works in float32 is asked what the model is fitted to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from neurecover.activations import Activation, get
from neurecover.data import ArraySource
from neurecover.exceptions import UnsolvableError
from neurecover.fit.descent import descend
from neurecover.fit.networks import one_layer, wide
from neurecover.fit.options import FitOptions
from neurecover.fit.samples import Samples
from neurecover.models import Network, Student
from neurecover.queries.alone import CAUTION, refine_alone
from neurecover.queries.box import Box
from neurecover.queries.lines import units_on_line
from neurecover.queries.planes import Planes, oriented
from neurecover.queries.sampled import network_from_samples
from neurecover.queries.scan import scan_line
from neurecover.queries.weighted import Weighted, fit_weighted
from neurecover.solve import Deadline

# Answers per parameter: many where they cost little time.
_FEWEST, _MOST, _WORK = 4.0, 100.0, 3e6
# A unit whose row is worse than this after the fit may be none.
_DOUBTFUL = 1e-3
# Planes this near each other, as unit rows with their biases, may be one.
_BESIDE = 0.1
_ITERATIONS = 60
_LINES, _AT_LEAST = 12, 3
# Answers coarser than this show no kinks along lines, and so many units are taken to be there.
_SHOWN, _GUESS = 1e-3, 8
_UNFIT = "Neither units found on lines nor those found from samples fit the answers to their rounding."
# From a start with all units in place the sum of squares falls to rounding in a few great leaps. A fit that gains less
# than this in two iterations is there, or will not get there.
_GAIN = 0.7
# Beyond so many parameters the weighted fit, of cost n P², is left out.
_PARAMETERS = 3_000
# The sum of squares of a fit at the level of rounding, in units of n (ρ·scale)².
_ROUNDING = 9.0


@dataclass(frozen=True, eq=False)
class CoarseNetwork:
    """The network and the errors (k,) to expect of its rows; `weighted` is the fit with error bars, if there is one."""

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
) -> CoarseNetwork:
    """The network behind a box with coarse answers; UnsolvableError where none fits them to rounding."""
    units = _Candidates.none(box)
    source: ArraySource | None = None
    most = 0
    for _ in range(_LINES if box.resolution <= _SHOWN else 0):
        if deadline.passed:
            raise UnsolvableError("The time was over before all units were found: give a larger time_budget.")
        line = scan_line(box, rng, farther)
        new = units_on_line(box, line.x, line.v, line.kinks, units.planes, rng=rng)
        units = units.after(new.seen, new.planes)
        tell("units", float(len(units.planes)))
        believed = _distinct(units.believed())
        most = max(most, len(line.kinks.positions))
        if units.lines == _AT_LEAST and most == 0:
            raise UnsolvableError("The box has no kinks along a line: it has no hidden units that could be seen.")
        if units.lines < _AT_LEAST or not new.explained.all() or len(believed) < most:
            continue
        source = source or sample(box, len(units.planes), rng)
        fitted, left = _fit_needed(box, source, believed, deadline)
        tell("fit", left)
        if is_rounding(box, left):
            network = oriented(fitted, activation, tolerance=1e-2)
            return _finished(box, source, network, fitted.error, rng, deadline)
    if farther > 1.0:
        raise UnsolvableError(_UNFIT)  # the samples would be the same
    source = source or sample(box, most or _GUESS, rng)
    network = network_from_samples(box, source, most, activation, rng, deadline)
    network, left = fit_network(source, network, deadline)
    tell("fit", left)
    if is_rounding(box, left):
        return _finished(box, source, network, np.full(network.n_hidden, np.inf), rng, deadline)
    raise UnsolvableError(_UNFIT)


def _finished(
    box: Box, source: ArraySource, network: Network, error: np.ndarray, rng: np.random.Generator, deadline: Deadline
) -> CoarseNetwork:
    """Every unit asked for by itself where that can be, and all answers fitted together."""
    alone = refine_alone(box, network, error, rng)
    X, Y = next(iter(source.blocks(source.count())))
    if alone is None:
        network = fit_network(source, network, deadline)[0]
    else:
        network, error = alone.network, alone.error
        X, Y = np.concatenate([X, alone.X]), np.concatenate([Y, alone.Y])
    weighted = None
    if network.n_parameters <= _PARAMETERS and not deadline.passed:
        kept = _once(network, X)
        weighted = fit_weighted(network, box.inputs(X[kept]), Y[kept], box.whitening)
    if weighted is None:
        return CoarseNetwork(network, error, None)
    return CoarseNetwork(weighted.fitted.normal_form(), weighted.errors_of_rows(), weighted)


def _once(network: Network, X: np.ndarray) -> np.ndarray:
    """The questions (n,) at which some unit shows, and one of those at which none does.

    The answers to the latter are all c, rounded the same way, and no more is known for there being many of them.
    """
    shows = np.any(network.activation.derivative(X @ network.W.T + network.b) != 0.0, axis=1)
    return np.union1d(np.flatnonzero(shows), np.flatnonzero(~shows)[:1])


@dataclass(frozen=True, eq=False)
class _Candidates:
    """Units, on how many lines after their own each had the chance to be seen, and on how many it was."""

    planes: Planes
    chances: np.ndarray
    seen: np.ndarray
    lines: int

    @classmethod
    def none(cls, box: Box) -> _Candidates:
        return cls(Planes.none(box.n_inputs, box.n_outputs), np.zeros(0), np.zeros(0), 0)

    def after(self, seen: np.ndarray, new: Planes) -> _Candidates:
        """With what another line showed."""
        zeros = np.zeros(len(new))
        return _Candidates(
            Planes.together([self.planes, new]),
            np.concatenate([self.chances + 1, zeros]),
            np.concatenate([self.seen + seen, zeros]),
            self.lines + 1,
        )

    def believed(self) -> Planes:
        """The units that were seen again, and those that had no chance to be."""
        return self.planes.take((self.seen > 0) | (self.chances == 0))


def _distinct(planes: Planes) -> Planes:
    """Of units in the same place, the one that is known best."""
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


def sample(box: Box, n_units: int, rng: np.random.Generator) -> ArraySource:
    """Questions x ~ N(0, I) and their answers, enough to fit so many units."""
    parameters = n_units * (box.n_inputs + 1 + box.n_outputs) + (box.n_inputs + 1) * box.n_outputs
    count = int(parameters * np.clip(_WORK / parameters**2, _FEWEST, _MOST)) // box.n_outputs + 64
    X = box.limits.drawn_in(rng.standard_normal((count, box.n_inputs)))
    X = box.seen(X.astype(np.float32).astype(float))
    return ArraySource(X, box(X))


def fit_planes(source: ArraySource, planes: Planes, deadline: Deadline) -> tuple[Planes, float]:
    """The planes fitted to the answers, and the root mean square of what is left over."""
    V = np.column_stack([planes.W, planes.b])
    readout = np.vstack([planes.J.T, planes.L.T, planes.c[None]])
    fitted, left = _fit(source, Student(get("relu"), V, readout, bias=True, affine=True), deadline)
    k, d = planes.W.shape
    size = np.linalg.norm(fitted.V[:, :d], axis=1)
    W, b = fitted.V[:, :d] / size[:, None], fitted.V[:, d] / size
    J, L, c = fitted.readout[:k].T * size, fitted.readout[k : k + d].T, fitted.readout[-1]
    # A unit's error is the rounding over how strongly n answers depend on it, half of which have it on.
    n = source.n_samples or 1
    error = CAUTION * left * np.sqrt(2.0 * d / n) / np.maximum(np.linalg.norm(J, axis=0), 1e-300)
    return Planes(W, b, J, L, c, error), left


def _fit_needed(box: Box, source: ArraySource, planes: Planes, deadline: Deadline) -> tuple[Planes, float]:
    """The planes fitted, without those that the answers do not need: a unit that is not there has nothing to do.

    A unit measured badly on two lines is taken for two, side by side, that share its jump; one in their middle does.
    """
    fitted, left = fit_planes(source, planes, deadline)
    for fewer_of in (_merged, lambda planes: planes.take(planes.error <= _DOUBTFUL)):
        fewer = fewer_of(fitted)
        if len(fewer) < len(fitted):
            refitted, left_by_fewer = fit_planes(source, fewer, deadline)
            if is_rounding(box, left_by_fewer) or not is_rounding(box, left):
                fitted, left = refitted, left_by_fewer
    return fitted, left


def _merged(planes: Planes) -> Planes:
    """Planes side by side as one with the sum of their jumps, in their middle by the size of these."""
    points = np.column_stack([planes.W, planes.b])
    size = np.linalg.norm(planes.J, axis=0)
    order = np.argsort(-size, kind="stable")
    W, b, J, kept = planes.W.copy(), planes.b.copy(), planes.J.copy(), np.ones(len(planes), dtype=bool)
    for i in order:
        sign = np.where(points @ points[i] >= 0.0, 1.0, -1.0)
        near = kept & (np.linalg.norm(sign[:, None] * points - points[i], axis=1) < _BESIDE)
        if not kept[i] or np.count_nonzero(near) == 1:
            continue
        middle = (sign * size * near) @ points / np.sum(size * near)
        length = np.linalg.norm(middle[:-1])
        W[i], b[i], J[:, i] = middle[:-1] / length, middle[-1] / length, planes.J[:, near].sum(axis=1)
        kept[near] = False
        kept[i] = True
    return replace(planes, W=W, b=b, J=J).take(kept)


def fit_network(source: ArraySource, network: Network, deadline: Deadline) -> tuple[Network, float]:
    """The network fitted to the answers, and the root mean square of what is left over."""
    V = np.column_stack([network.W, network.b])
    start = Student(network.activation, V, np.vstack([network.A.T, network.c[None]]), bias=True, affine=False)
    fitted, left = _fit(source, start, deadline)
    d = network.n_inputs
    return Network(fitted.V[:, :d], fitted.V[:, d], fitted.A, fitted.readout[-1], network.activation), left


def is_rounding(box: Box, left: float) -> bool:
    """Whether a root mean square is what the rounding of the answers to x ~ N(0, I) comes to."""
    return left < np.sqrt(_ROUNDING) * 2.0 * box.resolution * box.scale


def _fit(source: ArraySource, student: Student, deadline: Deadline) -> tuple[Student, float]:
    options = FitOptions(window=2, slow=_GAIN, max_steps=_ITERATIONS)
    fit = descend(Samples.of(source, student.bias), wide(student), options, deadline)
    return one_layer(fit.student), float(np.sqrt(fit.rss / fit.point.samples.n_equations))
