"""Remove units from a student, and add units to it.

Unit i of layer l is removed by replacing its value with a combination of the other columns of c_l,

    h_i ≈ Σ_j β_j c_j  over the other columns,    with residual ρ_i.

To first order the outputs change by ∂y/∂h_i · ρ_i, so the removal costs Σ |∂y/∂h_i|² ρ_i², and β minimises this cost. A
unit that repeats another one or its mirror image, or that is on in every sample in which the outputs depend on it,
costs nothing. For the top layer the cost is exactly the growth of Σr² after the readout is solved again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from neurecover.fit.descent import Fit, descend
from neurecover.fit.point import Point
from neurecover.models.student import Student
from neurecover.solve import Readout

Draw = Callable[[int, int, int], np.ndarray]  # (layer, how many, columns read) → rows of V


def random_units(rng: np.random.Generator, bias: int) -> Draw:
    """Return a source of units: directions uniform on the sphere, kinks a Gaussian distance from the origin."""

    def draw(layer: int, count: int, columns: int) -> np.ndarray:
        V = rng.standard_normal((count, columns))
        return V if layer else V / np.linalg.norm(V[:, bias:], axis=1, keepdims=True)

    return draw


@dataclass(frozen=True, eq=False)
class Worth:
    """The cost of removing each unit of a layer (m,), and the regressions β (columns of c_l, m) that replace it."""

    cost: np.ndarray
    beta: np.ndarray


def worth(point: Point, layer: int) -> Worth:
    """Return what removing each unit of a layer would add to the loss, and how the other columns best replace it."""
    student, m = point.student, point.student.widths[layer]
    if layer == student.depth - 1:
        own, readout = slice(len(point.gram) - m, None), point.readout
        inverse, scale = readout.inverse, readout.scale
        theta = student.theta[own] * scale[own, None]
        beta = -inverse[:, own] / inverse.diagonal()[own] * scale[own] / scale[:, None]
        return Worth(np.sum(theta**2, axis=1) / inverse.diagonal()[own], beta)
    columns = np.hstack([point.values.F, point.values.H[:, : student.own(layer).stop]])
    size, (n, q) = np.zeros((len(columns), m)), columns.shape
    for G in point.samples.seeds():
        size += np.square(student.by_values(point.values, G)[:, student.own(layer)])
    cost, beta = np.zeros(m), np.zeros((q, m))
    for unit, omega in enumerate(size.T):
        # Where outputs do not depend on the unit any replacement will do, and the plain regression is taken.
        everywhere = max(float(omega.mean()), 1e-300)
        weighed = np.sqrt(omega + point.options.everywhere * everywhere)[:, None] * columns
        readout, own = Readout(weighed.T @ weighed), q - m + unit
        inverse, scale = readout.inverse, readout.scale
        beta[:, unit] = -inverse[:, own] / inverse[own, own] * scale[own] / scale
        rows = n * everywhere**2 / max(float(np.mean(omega**2)), 1e-300)  # that count, of which q are fitted
        cost[unit] = scale[own] ** 2 / inverse[own, own] * rows / max(rows - q, point.options.freedom * rows)
    return Worth(cost, beta)


def without(student: Student, layer: int, units: int | np.ndarray, beta: np.ndarray) -> Student:
    """Return the student without one unit of a layer, or several; what read it now reads Σ β_j c_j."""
    gone, q = np.atleast_1d(units), len(beta)
    at = q - student.widths[layer] + gone

    def moved(rows: np.ndarray) -> np.ndarray:
        rows = rows.copy()
        rows[:, :q] += rows[:, at] @ beta.reshape(q, len(gone)).T
        return np.delete(rows, at, axis=1)

    V = list(student.V)
    V[layer] = np.delete(V[layer], gone, axis=0)
    for above in range(layer + 1, student.depth):
        V[above] = moved(V[above])
    return replace(student, V=tuple(V), theta=moved(student.theta.T).T)


def most_useful(point: Point, n_keep: int) -> tuple[Student, np.ndarray]:
    """Return the student with the most useful units of its top layer, and Σr² after each removal, computed without a
    pass.

    One less costs |θ_i|²/K_ii with K = (Σ c cᵀ)⁻¹, and leaving i out moves K and Θ by a rank-one update.
    """
    student, m = point.student, point.student.widths[-1]
    K, theta, q = point.readout.inverse, student.theta * point.readout.scale[:, None], len(student.theta)
    left, path, rss = np.arange(q - m, q), [], point.loss
    while len(left) > n_keep:
        cost = np.sum(theta[left] ** 2, axis=1) / K[left, left]
        i = left[np.argmin(cost)]
        rss += float(cost.min())
        path.append(rss)
        column = K[:, i] / K[i, i]
        theta = theta - np.outer(column, theta[i])
        K = K - np.outer(column, K[i])
        left = left[left != i]
    theta = (theta / point.readout.scale[:, None])[np.r_[0 : q - m, left]]
    return replace(student, V=(*student.V[:-1], student.V[-1][left - (q - m)]), theta=theta), np.array(path)


def n_useful(point: Point) -> int:
    """Return how many units of the top layer remain after removing those whose loss costs nothing."""
    path = most_useful(point, 0)[1]
    return len(path) - int(np.count_nonzero(path <= point.options.redundant * point.scale))


def joined(student: Student, F: np.ndarray) -> Student:
    """Return a student of one layer in which units that are pieces of a single unit on these samples are merged.

    Such units are on in the same samples, or beside skips in all the others, and outputs read them in proportion: a
    unit more than there are to be found takes a piece of another, and each piece is of use.
    """
    V, theta, base, gone = student.V[0].copy(), student.theta.copy(), student.reads(1)[0], list[int]()
    Z, A = F @ V.T, theta[base:]
    near = 1e-9 * np.abs(Z).max(axis=0, initial=0.0)  # rounding: a fit may lay samples on the plane of a unit
    on, off = ((side * Z > near).astype(float) for side in (1.0, -1.0))
    alike, turned = on.T @ off + off.T @ on == 0.0, student.skips & (on.T @ on + off.T @ off == 0.0)
    share = A @ A.T / np.maximum(np.sum(A**2, axis=1), 1e-300)
    for j, i in np.argwhere((alike | turned) & (np.tri(len(V), k=-1) > 0.0)):
        if {i, j}.isdisjoint(gone) and np.linalg.norm(A[j] - share[j, i] * A[i]) <= 1e-6 * np.linalg.norm(A[j]):
            theta[:base] += turned[j, i] * np.outer(V[j, :base], A[j])
            V[i] += np.where(turned[j, i], -share[j, i], share[j, i]) * V[j]
            gone.append(int(j))
    return replace(student, V=(np.delete(V, gone, axis=0),), theta=np.delete(theta, [base + j for j in gone], axis=0))


def with_most_useful(fit: Fit, keep: int, level: float) -> Fit:
    """Return a fit of one layer with so many units, or as it is where Σr² then grows to above `level` of the total."""
    if not 0 <= keep < fit.student.widths[0]:
        return fit
    few = descend(fit.point.samples, most_useful(fit.point, keep)[0], fit.point.options, fit.point.deadline)
    return few if few.relative < level or few.rss <= fit.rss > level * few.point.scale else fit


def narrowest(fit: Fit) -> Fit:
    """Remove units from an exact fit of one layer for as long as it stays exact."""
    level, student = fit.point.samples.level(), joined(fit.student, fit.point.samples.F)
    if student.widths < fit.student.widths:
        whole = descend(fit.point.samples, student, fit.point.options, fit.point.deadline)
        fit = whole if whole.relative < level else fit
    fit = with_most_useful(fit, n_useful(fit.point), level)
    while (few := with_most_useful(fit, fit.student.widths[0] - 1, level)) is not fit:
        fit = few
    return fit


def narrow(point: Point, widths: tuple[int, ...], steps: int = 0) -> tuple[Point, float]:
    """Remove the cheapest units one by one, with `steps` of descent after each, down to the given widths.

    Return the point at these widths and the largest of the costs.
    """
    samples, options, deadline = point.samples, point.options, point.deadline
    if steps == 0 and len(widths) == 1:
        return Point(samples, most_useful(point, widths[0])[0], options, deadline), np.nan
    dearest = 0.0
    while surplus := [layer for layer, k in enumerate(widths) if point.student.widths[layer] > k]:
        cost, student = several_less(point, surplus[0], widths) if deadline.passed else one_less(point, surplus)
        dearest = max(dearest, cost)
        if steps and not deadline.passed:
            point = descend(samples, student, options, deadline, steps=steps, target=options.fitted).point
        else:
            point = Point(samples, student, options, deadline)
    return point, dearest


def one_less(point: Point, layers: list[int]) -> tuple[float, Student]:
    """Return the cost of removing the cheapest unit of these layers, and the student without it."""
    worths = {layer: worth(point, layer) for layer in layers}
    layer = min(layers, key=lambda layer: float(worths[layer].cost.min()))
    unit = int(np.argmin(worths[layer].cost))
    return float(worths[layer].cost[unit]), without(point.student, layer, unit, worths[layer].beta[:, unit])


def several_less(point: Point, layer: int, widths: tuple[int, ...]) -> tuple[float, Student]:
    """Return what `one_less` returns for all surplus units of a layer, after one look at the samples.

    Costs are those of `worth`; when a unit goes, the residuals ρ of the others follow by a rank-one update.
    """
    student, cost = point.student, worth(point, layer).cost
    columns = np.hstack([point.values.F, point.values.H[:, : student.own(layer).stop]])
    readout, first = Readout(columns.T @ columns), columns.shape[1] - len(cost)
    inverse, scale, left, dearest = readout.inverse, readout.scale, np.arange(len(cost)), 0.0
    K, seen = inverse[first:, first:], cost * inverse.diagonal()[first:]  # ρ_i² is 1 / K_ii in units of the column
    while len(left) > widths[layer]:
        cheapest = left[np.argmin(seen[left] / K[left, left])]
        dearest = max(dearest, float(seen[cheapest] / K[cheapest, cheapest]))
        K = K - np.outer(K[:, cheapest] / K[cheapest, cheapest], K[cheapest])
        left = left[left != cheapest]
    gone = np.setdiff1d(np.arange(len(cost)), left)
    at = first + gone
    beta = -np.linalg.solve(inverse[np.ix_(at, at)], inverse[at] / scale).T * scale[at]
    return dearest, without(student, layer, gone, beta)


def with_fresh(student: Student, widths: tuple[int, ...], draw: Draw) -> Student:
    """Return the student with units added up to these widths; nothing above sees them yet."""
    for layer, wanted in enumerate(widths):
        missing = wanted - student.widths[layer]
        if missing <= 0:
            continue
        base, below = student.reads(layer)
        fresh = draw(layer, missing, base + below.stop - below.start)
        if layer:
            fresh /= np.sqrt(max(student.widths[layer - 1], 1))
        V = list(student.V)
        at = student.n_base + student.own(layer).stop
        V[layer] = np.vstack([V[layer], fresh])
        for above in range(layer + 1, student.depth):
            V[above] = np.insert(V[above], [at] * missing, 0.0, axis=1)
        where = at if student.skips else len(student.theta)
        student = replace(student, V=tuple(V), theta=np.insert(student.theta, [where] * missing, 0.0, axis=0))
    return student
