"""The numbers that decide how several hidden layers are found, each with its reason."""

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
    determined: float = 1e-6  # error of a row beyond which hardly any answer determines some weight
    held_out_extremes: int = 150  # held-out queries where the values of a layer are extreme
    held_out_corners: int = 500  # held-out queries at the corners of a range
    budget: float = 0.9  # of the query budget after which no attempt is started

    # Layers.
    returns: int = 12  # to a lower layer
    again: int = 4  # lines without a new unit that close a layer which was returned to
    empty_returns: int = 2  # in a row that bring no unit, after which the attempt ends
    chases: int = 6  # lines towards where an always-active unit might change
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
    narrow: float = 1e-5  # pieces beside a kink, relative to the point, that are left for another line
    restarts: int = 12  # points from which unseen weights are traced

    # Boundaries.
    fits_cell: float = 1e-4  # disagreement of a first normal with its cell beyond which the unit is a deeper one
    known: float = 1e-7  # of a direction that no equation constrains and that still counts as known
    unseen: float = 1e-6  # of a weight in the unconstrained directions from which it is unknown
    new: float = 1e-5  # of an equation that has to be new to be used
    behind: float = 1e-4  # distance behind a crossing: other boundaries are farther, rounding is smaller
    bends: tuple[float, ...] = (4.0, 60.0)  # |α| ‖m‖ / ‖J‖ that is looked for first, and then
    arm: float = 0.25  # of a segment over which a slope is taken there
    walk: int = 16  # crossings of one walk
    lost: int = 3  # crossings in a row without the boundary behind them: it has bent at an unknown unit
    meeting_points: int = 40  # points of a unit among which two on either side of a boundary are looked for
    meetings: int = 4  # pairs that are tried
    meeting_halvings: int = 40  # of the path between them
    candidates: int = 400  # random points on either side of a boundary
    condition: float = 1e6  # of W beyond which W⁻¹ spoils the digits of chosen points
    ascent_starts: int = 200  # for points where two units are active
    ascent_reach: float = 5.0  # times the usual distance of such points: beyond, a bias no longer shows
    ascent_clear: float = 1e-4  # of the point's size that both values must reach
    radius: float = 1e-4  # of a segment across a boundary, relative to the point
    near: float = 0.3  # of the radius within which a kink is the predicted one
    accurate: float = 1e-11  # offset of kinks, relative to the point, that needs no correction
    outlying: float = 100.0  # times the median offset of a kink that another one falsifies
    agree: float = 1e-10  # residual of unit rows φ that is rounding
    informative: float = 1e-2  # rest of a unit row φ from which it says something new about θ
    rounds: int = 5  # of points chosen for what is not yet determined
    kinks_least: int = 3  # found among the first points
    kinks_per_miss: int = 12  # for one point without a kink
    kinks_per_miss_inside: int = 400  # the same within limits, where a deeper boundary meets few others to bend at
    looks_again: int = 5  # points of a corrected boundary

    # Signs.
    votes: int = 3  # for a sign
    sign_rounds: int = 6  # of points until there are as many
    sign_radius: float = 3e-5  # of a move, relative to the point: short, so that no unit above changes

    # Directions that matter.
    rank: float = 1e-8  # rest of a unit gradient that is rounding
    spare_gradients: int = 4  # without a new direction that end the search
    flat: int = 60  # points where the oracle is constant, or that lie beside a kink

    # Output layer and polishing.
    exact: float = 1e-6  # relative residual of an output layer: rounding stays far below, a missing unit far above
    reweightings: int = 40  # of the robust fit
    polish_steps: int = 8  # from near the truth a step squares the error
    ridge: float = 1e-13  # relative damping that fixes the scale between a row and the column above it
    promise: float = 0.75  # of Σr² that a step promises at the truth: the share of parameters per answer
    gain: float = 0.1  # of Σr² that a step from near the truth brings at least
    paired: int = 3  # points at which two units are active together
    pairs: int = 200  # pairs that get such points
    wanderings: int = 40  # random steps that spread points over one side
