"""All rows of the known layers and the next one, corrected together by kinks of all their units.

A row is measured on top of rows that are known up to an error, inherits it, and hands on more than that: from layer to
layer the expected errors grow fifty times. But a kink x* of unit j in layer m is an equation for all rows at once,

    w_j·h_{m−1}(x*; rows below) + b_j = 0,

exact to the rounding of its place. Kinks of all units, far apart, determine all rows by Gauss–Newton steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import qr

from neurecover.models import DeepNetwork
from neurecover.models.derivatives import jacobian
from neurecover.queries.box.black_box import Box
from neurecover.queries.deep.boundaries.ascent import slopes_at
from neurecover.queries.deep.boundaries.boundary import triangle
from neurecover.queries.deep.boundaries.check import probe_kinks
from neurecover.queries.deep.boundaries.points import find_boundary_points
from neurecover.queries.deep.cells import KnownLayers, Layer
from neurecover.queries.deep.level import Level

_MEDIAN = 0.67  # of |ε| for ε ~ N(0, 1)
_DOUBT = 30.0  # times its error that a row may be off: a weight that one kink showed is wrong if that is another unit's


@dataclass(frozen=True, eq=False)
class _Kinks:
    """Places (n, d) where unit `unit` (n,) of layer `layer` changes, and their standard errors (n,)."""

    layer: int
    unit: np.ndarray
    X: np.ndarray
    sigma: np.ndarray


def correct_together(box: Box, level: Level, rng: np.random.Generator) -> Level:
    """Return the level with its rows and those of all layers below corrected together, and their errors.

    It is returned as it is where too few kinks agree with the rows.
    """
    layers = (*level.known.layers, (level.theta[:, :-1], level.theta[:, -1]))
    size = np.linalg.norm(layers[-1][0], axis=1)
    layers = (*layers[:-1], (layers[-1][0] / size[:, None], layers[-1][1] / size))
    levels = [level]
    while levels[0].below is not None:
        levels.insert(0, levels[0].below)
    kinks = _find_kinks(box, levels, layers, rng)
    options = box.options.deep
    errors = np.concatenate([_weight_errors(own, W.shape[1]) for own, (W, _) in zip(levels, layers)])
    root = np.diag(errors)
    for _ in range(options.together_steps):
        residual, J = _equations(layers, kinks)
        off = np.abs(residual) / np.hypot(1.0, np.linalg.norm(J @ root, axis=1))
        usual = max(1.0, float(np.median(off)) / _MEDIAN)
        kept = off < options.outlying * usual
        if np.count_nonzero(kept) < J.shape[1]:
            return level
        # A row keeps its length, and a weight that no kink shows stays as well known as it is.
        A = np.vstack([J[kept] / usual, _lengths(layers) / options.least_sigma, np.diag(1.0 / errors)])
        U, S, Vt = np.linalg.svd(A, full_matrices=False)
        root = Vt.T / S
        step = -root @ (U[: np.count_nonzero(kept)].T @ residual[kept]) / usual
        layers = _moved(layers, step)
    below, (W, b) = layers[:-1], layers[-1]
    units, first = [], root.shape[0] - W.size - b.size
    for j, unit in enumerate(level.units):
        f = W.shape[1]
        own = np.append(np.arange(first + j * f, first + (j + 1) * f), first + W.size + j)
        error = triangle(np.hstack([root[own], options.least_sigma * np.eye(f + 1)]).T)
        R = triangle(np.linalg.inv(error.T))
        theta = np.append(W[j], b[j])
        units.append(replace(unit, boundary=replace(unit.boundary, R=R, z=R @ theta)))
    known = replace(level.known, layers=below, errors=_feature_errors(below, root, kinks[-1].X))
    return replace(level, known=known, units=tuple(units))


def _weight_errors(level: Level, f: int) -> np.ndarray:
    """Return the errors of the weights of a level's rows, k f and then k biases, as they were measured."""
    error = _DOUBT * np.hypot(level.errors, level.known.error)[:, None] / np.sqrt(f + 1.0)
    if level.known.n_features != f + 1:  # its rows were found while the signs below were not known
        return np.append(np.tile(error, f).ravel(), error)
    own = np.where(level.unseen, 1.0, error)
    return np.append(own[:, :-1].ravel(), own[:, -1])


