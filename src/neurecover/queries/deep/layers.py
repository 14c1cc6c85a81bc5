"""Layer after layer, from the inputs up, until the output layer fits.

Lines are searched for units of the layer above the known ones. After every line with a new unit, an output layer is
fitted on top: if the fit is exact, the network is complete. Otherwise the layer is closed once lines bring no new unit
and, if its units can be moved one at a time, the resulting signs do not contradict each other. A layer with more units
than can be moved one at a time stays unsigned: its signs follow from the boundaries of the layer above it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from neurecover.exceptions import UnsolvableError
from neurecover.queries.box.black_box import Box
from neurecover.queries.deep.bends import find_straight_units, is_straight
from neurecover.queries.deep.boundaries.ascent import find_extreme_points
from neurecover.queries.deep.boundaries.points import draw_points
from neurecover.queries.deep.cells import KnownLayers
from neurecover.queries.deep.level import Level, add_unit, fill_unseen_weights, search_line
from neurecover.queries.deep.lines import draw_extreme_line
from neurecover.queries.deep.output import Output, find_failures, fit_output, n_answers_needed
from neurecover.queries.deep.polish import polish
from neurecover.queries.deep.signs import apply_signs, find_signs_by_moving, find_signs_from_above
from neurecover.solve.deadline import Deadline

Progress = Callable[[str, float], None]


class EmptyLayerError(UnsolvableError):
    """No unit of a layer was found."""


@dataclass(frozen=True)
class Plan:
    """The widths and depth, if given, and the number of lines without a new unit after which a layer is closed."""

    n_hidden: tuple[int, ...] | None = None
    depth: int | None = None
    patience: int = 5
    deepest: int = 8

    def width(self, number: int) -> int | None:
        """Return the width of hidden layer `number`, counted from 1; None if not given."""
        if self.n_hidden is None or number > len(self.n_hidden):
            return None
        return self.n_hidden[number - 1]

    def may_be_last(self, number: int) -> bool:
        """Return whether hidden layer `number` can be the last one."""
        return self.depth is None or number == self.depth


class Answers:
    """Random queries and their answers, made once and used for every fit."""

    def __init__(self, box: Box, rng: np.random.Generator) -> None:
        self._box, self._rng = box, rng
        self.X, self.Y = np.zeros((0, box.n_inputs)), np.zeros((0, box.n_outputs))
        self._extremes: set[int] = set()

    def ensure(self, n: int, known: KnownLayers) -> None:
        """Query random points until there are at least n answers."""
        missing = n - len(self.X)
        if missing > 0:
            self._add(draw_points(known, missing, self._rng))

    def ensure_extremes(self, n: int, known: KnownLayers) -> None:
        """Query n points where the values of the highest known layer are extreme, once for every such layer."""
        if known.layers and len(known.layers) not in self._extremes:
            self._extremes.add(len(known.layers))
            self._add(find_extreme_points(known, n, self._rng))

    def _add(self, X: np.ndarray) -> None:
        self.X, self.Y = np.vstack([self.X, X]), np.vstack([self.Y, self._box(X)])


@dataclass(frozen=True, eq=False)
class Solution:
    """The network before polishing, and the levels it was found by, from the first layer up."""

    output: Output
    levels: tuple[Level, ...]

    @property
    def anchors(self) -> tuple[np.ndarray, ...]:
        """A point (k, d) of every unit's boundary, layer by layer."""
        return tuple(level.points for level in self.levels)


@dataclass(frozen=True, eq=False)
class Stage:
    """The level that was reached, and the whole network if that was the last one."""

    level: Level
    output: Output | None


