"""Units that saturate, seen from far away, where the answers are steps between plateaus.

Let act(z) → l₋, l₊ as z → ∓∞, faster than any power. On a circle x(θ) = R (u cos θ + v sin θ)

    z_j(θ) = R r_j cos(θ − φ_j) + b_j,

so that on half of it every unit goes once from one limit to the other, over an angle of about 1/(R r_j); between such
steps the answers are constant. At an isolated step

    y = y₋ + J s,      s = (act(z_j) − l₋) / (l₊ − l₋),      J = (l₊ − l₋) A_j,

and z_j = act⁻¹(l₋ + s (l₊ − l₋)) is measured, not estimated. It is affine in x: d + 1 queries give w_j and b_j. Steps
that coincide on one circle are separate on the next. The contribution of known units is subtracted first; once a circle
has no steps left, all units are found.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.activations import Activation
from neurecover.exceptions import UnsolvableError
from neurecover.models import Network, replace_arrays
from neurecover.queries.box.black_box import Box
from neurecover.queries.box.gradients import draw_basis
from neurecover.solve import Deadline

# Radii that are tried, by factors of four: beyond the last, z has no digits left after the comma.
_RADII = 4.0 ** np.arange(17)
# Directions that are looked at, the part of them that has to have settled, the part in which the answers have to differ
# from those the other way, and how much farther out the circle is.
_DIRECTIONS, _SETTLED, _VARIES, _BEYOND = 48, 0.8, 0.2, 8.0
# Circles in all and before a wider one is taken, angles on the first, and how many times as many on a wider one: units
# of nearly the same direction step at nearly the same angle.
_CIRCLES, _CIRCLES_EACH, _GRID, _FINER = 12, 3, 400, 4
# The error of z, per unit of it at the radius where all has settled, up to which a circle is widened.
_Z_ERROR = 2e-7
# A little more than π, so that no unit steps at the ends alone.
_HALF = 1.03 * np.pi
# A change is told from rounding by so many times as much, and a step from the ends of others by so many times that.
_CLEAR, _STEP = 16.0, 30.0
# Halvings until a question falls on the slope of a step: an angle has 52 bits.
_HALVINGS, _SLOPE = 52, (0.3, 0.7)
# Factor by which questions around a slope come nearer or go farther, and how often; z they differ by in the end.
_FACTOR, _TRIES, _APART = 3.0, 40, 0.3
# Fresh questions by which a unit is tried, and how well they agree, in units of the rounding of z.
_FRESH, _AGREES = 6, 8.0
# The angle up to which two units are one, and how many times the rounding of z it is at least.
_SAME, _TURNED = 1e-4, 10.0
# The part of a known unit that may be left of it.
_LITTLE = 0.01


class NotSaturatingError(UnsolvableError):
    """The oracle is not made of units that saturate."""


@dataclass(frozen=True, eq=False)
class Steps:
    """The units found, as a network, the radius at which they have settled and that of the widest circle."""

    network: Network
    radius: float
    circle: float


def limits_of(activation: Activation) -> tuple[float, float]:
    """Return l₋ and l₊; raise ValueError for an activation that does not level off on both sides, or has no centre."""
    left, right = activation(np.array([[-60.0, -45.0], [45.0, 60.0]]))
    level = np.ptp(left) <= 1e-15 and np.ptp(right) <= 1e-15 and abs(right[0] - left[0]) > 1e-3
    if not level or activation.reflection is None or not activation.differentiable:
        raise ValueError(
            f"expected an activation that levels off on both sides, such as tanh. Got {activation} instead."
        )
    return float(left[0]), float(right[0])


def find_steps(
    box: Box, activation: Activation, resolution: float, rng: np.random.Generator, deadline: Deadline
) -> Steps:
    """Find the units behind the steps, on one circle after another until one is explained."""
    settled = _find_settled_radius(box, 8.0 * resolution, rng)
    d, p = box.n_inputs, box.n_outputs
    known = Network(np.zeros((0, d)), None, np.zeros((p, 0)), None, activation)
    for number in range(_CIRCLES):
        if deadline.passed:
            raise UnsolvableError("Time ran out before all units were found: give a larger time_budget.")
        finer = number // _CIRCLES_EACH
        beyond = max(min(_BEYOND ** (1 + finer), _Z_ERROR / resolution), 1.0)
        circle = _Circle(box, known, beyond * settled, np.linalg.qr(rng.standard_normal((d, 2)))[0].T)
        theta = rng.uniform(0.0, np.pi) + np.linspace(0.0, _HALF, _GRID * _FINER**finer)
        left = circle.left(circle.at(theta))
        largest = max(box.scale, float(np.abs(left).max()), float(np.abs(known.A).sum(axis=1).max()))
        clear = _CLEAR * resolution * largest
        steps = _find_brackets(theta, left, clear)
        known = replace_arrays(known, c=known.c + np.median(left, axis=0))
        if not steps:
            return Steps(known, settled, circle.radius)
        for x, before, jump in _find_slope_points(circle, steps):
            unit = _measure_unit(circle, x, before, jump, settled, resolution, clear, rng)
            if unit is not None:
                rounding = _TURNED * resolution * circle.radius * float(np.linalg.norm(unit[0]))
                known = _add_unit(known, circle.known.n_hidden, *unit, same=max(_SAME, rounding))
    raise UnsolvableError(f"After {_CIRCLES} circles some steps are still not explained by any {activation} unit.")


def _find_settled_radius(box: Box, tolerance: float, rng: np.random.Generator) -> float:
    """Return a radius where only directions matter: answers change neither with the distance nor does y(x) + y(−x).

    (act(z) + act(−z) is a constant. Where biases still matter, −x is on the same side of a unit as x.) Raise
    NotSaturatingError if there is no such radius.
    """
    U = rng.standard_normal((_DIRECTIONS, box.n_inputs))
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    before = box(np.vstack([U, -U]) * _RADII[0])
    for radius in _RADII[1:]:
        answers = box(np.vstack([U, -U]) * radius)
        nothing = tolerance * max(float(np.abs(answers).max()), box.scale)
        there, back = answers[:_DIRECTIONS], answers[_DIRECTIONS:]
        still = np.abs(answers - before).reshape(2, _DIRECTIONS, -1).max(axis=(0, 2)) <= nothing
        centred = np.abs(there + back - np.median(there + back, axis=0)).max(axis=1) <= 2.0 * nothing
        if np.mean(still & centred) >= _SETTLED and np.mean(np.abs(there - back).max(axis=1) > nothing) >= _VARIES:
            return float(radius)
        before = answers
    raise NotSaturatingError("The oracle does not level off far from the origin, as units that saturate do.")


@dataclass(frozen=True, eq=False)
class _Circle:
    """A circle, and the answers on it beyond what known units explain."""

    box: Box
    known: Network
    radius: float
    plane: np.ndarray

    def at(self, theta: np.ndarray) -> np.ndarray:
        """Return R (u cos θ + v sin θ), rounded to float32 for an oracle that works in it."""
        X = self.radius * np.column_stack([np.cos(theta), np.sin(theta)]) @ self.plane
        return X.astype(np.float32).astype(float) if self.box.coarse else X

    def left(self, X: np.ndarray) -> np.ndarray:
        """Return the answers minus those of the known units, (n, p)."""
        return self.box(X) - self.known(X)


@dataclass(frozen=True, eq=False)
class _Bracket:
    """Two angles with a step between them, and the unexplained answers at both."""

    angles: np.ndarray
    left: np.ndarray


def _find_brackets(theta: np.ndarray, left: np.ndarray, clear: float) -> list[_Bracket]:
    """Return the last angle before every step and the first after it; adjacent steps are taken together.

    If the answers return to where they were, a known unit is slightly off. Steps at the ends are left out: their start
    is not seen.
    """
    changed = np.concatenate([[False], np.abs(np.diff(left, axis=0)).max(axis=1) > clear, [False]])
    low, high = np.flatnonzero(~changed[:-1] & changed[1:]), np.flatnonzero(changed[:-1] & ~changed[1:])
    inside = [(i, j) for i, j in zip(low, high) if i > 0 and j < len(theta) - 1]
    steps = [_Bracket(theta[[i, j]], left[[i, j]]) for i, j in inside]
    return [step for step in steps if np.abs(np.diff(step.left, axis=0)).max() > _STEP * clear]


def _find_slope_points(circle: _Circle, steps: list[_Bracket]) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Find by bisection a point x on the slope of every step; return it, the answer before it and its jump."""
    low, high = np.array([step.angles for step in steps]).T.copy()
    before, after = np.array([step.left for step in steps]).transpose(1, 0, 2)
    jump, middle, found = after - before, low.copy(), np.zeros(len(low), dtype=bool)
    for _ in range(_HALVINGS):
        open_ = np.flatnonzero(~found)
        if not len(open_):
            break
        middle[open_] = 0.5 * (low + high)[open_]
        s = _share(circle.left(circle.at(middle[open_])), before[open_], jump[open_])
        found[open_] = (_SLOPE[0] < s) & (s < _SLOPE[1])
        below = s < 0.5
        low[open_[below]], high[open_[~below]] = middle[open_[below]], middle[open_[~below]]
    return list(zip(circle.at(middle[found]), before[found], jump[found]))


