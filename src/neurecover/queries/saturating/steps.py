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
from itertools import pairwise

import numpy as np

from neurecover.activations import Activation
from neurecover.exceptions import UnsolvableError
from neurecover.models import Network, replace_arrays
from neurecover.queries.box.black_box import Box
from neurecover.queries.box.gradients import draw_basis
from neurecover.solve import Deadline

_BITS = np.finfo(float).nmant  # bisections of an angle, which has as many bits


class NotSaturatingError(UnsolvableError):
    """The oracle is not made of units that saturate."""


@dataclass(frozen=True, eq=False)
class Steps:
    """The units found, as a network, a radius beyond which all of them saturate, and that of the widest circle."""

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
    options = box.options.saturating
    settled = _find_settled_radius(box, 8.0 * resolution, rng)
    d, p = box.n_inputs, box.n_outputs
    known = Network(np.zeros((0, d)), None, np.zeros((p, 0)), None, activation)
    for number in range(options.circles):
        if deadline.passed:
            raise UnsolvableError("Time ran out before all units were found: give a larger time_budget.")
        finer = number // options.circles_each
        beyond = max(min(options.beyond ** (1 + finer), options.z_error / resolution), 1.0)
        circle = _Circle(box, known, beyond * settled, np.linalg.qr(rng.standard_normal((d, 2)))[0].T)
        theta = rng.uniform(0.0, np.pi) + np.linspace(
            0.0, options.half_circle * np.pi, options.grid * options.finer**finer
        )
        left = circle.left(circle.at(theta))
        largest = max(box.scale, float(np.abs(left).max()), float(np.abs(known.A).sum(axis=1).max()))
        clear = options.clear * resolution * largest
        steps = _find_brackets(theta, left, clear, options.step)
        known = replace_arrays(known, c=known.c + np.median(left, axis=0))
        if not steps:
            return Steps(known, settled, circle.radius)
        for x, before, jump in _find_slope_points(circle, steps):
            unit = _measure_unit(circle, x, before, jump, settled, resolution, clear, rng)
            if unit is not None:
                rounding = options.turned * resolution * circle.radius * float(np.linalg.norm(unit[0]))
                known = _add_unit(
                    known, circle.known.n_hidden, *unit, same=max(options.same, rounding), little=options.little
                )
        if number + 1 == options.barren and not known.n_hidden:
            raise UnsolvableError(f"Far out there are steps, and none of them is that of a single {activation} unit.")
    raise UnsolvableError(
        f"After {options.circles} circles some steps are still not explained by any {activation} unit."
    )


def _find_settled_radius(box: Box, tolerance: float, rng: np.random.Generator) -> float:
    """Return a radius at which only directions matter: neither y(x) nor y(x) + y(−x) changes with the distance.

    (act(z) + act(−z) is a constant. Where biases still matter, −x is on the same side of a unit as x.) Raise
    NotSaturatingError if there is no such radius.
    """
    options = box.options.saturating
    radii = options.radius_factor ** np.arange(options.radii)
    U = rng.standard_normal((options.directions, box.n_inputs))
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    first, others = np.split(np.stack([U, -U], axis=1), [options.first_directions])
    before = _ask_along(box, first, radii[0])
    for inner, radius in pairwise(radii):
        answers = _ask_along(box, first, radius)
        # Most radii are too small, which a few directions show.
        if _settled(box, before, answers, tolerance)[0].mean() >= options.first_settled:
            closer = np.concatenate([before, _ask_along(box, others, inner)])
            farther = np.concatenate([answers, _ask_along(box, others, radius)])
            still, varies = _settled(box, closer, farther, tolerance)
            if still.mean() >= options.settled and varies.mean() >= options.varies:
                return float(radius)
        before = answers
    raise NotSaturatingError("The oracle does not level off far from the origin, as units that saturate do.")


def _ask_along(box: Box, U: np.ndarray, radius: float) -> np.ndarray:
    """Return the answers (n, 2, p) at opposite points U (n, 2, d) of length one times the radius."""
    return box(radius * U.reshape(-1, box.n_inputs)).reshape(len(U), 2, -1)


