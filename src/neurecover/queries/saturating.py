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
from neurecover.certificate.weighted import Weighted, fit_weighted
from neurecover.exceptions import UnsolvableError
from neurecover.models import Network
from neurecover.queries.box import Box
from neurecover.queries.curvature import smooth_resolution
from neurecover.queries.extraction import Extraction
from neurecover.queries.steps import all_steps, limits_of
from neurecover.solve import Deadline

# Questions per parameter of a unit, z at them, and directions that are looked at for them.
_QUESTIONS, _BENDING, _POOL = 6, 3.0, 600
# Fresh questions at each of these distances, relative to √d and to the radius where all has settled.
_FRESH, _DISTANCES = 16, (0.3, 1.0, 3.0)
# How many times the rounding expected of it a residual may be and count as rounding.
_RESIDUAL, _UNCERTAIN = 8.0, 1e-8
# Beyond so many parameters the fit, of cost n P², is too dear.
_PARAMETERS = 3_000
COARSE = 1e-11


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
    fit = _fitted(box, steps.network, resolution, rng)
    network = fit.network.normal_form()
    k, d = network.W.shape
    spread = np.sqrt(fit.variances)
    errors = np.linalg.norm(spread[: k * d].reshape(k, d), axis=1) / np.linalg.norm(network.W, axis=1)
    residual, explained = _fresh(box, network, errors, spread[k * d : k * d + k], steps.radius, resolution, rng)
    progress("residual", residual)
    unreached: tuple[str, ...] = ()
    if n_hidden is not None and n_hidden > k:
        unreached = (f"{n_hidden - k} of the {n_hidden} units told step nowhere that was looked at.",)
    notes: tuple[str, ...] = ()
    if n_hidden is not None and n_hidden < k:
        notes = (f"{k} units were found where {n_hidden} were told.",)
    weighted = fit if resolution > COARSE else None
    return Extraction(network, box.queries, residual, resolution, explained, errors, unreached, notes, weighted)


def _fitted(box: Box, network: Network, resolution: float, rng: np.random.Generator) -> Weighted:
    if network.n_parameters > _PARAMETERS:
        raise UnsolvableError(
            f"{network.n_hidden} units that saturate were seen. A fit of their {network.n_parameters} parameters is "
            f"beyond what is tried, {_PARAMETERS}."
        )
    X = np.concatenate([_telling(network, j, rng) for j in range(network.n_hidden)])
    if resolution > COARSE:
        X = X.astype(np.float32).astype(float)
    fit = fit_weighted(network, X, box(X))
    if fit is None:
        raise UnsolvableError(f"{network.n_hidden} units that saturate were seen, but not all can be told apart.")
    return fit


def _telling(network: Network, j: int, rng: np.random.Generator) -> np.ndarray:
    """Questions (n, d) with |z_j| ≤ 3 and all other units near their limits, as near to the origin as may be.

    x = x₀ + r g + τ w_j/‖w_j‖² with z_j(x₀) = 0 and g along the plane of unit j, r as small as it may be for every g.
    """
    W, b, w = network.W, network.b, network.W[j]
    count = _QUESTIONS * (network.n_inputs + 1 + network.n_outputs)
    across = w / (w @ w)
    G = rng.standard_normal((max(_POOL, 4 * count), network.n_inputs))
    G -= np.outer(G @ w, across)
    others = np.arange(len(W)) != j
    speed = np.abs(G @ W[others].T)
    needed = (
        _limit(network.activation) + np.abs(b - b[j] * (W @ across))[others] + _BENDING * np.abs(W @ across)[others]
    )
    with np.errstate(divide="ignore"):
        r = np.max(needed / speed, axis=1, initial=0.0)
    # A unit by itself is seen best where inputs are of order one.
    r = np.maximum(r, 1.0 / np.linalg.norm(w))
    best = np.argsort(r * np.linalg.norm(G, axis=1), kind="stable")[:count]
    if not np.isfinite(r[best]).all():
        raise UnsolvableError("Two units have the same direction, so that neither can be seen by itself.")
    tau = _BENDING * rng.uniform(-1.0, 1.0, count) - b[j]
    return r[best, None] * G[best] + tau[:, None] * across


def _limit(activation: Activation) -> float:
    """The z from which on a unit bends a thousand times less than at its centre."""
    z = np.arange(0.0, 40.0, 0.25)
    return float(z[np.argmax(activation.derivative(z) < 1e-3 * activation.derivative(z[:1]))])


def _fresh(
    box: Box,
    network: Network,
    errors: np.ndarray,
    bias_errors: np.ndarray,
    radius: float,
    resolution: float,
    rng: np.random.Generator,
) -> tuple[float, bool]:
    """The largest |box(x) − network(x)| relative to the size of the answers, and whether rounding explains them all.

    It does by ρ (size + Σ_j |A_j act′(z_j)| ‖w_j‖ ‖x‖), where terms cancel in z_j, and by what it left in the weights.
    """
    d = box.n_inputs
    reach = np.repeat([*_DISTANCES, radius / np.sqrt(d)], _FRESH)
    X = rng.standard_normal((len(reach), d)) * reach[:, None]
    if resolution > COARSE:
        X = X.astype(np.float32).astype(float)
    Y = box(X)
    size = max(box.scale, float(np.abs(Y).max()))
    z, length = X @ network.W.T + network.b, np.linalg.norm(network.W, axis=1)
    moved = length * np.linalg.norm(X, axis=1)[:, None]
    in_z = moved * (errors + resolution) + bias_errors
    rounding = resolution * size + (np.abs(network.activation.derivative(z)) * in_z) @ np.abs(network.A).max(axis=0)
    left = np.abs(Y - network(X)).max(axis=1)
    residual = float(left.max() / size)
    # Where the weights are too uncertain to tell, a large residual must not pass for their uncertainty.
    uncertain = max(_UNCERTAIN, 30.0 * resolution)
    return residual, bool(np.all(left <= _RESIDUAL * rounding)) and residual <= uncertain