def _share(Y: np.ndarray, before: np.ndarray, jump: np.ndarray) -> np.ndarray:
    """Return s of y = y₋ + J s, by least squares over the outputs."""
    return np.sum((Y - before) * jump, axis=-1) / np.sum(jump**2, axis=-1)


def _measure_unit(
    circle: _Circle,
    x: np.ndarray,
    before: np.ndarray,
    jump: np.ndarray,
    settled: float,
    resolution: float,
    clear: float,
    rng: np.random.Generator,
) -> tuple[np.ndarray, float, np.ndarray] | None:
    """Measure w, b and A of the unit whose slope x lies on; None if there is more than one unit."""
    act = circle.known.activation
    lower, upper = limits_of(act)
    basis, step = draw_basis(rng, len(x)).T, settled / 64.0

    def z_at(X: np.ndarray) -> np.ndarray:
        s = _share(circle.left(X), before, jump)
        return act.inverse(lower + np.clip(s, 1e-3, 1.0 - 1e-3) * (upper - lower))

    here, farthest = float(z_at(x[None])[0]), act.inverse(np.array(lower + 0.99 * (upper - lower)))
    for _ in range(_TRIES):
        apart = z_at(x + step * basis) - here
        if np.abs(apart + here).max() > farthest:
            step /= _FACTOR
        elif np.abs(apart).max() < _APART and step < settled:
            step *= _FACTOR
        else:
            break
    if not _APART <= np.abs(apart).max() <= 2.0 * farthest:  # a plateau between two steps
        return None
    w = (apart / step) @ basis
    b = here - float(w @ x)
    X = x + 2.0 * step * rng.standard_normal((_FRESH, len(x)))
    expected = before + ((act(X @ w + b) - lower) / (upper - lower))[:, None] * jump
    wrong = np.abs(circle.left(X) - expected).max()
    rounding = clear + _AGREES * resolution * float(np.linalg.norm(w)) * circle.radius * np.abs(jump).max()
    return (w, b, jump / (upper - lower)) if wrong < rounding else None


def _add_unit(known: Network, n_before: int, w: np.ndarray, b: float, A: np.ndarray, *, same: float) -> Network:
    """Return the network with one more unit, or with a correction of one that it has, within an angle of `same`.

    Units added since the first n_before are not corrected: they appear at both ends of the half circle.
    """
    directions = known.W / np.linalg.norm(known.W, axis=1, keepdims=True)
    for side in (1.0, -1.0):
        found = np.flatnonzero(np.linalg.norm(directions - side * w / np.linalg.norm(w), axis=1) < same)
        if len(found):
            j, more = found[0], known.A.copy()
            if j < n_before and np.abs(A).max() < _LITTLE * np.abs(more[:, j]).max():
                more[:, j] += side * A
            return replace_arrays(known, A=more)
    return Network(
        np.vstack([known.W, w]), np.append(known.b, b), np.column_stack([known.A, A]), known.c, known.activation
    )
