"""The weights of one hidden layer of units that saturate, as tanh and sigmoid do, from chosen questions.

1. Far from the origin the answers are steps, one for each unit, and each gives its unit roughly: `steps`.
2. Then questions are chosen where they tell most: with z_j of order one, so that unit j bends there, all other units at
   their limits, where they add nothing but a constant, and as near to the origin as that can be had, since z_j is
   rounded in proportion to ‖x‖. All weights are fitted to these answers together, each weighted by its rounding.
3. Fresh questions, near and far, say how well the network answers like the box.

Around the origin, where samples are drawn, units that bend little are nearly the same function; here they lie apart.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from neurecover.activations import Activation, get
from neurecover.certificate.options import QueryOptions
from neurecover.exceptions import UnsolvableError
from neurecover.models import Network, replace_arrays
from neurecover.queries.box import Box
from neurecover.queries.curvature import smooth_resolution
from neurecover.queries.extraction import Extraction
from neurecover.queries.steps import all_steps, limits_of
from neurecover.queries.weighted import Weighted, fit_weighted
from neurecover.solve import Deadline

# Questions per parameter, more around the origin where answers are coarse, z at the former, and directions that are
# looked at for them.
_QUESTIONS, _MANY, _BENDING, _POOL = 6, 60, 3.0, 600
# The part of the uncertainty of biases, far out, that is left when they are looked at nearer by for the second time.
_NEARER = (1.0, 0.03)
# Fresh questions at each of these distances, relative to √d and to the radius where all has settled.
_FRESH, _DISTANCES = 16, (0.3, 1.0, 3.0)
# How many times the rounding expected of it a residual may be and count as rounding. Where the weights are too
# uncertain to tell, a large residual must not pass for their uncertainty.
_RESIDUAL, _UNCERTAIN = 8.0, 1e-8
# How often a fit is taken up again while its residuals fall below what it takes for rounding.
_FITS, _SETTLED = 3, 0.25
# Beyond so many parameters the fit, of cost n P², is too dear.
_PARAMETERS = 3_000
_COARSE = QueryOptions().coarse


def extract_saturating(
    box: Box,
    *,
    activation: str | Activation = "tanh",
    n_hidden: int | None = None,
    rng: np.random.Generator,
    deadline: Deadline,
    progress: Callable[[str, float], object],
) -> Extraction:
    """The network behind the box; UnsolvableError where its units are not of this kind or cannot be told apart."""
    act = get(activation)
    limits_of(act)
    if box.n_inputs < 2:
        raise UnsolvableError("Units that saturate are told apart by their directions, so that it takes two inputs.")
    resolution = smooth_resolution(box, rng)
    steps = all_steps(box, act, resolution, rng, deadline)
    progress("units", float(steps.network.n_hidden))
    if not steps.network.n_hidden:
        raise UnsolvableError("The box answers the same wherever it is asked: it has no hidden units that can be seen.")
    network = steps.network
    if resolution > _COARSE:
        # z is rounded by ρ R ‖w‖ on a circle, w by that over a step of about 1/‖w‖, and b by R times as much.
        uncertain = resolution * (steps.circle * np.linalg.norm(network.W, axis=1).max()) ** 2
        for share in _NEARER:
            network = _with_biases(box, network, share * uncertain, rng)
    fit = _fitted(box, network, resolution, rng)
    network, k = fit.fitted, fit.fitted.n_hidden
    residual, explained = _fresh(box, fit, steps.radius, resolution, rng)
    progress("residual", residual)
    unreached: tuple[str, ...] = ()
    if n_hidden is not None and n_hidden > k:
        unreached = (f"{n_hidden - k} of the {n_hidden} units told step nowhere that was looked at.",)
    notes: tuple[str, ...] = ()
    if n_hidden is not None and n_hidden < k:
        notes = (f"{k} units were found where {n_hidden} were told.",)
    errors = fit.errors_of_rows()
    return Extraction(network, box.queries, residual, resolution, explained, errors, unreached, notes, fit)


def _fitted(box: Box, network: Network, resolution: float, rng: np.random.Generator) -> Weighted:
    if network.n_parameters > _PARAMETERS:
        raise UnsolvableError(
            f"{network.n_hidden} units that saturate were seen. A fit of their {network.n_parameters} parameters is "
            f"beyond what is tried, {_PARAMETERS}."
        )
    parts = [_telling(network, j, rng) for j in range(network.n_hidden)]
    if resolution > _COARSE:
        # Rounding averages out over many answers, also where the box is used.
        parts.append(rng.standard_normal((_MANY * network.n_parameters // network.n_outputs, network.n_inputs)))
        parts = [X.astype(np.float32).astype(float) for X in parts]
    X = np.concatenate(parts)
    X, Y = box.inputs(X), box(X)
    fit: Weighted | None = None
    for _ in range(_FITS):
        fit = fit_weighted(network if fit is None else fit.fitted, X, Y, box.whitening)
        if fit is None:
            raise UnsolvableError(f"{network.n_hidden} units that saturate were seen, but not all can be told apart.")
        if fit.chi2 > _SETTLED and (fit.converged or resolution <= _COARSE):
            break
    assert fit is not None
    return fit


def _telling(network: Network, j: int, rng: np.random.Generator) -> np.ndarray:
    """Questions (n, d) with |z_j| ≤ 3 and all other units near their limits, as near to the origin as may be."""
    count = _QUESTIONS * (network.n_inputs + 1 + network.n_outputs)
    tau = _BENDING * rng.uniform(-1.0, 1.0, count) - network.b[j]
    return _beside(network, j, count, _BENDING, 0.0, rng) + tau[:, None] * _across(network, j)


def _across(network: Network, j: int) -> np.ndarray:
    """The step across plane j by which z_j grows by one."""
    return network.W[j] / (network.W[j] @ network.W[j])


def _beside(
    network: Network, j: int, count: int, room: float, uncertain: float, rng: np.random.Generator
) -> np.ndarray:
    """The points r g nearest to the origin, g ⟂ w_j, where all other units are near their limits.

    They stay so wherever x leads across plane j with |z_j| ≤ room, if no bias errs by more than `uncertain`.
    """
    W, b, across = network.W, network.b, _across(network, j)
    G = rng.standard_normal((max(_POOL, 4 * count), network.n_inputs))
    G -= np.outer(G @ W[j], across)
    others = np.arange(len(W)) != j
    along = (W @ across)[others]
    needed = _limit(network.activation) + np.abs(b[others] - b[j] * along) + room * np.abs(along) + uncertain
    with np.errstate(divide="ignore"):
        r = np.max(needed / np.abs(G @ W[others].T), axis=1, initial=0.0)
    # A unit by itself is seen best where inputs are of order one.
    r = np.maximum(r, 1.0 / np.linalg.norm(W[j]))
    best = np.argsort(r * np.linalg.norm(G, axis=1), kind="stable")[:count]
    if not np.isfinite(r[best]).all():
        raise UnsolvableError("Two units have the same direction, so that neither can be seen by itself.")
    return r[best, None] * G[best]


def _with_biases(box: Box, network: Network, uncertain: float, rng: np.random.Generator) -> Network:
    """The network with biases found nearer to the origin, where errors of w count less: by halving across every plane.

    uncertain is how far z may be off.
    """
    k, act = network.n_hidden, network.activation
    lower, upper = limits_of(act)
    room = uncertain + 2.0 * _limit(act)
    start = np.concatenate([_beside(network, j, 1, room, uncertain, rng) for j in range(k)])
    across = np.array([_across(network, j) for j in range(k)])

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


def _limit(activation: Activation) -> float:
    """The z from which on a unit bends a thousand times less than at its centre."""
    z = np.arange(0.0, 40.0, 0.25)
    return float(z[np.argmax(activation.derivative(z) < 1e-3 * activation.derivative(z[:1]))])


def _fresh(box: Box, fit: Weighted, radius: float, resolution: float, rng: np.random.Generator) -> tuple[float, bool]:
    """The largest |box(x) − network(x)| relative to the size of the answers, and whether rounding explains them all.

    It does by ρ (Σ_j |A_j| + |c| + Σ_j |A_j act′(z_j)| t_j), with t_j = Σ_i |w_ji x_i| + |b_j| for the terms that
    cancel in z_j, and by as much for what it left in the weights.
    """
    d, network = box.n_inputs, fit.network
    reach = np.repeat([*_DISTANCES, radius / np.sqrt(d)], _FRESH)
    Z = rng.standard_normal((len(reach), d)) * reach[:, None]
    if resolution > _COARSE:
        Z = Z.astype(np.float32).astype(float)
    X, Y = box.inputs(Z), box(Z)
    size = max(box.scale, float(np.abs(network.c).max()) + float(np.abs(network.A).sum(axis=1).max()))
    slope = np.abs(network.activation.derivative(X @ network.W.T + network.b))
    terms = np.abs(X) @ np.abs(network.W).T + np.abs(network.b)
    relative = np.minimum(fit.errors_of_rows(), _UNCERTAIN) + resolution
    rounding = resolution * size + (slope * terms * relative) @ np.abs(network.A).max(axis=0)
    left = np.abs(Y - network(X)).max(axis=1)
    return float(left.max() / size), bool(np.all(left <= _RESIDUAL * rounding))
