"""The constants that decide how several hidden layers are found, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DeepOptions:
    """How lines are drawn, boundaries traced and tested, layers closed, and the network polished and checked."""

    # Attempts and the last check.
    attempts: int = 6  # with other lines, and more of them each time
    empty_attempts: int = 3  # without a single unit in some layer, after which no others are made
    solved: float = 1e-8  # relative residual that is rounding: a wrong weight leaves far more
    exact_roundings: float = 3e4  # resolutions that rounding explains: every layer adds its own, far answers cancel
    coarse_roundings: float = 12.0  # standard deviations of coarse answers that rounding explains: its tails are heavy
    noisier: float = 3.0  # times the measured rounding that answers may be off by in a fit: right ones leave half of it
    very_far: float = 30.0  # distance, in units of √d, of queries for units that are inactive at all usual points
    held_out_far: int = 400  # of these: a unit that 2.4 % of them show is missed once in 16,000 times
    farthest: tuple[float, ...] = (1e3, 1e6)  # further such distances: where answers are clipped, or nearly so
    held_out_farthest: int = 24  # of these at each: a part that 14 % of them show is missed once in 40,000 times
    determined: float = 1e-6  # error of a row beyond which hardly any answer determines some weight
    held_out_extremes: int = 150  # held-out queries where the values of a layer are extreme
    held_out_corners: int = 500  # held-out queries at the corners of a range
    unfinished: int = 5  # answers for a weight of the output layer on top of layers below one that was not finished
    enough: int = 1_000_000  # queries after which no attempt is started and no layer returned to: it is minutes
    budget: float = 0.9  # of the query budget after which no attempt is started

    crowded: float = 6.0  # `Box.crowding` from which no unit is looked for: networks at 13 and more showed none
    roomy: float = 0.5  # the same up to which lines show most kinks: 20 of 20 networks that came back were below it

    # Layers.
    returns: int = 12  # to a lower layer
    lines_again: int = 4  # times as many, if the width is known or lines show few of their kinks
    again: int = 4  # lines without a new unit that close a layer which was returned to
    empty_returns: int = 2  # in a row that bring no unit, after which the attempt ends
    chases: int = 6  # lines towards where an always-active unit might change
    extreme_far: float = 10.0  # times the usual distance of half of the extreme points: a bias is a tenth there
    extremes: int = 500  # queries for units that hardly ever change, before a network counts as complete
    few: int = 16  # units up to which a layer is tested for members of deeper layers
    bend_points: int = 40  # points of a boundary in that test
    bend_points_inside: int = 200  # the same within limits, where boundaries meet less often

    # Lines.
    reach: float = 20.0  # length of a line in units of √d
    middle: float = 1.2  # its middle part: both ends may lie where the oracle is constant
    line_queries: int = 5_000  # for one part of a line: hundreds of kinks; a smooth oracle would take any number
    extreme: float = 0.7  # of the lines join extreme points once a layer is known
    ascents: int = 20  # of which the best gives an extreme point
    same: float = 1e-6  # distance of a kink from a known boundary, relative to the point
    sure_same: float = 5.0  # standard errors within which two places, or two rows, are the same
    near_same: float = 0.01  # of the point: a kink farther from a boundary is not its own, however uncertain that is
    alike: float = 4.5e-5  # distance of two unit rows that are one unit: 1 − cos = 1e-9
    alike_coarse: float = 1e-3  # the same when answers are coarse
    shared: float = 0.25  # of a boundary that may be another unit's: more, and a few weights are wrong
    shared_points: int = 200  # of a boundary at which that is looked at
    narrow: float = 1e-5  # pieces beside a kink, relative to the point, that are left for another line
    restarts: int = 12  # points from which unseen weights are traced
    restart_patience: int = 10  # walks from each of them without a new weight
    first_lines: int = 3  # searched before any kink is tried when answers are coarse: they tell layers apart
    recorded: int = 3  # lines that a boundary is compared with
    record_grid: int = 600  # points of a part of a line between which crossings are looked for
    agree_rounds: int = 3  # of comparisons, each with the kinks found so far
    recorded_misses: float = 0.5  # of the kinks found on lines that may be missing
    missed: float = (
        10.0  # times what shows on a line by which a missing kink stands out: jumps differ from place to place
    )

    # Boundaries.
    wide: float = 30.0  # standard error of a weight before any equation, the normal having length one
    unseen: float = 0.05  # standard error of a weight from which it is unknown
    known: float = 0.02  # standard error of the slope along a direction up to which it is known
    gap: float = 6.0  # standard errors of a first normal's disagreement with its cell from which the unit is deeper
    fits_cell: float = 1e-4  # disagreement that is too small to count, whatever the standard error
    faint: float = 0.05  # error of a row or a jump, relative to it, beyond which it says nothing
    least_sigma: float = 1e-14  # relative error of a place: rounding of the features
    least_slope: float = 1e-11  # error of a slope: the rounding of features over a short way
    predicted: float = 0.2  # of the radius: how well a kink nearby is foretold
    nearby: tuple[float, ...] = (0.05, 0.03, 0.15)  # largest first distance of kinks nearby, then the others
    across: float = 2.0  # of the point: how far its cell is looked through before a boundary is traced
    kinks_nearby: float = 0.3  # of the points nearby that must have their kink
    behind: tuple[float, ...] = (1.0,)  # distance behind a crossing, in radii: other boundaries are farther
    behind_coarse: tuple[float, ...] = (4.0, 1.2)  # the same when answers are coarse: long for the slope, then shorter
    shortest: float = 1e-4  # radii that is looked at least along the boundary there
    shortest_coarse: float = 1.0  # the same when answers are coarse
    oblique: float = 1e-6  # sine of the angle between a boundary and a unit that it crosses
    oblique_coarse: float = 0.05  # the same when answers are coarse
    same_bend: float = 0.05  # by which the jumps before and behind a crossing may differ when answers are coarse
    bends: tuple[float, ...] = (4.0, 60.0)  # |α| ‖m‖ / ‖J‖ that is looked for first, and then
    arm: float = 0.25  # of a segment over which a slope is taken there
    walk: int = 16  # crossings of one walk
    lost: int = 3  # crossings in a row without the boundary behind them: it has bent at an unknown unit
    meeting_points: int = 40  # points of a unit among which two on either side of a boundary are looked for
    meetings: int = 4  # pairs that are tried
    meeting_halvings: int = 40  # of the path between them
    candidates: int = 400  # random points on either side of a boundary
    condition: float = 1e6  # of W beyond which W⁻¹ spoils the digits of chosen points
    sharp: float = 1e-5  # relative error that the values chosen for points may have from the errors of their rows
    ridge_of_points: float = 0.1  # of the largest singular value of W: the points then are as far as the others
    ascent_starts: int = 200  # for points where two units are active
    ascent_reach: float = 5.0  # times the usual distance of such points: beyond, a bias no longer shows
    ascent_clear: float = 1e-4  # of the point's size that both values must reach
    near: float = 0.35  # of the radius within which a kink is the predicted one
    sure: float = 4.0  # standard errors within which a kink is looked for
    certain: float = 0.012  # of the point: the widest segment, beyond which other kinks are met by chance
    other_radii: tuple[float, ...] = (0.25, 6.0)  # times the radius, for crowded and faint kinks in coarse answers
    rounds: int = 8  # of kinks, each at points chosen for what is not yet determined
    first_kinks: tuple[int, ...] = (4, 8)  # points of the first rounds, which rule out most deeper boundaries
    kinks_tested: int = 5  # points from which a verdict on a boundary is taken
    kinks_least: int = 3  # found at least
    shown_least: float = 2.0  # kinks that show a weight when answers are coarse: with fewer it is tested by others
    shown_points: int = 200  # of a boundary among which those others are looked for
    shown_probes: int = 6  # of them
    kinks_per_weight: float = 2.2  # asked for at most
    row_error: float = 1e-10  # standard error of a row that needs no more kinks
    poor: float = 1e-4  # standard error of a row from which it is looked for again
    poor_roundings: float = 20.0  # the same, in units of the place of a kink: rows of twice as many kinks have two
    badly: float = 1e-2  # the same, however coarse the answers
    weaken: float = 0.01  # of the gradients' information that is kept once kinks determine a row
    scale_error: float = 1e-6  # of the length of a row, which means nothing
    estimate_steps: int = 25  # of iterated least squares
    unexpected: float = 20.0  # standard errors of a prediction beyond which a kink is another unit's
    expected: float = 0.7  # of the kinks that must be within them: else the prediction is off
    outlying: float = 5.0  # standard errors beyond which a kink is another unit's
    kinks_per_miss: int = 400  # for one point without a kink: a deeper boundary may meet few others to bend at
    kinks_per_miss_coarse: int = 4  # the same when answers are coarse, and the first such point is for nothing
    refinements: int = 3  # of rows that are known worse than the others, before a layer is closed
    together: int = 1_000  # weights that are corrected together: a step of more takes seconds
    together_steps: int = 2  # of them: the first ends at rounding, and the second leaves out kinks of other units by it
    inherited: float = 1e-10  # error of the values below a layer from which that is worth its queries
    worst: float = 30.0  # times the median error of a row that no layer is closed on

    # Signs.
    votes: int = 3  # for a sign
    sign_rounds: int = 6  # of points until there are as many
    sign_radius: float = 3e-5  # of a move, relative to the point: short, so that no unit above changes
    sign_radius_coarse: float = 100.0  # radii of a move when answers are coarse
    sign_clear: float = 1e3  # roundings that the active side moves at least
    sign_clear_coarse: float = 60.0  # the same when answers are coarse
    sign_part: float = 1e-3  # of the active side's move that the errors of the rows leave on the other
    sign_part_coarse: float = 0.02  # the same when answers are coarse
    sign_still: float = 20.0  # roundings that the inactive side moves at most, beside that
    sign_still_coarse: float = 6.0  # the same when answers are coarse: their typical rounding is known better

    slope_digits: int = 6  # decimals of a slope: its ratios are measured to 1e-7 or so, and fits take it as given
    slope_alike: float = 1e-5  # within which ratios are one: those of missing units differ from place to place

    # Directions that matter.
    rank: float = 1e-8  # rest of a unit gradient that is rounding
    new_direction: float = 20.0  # standard errors by which a new direction stands out
    span_sight: float = 0.1  # of a gradient: a usual unit's part of it, by which a new direction has to stand out
    span_step: float = 1e-3  # of a gradient, in units of √d
    span_longest: float = 0.3  # the longest, where steps as long as the cell allows are worth a few queries each
    span_many: int = 32  # inputs from which they are, and with coarse answers always
    lift_cells: float = 0.7  # cells for a unit beside those of the gradients that gave the span, whose steps are short
    lift_all_cells: float = 1.2  # the same where these are of no use
    span_moves: int = 100  # outside the span: of these one unit in fifty active points is missed once in seven times
    span_moved: float = 0.02  # of the answers' spread by which a move shows a direction: errors of the span move less
    whole: int = 100  # inputs up to which all directions are taken where those that matter turned out to be too few
    outside_answers: float = 3.0  # for a weight outside the directions that matter
    outside_step: float = 4.0  # in units of √d, of a move there: rounding that grows with the point then rules
    outside_rounds: int = 2  # of the regression: the first rows may be off by more than rounding
    spare_gradients: int = 6  # without a new direction that end the search
    flat: int = 60  # points where the oracle is constant, or that lie beside a kink

    # Output layer and polishing.
    exact: float = 1e-6  # relative residual of an output layer: rounding stays far below, a missing unit far above
    wrong: float = 12.0  # roundings from which an answer is not reproduced
    rough: float = 1e4  # resolutions that an output layer on rows as first measured may leave
    roughest: float = 1e-2  # relative residual that it may leave, however coarse the answers
    fit_answers: int = 5  # times as many answers for the output layer when they are coarse
    fit_sides: int = 20  # coarse answers on either side of every unit
    answers_per_weight: float = 4.0  # of a fit of all weights to coarse answers, so that a few can be outvoted
    most_wrong: float = 0.4  # of the answers that a network without some units may not reproduce
    most_rounds: int = 8  # of weights for a fit to most answers
    most_steps: int = 6  # of each
    forgiven: float = 0.002  # of the answers, beside kinks, that need not be reproduced before the last fit
    forgiven_most: float = 1e3  # roundings of these: a missing unit leaves more
    upper_answers: int = 8  # coarse answers per weight with which a last hidden layer is looked for
    upper_least: int = 1_000  # in all
    upper_wrong: float = 0.05  # of the answers that may be wrong where a rare unit is missing: other layers fit none
    upper_steps: int = 1_500  # of that search: 32 units take about a thousand, twenty seconds
    faint_within: float = 300.0  # roundings of a network's residual in which one more unit is looked for
    faint_parts: tuple[int, ...] = (3, 6, 12)  # of the answers with which that search begins
    faint_steps: int = 60  # of its regression
    around: tuple[float, ...] = (0.03, 0.1, 0.3)  # of a point: how far around it others are asked, and beyond it
    around_rounds: int = 3  # of such answers: about half of those of a round show what is looked for
    faint_rounds: int = 2  # of answers beside its boundary, which moves with them
    spare_rounds: int = 4  # of leaving out always-active units
    spare_steps: int = 15  # of the fit without them
    spare_sigmas: float = 6.0  # by which the squares may rise without a unit: rounding is not normal
    spare_rank: float = 0.02  # of the largest singular value of what they add: rows off by more are found again
    damping: float = 1e-6  # first relative damping of a fit to coarse answers
    ridge_coarse: float = 1e-12  # its least
    gain_coarse: float = 1e-4  # of Σr² that a step brings at least there
    polish_steps_coarse: int = 40  # from rough rows
    polish_answers: float = 15.0  # coarse answers for a weight in the last fit: beyond, errors fall as 1/√n
    reweightings: int = 40  # of the robust fit
    answers_fine: float = 1.3  # for a weight in the last fit of answers with all digits
    polish_steps: int = 8  # from near the truth a step squares the error
    formed: int = 3_000  # weights whose JᵀJ is formed: beyond, a step takes longer than one by its products
    product_steps: int = 40  # by products, each to a tenth or less of what the one before left
    product_rounding: float = 1e-28  # of Σr² over Σy² at its end: the square of a hundred roundings
    twin_moves: float = 1e-6  # of a row, to the network whose weights are known: far above the errors of the fit
    twin_margin: float = 5.0  # times the error of the twin's row, one draw over all weights of a row
    product_answers: float = 3.0  # for a weight there: conjugate gradients hardly converge on near-square systems
    ridge: float = 1e-13  # relative damping that fixes the scale between a row and the column above it
    promise: float = 0.75  # of Σr² that a step promises at the truth: the share of parameters per answer
    gain: float = 0.1  # of Σr² that a step from near the truth brings at least
    paired: int = 3  # points at which two units are active together
    pairs: int = 200  # pairs that get such points
    wanderings: int = 40  # random steps that spread points over one side
