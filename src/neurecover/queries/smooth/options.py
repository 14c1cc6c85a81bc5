"""The constants that decide how smooth units are recognised, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SmoothOptions:
    """How single bends are looked at, units counted, and samples drawn."""

    # The shape of a bend.
    far: float = 1e5  # distance of lines: the bends of a thousand units, a few long, are then a hundred apart
    bends: int = 4  # that are looked at, at the most: of 240 of 30 networks two were not alone
    halvings: int = 44  # of a line, down to where a bend is straight
    points: int = 49  # at which one is asked
    # Of the answers, by which an exact network may be off far out: weights are then right to 1e-8, and clipped inputs
    # are wrong by as much as the answers.
    elsewhere: float = 1e-6
    clear: float = 1e3  # roundings that a segment is from straight where it bends
    shows: float = 0.2  # of the largest change of slope on the last few segments, on one inside a bend
    before: int = 4  # of them: inside a bend that change is then a sixteenth
    wide: tuple[float, ...] = (8.0, 3.0, 24.0)  # half-widths of the window, in units of that segment
    alone: float = 1e-3  # second singular value of what several outputs have of a bend, over the first
    roundings: float = 30.0  # that its own function leaves of a bend, which is about 1e-9 of its height
    fits: float = 1e-5  # of the height, at the most
    apart: float = 10.0  # times as much that the next best function leaves
    agree: int = 2  # bends of the same function that settle it
    scales: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # of the bend in the window, tried first
    places: int = 13  # of its middle, with each
    fit_steps: int = 60  # of the fit of both
    sides: float = 1.0  # of z on either side of the bend, in the window

    # The number of units.
    directions: int = 16  # of the first count; twice as many in the next
    counting: int = 25_000  # queries: n units take about 20 n² over the number of outputs
    more: float = 1.3  # values for a direction
    step: float = 0.02  # of a second difference: its error is of fourth order, 1e-8, and rounding leaves 1e-12
    nothing: float = 1e-6  # singular value over the largest that may be none
    gap: float = 30.0  # over the next one where they end
    filled: float = 0.8  # of the directions that may be taken up by units

    # Samples.
    # Size of w·x, in units of w·v at the bends seen, which are the sharpest and have twice that of usual ones: of
    # smaller inputs a unit is nearly a parabola, of larger ones straight.
    bending: float = 5.0
    spread: tuple[float, float] = (0.3, 30.0)  # least and largest factor of N(0, I) for that
    equations: float = 6.0  # for a parameter
    least: int = 500  # samples
    again: float = 3.0  # times as many, if the first were too few
    samples_of_layers: int = 4_000  # of several layers: 30 for a weight of two layers of ten units, with any widths
    rounds: tuple[int, ...] = (2_000, 8_000, 20_000)  # samples where the number of units is not known
