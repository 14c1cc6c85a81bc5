"""The output layer on top of the rows found so far, and where to look for a unit that it misses.

A fit to few answers does not miss a unit that hardly ever changes. Further answers show it: those that the network does
not reproduce lie on the other side of its boundary. If the network reproduces all, but only with units that are always
active, lines are drawn to where these would change.

With coarse answers the rows are rough, and a fit on top of them leaves more than rounding. All weights are then fitted
with the smallest sum of absolute residuals, which a few wrong answers do not rule; what these leave may be one more
unit (`faint`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.models import DeepNetwork
from neurecover.queries.deep.cells import KnownLayers
from neurecover.queries.deep.fits.answers import Answers
from neurecover.queries.deep.fits.faint import find_faint_unit
from neurecover.queries.deep.fits.output import Output, find_failures, fit_output, n_answers_needed
from neurecover.queries.deep.fits.polish import polish
from neurecover.queries.deep.fits.spare import are_forgiven, drop_spare_units
from neurecover.queries.deep.level import Level
from neurecover.queries.deep.lines import draw_extreme_line
from neurecover.queries.deep.units import Unit
from neurecover.solve.deadline import Deadline


@dataclass(frozen=True, eq=False)
class Fit:
    """An output layer that fits most answers, or all if `exact`; `ends` are those of a line that may cross a missing
    unit.

    `faint` is a further unit that explains the answers which are not fitted.
    """

    output: Output | None = None
    exact: bool = False
    ends: tuple[np.ndarray, np.ndarray] | None = None
    chases: int = 0
    faint: Faint | None = None


def fit_on_top(level: Level, answers: Answers, rng: np.random.Generator, before: Fit, deadline: Deadline) -> Fit:
    """Fit the output layer on top of this level; return it if it fits at least most answers."""
    options, known, coarse = level.known.options, level.known, answers.box.coarse
    if coarse and before.exact and before.output is not None:
        return _chase(before.output, level, before.chases, rng)
    few = n_answers_needed(known, level.n_units)
    answers.ensure(options.fit_answers * few if coarse else few, known)
    if coarse:
        answers.ensure_sides(options.fit_sides, known, level.units)
    output = fit_output(known, level.theta, answers.X, answers.Y, level.unseen, answers.exact)
    if output is None:
        return Fit()
    per_weight = options.answers_per_weight if coarse else 1.0
    answers.ensure(int(per_weight * output.network.n_parameters) // output.network.n_outputs + 100, known)
    answers.ensure_extremes(options.extremes, known)
    wrong, faint = find_failures(output.network, answers.X, answers.Y, answers.allowed), None
    if output.always_on and (level.unseen.any() or (coarse and level.n_units)):
        # A weight that is unseen, or off, looks like a unit that is always active.
        polished, left = polish_on_most(output.bare, answers, deadline)
        if not left.any():
            return Fit(Output(polished, output.residual, 0, np.zeros_like(output.rest), polished), True)
    # A fit of many weights takes long: a line to where answers are wrong comes first, which finds a missing unit.
    at_once = coarse or output.network.n_parameters <= options.formed or before.ends is not None
    if wrong.any() and at_once:
        # Weights measured where they hardly matter leave small errors although no unit is missing.
        polished, left = polish_on_most(output.network, answers, deadline)
        if coarse or not left.any():
            output, wrong = replace(output, network=polished), left
        if coarse and wrong.any() and level.n_units:
            faint = add_faint_unit(polished, level.n_units, answers, deadline)
    if coarse and not wrong.any() and level.n_units and output.always_on:
        network = drop_spare_units(output.network, answers, deadline)
        output = replace(output, network=network, always_on=network.n_hidden[-1] - level.n_units)
    if np.count_nonzero(wrong) > options.most_wrong * len(wrong):
        return Fit(faint=faint)
    if wrong.any():
        ends = answers.X[rng.choice(np.flatnonzero(~wrong))], answers.X[rng.choice(np.flatnonzero(wrong))]
        return Fit(output, ends=ends, faint=faint)
    return _chase(output, level, before.chases, rng)


def _chase(output: Output, level: Level, chases: int, rng: np.random.Generator) -> Fit:
    """Return an exact fit; if it has always-active units, add a line to where these would switch off."""
    if not output.always_on or chases >= level.known.options.chases:
        return Fit(output, True)
    slope = output.rest[:, int(np.abs(output.rest).sum(axis=0).argmax())]
    return Fit(output, True, draw_extreme_line(level.known, slope if chases % 2 else -slope, rng), chases + 1)


def _polish(network: DeepNetwork, answers: Answers, deadline: Deadline) -> DeepNetwork:
    """Return the network fitted to all answers."""
    box = answers.box
    return polish(network, answers.X, answers.Y, box.options.deep, deadline, answers.sizes, box.coarse).network


def polish_on_most(network: DeepNetwork, answers: Answers, deadline: Deadline) -> tuple[DeepNetwork, np.ndarray]:
    """Fit the network to most answers; return it and a mask of the answers that it does not reproduce, which may be a
    few.

    The fit has the least absolute residuals, by weights 1/|r| for residuals above the usual size.
    """
    options, X, Y = answers.box.options.deep, answers.X, answers.Y
    if not answers.box.coarse:
        network = _polish(network, answers, deadline)
        return network, find_failures(network, X, Y, answers.allowed)
    noise, allowed = answers.noise, answers.allowed
    best, wrong = network, np.ones(len(X), dtype=bool)
    for number in range(options.most_rounds):
        off = np.abs(network(X) - Y).max(axis=1) / noise
        usual = max(1.0, float(np.quantile(off, 0.4)))
        sizes = noise * np.sqrt(np.maximum(off, usual) / usual)
        network = polish(network, X, Y, options, deadline, sizes, True, steps=options.most_steps).network
        now = find_failures(network, X, Y, allowed)
        if np.count_nonzero(now) < np.count_nonzero(wrong):
            best, wrong = network, now
        elif number > 3:
            break
        if not wrong.any() or deadline.passed:
            break
    return best, find_wrong(best, answers)


@dataclass(frozen=True, eq=False)
class Faint:
    """A further unit, the network that includes it, and whether this network reproduces all answers."""

    unit: Unit
    network: DeepNetwork
    complete: bool


def add_faint_unit(network: DeepNetwork, n_units: int, answers: Answers, deadline: Deadline) -> Faint | None:
    """Find a further unit that explains answers which the network does not reproduce; None if there is none.

    `network` is fitted to most answers: in addition to its n units it may have always-active ones in place of the
    missing one. The signs of the other units are then those that leave the fewest always-active units, and all weights
    are solved for again. A unit counts as found if at least twice as many answers as it has weights are reproduced only
    with it, which chance does not achieve.
    """
    options = answers.box.options.deep
    off = np.abs(network(answers.X) - answers.Y).max(axis=1) / answers.noise
    if np.median(off) > options.faint_within:
        return None
    *below, (W, b), _ = network.layers
    known = KnownLayers(network.n_inputs, tuple(below), limits=answers.box.limits, options=options)
    rows = np.column_stack([W, b])[:n_units]
    # As many answers as tell a unit from chance, and a few on either side of its boundary.
    answers.ensure_around(
        3 * rows.shape[1], known, lambda: find_failures(network, answers.X, answers.Y, answers.allowed)
    )
    X, Y = answers.X, answers.Y
    wrong = int(np.count_nonzero(find_failures(network, X, Y, answers.allowed)))
    for count in (wrong, *(len(X) // part for part in options.faint_parts)):
        unit = find_faint_unit(network, answers, count, options)
        output = None if unit is None else fit_output(known, np.vstack([rows, unit.theta]), X, Y, exact=answers.exact)
        if unit is None or output is None:
            continue
        larger, left = polish_on_most(output.network, answers, deadline)
        if wrong - np.count_nonzero(left) < 2 * rows.shape[1] and left.any():
            continue
        confirmed = _confirm(larger, n_units, unit, answers, deadline)
        if confirmed is not None:
            return Faint(*confirmed, not (output.always_on or find_wrong(confirmed[1], answers).any()))
    return None


def _confirm(
    network: DeepNetwork, number: int, unit: Unit, answers: Answers, deadline: Deadline
) -> tuple[Unit, DeepNetwork] | None:
    """Fit a unit and the network to more answers next to its boundary; return both, or None if these contradict the
    unit.

    Without further answers, a unit that few answers show would fit them in any case.
    """
    options = answers.box.options.deep
    before, found = len(answers.X), unit
    for _ in range(options.faint_rounds):
        *below, (W, b), _ = network.layers
        known = KnownLayers(network.n_inputs, tuple(below), limits=answers.box.limits, options=options)
        theta = np.append(W[number], b[number])
        nearest = answers.X[int(np.argmin(np.abs(known.features(answers.X) @ theta)))]
        found = replace(unit, boundary=replace(unit.boundary, z=unit.boundary.R @ theta), point=nearest)
        n = len(answers.X)
        answers.ensure_sides(2 * len(theta), known, (found,))
        if len(answers.X) == n:
            break
        network = polish_on_most(network, answers, deadline)[0]
    wrong = find_wrong(network, answers)[before:]
    return None if np.count_nonzero(wrong) > options.most_wrong * len(wrong) else (found, network)


def find_wrong(network: DeepNetwork, answers: Answers) -> np.ndarray:
    """Return a mask (n,) of the answers that the network does not reproduce; none if they are few and next to kinks."""
    wrong = find_failures(network, answers.X, answers.Y, answers.allowed)
    return np.zeros_like(wrong) if are_forgiven(network, answers, wrong) else wrong
