"""Tests whether an oracle is smooth, and measures the rounding of its answers if it is.

On a short segment a smooth f is a cubic up to terms of fourth order, and linear up to terms of second order. A
piecewise linear f is linear, or has a kink, which a cubic fits no better. What a cubic leaves on ever shorter segments
is the rounding of the answers.
"""

from __future__ import annotations

import numpy as np

from neurecover.queries.box.black_box import Box

# Uneven, so that they do not fall in with a grid of digits.
_STEPS = np.array([0.0, 0.71, 1.87, 3.14, 3.9, 5.0])
_BY_LENGTH, _LENGTHS = (1e-3, 1e-2, 1e-1), (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8)
_SEGMENTS, _MORE = 4, 8
# How much less a cubic has to leave than a straight line: rounding alone gives a factor of two.
_BENDS = 30.0
_FINEST, _FINEST_SINGLE = 2.0**-52, 2.0**-24


def is_curved(box: Box, rng: np.random.Generator) -> bool:
    """Return whether the oracle bends smoothly on most of a few short segments, or of longer ones when answers are
    coarse.

    Two straight segments are enough to deny it.
    """
    half = _SEGMENTS // 2
    for length in _BY_LENGTH if box.coarse else _BY_LENGTH[:1]:
        curved = _count_curved(_query_segments(box, length, half, rng))
        if curved:
            curved += _count_curved(_query_segments(box, length, _SEGMENTS - half, rng))
        if curved >= 0.75 * _SEGMENTS:
            return True
    return False


def _count_curved(Y: np.ndarray) -> int:
    """Count the segments that a cubic fits far better than a straight line."""
    return int(np.count_nonzero(_residuals(Y, 1) > _BENDS * _residuals(Y, 3)))


def measure_smooth_resolution(box: Box, rng: np.random.Generator) -> float:
    """Return the rounding of an answer, relative to the size of the answers near the origin."""
    left, single = [], True
    for length in _LENGTHS:
        Y = _query_segments(box, length, _MORE, rng)
        found = _residuals(Y, 3)
        single = single and np.array_equal(Y, Y.astype(np.float32))
        if np.count_nonzero(found) >= _MORE // 2:
            left.append(float(np.median(found[found > 0.0])))
    # A cubic through six answers leaves two degrees of freedom: the largest residual is about a third of the rounding.
    return max(3.0 * min(left, default=0.0) / box.scale, _FINEST_SINGLE if single else _FINEST)


def _query_segments(box: Box, length: float, segments: int, rng: np.random.Generator) -> np.ndarray:
    """Query random segments of one length; return the answers (segments, 6, p)."""
    start, direction = rng.standard_normal((2, segments, 1, box.n_inputs))
    start = box.limits.pull_inside(start)
    X = start + length * _STEPS[:, None] * box.limits.shorten(start, direction, length * _STEPS[-1])
    return box(X.reshape(-1, box.n_inputs)).reshape(segments, len(_STEPS), -1)


def _residuals(Y: np.ndarray, degree: int) -> np.ndarray:
    """Return the largest residual of the best polynomial of this degree on every segment, (segments,)."""
    basis = np.linalg.qr(np.vander(_STEPS / _STEPS[-1] - 0.5, degree + 1))[0]
    centred = Y - Y[:, :1]
    return np.abs(centred - basis @ (basis.T @ centred)).max(axis=(1, 2))
