"""The activation of smooth units, from bends that are far from all others.

Far out on a line x + t v the bends of k units lie far apart, and around one of them

    f(x + t v) = α + β t + γ act(s (t − t₀)),

every other unit being straight there. For every known act the place t₀ and the scale s are fitted, and α, β and γ with
them; the one that leaves rounding is the activation. A bend is found by halving: of two halves of a segment the one
goes on that is farther from straight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.activations import Activation, get
from neurecover.queries.box.black_box import Box
from neurecover.queries.smooth.options import SmoothOptions

NAMES = ("tanh", "softplus", "gelu", "silu", "elu", "selu")  # straight on both sides of a single bend


@dataclass(frozen=True)
class Shape:
    """The activation, and the typical size of w·v at the bends that showed it, for directions v ~ N(0, I)."""

    activation: Activation
    size: float


def find_shape(box: Box, rng: np.random.Generator) -> Shape | None:
    """Return the activation that a few bends agree on; None if they do not, or if it has no name."""
    options = box.options.smooth
    found: list[Shape] = []
    for _ in range(options.bends):
        shape = _shape_of_bend(box, rng)
        if shape is None:
            continue
        found.append(shape)
        if len(found) == options.agree:
            agreed = len({shape.activation for shape in found}) == 1
            return Shape(shape.activation, max(shape.size for shape in found)) if agreed else None
    return None


def _shape_of_bend(box: Box, rng: np.random.Generator) -> Shape | None:
    """Return the activation of one bend; None if it is not isolated."""
    options = box.options.smooth
    x, v = rng.standard_normal((2, box.n_inputs)) * [[options.far], [1.0]]
    centre, width = _find_bend(box, x, v, options)
    for wide in options.wide:
        t = centre + wide * width * np.linspace(-1.0, 1.0, options.points)
        tau = (t - centre) / (wide * width)
        bend = _without_line(box(x + t[:, None] * v), tau)
        left, sizes, _ = np.linalg.svd(bend, full_matrices=False)
        if sizes[0] == 0.0 or np.any(sizes[1:] > options.alone * sizes[0]):
            continue  # more than one unit bends here
        height = float(np.abs(left[:, 0]).max()) * sizes[0]
        rounding = options.roundings * float(box.noise_at(x[None])[0]) / height
        curve = left[:, 0] / np.abs(left[:, 0]).max()
        misfits = {act: _misfit(act, tau, curve, options) for act in map(get, NAMES)}
        first, second = sorted(misfits, key=lambda act: misfits[act][0])[:2]
        if misfits[first][0] < min(rounding, options.fits) and misfits[second][0] > options.apart * rounding:
            return Shape(first, misfits[first][1] / (wide * width))
    return None


def _find_bend(box: Box, x: np.ndarray, v: np.ndarray, options: SmoothOptions) -> tuple[float, float]:
    """Return a place where the line bends, and the length of the shortest segment on which a part of the bend shows.

    The distance from straight falls like the length of a segment around a sharp bend, and faster inside it.
    """
    low, high = -options.far, options.far
    f_low, f_middle, f_high = box(x + np.array([low, 0.5 * (low + high), high])[:, None] * v)
    bends: list[tuple[float, float, float]] = []
    for _ in range(options.halvings):
        middle = 0.5 * (low + high)
        left, right = box(x + np.array([0.5 * (low + middle), 0.5 * (middle + high)])[:, None] * v)
        bends.append((float(np.linalg.norm(f_low + f_high - 2.0 * f_middle)) / (high - low), middle, high - low))
        if np.linalg.norm(f_low + f_middle - 2.0 * left) > np.linalg.norm(f_middle + f_high - 2.0 * right):
            high, f_high, f_middle = middle, f_middle, left
        else:
            low, f_low, f_middle = middle, f_middle, right
    slopes = np.array([bend for bend, _, _ in bends])
    # A bend near the end of a segment shows little on it, but again on the next; inside one it shows half as much each
    # time. Among many units the bends on a long segment say nothing of the one that is left. Over short segments
    # rounding looks like a bend.
    lengths = np.array([length for _, _, length in bends])
    seen = slopes * lengths > options.clear * float(box.noise_at(np.array([x + low * v]))[0])
    before = np.concatenate([np.zeros(options.before), slopes])
    largest = np.lib.stride_tricks.sliding_window_view(before, options.before + 1).max(axis=1)
    shown = np.flatnonzero(seen & (slopes > options.shows * largest))
    _, place, length = bends[int(shown[-1]) if len(shown) else 0]
    return place, length


def _without_line(Y: np.ndarray, tau: np.ndarray) -> np.ndarray:
    """Return Y (n, p) without its best straight line."""
    basis = np.linalg.qr(np.column_stack([np.ones_like(tau), tau]))[0]
    return Y - basis @ (basis.T @ Y)


def _misfit(act: Activation, tau: np.ndarray, curve: np.ndarray, options: SmoothOptions) -> tuple[float, float]:
    """Return the largest residual of the best α + β τ + γ act(s (τ − τ₀)), and |s|."""
    from scipy.optimize import least_squares

    def residual(place: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            column = np.nan_to_num(act(np.clip(place[0] * (tau - place[1]), -500.0, 500.0)))
        basis = np.linalg.qr(np.column_stack([np.ones_like(tau), tau, column]))[0]
        return np.asarray(curve - basis @ (basis.T @ curve))

    # The best of a grid first: what a column leaves of the curve once both are without their lines.
    scales = np.outer([-1.0, 1.0], options.scales).ravel()
    S, T = (grid.ravel() for grid in np.meshgrid(scales, np.linspace(-0.6, 0.6, options.places)))
    columns = _without_line(act(S * (tau[:, None] - T)), tau)
    sizes = np.maximum(np.linalg.norm(columns, axis=0), 1e-300)
    start = int(np.argmax(np.abs(curve @ columns) / sizes))
    found = least_squares(
        residual, [S[start], T[start]], xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=options.fit_steps
    )
    size, place = abs(float(found.x[0])), abs(float(found.x[1]))
    # The tail of one function is that of another: both sides of the bend have to be in the window.
    whole = size * (1.0 - place) > options.sides
    return float(np.abs(found.fun).max()) if whole else np.inf, size