def solve_layers(box: Box, plan: Plan, rng: np.random.Generator, deadline: Deadline, tell: Progress) -> Solution:
    """Find the network of the oracle; raise UnsolvableError if some layer cannot be found."""
    options = box.options.deep
    answers = Answers(box, rng)
    levels = [Level.above(KnownLayers(box.n_inputs, limits=box.limits, options=box.options.deep))]
    returns = barren = units_below = 0
    while True:
        number = len(levels)
        try:
            stage = _search_layer(box, levels[-1], plan, number, answers, rng, deadline)
        except UnsolvableError as error:
            # No unit above a layer is found while one of its own is missing: search it again.
            below = sum(level.n_units for level in levels[:-1])
            barren = barren + 1 if isinstance(error, EmptyLayerError) and below == units_below else 0
            units_below = below
            if number == 1 or returns == options.returns or barren == options.empty_returns or deadline.passed:
                raise
            tell("back to hidden layer", number - 1.0)
            returns += 1
            levels.pop()
            continue
        missing = stage.level.missing
        if missing is not None:
            where = number - 1 - missing.down
            larger = add_unit(levels[where], missing.unit, missing.point)
            returns += 1
            if (
                returns > options.returns
                or larger.n_units == 1
                or not is_straight(box, larger, larger.n_units - 1, rng)
            ):
                levels[-1] = replace(stage.level, missing=None, below=None)
                continue
            tell("a unit turned up in hidden layer", where + 1.0)
            levels[where:] = [larger, _next_level(box, larger, rng)]
            continue
        tell(f"units of hidden layer {number}", float(stage.level.n_units))
        if stage.output is not None:
            return Solution(stage.output, tuple(level for level in (*levels[:-1], stage.level) if level.n_units))
        levels[-1] = replace(_drop_bent(box, stage.level, rng), closed=True)
        if number == (plan.depth or plan.deepest):
            raise UnsolvableError(f"No output layer fits on {number} hidden layers.")
        levels.append(_next_level(box, levels[-1], rng))


def _drop_bent(box: Box, level: Level, rng: np.random.Generator) -> Level:
    """Remove units that belong to a deeper layer and were admitted by mistake."""
    options = box.options.deep
    if not 1 < level.n_units <= options.few:
        return level
    straight = find_straight_units(box, level, rng)
    return replace(level, theta=level.theta[straight], points=level.points[straight], unseen=level.unseen[straight])


def _next_level(box: Box, level: Level, rng: np.random.Generator) -> Level:
    """Return the empty level above this one."""
    return replace(Level.above(_close(box, level, rng)), below=level)


def _search_layer(
    box: Box,
    level: Level,
    plan: Plan,
    number: int,
    answers: Answers,
    rng: np.random.Generator,
    deadline: Deadline,
) -> Stage:
    """Search lines until the layer is complete; return it, with the whole network if it is the last one."""
    options = box.options.deep
    want, last = plan.width(number), plan.depth == number
    needed = options.again if level.closed else 1
    level = replace(level, stale=0, closed=False)
    fit, tried = _Fit(), -1
    while level.stale < plan.patience * (1 if want is None and not last else 4):
        if deadline.passed:
            raise UnsolvableError(
                f"Time ran out in hidden layer {number}, with {level.n_units} of its units found: give a larger "
                "time_budget."
            )
        level = _close_below(search_line(box, level, rng, None if fit.ends else want, fit.ends))
        if level.missing is not None:
            return Stage(level, None)
        if plan.may_be_last(number) and level.known.unsigned is None and (_n_weights(level) > tried or fit.ends):
            fit = _fit_on_top(level, answers, rng, fit if _n_weights(level) == tried else _Fit(), deadline)
            tried = _n_weights(level)
            if fit.output is not None and fit.ends is None:
                return _complete(box, level, answers, fit.output, rng)
        if fit.ends is not None or level.known.unsigned is not None or last:
            continue
        if level.n_units == want or (want is None and level.stale >= needed and _is_consistent(box, level, rng)):
            return Stage(level, None)
    if fit.output is not None and fit.exact:
        return Stage(level, fit.output)
    if last or level.known.unsigned is not None or level.n_units == 0:
        kind = UnsolvableError if level.n_units else EmptyLayerError
        raise kind(f"Hidden layer {number} is not complete: {level.n_units} units were found on {level.lines} lines.")
    return Stage(level, None)


def _complete(box: Box, level: Level, answers: Answers, output: Output, rng: np.random.Generator) -> Stage:
    """Return the last level with weights filled in that were unseen so far, and the output layer fitted again."""
    if not level.unseen.any():
        return Stage(level, output)
    level = fill_unseen_weights(box, level, rng)
    again = fit_output(level.known, level.theta, answers.X, answers.Y, level.unseen)
    return Stage(level, output if again is None or again.always_on > output.always_on else again)


