"""The weights of one hidden layer of units that saturate, such as tanh and sigmoid, from chosen queries.

1. Far from the origin the answers are steps, one for each unit, and each gives its unit roughly: `steps`.
2. Then the most informative queries are chosen: with z_j of order one, where unit j bends, all other units at their
   limits, where they add only a constant, and as near to the origin as that allows, because z_j is rounded in
   proportion to ‖x‖. All weights are fitted to these answers together, each weighted by its rounding.
3. Held-out queries, near and far, measure how well the network reproduces the oracle.

Around the origin, where samples are drawn, units that bend little are nearly the same function; far out they are
separated.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from neurecover.activations import Activation, get
from neurecover.exceptions import UnsolvableError
from neurecover.models import Network, replace_arrays
from neurecover.queries.box.black_box import Box
from neurecover.queries.box.curvature import measure_smooth_resolution
from neurecover.queries.extraction import Extraction
from neurecover.queries.saturating.options import SaturatingOptions
from neurecover.queries.saturating.steps import find_steps, limits_of
from neurecover.queries.weighted import Weighted, fit_weighted
from neurecover.solve import Deadline


class ManyUnitsError(UnsolvableError):
    """There are too many units, `n_units`, for a weighted fit."""

    def __init__(self, sentence: str, n_units: int) -> None:
        super().__init__(sentence)
        self.n_units = n_units


def extract_saturating(
    box: Box,
    *,
    activation: str | Activation = "tanh",
    n_hidden: int | None = None,
    rng: np.random.Generator,
    deadline: Deadline,
    progress: Callable[[str, float], object],
) -> Extraction:
    """Find the network behind the oracle; raise UnsolvableError if its units do not saturate or are too similar."""
    options = box.options.saturating
    act = get(activation)
    limits_of(act)
    if box.n_inputs < 2:
        raise UnsolvableError(
            "Units that saturate are told apart by their directions, which needs at least two inputs."
        )
    resolution = measure_smooth_resolution(box, rng)
    steps = find_steps(box, act, resolution, rng, deadline)
    progress("units", float(steps.network.n_hidden))
    if not steps.network.n_hidden:
        raise UnsolvableError("The oracle gives the same answer to every query, so no hidden unit is visible.")
    network = steps.network
    if resolution > box.options.box.coarse:
        # z is rounded by ρ R ‖w‖ on a circle, w by that over a step of about 1/‖w‖, and b by R times as much.
        uncertain = resolution * (steps.circle * np.linalg.norm(network.W, axis=1).max()) ** 2
        for share in options.nearer:
            network = _refine_biases(box, network, share * uncertain, rng)
    fit = _fit(box, network, resolution, rng)
    network, k = fit.fitted, fit.fitted.n_hidden
    residual, explained = _measure_residual(box, fit, steps.radius, resolution, rng)
    progress("residual", residual)
    unreached: tuple[str, ...] = ()
    if n_hidden is not None and n_hidden > k:
        unreached = (f"{n_hidden - k} of the {n_hidden} expected units have no step anywhere the oracle was queried.",)
    notes: tuple[str, ...] = ()
    if n_hidden is not None and n_hidden < k:
        notes = (f"{k} units were found where {n_hidden} were expected.",)
    errors = fit.errors_of_rows()
    return Extraction(network, box.queries, residual, resolution, explained, errors, unreached, notes, fit)


def _fit(box: Box, network: Network, resolution: float, rng: np.random.Generator) -> Weighted:
    """Query the informative points and fit all weights to the answers; return the weighted fit."""
    options = box.options.saturating
    if network.n_parameters > box.options.weighted_parameters:
        raise ManyUnitsError(
            f"{network.n_hidden} units that saturate were found. A fit of their {network.n_parameters} parameters is "
            f"beyond the limit of {box.options.weighted_parameters}.",
            network.n_hidden,
        )
    parts = [_informative_queries(network, j, options, rng) for j in range(network.n_hidden)]
    if resolution > box.options.box.coarse:
        # Rounding averages out over many answers, so query also where the oracle is used.
        parts.append(rng.standard_normal((options.many * network.n_parameters // network.n_outputs, network.n_inputs)))
        parts = [X.astype(np.float32).astype(float) for X in parts]
    X = np.concatenate(parts)
    X, Y = box.inputs(X), box(X)
    fit: Weighted | None = None
    for _ in range(options.fits):
        fit = fit_weighted(network if fit is None else fit.fitted, X, Y, box.whitening)
        if fit is None:
            raise UnsolvableError(f"{network.n_hidden} units that saturate were found, but not all can be told apart.")
        if fit.chi2 > options.settled_chi2 and (fit.converged or resolution <= box.options.box.coarse):
            break
    assert fit is not None
    return fit


def _informative_queries(network: Network, j: int, options: SaturatingOptions, rng: np.random.Generator) -> np.ndarray:
    """Return queries (n, d), near the origin, where unit j bends and all others are near their limits."""
    count = options.queries * (network.n_inputs + 1 + network.n_outputs)
    tau = options.bending * rng.uniform(-1.0, 1.0, count) - network.b[j]
    return _points_beside(network, j, count, options.bending, 0.0, options.pool, rng) + tau[:, None] * _step_across(
        network, j
    )


def _step_across(network: Network, j: int) -> np.ndarray:
    """Return the shortest step by which z_j grows by one."""
    return network.W[j] / (network.W[j] @ network.W[j])


def _points_beside(
    network: Network, j: int, count: int, room: float, uncertain: float, pool: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the points r g nearest to the origin, g ⟂ w_j, where all other units are near their limits.

    They stay so wherever x moves across hyperplane j with |z_j| ≤ room, if no bias errs by more than `uncertain`.
    """
    W, b, across = network.W, network.b, _step_across(network, j)
    G = rng.standard_normal((max(pool, 4 * count), network.n_inputs))
    G -= np.outer(G @ W[j], across)
    others = np.arange(len(W)) != j
    along = (W @ across)[others]
    needed = _saturation_point(network.activation) + np.abs(b[others] - b[j] * along) + room * np.abs(along) + uncertain
    with np.errstate(divide="ignore"):
        r = np.max(needed / np.abs(G @ W[others].T), axis=1, initial=0.0)
    # A single unit is seen best where inputs are of order one.
    r = np.maximum(r, 1.0 / np.linalg.norm(W[j]))
    best = np.argsort(r * np.linalg.norm(G, axis=1), kind="stable")[:count]
    if not np.isfinite(r[best]).all():
        raise UnsolvableError("Two units have the same direction, so neither can be isolated.")
    return r[best, None] * G[best]


