"""The constants that decide how an oracle is measured, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from neurecover.certificate.options import DEFAULTS


@dataclass(frozen=True)
class BoxOptions:
    """How the resolution and the gradients of an oracle are measured, and how far queries stay from its limits."""

    # Resolution.
    lengths: tuple[float, ...] = (1e-6, 1e-4, 1e-2, 1.0, 100.0)  # of segments; longer if answers on one are all equal
    places: int = 6  # queries that give the size of the answers: at a single one the terms may cancel
    far: float = 20.0  # times as far as those, to tell decimals from digits that are counted
    spare: int = 6  # further segments of the same length if the oracle is constant on the first ones
    start: float = 0.5  # of the way to the edge within which segments start, so that they have room
    coarse: float = DEFAULTS.queries.coarse  # resolution that the certificate counts as coarse
    repeat: float = 1e-13  # relative difference of two answers to one query that another order of summation explains
    other: float = 1e-3  # relative difference of two answers to one query that no arithmetic explains
    half_range: float = 6.0  # inputs up to which an oracle in half precision is queried: its largest number is 65504

    # Radius of local queries.
    clear: float = 1e3  # roundings by which a kink stands out: its place is then known to a thousandth of the radius
    clear_crowded: float = (
        3e2  # the same where other kinks are as near: rows are then a hundred times better than at 1e3
    )
    snug: float = 0.01  # radius, relative to the point, up to which other kinks are hardly ever met
    nearest: float = 1e-4  # least radius, relative to the point: other kinks are farther, and float64 resolves it
    widest: float = 0.05  # largest radius, relative to the point: beyond, other kinks are met
    usual_jump: float = 0.2  # of the answers' spread: the jump of the gradient at a usual unit
    usual: int = 64  # points N(0, I) at which that radius is compared with the widest

    # Curvature.
    straight: float = 4.0  # roundings of double precision that a straight line leaves: its terms are a few
    curve_lengths: tuple[float, ...] = (1e-3, 1e-2, 1e-1)  # of segments; only the first if answers are not coarse
    curve_segments: int = 4  # three of four have to bend; two straight ones decide against it
    curve_ratio: float = 30.0  # residual of a line over that of a cubic: rounding alone gives a factor of two
    rounding_lengths: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8)  # down to where only rounding is left
    rounding_segments: int = 6  # of each length, whose median is taken

    # Gradients.
    disagreement: float = 30.0  # roundings of an answer that a test may be off: a dozen of them may add up
    shorten: tuple[float, ...] = (2.5, 2.5, 6.0, 6.0, 6.0, 6.0, 6.0)  # factors for steps that crossed, round by round
    few: int = 6  # groups of crossing steps that are worth bisecting
    ladder: float = 0.4  # factor between the step lengths that are tested
    rungs: int = 4  # step lengths skipped at once if a whole gradient is as cheap as a test
    most_rungs: int = 12  # step lengths tested: down to 1e-5 of the first
    probes: int = 4  # directions per step length
    cheap: int = 32  # steps of a gradient, which cost as much as testing four lengths with 8 queries each
    probed: float = 0.75  # of a length that passed: other directions may allow a little less
    check_reach: float = 3.1  # how many times a step the tests go, and a little more
    batch: int = 2**21  # floats queried in one batch: 16 MB

    # Limits.
    points: float = 0.98  # of the way to the edge that points are moved in to: queries are rounded
    lines: float = 0.999  # of the way to the edge that lines go to
    inside: float = 0.9  # of the way to the edge for points that need room for steps
    turns: int = 40  # alternating projections that find where a hyperplane lies inside
    edge: float = 2.0  # deviations of the queries at the edge of a range, if no data say
