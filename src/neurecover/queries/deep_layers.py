"""Layer after layer, from the inputs up, until the output layer fits.

Above what is known, lines are searched for units of the next layer. After every line that brought one, an output layer is
fitted on top: if the fit is exact, the network is complete. Otherwise the layer is closed once lines bring nothing new
and, where its units can be moved one at a time, the signs that this gives do not contradict each other. A layer with more units
than can be moved alone stays open: its signs come from the surfaces of the layer above it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from neurecover.exceptions import UnsolvableError
from neurecover.queries.box import Box
from neurecover.queries.deep_cells import Known
from neurecover.queries.deep_level import Level, search_line
from neurecover.queries.deep_output import Output, failures, fit_output, samples_wanted
from neurecover.queries.deep_points import random_points
from neurecover.queries.deep_signs import signs_by_moving, signs_from_above, with_signs
from neurecover.solve.deadline import Deadline

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What is told or assumed: widths and depth if known, and the lines without news after which a layer is closed."""

    n_hidden: tuple[int, ...] | None = None
    depth: int | None = None
    patience: int = 5
    deepest: int = 8

    def width(self, number: int) -> int | None:
        """The width of hidden layer `number`, counted from 1."""
        if self.n_hidden is None or number > len(self.n_hidden):
            return None
        return self.n_hidden[number - 1]

    def may_be_last(self, number: int) -> bool:
        return self.depth is None or number == self.depth


class Answers:
    """Random questions and their answers, asked once and used for every fit."""

    def __init__(self, box: Box, rng: np.random.Generator) -> None:
        self._box, self._rng = box, rng
        self.X, self.Y = np.zeros((0, box.n_inputs)), np.zeros((0, box.n_outputs))

    def at_least(self, n: int, known: Known) -> None:
        missing = n - len(self.X)
        if missing > 0:
            X = random_points(known, missing, self._rng)
            self.X, self.Y = np.vstack([self.X, X]), np.vstack([self.Y, self._box(X)])


@dataclass(frozen=True, eq=False)
class Stage:
    """The level that was reached, and the whole network if that was the last one."""

    level: Level
    output: Output | None


def solve_layers(
    box: Box, plan: Plan, rng: np.random.Generator, deadline: Deadline, tell: Progress, first: Level | None = None
) -> tuple[Output, Level]:
    """The network of the box, and its first level; UnsolvableError where some layer cannot be found.

    `first` are units of the first layer that are known from before.
    """
    known, answers = Known(box.n_inputs), Answers(box, rng)
    for number in range(1, (plan.depth or plan.deepest) + 1):
        level = first if number == 1 and first is not None else Level.above(known)
        stage = _search(box, level, plan, number, answers, rng, deadline)
        tell(f"layer {number}: {stage.level.n_units} units after {stage.level.lines} lines")
        first = stage.level if number == 1 else first
        if stage.output is not None:
            assert first is not None
            return stage.output, first
        known = _closed(box, stage.level, rng)
    raise UnsolvableError(f"No output layer fits on {plan.depth or plan.deepest} hidden layers.")


def _search(
    box: Box,
    level: Level,
    plan: Plan,
    number: int,
    answers: Answers,
    rng: np.random.Generator,
    deadline: Deadline,
) -> Stage:
    """Lines until the layer is complete."""
    want, tried, last = plan.width(number), -1, plan.depth == number
    level = replace(level, stale=0)
    ends: tuple[np.ndarray, np.ndarray] | None = None
    while level.stale < plan.patience * (1 if want is None and not last else 4):
        if deadline.passed:
            raise UnsolvableError(f"Time ran out in hidden layer {number}, with {level.n_units} of its units found.")
        level = _signed(search_line(box, level, rng, None if ends else want, ends))
        if plan.may_be_last(number) and level.known.open is None and (level.n_units > tried or ends):
            tried = level.n_units
            output, ends = _fitted(level, answers, rng)
            if output is not None and ends is None:
                return Stage(level, output)
        if ends is not None or level.known.open is not None or last:
            continue
        if level.n_units == want or (want is None and level.stale >= 1 and _consistent(box, level, rng)):
            return Stage(level, None)
    if last or level.known.open is not None or level.n_units == 0:
        raise UnsolvableError(
            f"Hidden layer {number} is not complete: {level.n_units} units were found on {level.lines} lines."
        )
    return Stage(level, None)


def _fitted(
    level: Level, answers: Answers, rng: np.random.Generator
) -> tuple[Output | None, tuple[np.ndarray, np.ndarray] | None]:
    """The output layer on top of this one if it fits, and two questions between which a missing unit changes.

    A unit that hardly ever changes is not missed by a fit to few answers. Further answers show it: those that the network
    does not give lie on the other side of its surface than those that it does give.
    """
    answers.at_least(samples_wanted(level.known, level.n_units), level.known)
    output = fit_output(level.known, level.theta, answers.X, answers.Y)
    if output is None:
        return None, None
    answers.at_least(output.network.n_parameters // output.network.n_outputs + 100, level.known)
    wrong = failures(output.network, answers.X, answers.Y)
    if not wrong.any():
        return output, None
    if 2 * np.count_nonzero(wrong) > len(wrong):
        return None, None
    return output, (answers.X[rng.choice(np.flatnonzero(~wrong))], answers.X[rng.choice(np.flatnonzero(wrong))])


def _signed(level: Level) -> Level:
    """The layer below closed as soon as the surfaces found settle its signs."""
    if level.known.open is None or not level.n_units:
        return level
    signs = signs_from_above(level.known, level.theta)
    if signs is None:
        return level
    known, theta = with_signs(level.known, signs, level.theta)
    return replace(level, known=known, theta=theta)


def _consistent(box: Box, level: Level, rng: np.random.Generator) -> bool:
    """Whether every unit can be moved alone and is off on one side: then none is missing."""
    if not 0 < level.n_units <= box.n_inputs:
        return False
    signs = signs_by_moving(box, level.known, level.theta, level.points, rng)
    return bool(np.all(signs.signs != 0.0) and not signs.contradicted.any())


def _closed(box: Box, level: Level, rng: np.random.Generator) -> Known:
    """The known layers with this one on top: with its signs if they can be had by moving units alone."""
    theta = level.theta / np.linalg.norm(level.theta[:, :-1], axis=1, keepdims=True)
    W, b = theta[:, :-1], theta[:, -1]
    known = level.known
    if level.n_units <= box.n_inputs:
        signs = signs_by_moving(box, known, theta, level.points, rng)
        if np.all(signs.signs != 0.0) and not signs.contradicted.any():
            s = signs.signs
            return Known(known.n_inputs, (*known.layers, (s[:, None] * W, s * b)))
    return Known(known.n_inputs, known.layers, (W, b))