def _refine_biases(box: Box, network: Network, uncertain: float, rng: np.random.Generator) -> Network:
    """Return the network with biases found by bisection nearer to the origin, where errors of w matter less.

    `uncertain` is how far z may be off.
    """
    k, act = network.n_hidden, network.activation
    lower, upper = limits_of(act)
    room = uncertain + 2.0 * _saturation_point(act)
    start = np.concatenate(
        [_points_beside(network, j, 1, room, uncertain, box.options.saturating.pool, rng) for j in range(k)]
    )
    across = np.array([_step_across(network, j) for j in range(k)])

    def share(tau: np.ndarray) -> np.ndarray:
        jumps = network.A.T * (upper - lower)
        return np.sum((box(start + tau[:, None] * across) - before) * jumps, axis=1) / np.sum(jumps**2, axis=1)

    low, high = -network.b - room, -network.b + room
    before = box(start + low[:, None] * across)
    for _ in range(int(np.ceil(np.log2(8.0 * room)))):
        middle = 0.5 * (low + high)
        s = share(middle)
        low, high = np.where(s < 0.5, middle, low), np.where(s < 0.5, high, middle)
    middle = 0.5 * (low + high)
    s = np.clip(share(middle), 1e-3, 1.0 - 1e-3)
    return replace_arrays(network, b=act.inverse(lower + s * (upper - lower)) - middle)


def _saturation_point(activation: Activation) -> float:
    """Return the z at which a unit bends a thousand times less than at its centre."""
    z = np.arange(0.0, 40.0, 0.25)
    return float(z[np.argmax(activation.derivative(z) < 1e-3 * activation.derivative(z[:1]))])


def _measure_residual(
    box: Box, fit: Weighted, radius: float, resolution: float, rng: np.random.Generator
) -> tuple[float, bool]:
    """Return the largest |oracle(x) − network(x)| relative to the answers, and whether rounding explains them all.

    Rounding explains ρ (Σ_j |A_j| + |c| + Σ_j |A_j act′(z_j)| t_j), with t_j = Σ_i |w_ji x_i| + |b_j| for the terms
    that cancel in z_j, and as much again for the errors it causes in the weights.
    """
    options = box.options.saturating
    d, network = box.n_inputs, fit.network
    reach = np.repeat([*options.distances, radius / np.sqrt(d)], options.held_out)
    Z = rng.standard_normal((len(reach), d)) * reach[:, None]
    if resolution > box.options.box.coarse:
        Z = Z.astype(np.float32).astype(float)
    X, Y = box.inputs(Z), box(Z)
    size = max(box.scale, float(np.abs(network.c).max()) + float(np.abs(network.A).sum(axis=1).max()))
    slope = np.abs(network.activation.derivative(X @ network.W.T + network.b))
    terms = np.abs(X) @ np.abs(network.W).T + np.abs(network.b)
    relative = np.minimum(fit.errors_of_rows(), options.uncertain) + resolution
    rounding = resolution * size + (slope * terms * relative) @ np.abs(network.A).max(axis=0)
    left = np.abs(Y - network(X)).max(axis=1)
    return float(left.max() / size), bool(np.all(left <= options.residual * rounding))
