"""Kinks on short segments: whether there is one, where exactly, and in which direction the gradient jumps.

Across the boundary of a single unit f passes from one linear piece to another. On a short segment x + t v, |t| ≤ R, m
answers on either side of the kink give both pieces by least squares, and these meet at the kink,

    t* = (l₀ − r₀)·Δ / ‖Δ‖²,   Δ = r₁ − l₁,    f = l₀ + l₁ t  to the left,   f = r₀ + r₁ t  to the right.

With e the rounding of an answer, c̄ the mean of the m places on one arm and S their sum of squares about it, t* has the
standard error

    σ_t = √(2 (1/m + c̄²/S)) · e / ‖Δ‖,

which does not depend on R. The jump of the gradient is a multiple of the boundary's normal, one multiple per output.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.queries.box.black_box import Box


@dataclass(frozen=True, eq=False)
class LocalKinks:
    """The kinks of n segments: `position` t* (n,) where the two pieces meet, its standard error `sigma`, and Δ, `jump`
    (n, p).

    The masks say, per segment: `visible`, that the pieces differ; `clean`, that each is straight; `straight`, that f is
    straight on the whole segment; `flat`, that f is constant.
    """

    position: np.ndarray
    sigma: np.ndarray
    jump: np.ndarray
    visible: np.ndarray
    clean: np.ndarray
    straight: np.ndarray
    flat: np.ndarray


def find_local_kinks(box: Box, X: np.ndarray, V: np.ndarray, radius: np.ndarray, arm: float = 0.5) -> LocalKinks:
    """Find the kink of each segment X_i + t V_i, |t| ≤ radius_i, if it has one, with two to four queries per arm.

    `arm` is the fraction of the radius over which a slope is taken: the kink is sought within |t| < (1 − arm)·radius.
    """
    options = box.options.lines
    n, d = X.shape
    m = options.per_arm_coarse if box.coarse else options.per_arm
    arm = max(arm, options.wide_arm) if box.coarse else arm
    places = np.linspace(1.0 - arm, 1.0, m)
    steps = np.concatenate([-places[::-1], places])
    points = (X[:, None, :] + (radius[:, None] * steps)[:, :, None] * V[:, None, :]).reshape(-1, d)
    Y = box(points)
    noise = box.noise(points, Y).reshape(n, 2 * m).max(axis=1, initial=0.0)
    f = Y.reshape(n, 2 * m, Y.shape[1])
    # Both pieces in units of the radius, about the middle ±c̄ of their arms.
    middle, offsets = float(places.mean()), places - places.mean()
    square = float(offsets @ offsets)
    left = np.einsum("nip,i->np", f[:, :m], -offsets[::-1]) / square
    right = np.einsum("nip,i->np", f[:, m:], offsets) / square
    low, high = f[:, :m].mean(axis=1), f[:, m:].mean(axis=1)
    rest_left = f[:, :m] - low[:, None] - (-offsets[::-1])[:, None] * left[:, None]
    rest_right = f[:, m:] - high[:, None] - offsets[:, None] * right[:, None]
    rest = np.maximum(np.abs(rest_left), np.abs(rest_right)).max(axis=(1, 2), initial=0.0)
    start, stop, turn = low + middle * left, high - middle * right, right - left
    length = np.linalg.norm(turn, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        position = radius * np.sum((start - stop) * turn, axis=1) / length**2
        sigma = radius * np.sqrt(2.0 * (1.0 / m + middle**2 / square)) * noise / length
    bend, gap = arm * length, arm * np.abs(start - stop).max(axis=1, initial=0.0)
    seen = options.visible_coarse if box.coarse else options.visible
    even = options.straight_coarse if box.coarse else options.straight
    clean = rest < options.clean * noise if m > 2 else np.ones(n, dtype=bool)
    straight = (bend < even * noise) & (gap < even * noise) & clean
    flat = np.abs(f[:, -1] - f[:, 0]).max(axis=1, initial=0.0) < seen * noise
    return LocalKinks(position, sigma, turn / radius[:, None], bend > seen * noise, clean, straight, flat)


def confirm_kinks(
    box: Box, X: np.ndarray, V: np.ndarray, radius: np.ndarray, found: LocalKinks, arm: float = 0.5
) -> np.ndarray:
    """Return whether answers close to the meeting points show the same kink (n,), with as many queries again.

    Two pieces always meet somewhere. If the segment has another kink, f does not follow them to that point.
    """
    options = box.options.lines
    t = found.position
    usable = found.visible & found.clean & (np.abs(t) < (1.0 - arm) * radius)
    ok = np.zeros(len(X), dtype=bool)
    index = np.flatnonzero(usable)
    if not index.size:
        return ok
    # As close as the kink still stands out from rounding.
    half = np.maximum(options.close_look * radius[index], options.close_sigma * found.sigma[index])
    half = np.minimum(half, 0.5 * radius[index])
    again = find_local_kinks(box, X[index] + t[index, None] * V[index], V[index], half)
    sigma = np.hypot(found.sigma[index], again.sigma)
    near = np.maximum(options.same_place * radius[index], options.same_sigma * sigma)
    change = np.linalg.norm(again.jump - found.jump[index], axis=1)
    same = change < options.same_jump * np.linalg.norm(found.jump[index], axis=1)
    ok[index] = again.visible & (np.abs(again.position) < near) & same
    return ok


def find_normal(jump: np.ndarray) -> np.ndarray:
    """Return the unit vector (d,) that all columns of a gradient's jump (d, p) are multiples of."""
    normal = jump[:, 0] if jump.shape[1] == 1 else np.linalg.svd(jump, full_matrices=False)[0][:, 0]
    return normal / np.linalg.norm(normal)
