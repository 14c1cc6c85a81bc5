"""Kinks on short segments: whether there is one, where exactly, and in which direction the gradient jumps.

Across the boundary of a single unit f passes from one linear piece to another. On a short segment x + t v, |t| ≤ R, two
answers on either side of the kink give both pieces, and these meet at the kink,

    t* = (l₀ − r₀)·(r₁ − l₁) / ‖r₁ − l₁‖²,    f = l₀ + l₁ t  to the left,   f = r₀ + r₁ t  to the right.

The jump of the gradient is a multiple of the boundary's normal, one multiple per output.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.queries.box.black_box import Box


@dataclass(frozen=True, eq=False)
class LocalKinks:
    """Per segment: where the two pieces meet, whether they differ visibly, whether f is straight, or constant."""

    position: np.ndarray
    visible: np.ndarray
    straight: np.ndarray
    flat: np.ndarray


def find_local_kinks(box: Box, X: np.ndarray, V: np.ndarray, radius: np.ndarray, arm: float = 0.5) -> LocalKinks:
    """Find the kink of each segment X_i + t V_i, |t| ≤ radius_i, if it has one, with four queries per segment.

    `arm` is the fraction of the radius over which a slope is taken: the kink is sought within |t| < (1 − arm)·radius.
    """
    options = box.options.lines
    inner = 1.0 - arm
    steps = np.array([-1.0, -inner, inner, 1.0])
    points = X[:, None, :] + (radius[:, None] * steps)[:, :, None] * V[:, None, :]
    points = points.reshape(-1, X.shape[1])
    Y = box(points)
    noise = box.noise(points, Y).reshape(len(X), 4).max(axis=1)
    f = Y.reshape(len(X), 4, Y.shape[1])
    width = (arm * radius)[:, None]
    left, right = (f[:, 1] - f[:, 0]) / width, (f[:, 3] - f[:, 2]) / width
    start = f[:, 0] + left * radius[:, None]
    stop = f[:, 3] - right * radius[:, None]
    turn = right - left
    square = np.sum(turn * turn, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        position = np.sum((start - stop) * turn, axis=1) / square
    bend = np.sqrt(square) * width[:, 0]
    gap = np.abs(start - stop).max(axis=1) * arm
    straight = (bend < options.straight * noise) & (gap < options.straight * noise)
    flat = np.abs(f[:, 3] - f[:, 0]).max(axis=1) < options.visible * noise
    return LocalKinks(position, bend > options.visible * noise, straight, flat)


def confirm_kinks(
    box: Box, X: np.ndarray, V: np.ndarray, radius: np.ndarray, found: LocalKinks, arm: float = 0.5
) -> np.ndarray:
    """Return whether answers close to the meeting points show the same kink (n,), with four queries per segment.

    Two pieces always meet somewhere. If the segment has another kink, f does not follow them to that point.
    """
    options = box.options.lines
    t = found.position
    usable = found.visible & (np.abs(t) < (1.0 - arm) * radius)
    ok = np.zeros(len(X), dtype=bool)
    index = np.flatnonzero(usable)
    if not index.size:
        return ok
    half = options.close_look * radius[index]
    again = find_local_kinks(box, X[index] + t[index, None] * V[index], V[index], half)
    ok[index] = again.visible & (np.abs(again.position) < options.same_place * radius[index])
    return ok


def find_normal(jump: np.ndarray) -> np.ndarray:
    """Return the unit vector (d,) that all columns of a gradient's jump (d, p) share."""
    normal = jump[:, 0] if jump.shape[1] == 1 else np.linalg.svd(jump, full_matrices=False)[0][:, 0]
    return normal / np.linalg.norm(normal)
