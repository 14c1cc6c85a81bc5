"""Compare a broken line with other shapes: a polynomial, a natural spline, a jump, hinges with rounded corners.

Each is compared by BIC, n log RSS + log(n) · parameters, and reported if it is ahead by more than `options.ahead`. Of
few rows a shape with many parameters leaves next to nothing, so n log RSS counts the rows beyond the parameters.
Rounded corners have one parameter more than the hinges, their width, and are tested by the likelihood ratio.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import gammaincinv

from neurecover.hinges.options import DEFAULTS, HingeOptions
from neurecover.hinges.points import Points
from neurecover.hinges.projection import Projection, hinge_columns
from neurecover.hinges.search import BrokenLine, best_breaks

_DEGREES, _KNOTS = range(2, 6), range(3, 7)  # of polynomials and splines that bend about as often as a broken line
_WIDTHS = np.array([0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5])  # half-widths of a rounded corner, of half the range


@dataclass(frozen=True)
class Rival:
    """Another shape, described in words: how far it is ahead of the hinges, above which limit that counts, and in what
    unit.
    """

    name: str
    ahead: float
    limit: float
    measure: str = "BIC"


def best_rival(fit: BrokenLine, floor: float, options: HingeOptions = DEFAULTS) -> Rival | None:
    """Return the shape that is farthest ahead of the hinges, if it is ahead by more than its limit; else None.

    A shape is no rival if adding the fit's hinges to it still improves it significantly (χ² with two degrees of freedom
    per hinge): then the data show corners in any case.
    """
    points = fit.points
    n, total = points.n, points.total
    H = np.maximum(points.z[:, None] - fit.breaks, 0.0)
    chance = 2.0 * gammaincinv(max(len(fit.breaks), 1), 0.95)
    rivals = []
    for name, columns, parameters in _shapes(fit):
        if parameters >= len(points):
            continue
        rss = max(Projection.of(points, columns).rss, floor)
        more = parameters - fit.n_parameters
        free = max(total - max(parameters, fit.n_parameters), 0.0)
        ahead = free * float(np.log(max(fit.rss, floor) / rss)) - float(np.log(n)) * more
        limit = options.ahead
        if name.startswith("a jump") and more == -2:  # two breaks follow it: it is a rival unless they show a slope
            limit = min(limit, 2.0 * float(np.log(n)) - 2.0 * float(gammaincinv(1.0, 0.95)))
        if ahead > limit:
            both = max(Projection.of(points, np.column_stack([columns, H])).rss, floor)
            if total * np.log(rss / both) <= chance:
                rivals.append(Rival(name, ahead, limit))
    if len(fit.breaks):
        ahead = total * float(np.log(max(fit.rss, floor) / max(_rounded(fit), floor)))
        if ahead > options.rounded:
            rivals.append(Rival("hinges with rounded corners", ahead, options.rounded, "n·log Σr²"))
    if len(fit.breaks) > 1:  # two breaks side by side follow one corner that is rounded
        fewer = best_breaks(points, len(fit.breaks) - 1, options)
        lost = total * float(np.log(max(_rounded(fewer), floor) / max(fit.rss, floor)))
        ahead = float(np.log(n)) - lost  # it has one parameter fewer
        if ahead > options.fewer:
            rivals.append(Rival("one hinge fewer with rounded corners", ahead, options.fewer))
    return max(rivals, key=lambda rival: rival.ahead - rival.limit, default=None)


def _shapes(fit: BrokenLine) -> Iterator[tuple[str, np.ndarray, int]]:
    """Yield name, columns and number of parameters of every rival."""
    points = fit.points
    z = points.z
    for degree in _DEGREES:
        yield f"a polynomial of degree {degree}", np.polynomial.legendre.legvander(z, degree), degree + 1
    for knots in _KNOTS:
        places = points.place(np.linspace(0.05, 0.95, knots + 1) * (len(points) - 1))
        yield f"a smooth curve with {knots + 1} knots", _natural(z, places), knots + 1
    K = len(fit.breaks)
    for kept in range(K + 1) if len(points) > 8 else ():
        for own in combinations(range(K), kept):
            breaks = fit.breaks[list(own)]
            place = _jump(points, breaks)
            columns = np.column_stack([hinge_columns(z, breaks), z > place])
            yield f"a jump at x = {points.x(np.array(place)):.4g}", columns, 4 + 2 * kept


def _natural(z: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Return a basis of natural cubic splines: 1, z and d_k − d_last (Hastie, Tibshirani, Friedman, (5.4))."""
    cubes = np.maximum(z[:, None] - knots, 0.0) ** 3
    with np.errstate(divide="ignore", invalid="ignore"):
        d = (cubes[:, :-1] - cubes[:, -1:]) / (knots[-1] - knots[:-1])
    return np.nan_to_num(np.column_stack([np.ones(len(z)), z, d[:, :-1] - d[:, -1:]]))


def _jump(points: Points, breaks: np.ndarray) -> float:
    """Return the best place of a step that is added to the hinges that are kept."""
    rest = Projection.of(points, hinge_columns(points.z, breaks))
    q, sums = rest.basis.shape[1], rest.suffixes[1:-1]
    square = sums[:, 0] - np.square(sums[:, 5 : 5 + q]).sum(axis=1)
    gains = np.where(square > 1e-9 * sums[:, 0], sums[:, 3] ** 2 / np.where(square > 0.0, square, 1.0), 0.0)
    gains[:2] = gains[-2:] = 0.0  # fewer than three inputs beyond a step make an outlier of it
    i = int(np.argmax(gains))
    return float(0.5 * (points.z[i] + points.z[i + 1]))


def _rounded(fit: BrokenLine) -> float:
    """Return the least sum of squares with corners that are parabolas of a common half-width s (bent cables).

    (z − p)₊ becomes (z − p + s)²/4s within s of p; the breaks move by Gauss–Newton steps.
    """
    points, root = fit.points, np.sqrt(fit.points.w)
    K, best = len(fit.breaks), np.inf
    for s in _WIDTHS:
        breaks, last = fit.breaks.copy(), np.inf
        for _ in range(6):
            t = np.clip((points.z[:, None] - breaks + s) / (2.0 * s), 0.0, 1.0)
            bent = s * t**2 + np.maximum(points.z[:, None] - breaks - s, 0.0)
            plain = root[:, None] * np.column_stack([np.ones(len(points)), points.z, bent])
            theta = np.linalg.lstsq(plain, root * points.y, rcond=None)[0]
            misfit = root * points.y - plain @ theta
            rss = float(misfit @ misfit)
            if rss >= last * (1.0 - 1e-6):
                break
            last = rss
            J = np.column_stack([plain, -root[:, None] * t * theta[2:]])
            step = np.linalg.lstsq(J, misfit, rcond=None)[0][2 + K :]
            breaks = np.clip(breaks + np.clip(step, -0.2, 0.2), points.z[1], points.z[-2])
        best = min(best, last)
    return best + points.within