@dataclass(frozen=True, eq=False)
class _Fit:
    """An output layer that fits most answers, or all if `exact`; `ends` of a line that may cross a missing unit."""

    output: Output | None = None
    exact: bool = False
    ends: tuple[np.ndarray, np.ndarray] | None = None
    chases: int = 0


def _fit_on_top(level: Level, answers: Answers, rng: np.random.Generator, before: _Fit, deadline: Deadline) -> _Fit:
    """Fit the output layer on top of this level; return it if it fits at least most answers.

    A fit to few answers does not miss a unit that hardly ever changes. Further answers show it: those that the network
    does not reproduce lie on the other side of its boundary. If the network reproduces all, but only with units that
    are always active, lines are drawn to where these would change.
    """
    options = level.known.options
    known = level.known
    answers.ensure(n_answers_needed(known, level.n_units), known)
    output = fit_output(known, level.theta, answers.X, answers.Y, level.unseen)
    if output is None:
        return _Fit()
    answers.ensure(output.network.n_parameters // output.network.n_outputs + 100, known)
    answers.ensure_extremes(options.extremes, known)
    if output.always_on and level.unseen.any():
        # The unseen weight of an active unit looks like a unit that is always active.
        polished = polish(output.bare, answers.X, answers.Y, options, deadline).network
        if not find_failures(polished, answers.X, answers.Y, options.exact).any():
            return _Fit(Output(polished, output.residual, 0, np.zeros_like(output.rest), polished), True)
    wrong = find_failures(output.network, answers.X, answers.Y, options.exact)
    if wrong.any():
        # Weights measured where they hardly matter leave small errors although no unit is missing.
        polished = polish(output.network, answers.X, answers.Y, options, deadline).network
        if not find_failures(polished, answers.X, answers.Y, options.exact).any():
            output, wrong = replace(output, network=polished), np.zeros(len(wrong), dtype=bool)
    if 3 * np.count_nonzero(wrong) > len(wrong):
        return _Fit()
    if wrong.any():
        ends = answers.X[rng.choice(np.flatnonzero(~wrong))], answers.X[rng.choice(np.flatnonzero(wrong))]
        return _Fit(output, ends=ends)
    if output.always_on and before.chases < options.chases:
        slope = output.rest[:, int(np.abs(output.rest).sum(axis=0).argmax())]
        ends = draw_extreme_line(known, slope if before.chases % 2 else -slope, rng)
        return _Fit(output, True, ends, before.chases + 1)
    return _Fit(output, True)


def _n_weights(level: Level) -> int:
    """Return the number of weights found, which grows with every unit and every filled gap."""
    return int(np.count_nonzero(~level.unseen))


def _close_below(level: Level) -> Level:
    """Give the layer below its signs as soon as the boundaries found determine them."""
    if level.known.unsigned is None or not level.n_units:
        return level
    signs = find_signs_from_above(level.known, level.theta)
    if signs is None:
        return level
    known, theta = apply_signs(level.known, signs, level.theta)
    return replace(level, known=known, theta=theta, unseen=np.zeros(theta.shape, dtype=bool))


def _is_consistent(box: Box, level: Level, rng: np.random.Generator) -> bool:
    """Return whether every unit can be moved by itself and is inactive on one side: then no unit is missing."""
    if not 0 < level.n_units <= box.n_inputs:
        return False
    return find_signs_by_moving(box, level.known, level.theta, level.points, rng).unanimous


def _close(box: Box, level: Level, rng: np.random.Generator) -> KnownLayers:
    """Return the known layers with this one on top, with its signs if moving single units gives them."""
    theta = level.theta / np.linalg.norm(level.theta[:, :-1], axis=1, keepdims=True)
    W, b = theta[:, :-1], theta[:, -1]
    known = level.known
    if level.n_units <= box.n_inputs:
        signs = find_signs_by_moving(box, known, theta, level.points, rng)
        if signs.decided:
            s = signs.signs
            return replace(known, layers=(*known.layers, (s[:, None] * W, s * b)), unsigned=None)
    return replace(known, unsigned=(W, b))
