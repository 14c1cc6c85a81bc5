"""The constants that decide how units that saturate are found, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SaturatingOptions:
    """Where steps are looked for, how units are measured, and how the fit is made and checked."""

    # Steps.
    radius_factor: float = 4.0  # between the radii that are tried
    radii: int = 17  # up to 4^16: beyond, z has no digits left after the point
    directions: int = 24  # looked at for each radius: their share is known to 0.08
    first_directions: int = 6  # of them at first, and the others where these have settled
    first_settled: float = 0.5  # of these: where 0.8 of all have settled, fewer are in one case of a hundred
    settled: float = 0.8  # of the directions in which answers no longer change
    varies: float = 0.2  # of the directions in which opposite answers have to differ
    beyond: float = 8.0  # radius of a circle over the one where answers have settled
    circles: int = 12  # in all
    barren: int = 1  # without a unit among their steps, after which no others are tried: one in three stands alone
    circles_each: int = 3  # before a wider one is taken
    grid: int = 400  # angles on the first circle
    finer: int = 4  # times as many on a wider one: units of similar direction step at nearly the same angle
    z_error: float = 2e-7  # of z, per unit of it at the settled radius, up to which a circle is widened
    half_circle: float = 1.03  # of π: a little more, so that no unit steps only at the ends
    clear: float = 16.0  # roundings that are a change of the answers
    step: float = 30.0  # changes that are a step and not the ends of another
    slope: tuple[float, float] = (0.3, 0.7)  # part of a step in which z is measured well
    factor: float = 3.0  # by which queries around a slope come nearer or go farther
    tries: int = 40  # such changes: 3^40 covers every scale
    apart: float = 0.3  # differences of z that measure w well
    tests: int = 6  # held-out queries for a unit
    agrees: float = 8.0  # roundings of z within which they agree
    same: float = 1e-4  # angle up to which two units are one
    turned: float = 10.0  # roundings of z that this angle is at least
    little: float = 0.01  # of a known unit that a correction may be

    # Fit.
    queries: int = 6  # per parameter, where a single unit bends
    many: int = 60  # per parameter around the origin if answers are coarse: rounding averages out
    bending: float = 3.0  # largest |z| of the former: there tanh has reached its limit to half a percent
    pool: int = 600  # directions from which their points are chosen
    nearer: tuple[float, ...] = (1.0, 0.03)  # of the biases' first uncertainty that is left when they are refined
    fits: int = 3  # restarts while residuals fall below what the fit takes for rounding
    settled_chi2: float = 0.25  # χ² per degree of freedom below which residuals are under the assumed rounding

    # Check.
    held_out: int = 16  # queries at each distance
    distances: tuple[float, ...] = (0.3, 1.0, 3.0)  # of held-out queries, in units of √d
    residual: float = 8.0  # times the expected rounding that still counts as rounding
    uncertain: float = 1e-8  # error of a row beyond which it may not explain a residual
