"""Gradients of a piecewise linear box, one per linear region, in one basis for all regions.

Inside a region f(x + u) = f(x) + J u, so a step h along every column q of an orthonormal basis Q gives

    J q = (f(x + h q) − f(x)) / h,

with the rounding of the two answers divided by h. The longer the step the better, as long as it ends in the same
region. One more question, x + h Q z with random signs in z, tells whether all of them did: it is shared by all steps
and goes wrong as soon as one of them crossed a kink. Where it does, the steps are shortened and asked again.

A random basis is as good as any: no direction in it is nearly along the normal of a plane.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.queries.box import Box

_SAFETY = 30.0
_SHORTEN = 6.0
_ROUNDS = 6
# Floats asked in one batch when regions are put together.
_BATCH = 2**21


@dataclass(frozen=True, eq=False)
class Gradients:
    """At `points` (R, d): `values` (R, p), `jacobians` (R, p, m) along the columns of `basis` (d, m).

    `steps` (R, m) are the steps that were taken at last, and `sound` (R,) whether they stayed inside the region.
    `noise` (R,) is the rounding to expect of an answer there.
    """

    points: np.ndarray
    values: np.ndarray
    jacobians: np.ndarray
    basis: np.ndarray
    steps: np.ndarray
    noise: np.ndarray
    sound: np.ndarray

    def full(self) -> np.ndarray:
        """The jacobians (R, p, d), as far as the basis spans the inputs."""
        return self.jacobians @ self.basis.T


def orthonormal_basis(rng: np.random.Generator, d: int, first: np.ndarray | None = None) -> np.ndarray:
    """A random orthonormal basis (d, d), one vector per column; `first` (d,) is the direction of the first one."""
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
    """The jacobian of the box at every one of the points (R, d) along the columns of the basis (d, m).

    steps (R,) or (R, m) are the steps to begin with; a negative one goes the other way. values (R, p) are the answers
    at the points where they are known. Without `check` the steps are taken to be inside: for regions that are known.
    """
    points = np.asarray(points, dtype=float)
    steps = np.array(np.broadcast_to(np.reshape(steps, (len(points), -1)), (len(points), basis.shape[1])), dtype=float)
    values = box(points) if values is None else values
    noise = box.noise(points, values)
    jacobians = np.empty((len(points), values.shape[1], basis.shape[1]))
    sound = np.full(len(points), not check)
    todo = np.arange(len(points))
    for _ in range(_ROUNDS):
        for group in _groups(todo, basis):
            jacobians[group] = _differences(box, points[group], values[group], basis, steps[group])
            if check:
                sound[group] = _inside(box, points[group], values[group], basis, steps[group], jacobians[group], rng)
        todo = np.flatnonzero(~sound)
        if not len(todo):
            break
        steps[todo] /= _SHORTEN
    return Gradients(points, values, jacobians, basis, steps, noise, sound)


def _groups(regions: np.ndarray, basis: np.ndarray) -> list[np.ndarray]:
    size = max(1, _BATCH // basis.size)
    return [regions[start : start + size] for start in range(0, len(regions), size)]


def _differences(box: Box, points: np.ndarray, values: np.ndarray, basis: np.ndarray, steps: np.ndarray) -> np.ndarray:
    d, m = basis.shape
    asked = points[:, None, :] + steps[:, :, None] * basis.T
    answers = box(asked.reshape(-1, d)).reshape(len(points), m, -1)
    return np.swapaxes((answers - values[:, None, :]) / steps[:, :, None], 1, 2)


def _inside(
    box: Box,
    points: np.ndarray,
    values: np.ndarray,
    basis: np.ndarray,
    steps: np.ndarray,
    jacobians: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Whether f(x + Q z) = f(x) + J Q z with z_i = ±3 h_i/√m, three times as far as one step."""
    m = basis.shape[1]
    z = rng.choice([-1.0, 1.0], steps.shape) * np.abs(steps) * min(3.0 / np.sqrt(m), 1.0)
    asked = points + z @ basis.T
    answers = box(asked)
    left = np.abs(answers - values - np.einsum("rpm,rm->rp", jacobians, z)).max(axis=1)
    return left < _SAFETY * box.noise(asked, answers)
