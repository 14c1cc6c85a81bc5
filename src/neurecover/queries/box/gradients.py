"""Gradients of a piecewise linear oracle, one per linear region, in one basis for all regions.

Inside a region f(x + u) = f(x) + J u, so a step h along every column q of an orthonormal basis Q gives

    J q = (f(x + h q) − f(x)) / h,

with the rounding of the two answers divided by h. Longer steps are better, as long as they end in the same region. One
further query, x + h Q z with random signs in z, checks all steps at once: it disagrees as soon as one of them crossed a
kink. The steps that crossed are then found by bisection and taken again in the other direction.

The basis is random, so that no direction is nearly normal to a hyperplane.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.queries.box.black_box import Box


@dataclass(frozen=True, eq=False)
class Gradients:
    """Gradients at `points` (R, d): `values` (R, p) and `jacobians` (R, p, m) along the columns of `basis` (d, m).

    `steps` (R, m) are the final steps, and `sound` (R,) says whether they stayed inside the region. `noise` (R,) is the
    expected rounding of an answer there.
    """

    points: np.ndarray
    values: np.ndarray
    jacobians: np.ndarray
    basis: np.ndarray
    steps: np.ndarray
    noise: np.ndarray
    sound: np.ndarray

    def full(self) -> np.ndarray:
        """Return the jacobians (R, p, d) by the inputs; zero across the basis."""
        return self.jacobians @ self.basis.T


def draw_basis(rng: np.random.Generator, d: int, first: np.ndarray | None = None) -> np.ndarray:
    """Draw a random orthonormal basis (d, d), one vector per column; `first` (d,) is the direction of the first one."""
    random = rng.standard_normal((d, d))
    if first is not None:
        random[:, 0] = first
    basis = np.linalg.qr(random)[0]
    return basis if first is None or basis[:, 0] @ first > 0 else np.column_stack([-basis[:, 0], basis[:, 1:]])


def measure_gradients(
    box: Box,
    points: np.ndarray,
    basis: np.ndarray,
    steps: np.ndarray,
    *,
    rng: np.random.Generator,
    values: np.ndarray | None = None,
    check: bool = True,
) -> Gradients:
    """Measure the jacobian of the oracle at the points (R, d) along the columns of the basis (d, m).

    steps (R,) or (R, m) are the first steps to try; a negative step goes the other way. values (R, p) are the answers
    at the points, if already known. Without `check` the steps are trusted to stay inside, as in regions of a known
    network.
    """
    points = np.asarray(points, dtype=float)
    steps = np.array(np.broadcast_to(np.reshape(steps, (len(points), -1)), (len(points), basis.shape[1])), dtype=float)
    steps = _limit_steps(box, points, steps) if check else steps
    values = box(points) if values is None else values
    noise = box.noise(points, values)
    jacobians = np.empty((len(points), values.shape[1], basis.shape[1]))
    sound = np.full(len(points), not check)
    for group in _groups(np.arange(len(points)), basis, box.options.box.batch):
        jacobians[group] = _differences(box, points[group], values[group], basis, steps[group])
        if check:
            sound[group] = _stays_inside(box, points[group], values[group], basis, steps[group], jacobians[group], rng)
    for r in np.flatnonzero(~sound):
        sound[r] = _Stencil(box, points[r], values[r], basis, steps[r], jacobians[r], rng).repair()
    return Gradients(points, values, jacobians, basis, steps, noise, sound)


def choose_steps(
    box: Box,
    points: np.ndarray,
    values: np.ndarray,
    basis: np.ndarray,
    steps: np.ndarray,
    *,
    rng: np.random.Generator,
) -> np.ndarray:
    """Choose steps (R,), at most the given ones, that are likely to stay inside every region.

    f(x + u) + f(x − u) = 2 f(x) unless a hyperplane passes between. This is tested for a few random u three times as
    long as a step, with ever shorter steps. When a whole gradient is as cheap as the test, the shortest step is taken
    at once.
    """
    options = box.options.box
    steps = _limit_steps(box, points, np.array(steps, dtype=float))
    d, m = basis.shape
    if m == 0 or (m < options.cheap and not box.coarse):
        return steps * options.ladder**options.rungs
    todo = np.arange(len(points))
    for _ in range(options.most_rungs):
        if not len(todo):
            break
        u = (
            rng.choice([-3.0, 3.0], (len(todo), options.probes, m))
            @ basis.T
            * (steps[todo] / np.sqrt(m))[:, None, None]
        )
        X = points[todo, None, None, :] + np.stack([u, -u], axis=1)
        answers = box(X.reshape(-1, d))
        noise = box.noise(X.reshape(-1, d), answers).reshape(len(todo), -1).max(axis=1)
        ends = answers.reshape(len(todo), 2, options.probes, -1)
        bend = np.abs(ends.sum(axis=1) - 2.0 * values[todo, None, :]).max(axis=(1, 2))
        todo = todo[bend > options.disagreement * noise]
        steps[todo] *= options.ladder
    return options.probed * steps


def _limit_steps(box: Box, points: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Shorten the steps (R,) or (R, m) so that three times as far stays inside the oracle's limits."""
    options = box.options.box
    if not box.limits:
        return steps
    longest = box.limits.room(points).reshape(-1, *[1] * (steps.ndim - 1)) / options.check_reach
    return np.sign(steps) * np.minimum(np.abs(steps), longest)


