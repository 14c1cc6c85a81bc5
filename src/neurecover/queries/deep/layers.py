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
from neurecover.models import DeepNetwork
from neurecover.queries.box.black_box import Box
from neurecover.queries.deep.bends import find_straight_units, is_straight
from neurecover.queries.deep.cells import KnownLayers
from neurecover.queries.deep.fits.answers import Answers
from neurecover.queries.deep.fits.fitting import Fit, fit_on_top
from neurecover.queries.deep.fits.output import Output, fit_output
from neurecover.queries.deep.fits.together import correct_together
from neurecover.queries.deep.fits.upper import find_last_layer
from neurecover.queries.deep.level import Level, add_unit, fill_unseen_weights, refine_rows, scan_parts, search_line
from neurecover.queries.deep.record import Record
from neurecover.queries.deep.signs import apply_signs, find_signs_by_moving, find_signs_from_above
from neurecover.solve.deadline import Deadline

Progress = Callable[[str, float], None]


class EmptyLayerError(UnsolvableError):
    """No unit of a layer was found."""


class NarrowSpanError(UnsolvableError):
    """The first layer has more units than directions that were taken to be all that its rows span."""


class OtherUnitsError(UnsolvableError):
    """The units of the first layer are not relu: `slope` is that of their left piece, the right one being 1."""

    def __init__(self, slope: float) -> None:
        super().__init__(
            f"The units of the first hidden layer have slopes in the ratio {slope:.6g}, as leaky_relu has, and there "
            "are several layers of them: chosen queries find several layers of relu alone."
        )
        self.slope = slope


@dataclass(frozen=True)
class Plan:
    """The widths and depth, if given, and the number of lines without a new unit after which a layer is closed.

    `independent` says that the inputs are the directions that the first layer's rows span.
    """

    n_hidden: tuple[int, ...] | None = None
    depth: int | None = None
    patience: int = 5
    deepest: int = 8
    independent: bool = False

    def width(self, number: int) -> int | None:
        """Return the width of hidden layer `number`, counted from 1; None if not given."""
        if self.n_hidden is None or number > len(self.n_hidden):
            return None
        return self.n_hidden[number - 1]

    def may_be_last(self, number: int) -> bool:
        """Return whether hidden layer `number` can be the last one."""
        return self.depth is None or number == self.depth


@dataclass(frozen=True, eq=False)
class Solution:
    """The network before polishing, and the levels it was found by, from the first layer up."""

    output: Output
    levels: tuple[Level, ...]

    @property
    def anchors(self) -> tuple[np.ndarray, ...]:
        """A point (k, d) of every unit's boundary, layer by layer."""
        return tuple(level.points for level in self.levels)

    @property
    def row_errors(self) -> np.ndarray:
        """The errors (k₁ + … + k_L,) of the measured rows: infinite for rows with unseen weights, zero for
        always-active units.
        """
        found = [np.zeros(k) for k in self.output.network.n_hidden]
        for level, errors in zip(self.levels, found):
            measured = np.where(level.unseen.any(axis=1), np.inf, level.errors)[: len(errors)]
            errors[: len(measured)] = measured
        return np.concatenate(found)


@dataclass(frozen=True, eq=False)
class Reached:
    """The hidden layers completed before the search ended, from the first up, and the errors of their rows (k_l,)."""

    layers: tuple[tuple[np.ndarray, np.ndarray], ...] = ()
    errors: tuple[np.ndarray, ...] = ()

    @property
    def rank(self) -> tuple[int, int]:
        """The number of layers and of their units, in this order, by which results are compared."""
        return len(self.layers), sum(len(b) for _, b in self.layers)

    def or_more(self, levels: list[Level]) -> Reached:
        """Return the completed layers of these levels, or those known so far if they are more."""
        layers = levels[-1].known.layers
        here = Reached(layers, tuple(level.errors for level in levels[: len(layers)]))
        return here if here.rank > self.rank else self


@dataclass(frozen=True, eq=False)
class Stage:
    """The level that was reached, and the whole network if that level was the last one."""

    level: Level
    output: Output | None


def solve_layers(box: Box, plan: Plan, rng: np.random.Generator, deadline: Deadline, tell: Progress) -> Solution:
    """Find the network of the oracle; raise UnsolvableError, with what was `Reached`, if some layer cannot be found."""
    levels = [Level(KnownLayers(box.n_inputs, limits=box.limits, options=box.options.deep), Record())]
    try:
        return _solve_upwards(box, levels, plan, rng, deadline, tell)
    except UnsolvableError as error:
        if not isinstance(error.reached, Reached):
            error.reached = Reached().or_more(levels)
        raise