def _settled(box: Box, before: np.ndarray, answers: np.ndarray, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    """Return in which directions (n,) only the direction matters, and where opposite answers differ."""
    negligible = tolerance * max(float(np.abs(answers).max()), box.scale)
    there, back = answers[:, 0], answers[:, 1]
    still = np.abs(answers - before).max(axis=(1, 2)) <= negligible
    centred = np.abs(there + back - np.median(there + back, axis=0)).max(axis=1) <= 2.0 * negligible
    return still & centred, np.abs(there - back).max(axis=1) > negligible


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


def _find_brackets(theta: np.ndarray, left: np.ndarray, clear: float, step: float) -> list[_Bracket]:
    """Return the last angle before every step and the first after it; adjacent steps are taken together.

    Changes after which the answers return to where they were are left out, because they come from known units whose
    weights are slightly wrong. So are steps at the ends, of which one side is not seen.
    """
    changed = np.concatenate([[False], np.abs(np.diff(left, axis=0)).max(axis=1) > clear, [False]])
    low, high = np.flatnonzero(~changed[:-1] & changed[1:]), np.flatnonzero(changed[:-1] & ~changed[1:])
    inside = [(i, j) for i, j in zip(low, high) if i > 0 and j < len(theta) - 1]
    found = [_Bracket(theta[[i, j]], left[[i, j]]) for i, j in inside]
    return [bracket for bracket in found if np.abs(np.diff(bracket.left, axis=0)).max() > step * clear]


def _find_slope_points(circle: _Circle, steps: list[_Bracket]) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Find by bisection a point x on the slope of every step; return it, the answer before it and its jump."""
    options = circle.box.options.saturating
    low, high = np.array([step.angles for step in steps]).T.copy()
    before, after = np.array([step.left for step in steps]).transpose(1, 0, 2)
    jump, middle, found = after - before, low.copy(), np.zeros(len(low), dtype=bool)
    for _ in range(_BITS):
        open_ = np.flatnonzero(~found)
        if not len(open_):
            break
        middle[open_] = 0.5 * (low + high)[open_]
        s = _share(circle.left(circle.at(middle[open_])), before[open_], jump[open_])
        found[open_] = (options.slope[0] < s) & (s < options.slope[1])
        below = s < 0.5
        low[open_[below]], high[open_[~below]] = middle[open_[below]], middle[open_[~below]]
    return list(zip(circle.at(middle[found]), before[found], jump[found]))


def _share(Y: np.ndarray, before: np.ndarray, jump: np.ndarray) -> np.ndarray:
    """Return the share s by which y has moved from y₋ towards y₋ + J, by least squares over the outputs."""
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
    options = circle.box.options.saturating
    act = circle.known.activation
    lower, upper = limits_of(act)
    basis, step = draw_basis(rng, len(x)).T, settled / 64.0

    def z_at(X: np.ndarray) -> np.ndarray:
        s = _share(circle.left(X), before, jump)
        return act.inverse(lower + np.clip(s, 1e-3, 1.0 - 1e-3) * (upper - lower))

    here, farthest = float(z_at(x[None])[0]), act.inverse(np.array(lower + 0.99 * (upper - lower)))
    for _ in range(options.tries):
        apart = z_at(x + step * basis) - here
        if np.abs(apart + here).max() > farthest:
            step /= options.factor
        elif np.abs(apart).max() < options.apart and step < settled:
            step *= options.factor
        else:
            break
    if not options.apart <= np.abs(apart).max() <= 2.0 * farthest:  # a plateau between two steps
        return None
    w = (apart / step) @ basis
    b = here - float(w @ x)
    X = x + 2.0 * step * rng.standard_normal((options.tests, len(x)))
    expected = before + ((act(X @ w + b) - lower) / (upper - lower))[:, None] * jump
    wrong = np.abs(circle.left(X) - expected).max()
    rounding = clear + options.agrees * resolution * float(np.linalg.norm(w)) * circle.radius * np.abs(jump).max()
    return (w, b, jump / (upper - lower)) if wrong < rounding else None


def _add_unit(
    known: Network, n_before: int, w: np.ndarray, b: float, A: np.ndarray, *, same: float, little: float
) -> Network:
    """Return the network with one more unit, or with a correction of one that it has, within an angle of `same`.

    A correction is below `little` of the unit. Units since the first n_before are not corrected: they appear at both
    ends of the half circle.
    """
    directions = known.W / np.linalg.norm(known.W, axis=1, keepdims=True)
    for side in (1.0, -1.0):
        found = np.flatnonzero(np.linalg.norm(directions - side * w / np.linalg.norm(w), axis=1) < same)
        if len(found):
            j, more = found[0], known.A.copy()
            if j < n_before and np.abs(A).max() < little * np.abs(more[:, j]).max():
                more[:, j] += side * A
            return replace_arrays(known, A=more)
    return Network(
        np.vstack([known.W, w]), np.append(known.b, b), np.column_stack([known.A, A]), known.c, known.activation
    )
