"""The constants that decide how one hidden layer is found, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ShallowOptions:
    """How lines are drawn, units believed, weights refined, and the network checked."""

    # Attempts and the last check.
    farther: tuple[float, ...] = (1.0, 1e3, 1e3)  # times the usual line: a missing hyperplane may be far away
    held_out: int = 16  # queries at each distance
    distances: tuple[float, ...] = (1.0, 1e3, 1e6)  # of held-out queries, in √d: beyond, biases no longer matter
    residual: float = 4.0  # times the expected rounding that still counts as rounding
    uncertain: float = 1e-8  # error of an answer beyond which uncertain weights may not explain a residual
    uncertain_coarse: float = 30.0  # the same in units of the resolution
    faint: float = 1e-6  # error of a row from which a unit is named as badly determined
    faint_coarse: float = 1e3  # the same in units of the resolution
    coarsest: float = 1e-2  # resolution beyond which no kink shows
    accuracy: float = 5e-10  # wanted error of a row in a large network
    finest: float = 2e-13  # the same in a small one, where it costs little

    # Lines.
    lines: int = 4  # in all; each further one takes what the last left unexplained
    lines_inside: int = 80  # within limits, where a hyperplane may be in few places
    quiet: int = 6  # lines within limits without a new unit that end the search
    continued: int = 12  # hyperplanes looked at away from the line if there may be several layers
    ended: int = 3  # of them without a kink there that deny a single layer
    local: float = 1e-3  # radius, relative to the point, within which that kink is looked for
    corners: int = 1024  # of a range that are queried
    corner_misfit: float = 1e-6  # of the answers there, before the units are fitted together
    fill: float = 0.8  # of the p kinks that a group could hold, to avoid dependent jumps
    worst: float = 0.05  # error of a direction up to which a unit counts as known
    slack: float = 4.0  # expected errors within which a kink matches
    step: float = 1.0 / 6.0  # of the way to the nearest kink: the tests nearly always pass

    # Refinement.
    regions: float = 1.3  # well-centred regions per unit and output: enough to determine all weights without lines
    affine_regions: int = 4  # further ones for an affine part
    many_inputs: int = 200  # from which on four queries a unit for its bias are a small part of all
    independent: float = 0.05  # smallest over largest singular value of W up to which every pattern can be reached
    pool: int = 1500  # points if it cannot
    sweeps: int = 60  # projections that move them away from hyperplanes
    clear: float = 0.9  # of the way to the nearest hyperplane that a step may take
    tries: int = 8  # random points of which the one with most room is taken
    near: float = 0.3  # size of the points at which biases are measured: errors of w matter less
    within: float = 0.7  # of the room there that is used
    offsets: int = 8  # answers whose median gives c

    # Signs.
    negligible: float = 1e-9  # of the jumps: an affine part that is rounding
    refined: float = 1e-9  # misfit of hyperplanes that were fitted together
    refined_errors: float = 30.0  # the same in units of their largest error
    many_errors: float = 1.5  # misfit of many units, in units of the one expected, which counts rounding twice
    many_finest: float = 1e-14  # the least misfit: rounding of sums over the units
    pair_independent: float = 1e-3  # smallest over largest singular value of rows that determine pairs
    pairs: int = 2  # opposite pairs tried if rows are dependent
    pair_choices: int = 500  # sets of them: each is a search for signs
    pair_planes: int = 16  # hyperplanes beyond which none is tried: a deeper network shows many
    spare_bits: int = 20  # of the equations beyond the unknowns: a million to one against chance

    # Coarse answers.
    coarse_lines: int = 12  # in all
    coarse_lines_least: int = 3  # before units are believed
    coarse_lines_unseen: int = 5  # after which they end if no unit was met a second time
    ending: float = 0.5  # of the units not met again from which layers are several: of one layer up to a third are not
    ending_least: int = 4  # such units: fewer are chance
    ending_resolution: float = 1e-5  # of answers that tell: coarser ones lose kinks of one layer as well
    slice_inputs: int = 16  # dimensions of a slice on which that is looked at first, if there are more inputs
    slice_lines: int = 4  # on it
    visible: float = 1e-3  # resolution beyond which lines show no kinks
    guess: int = 8  # units assumed then
    answers_least: float = 4.0  # per parameter of a fit
    answers_most: float = 100.0  # the same where they cost little time
    answers_share: float = 0.5  # of what the budgets leave: single units and the certificate ask after the fit
    answers_work: float = 3e6  # answers times parameters between the two
    doubtful: float = 1e-3  # error of a row after the fit from which the unit may not exist
    neighbours: float = 0.1  # distance of unit rows with their biases that may be one unit
    fit_steps: int = 60  # of a fit with all units in place: it needs a few large steps
    fit_gain: float = 0.7  # of Σr² over two steps: a slower fit has arrived, or never will
    rounding: float = 9.0  # Σr² of a fit at the level of rounding, in units of n (2ρ·scale)²
    caution: float = 2.0  # times measured errors: rounding is not independent, so that it averages out less
    unit_queries: int = 5  # per unknown of a single unit
    above: float = 3.0  # size of its term over the offset, far out
    farthest: float = 1e4  # times the usual distance for that
    search_answers: int = 12  # per parameter of a search on samples
    search_answers_least: int = 1_000  # in all
    search_units: int = 12  # of its student, at least
    search_work: float = 4e11  # multiplications after which it is given up, as `solve.steps_within` counts: about 20 s
