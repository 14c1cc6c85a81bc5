"""Tests whether an oracle is smooth, and measures the rounding of its answers if it is.

On a short segment a smooth f is a cubic up to terms of fourth order, and linear up to terms of second order. A
piecewise linear f is linear, or has a kink, which a cubic fits no better. What a cubic leaves on ever shorter segments
is the rounding of the answers.
"""

from __future__ import annotations

import numpy as np

from neurecover.queries.box.black_box import Box
from neurecover.queries.box.resolution import DOUBLE, PLACES, SINGLE


def is_curved(box: Box, rng: np.random.Generator) -> bool:
    """Return whether the oracle bends smoothly on most of a few short segments, which are longer if answers are coarse.

    If two segments are straight, it does not. The segments that measure the resolution are tested first: on a length of
    1e-6 a smooth bend leaves 1e-12, which is more than rounding.
    """
    options = box.options.box
    if box.resolution <= options.straight * DOUBLE:
        return False
    half = options.curve_segments // 2
    for length in options.curve_lengths if box.coarse else options.curve_lengths[:1]:
        curved = _count_curved(_query_segments(box, length, half, rng), options.curve_ratio)
        if curved:
            curved += _count_curved(
                _query_segments(box, length, options.curve_segments - half, rng), options.curve_ratio
            )
        if curved >= 0.75 * options.curve_segments:
            return True
    return False


def _count_curved(Y: np.ndarray, ratio: float) -> int:
    """Count the segments that a cubic fits better than a straight line, by this ratio of residuals."""
    return int(np.count_nonzero(_residuals(Y, 1) > ratio * _residuals(Y, 3)))


def measure_smooth_resolution(box: Box, rng: np.random.Generator) -> float:
    """Return the rounding of an answer, relative to the size of the answers near the origin."""
    options = box.options.box
    left, single = [], True
    for length in options.rounding_lengths:
        Y = _query_segments(box, length, options.rounding_segments, rng)
        found = _residuals(Y, 3)
        single = single and np.array_equal(Y, Y.astype(np.float32))
        if np.count_nonzero(found) >= options.rounding_segments // 2:
            left.append(float(np.median(found[found > 0.0])))
    # A cubic through six answers leaves two degrees of freedom: the largest residual is about a third of the rounding.
    return max(3.0 * min(left, default=0.0) / box.scale, SINGLE if single else DOUBLE)


def _query_segments(box: Box, length: float, segments: int, rng: np.random.Generator) -> np.ndarray:
    """Query random segments of one length; return the answers (segments, 6, p)."""
    start, direction = rng.standard_normal((2, segments, 1, box.n_inputs))
    start = box.limits.pull_inside(start)
    X = start + length * PLACES[:, None] * box.limits.shorten(start, direction, length * PLACES[-1])
    return box(X.reshape(-1, box.n_inputs)).reshape(segments, len(PLACES), -1)


def _residuals(Y: np.ndarray, degree: int) -> np.ndarray:
    """Return the largest residual of the best polynomial of this degree on every segment, (segments,)."""
    basis = np.linalg.qr(np.vander(PLACES / PLACES[-1] - 0.5, degree + 1))[0]
    centred = Y - Y[:, :1]
    return np.abs(centred - basis @ (basis.T @ centred)).max(axis=(1, 2))