def _groups(regions: np.ndarray, basis: np.ndarray, batch: int) -> list[np.ndarray]:
    """Split the regions into groups that are queried in one batch."""
    size = max(1, batch // max(1, basis.size))
    return [regions[start : start + size] for start in range(0, len(regions), size)]


def _differences(box: Box, points: np.ndarray, values: np.ndarray, basis: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return the difference quotients (R, p, m) of the given steps."""
    d, m = basis.shape
    X = points[:, None, :] + steps[:, :, None] * basis.T
    answers = box(X.reshape(-1, d)).reshape(len(points), m, box.n_outputs)
    return np.swapaxes((answers - values[:, None, :]) / steps[:, :, None], 1, 2)


@dataclass(frozen=True, eq=False)
class _Stencil:
    """Steps (m,) from one point along the basis, and the jacobian (p, m) they give; both are repaired in place."""

    box: Box
    point: np.ndarray
    value: np.ndarray
    basis: np.ndarray
    steps: np.ndarray
    jacobian: np.ndarray
    rng: np.random.Generator

    def repair(self) -> bool:
        """Find the steps that crossed a hyperplane by bisection and retake them, shorter and reversed.

        If that fails twice, all steps are shortened. Return whether the steps agree in the end.
        """
        everything = np.arange(len(self.steps))
        at, value = self.point[None], self.value[None]
        for number, shorten in enumerate(self.box.options.box.shorten):
            few = self._find_crossing_steps() if number < 2 else everything
            crossed = few if len(few) else everything
            self.steps[crossed] /= -shorten
            some = self.steps[None, crossed]
            self.jacobian[:, crossed] = _differences(self.box, at, value, self.basis[:, crossed], some)[0]
            if _stays_inside(self.box, at, value, self.basis, self.steps[None], self.jacobian[None], self.rng)[0]:
                return True
        return False

    def _find_crossing_steps(self) -> np.ndarray:
        """Return the directions whose step disagrees with the rest, by bisection; all of them if they are many."""
        options = self.box.options.box
        sets, found = [np.arange(len(self.steps))], []
        while 0 < len(sets) <= options.few:
            halves = [half for one in sets for half in np.array_split(one, 2) if len(half)]
            z = np.zeros((len(halves), len(self.steps)))
            for row, half in zip(z, halves):
                row[half] = _draw_offsets(self.steps[half], self.rng)
            X = self.point + z @ self.basis.T
            answers = self.box(X)
            left = np.abs(answers - self.value - z @ self.jacobian.T).max(axis=1)
            wrong = left > options.disagreement * self.box.noise(X, answers)
            bad = [half for half, is_wrong in zip(halves, wrong) if is_wrong]
            found += [half for half in bad if len(half) == 1]
            sets = [half for half in bad if len(half) > 1]
        return np.arange(len(self.steps)) if sets else np.array(found, dtype=int).ravel()


def _draw_offsets(steps: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw z_i = ±3 h_i/√m: together three times as far as one step, or one step when there are few."""
    return rng.choice([-1.0, 1.0], steps.shape) * np.abs(steps) * min(3.0 / np.sqrt(max(steps.shape[-1], 1)), 1.0)


def _stays_inside(
    box: Box,
    points: np.ndarray,
    values: np.ndarray,
    basis: np.ndarray,
    steps: np.ndarray,
    jacobians: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return whether f(x + Q z) = f(x) + J Q z for random z, (R,)."""
    options = box.options.box
    z = _draw_offsets(steps, rng)
    X = points + z @ basis.T
    answers = box(X)
    left = np.abs(answers - values - np.einsum("rpm,rm->rp", jacobians, z)).max(axis=1)
    return left < options.disagreement * box.noise(X, answers)