def _solve_upwards(
    box: Box, levels: list[Level], plan: Plan, rng: np.random.Generator, deadline: Deadline, tell: Progress
) -> Solution:
    """Find layer after layer; `levels` are those found so far, in place, the last one being searched."""
    options, record = box.options.deep, levels[0].record
    answers, reached = Answers(box, rng), Reached()
    for _ in range(options.first_lines if box.coarse else 0):
        scan_parts(box, levels[0].known, record, rng)
    returns = barren = units_below = 0
    while True:
        number = len(levels)
        try:
            with box.counting(f"hidden layer {number}"):
                stage = _search_layer(box, levels[-1], plan, number, answers, rng, deadline)
        except UnsolvableError as error:
            # No unit above a layer is found while one of its own is missing: search it again.
            below = sum(level.n_units for level in levels[:-1])
            barren = barren + 1 if isinstance(error, EmptyLayerError) and below == units_below else 0
            units_below = below
            reached = reached.or_more(levels)
            ended = deadline.passed or returns >= options.returns or box.queries >= options.enough
            if number == 1 or ended or barren == options.empty_returns:
                error.reached = reached
                raise
            tell("back to hidden layer", number - 1.0)
            returns += 1
            levels.pop()
            continue
        missing = stage.level.missing
        if missing is not None:
            where = number - 1 - missing.down
            larger = add_unit(levels[where], missing.unit)
            returns += 1
            if (
                returns > options.returns
                or larger.n_units == levels[where].n_units
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
        with box.counting(f"hidden layer {number}"):
            refined = _drop_worst(box, refine_rows(box, stage.level, rng))
        if refined.n_units < stage.level.n_units and returns < options.returns:
            returns += 1
            levels[-1] = replace(refined, closed=True)
            continue
        with box.counting(f"hidden layer {number}"):
            # Where no layer above was found, one of these units may bend after all: more points tell.
            straight = _correct(box, _drop_bent(box, refined, rng, 1 + returns), rng)
            levels[-1] = replace(straight, closed=True)
            if number == (plan.depth or plan.deepest):
                raise UnsolvableError(f"No output layer fits on {number} hidden layers.")
            levels.append(_next_level(box, levels[-1], rng))


def _drop_bent(box: Box, level: Level, rng: np.random.Generator, times: int) -> Level:
    """Remove units that belong to a deeper layer and were admitted by mistake."""
    options = box.options.deep
    if not 1 < level.n_units <= options.few:
        return level
    return level.keep(find_straight_units(box, level, rng, times))


def _correct(box: Box, level: Level, rng: np.random.Generator) -> Level:
    """Correct the rows of all layers so far together, where those of this one rest on rows that are off."""
    options, known = box.options.deep, level.known
    n_weights = sum(W.size + b.size for W, b in known.layers) + level.theta.size
    off = max(known.error, float(np.median(level.errors))) if level.n_units else 0.0
    if box.coarse or known.unsigned is not None or len(known.layers) < 2 or n_weights > options.together:
        return level
    if off < options.inherited:
        return level
    return correct_together(box, level, rng)


def _drop_worst(box: Box, level: Level) -> Level:
    """Remove rows whose errors are far above those of the others and would spoil the layer above; they are searched
    again.
    """
    if level.n_units < 2:
        return level
    worst = max(box.options.deep.worst * float(np.median(level.errors)), 100.0 * box.resolution, box.options.deep.poor)
    return level.keep(level.errors <= worst)


def _next_level(box: Box, level: Level, rng: np.random.Generator) -> Level:
    """Return the empty level above this one."""
    return Level(_close(box, level, rng), level.record, below=level)


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
    fit, tried = Fit(), -1
    if box.coarse and number > 1 and not level.n_units and plan.may_be_last(number):
        stage = _sample_last_layer(level, answers, want, rng, deadline)
        if stage.output is not None:
            return stage
        level = stage.level
    sparing = want is None and not last and box.crowding < options.roomy
    while level.stale < plan.patience * (1 if sparing else options.lines_again):
        _require_time(level, number, deadline)
        level = _close_below(search_line(box, level, rng, None if fit.ends else want, fit.ends))
        if level.missing is not None:
            return Stage(level, None)
        if box.coarse and level.stale == needed and not fit.ends:
            # A row that is off lets no unit be moved by itself, and would keep lines coming for nothing.
            level = _drop_worst(box, refine_rows(box, level, rng))
        if plan.independent and number == 1 and level.n_units > box.n_inputs:
            raise NarrowSpanError(f"The gradients span {box.n_inputs} directions, too few for {level.n_units} units.")
        if plan.may_be_last(number) and level.known.unsigned is None and (_n_weights(level) > tried or fit.ends):
            fit = fit_on_top(level, answers, rng, fit if _n_weights(level) == tried else Fit(), deadline)
            tried = _n_weights(level)
            if fit.faint is not None:
                larger = add_unit(level, fit.faint.unit)
                if larger.n_units > level.n_units and fit.faint.complete:
                    return _of_samples(larger, fit.faint.network)
                level = larger
            if fit.output is not None and fit.ends is None:
                return _complete(box, level, answers, fit.output, rng)
        if fit.ends is not None or level.known.unsigned is not None or last:
            continue
        if level.n_units == want or (want is None and _is_consistent(box, level, needed, rng)):
            return Stage(level, None)
    if fit.output is not None and fit.exact:
        return Stage(level, fit.output)
    if last or level.known.unsigned is not None or level.n_units == 0:
        kind = UnsolvableError if level.n_units else EmptyLayerError
        raise kind(f"Hidden layer {number} is not complete: {level.n_units} units were found on {level.lines} lines.")
    return Stage(level, None)


def _sample_last_layer(
    level: Level, answers: Answers, want: int | None, rng: np.random.Generator, deadline: Deadline
) -> Stage:
    """Return the level with the units of the last hidden layer that samples show, and the whole network if these are
    all.
    """
    found = find_last_layer(level.known, answers, rng, deadline) if level.known.unsigned is None else None
    if found is None or (found.complete and want not in (None, len(found.units))):
        return Stage(level, None)
    if found.complete:
        return _of_samples(replace(level, units=found.units), found.network)
    for unit in found.units:
        level = add_unit(level, unit)
    return Stage(level, None)


def _require_time(level: Level, number: int, deadline: Deadline) -> None:
    """Raise UnsolvableError if time has run out."""
    if deadline.passed:
        raise UnsolvableError(
            f"Time ran out in hidden layer {number}, with {level.n_units} of its units found: give a larger "
            "time_budget."
        )


def _of_samples(level: Level, network: DeepNetwork) -> Stage:
    """Return the last level with the whole network, which reproduces all answers."""
    return Stage(level, Output(network, 0.0, 0, np.zeros((level.known.n_features - 1, network.n_outputs)), network))


def _complete(box: Box, level: Level, answers: Answers, output: Output, rng: np.random.Generator) -> Stage:
    """Return the last level with weights filled in that were unseen so far, and the output layer fitted again."""
    if not level.unseen.any():
        return Stage(level, output)
    level = fill_unseen_weights(box, level, rng)
    again = fit_output(level.known, level.theta, answers.X, answers.Y, level.unseen, answers.exact)
    return Stage(level, output if again is None or again.always_on > output.always_on else again)


def _n_weights(level: Level) -> int:
    """Return the number of weights found, which grows with every new unit and with every weight that is filled in."""
    return int(np.count_nonzero(~level.unseen))


def _close_below(level: Level) -> Level:
    """Give the layer below its signs as soon as the boundaries found determine them."""
    if level.known.unsigned is None or not level.n_units:
        return level
    signs = find_signs_from_above(level.known, level.theta)
    if signs is None:
        return level
    known, T = apply_signs(level.known, signs)
    least = known.options.least_slope
    units = tuple(
        replace(unit, boundary=unit.boundary.mapped(T, least), unseen=np.zeros(len(T), dtype=bool))
        for unit in level.units
    )
    return replace(level, known=known, units=units)


def _is_consistent(box: Box, level: Level, needed: int, rng: np.random.Generator) -> bool:
    """Return whether every unit can be moved by itself and is inactive on one side: then no unit is missing.

    It is not asked before as many lines as `needed` have brought no new unit.
    """
    if level.stale < needed or not 0 < level.n_units <= box.n_inputs:
        return False
    return find_signs_by_moving(box, level.known, level.theta, level.points, rng).unanimous


def _close(box: Box, level: Level, rng: np.random.Generator) -> KnownLayers:
    """Return the known layers with this one on top, with its signs if moving single units gives them."""
    theta = level.theta / np.linalg.norm(level.theta[:, :-1], axis=1, keepdims=True)
    W, b = theta[:, :-1], theta[:, -1]
    known = replace(level.known, errors=_carry_errors(level))
    if level.n_units <= box.n_inputs:
        signs = find_signs_by_moving(box, level.known, theta, level.points, rng)
        slope = None if level.known.layers else signs.find_slope(box.options.deep.slope_alike, 2 * level.n_units)
        if slope is not None:
            raise OtherUnitsError(slope)
        if signs.decided:
            s = signs.signs
            return replace(known, layers=(*known.layers, (s[:, None] * W, s * b)), unsigned=None)
    return replace(known, unsigned=(W, b))


def _carry_errors(level: Level) -> np.ndarray:
    """Return the errors (k,) of the level's values, from those of its rows and those of the values below."""
    rows = level.theta / np.linalg.norm(level.theta[:, :-1], axis=1, keepdims=True)
    below = level.known.errors
    return np.hypot(level.errors, np.linalg.norm(rows[:, : len(below)] * below, axis=1))
