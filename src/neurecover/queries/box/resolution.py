"""The resolution of an oracle: the rounding of its answers, relative to the size of the terms they are sums of.

At points x + τ_i δ, i = 1 … 6, of a segment short enough to lie inside one linear region f is affine in τ, so the
residual of an affine fit is the rounding: about 1e-16 for float64 arithmetic, 6e-8 for float32, and the grid if answers
are rounded to digits. A segment with equal answers says nothing about a coarse grid, and a longer one is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from neurecover.exceptions import UnsolvableError
from neurecover.queries.box.limits import Limits
from neurecover.queries.box.options import BoxOptions

# Places of the queries on a segment: uneven, so that they do not fall in with a grid of digits.
PLACES = np.array([0.0, 0.71, 1.87, 3.14, 3.9, 5.0])
# The rounding of one number in double, single and half precision.
DOUBLE, SINGLE, HALF = 2.0**-52, 2.0**-24, 2.0**-11
ARITHMETIC = 4.0  # roundings of single precision that an answer of two or three layers has

DIFFERENT = (
    "The oracle gives different answers to the same query. If dropout was left on, put the model in its mode for "
    "inference. A network behind noise is found from samples: neurecover.recover(oracle, n_samples=2000)."
)

Query = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Resolution:
    """The relative `rounding` ρ, the size of the answers to x ~ N(0, I), and their spread (`growth`).

    `single` and `half` say that the answers are numbers in single or half precision, and `grid` is the step of answers
    rounded to decimals, zero for others. `relative` is the part of ρ that grows with the terms of an answer: all of it,
    but for answers rounded to decimals, that of their arithmetic.
    """

    rounding: float
    scale: float
    growth: float
    single: bool = False
    half: bool = False
    grid: float = 0.0

    @property
    def relative(self) -> float:
        # Rounded answers do not tell the precision in which they were computed.
        return min(self.rounding, ARITHMETIC * SINGLE) if self.grid else self.rounding


def measure_resolution(query: Query, n_inputs: int, limits: Limits, options: BoxOptions) -> Resolution:
    """Measure the resolution on short segments; raise UnsolvableError if answers to the same query differ."""
    rng = np.random.default_rng(0)
    start, direction = rng.standard_normal((2, 2, 1, n_inputs))
    more, directions = rng.standard_normal((2, options.spare, 1, n_inputs))
    # Several places, because the terms may happen to cancel at one of them.
    others = limits.pull_inside(rng.standard_normal((options.places, n_inputs)))
    start, more = limits.pull_inside(start, options.start), limits.pull_inside(more, options.start)
    answers = query(others)
    check_repeatable(query, others, answers, options)
    scale = max(_rms(answers), 1e-290)
    growth = max(_rms(answers - answers.mean(axis=0)), 1e-6 * scale)
    # All units may be inactive on the first segments: try others of the same length before longer ones.
    elsewhere = (others[:, None], np.resize(direction, (options.places, 1, n_inputs)), options.lengths[0])
    tries = [(start, direction, length) for length in options.lengths]
    for begin, along, length in [tries[0], elsewhere, *tries[1:]]:
        segments = _segments(limits, begin, along, length)
        Y = np.stack([query(segment) for segment in segments])
        scale = max(scale, _rms(Y))
        varies = _varies(Y)
        if not varies.any():
            # An oracle that is constant here may not be elsewhere, where a longer segment would cross its kinks.
            Y = np.stack([query(segment) for segment in _segments(limits, more, directions, length)])
            varies = _varies(Y)
        if varies.any():
            found = _resolution(Y, np.array([_affine_residual(y) for y in Y[varies]]), scale, growth, options.coarse)
            far = limits.pull_inside(options.far * others)
            if found.rounding <= options.coarse:
                return found
            return replace(found, grid=_grid(found, answers, query(far)))
    return Resolution(DOUBLE, scale, growth)


def _resolution(Y: np.ndarray, residuals: np.ndarray, scale: float, growth: float, coarse: float) -> Resolution:
    """Return the resolution of the answers Y, with the residuals of their segments."""
    # A kink on one segment leaves a far larger residual than the rounding on the others.
    residual = residuals.max() if residuals.max() < 100.0 * residuals.min() else residuals.min()
    single, half = np.array_equal(Y, Y.astype(np.float32)), np.array_equal(Y, _in_half(Y))
    rounding = max(float(residual) / scale, SINGLE if single else DOUBLE)
    half = half and rounding > coarse
    rounding = max(rounding, HALF) if half else rounding
    # An oracle that answers in single precision is assumed to round its inputs to it too.
    return Resolution(rounding, scale, growth, single and rounding > coarse, half)


def _grid(found: Resolution, near: np.ndarray, far: np.ndarray) -> float:
    """Return the step of the grid if answers are rounded to a fixed number of decimals, near and far alike; else 0.

    All answers are then multiples of the step, and few of the far ones are multiples of ten times the step. If answers
    had a fixed number of significant digits, many would be.
    """
    grid = float(10.0 ** np.ceil(np.log10(found.rounding * found.scale)))
    on_grid = _are_multiples(near, grid) == 1.0 == _are_multiples(far, grid)
    return grid if on_grid and _are_multiples(far, 10.0 * grid) < 0.5 else 0.0


def _are_multiples(Y: np.ndarray, grid: float) -> float:
    """Return the share of the answers that are multiples of the grid, up to their own precision."""
    own = 2.0 * SINGLE if np.array_equal(Y, Y.astype(np.float32)) else 8.0 * DOUBLE
    multiples = Y / grid
    allowed = own * np.abs(multiples)
    return float(np.mean(np.abs(multiples - np.rint(multiples)) <= allowed)) if allowed.max() < 0.25 else 0.0


def _segments(limits: Limits, start: np.ndarray, along: np.ndarray, length: float) -> np.ndarray:
    """Return the points (segments, 6, d) of segments of one length, shorter at the limits."""
    return start + length * PLACES[:, None] * limits.shorten(start, along, length * PLACES[-1])


def check_repeatable(query: Query, X: np.ndarray, Y: np.ndarray, options: BoxOptions) -> None:
    """Raise UnsolvableError if querying X again gives other answers than Y."""
    # The same rows in the same batch, because a batch of another size may be summed in another order.
    again = query(X)
    apart = np.abs(again - Y).max(axis=1) / max(float(np.abs(Y).max()), 1e-300)
    # Threads may sum a few answers in another order, but not most of them, and none is far off by that.
    if np.count_nonzero(apart > options.repeat) > len(X) // 2 or apart.max() > options.other:
        raise UnsolvableError(DIFFERENT)


def _varies(Y: np.ndarray) -> np.ndarray:
    """Return a mask (segments,) of the segments on which the answers are not all equal."""
    return np.asarray(np.ptp(Y, axis=1).max(axis=1) > 0)


def _in_half(Y: np.ndarray) -> np.ndarray:
    """Return the answers in half precision."""
    with np.errstate(over="ignore"):
        return Y.astype(np.float16)


def _rms(Y: np.ndarray) -> float:
    """Return the root mean square."""
    return float(np.sqrt(np.mean(Y**2)))


def _affine_residual(y: np.ndarray) -> float:
    """Return the largest residual of the best affine function of τ through y (6, p)."""
    basis = np.linalg.qr(np.column_stack([np.ones(len(y)), PLACES - PLACES.mean()]))[0]
    centred = y - y[0]
    return float(np.abs(centred - basis @ (basis.T @ centred)).max())