def _find_kinks(box: Box, levels: list[Level], layers: tuple[Layer, ...], rng: np.random.Generator) -> list[_Kinks]:
    """Find kinks of all units, as many as their rows have weights and more."""
    options, found, error = box.options.deep, [], levels[-1].known.error
    for m, (own, (W, b)) in enumerate(zip(levels, layers)):
        known = KnownLayers(box.n_inputs, layers[:m], limits=box.limits, options=options)
        parts = []
        for j, theta in enumerate(np.column_stack([W, b])):
            count = int(options.kinks_per_weight * len(theta)) + 4
            unseen = own.unseen[j] if len(own.unseen[j]) == len(theta) else np.zeros(len(theta), dtype=bool)
            where = find_boundary_points(known, theta, 4 * count + 20, rng, own.points[j], unseen)
            size = 1.0 + np.linalg.norm(where.points, axis=1)
            steep = np.maximum(slopes_at(known, theta, where.points), 1e-300)
            off = np.hypot(error, own.errors[j]) * size / steep
            ok = np.flatnonzero(options.sure * off / options.near < 0.7 * where.room)
            # Those first that show what the others do not.
            shown = known.features(where.points[ok]) / off[ok, None] * np.where(unseen, 0.0, 1.0)
            ok = ok[qr(shown.T, mode="r", pivoting=True)[1][:count]]
            where, steep, off = where.take(ok), steep[ok], off[ok]
            tested = probe_kinks(box, where, off, own.units[j].boundary.jump)
            X = where.points[tested.hit] + tested.position[tested.hit, None] * where.normals[tested.hit]
            least = options.least_sigma * np.linalg.norm(known.features(X), axis=1)
            parts.append((np.full(len(X), j), X, np.maximum(steep[tested.hit] * tested.sigma[tested.hit], least)))
        found.append(_Kinks(m, *(np.concatenate(part) for part in zip(*parts))))
    return found


def _equations(layers: tuple[Layer, ...], kinks: list[_Kinks]) -> tuple[np.ndarray, np.ndarray]:
    """Return the values (n,) of the units at their kinks and their derivatives (n, P) by all weights, over their σ."""
    n_weights = sum(W.size + b.size for W, b in layers)
    residuals, derivatives = [], []
    for own in kinks:
        at = np.arange(len(own.X)), own.unit
        J = np.zeros((len(own.X), n_weights))
        values, moved = _values(layers[: own.layer + 1], own.X)
        J[:, : moved.shape[2]] = moved[at]
        residuals.append(values[at] / own.sigma)
        derivatives.append(J / own.sigma[:, None])
    return np.concatenate(residuals), np.vstack(derivatives)


def _values(layers: tuple[Layer, ...], X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the values (n, k) of the last layer's units and their derivatives (n, k, P) by the weights."""
    if len(layers) > 1:
        network = DeepNetwork(list(layers))
        return network(X), jacobian(network, X)
    W, b = layers[0]
    (k, d), n = W.shape, len(X)
    rows = np.einsum("kl,nd->nkld", np.eye(k), X).reshape(n, k, k * d)
    return X @ W.T + b, np.concatenate([rows, np.broadcast_to(np.eye(k), (n, k, k))], axis=2)


def _lengths(layers: tuple[Layer, ...]) -> np.ndarray:
    """Return the derivatives (k, P) of the lengths of all rows by all weights."""
    rows, first = [], 0
    n_weights = sum(W.size + b.size for W, b in layers)
    for W, b in layers:
        own = np.zeros((len(W), n_weights))
        for j, w in enumerate(W):
            own[j, first + j * len(w) : first + (j + 1) * len(w)] = w / np.linalg.norm(w)
        rows.append(own)
        first += W.size + b.size
    return np.vstack(rows)


def _moved(layers: tuple[Layer, ...], step: np.ndarray) -> tuple[Layer, ...]:
    """Return the layers after a step (P,) of all weights."""
    moved, first = [], 0
    for W, b in layers:
        own, bias = step[first : first + W.size].reshape(W.shape), step[first + W.size : first + W.size + b.size]
        moved.append((W + own, b + bias))
        first += W.size + b.size
    return tuple(moved)


def _feature_errors(layers: tuple[Layer, ...], root: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return the errors (k,) of the last layer's values, relative to the size of the points X, for the errors `root`
    of the weights.
    """
    moved = _values(layers, X)[1]
    spread = np.linalg.norm(moved @ root[: moved.shape[2]], axis=2) / (1.0 + np.linalg.norm(X, axis=1))[:, None]
    return np.asarray(np.sqrt(np.mean(spread**2, axis=0)))
