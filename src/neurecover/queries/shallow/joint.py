"""All weights at once from the gradients of many regions.

In region r the network has the slopes D_rj = act′(w_j·x_r + b_j), so

    G_r = Σ_j D_rj A_j w_jᵀ,       f_r − G_r x_r = Σ_j D_rj A_j b_j + c.

With A fixed both are linear in the rest: p equations in w_j per region and component, p in b and c per region. Only the
product A_j w_j matters, so with one output A may stay as it is. With more, the direction of A_j is measured by itself:
at a point on hyperplane j, far from the others, the second difference across it is a multiple of A_j.

When there are many inputs, measuring the b_j by themselves costs few further queries: `measure_offsets`.

Regions are weighted by the rounding of their gradients, and the equations are solved for a correction, so that the
accuracy is that of the residuals and does not suffer from the condition number.
"""

from __future__ import annotations

import numpy as np

from neurecover.models import Network, replace_arrays
from neurecover.queries.box.black_box import Box
from neurecover.queries.box.regions import Regions
from neurecover.queries.lines.segments import find_local_kinks
from neurecover.queries.shallow.centres import Centres

CORRECTIONS = 3  # solutions of the linear equations, each for what the one before left


def refine_jointly(network: Network, regions: Regions) -> Network:
    """Return the network that fits the regions best, with A fixed."""
    regions = regions.take(np.isfinite(regions.sigma))
    R, p, d = regions.gradients.shape
    k = network.n_hidden
    design = _design_matrix(network, regions)
    heavy = np.repeat(1.0 / regions.sigma, p)
    light = np.repeat(1.0 / regions.noise, p)
    offsets = np.hstack([design, np.tile(np.eye(p), (R, 1))])
    for _ in range(CORRECTIONS):
        left = regions.gradients - (_slopes(network, regions)[:, None, :] * network.A) @ network.W
        dW = solve_weighted(design, left.reshape(R * p, d), heavy)
        network = replace_arrays(network, W=network.W + dW)
        left = regions.values - network(regions.points)
        shift = solve_weighted(offsets, left.reshape(R * p, 1), light)[:, 0]
        network = replace_arrays(network, b=network.b + shift[:k], c=network.c + shift[k:])
    return network


def measure_output_weights(box: Box, network: Network, rng: np.random.Generator) -> Network:
    """Measure the direction of every A_j by three queries across hyperplane j: f(x + u) − 2 f(x) + f(x − u) ∝ A_j.

    The point x lies on the hyperplane and u is normal to it, short enough to cross no other one. Return the network
    with these A.
    """
    network = network.normal_form()
    W, b = network.W, network.b
    points, room = _find_points_on_planes(box, network, rng)
    z = points @ W.T + b
    np.fill_diagonal(z, np.inf)
    steps = 0.9 * np.min(np.abs(z) / np.maximum(np.abs(W @ W.T), 1e-300), axis=1)
    steps = np.minimum(steps, np.linalg.norm(points, axis=1) + 1.0)
    steps = np.minimum(steps, 0.9 * box.limits.room(points))
    points, steps, W, b = points[room > 0.0], steps[room > 0.0], W[room > 0.0], b[room > 0.0]
    X = points + np.array([1.0, 0.0, -1.0])[:, None, None] * steps[:, None] * W
    f = box(X.reshape(-1, network.n_inputs)).reshape(3, len(points), -1)
    unit = network.activation(np.einsum("snd,nd->sn", X, W) + b)
    bend, own = (g[0] - 2.0 * g[1] + g[2] for g in (f, unit[:, :, None]))
    A = network.A.copy()
    A[:, room > 0.0] = (bend / own).T
    return replace_arrays(network, A=A)


def measure_offsets(box: Box, network: Network, rng: np.random.Generator) -> Network:
    """Measure every b_j by four queries across its hyperplane, near the origin, where an error of w_j hardly matters.

    A kink at x + t w_j, with w_j of length one, means b_j = −w_j·x − t. Then c follows from the answers. Return the
    network with these b and c.
    """
    options = box.options.shallow
    network = network.normal_form()
    W, b = network.W, network.b.copy()
    best, room = _find_points_near_origin(box, network, rng)
    found = find_local_kinks(box, best, W, options.within * room)
    good = found.visible & (np.abs(found.position) < 0.1 * options.within * room)
    b[good] = (-np.sum(best * W, axis=1) - found.position)[good]
    network = replace_arrays(network, b=b)
    X = best[good][: options.offsets]
    return replace_arrays(network, c=network.c + np.median(box(X) - network(X), axis=0)) if len(X) else network


def _find_points_near_origin(box: Box, network: Network, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Find a point (k, d) on every hyperplane with the most room along the normal, and that room (k,)."""
    limits, options = box.limits, box.options.shallow
    W, b = network.W, network.b
    best, room = np.zeros_like(W), np.zeros(len(W))
    for _ in range(options.tries):
        X = options.near * rng.standard_normal(W.shape)
        X = limits.move_to_planes(X, W, b)
        X -= (np.sum(X * W, axis=1) + b)[:, None] * W
        z = np.abs(X @ W.T + b) / np.maximum(np.abs(W @ W.T), 1e-300)
        np.fill_diagonal(z, np.inf)
        away = np.minimum(z.min(axis=1, initial=1.0), limits.room(X))
        farther = away > room
        best[farther], room[farther] = X[farther], away[farther]
    return best, room


def _find_points_on_planes(box: Box, network: Network, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Find a point (k, d) on every hyperplane as far as possible from the others, and that distance (k,)."""
    centres, limits = Centres.around(box, network, rng), box.limits
    best, room = np.zeros_like(network.W), np.full(network.n_hidden, -1.0)
    for _ in range(box.options.shallow.tries):
        points = centres.draw(network.n_hidden, rng)
        points = limits.move_to_planes(points, network.W, network.b)
        z = points @ network.W.T + network.b
        points = points - np.diagonal(z)[:, None] * network.W
        z = np.abs(points @ network.W.T + network.b)
        np.fill_diagonal(z, np.inf)
        margin = np.minimum(z.min(axis=1), limits.room(points))
        best[margin > room] = points[margin > room]
        room = np.maximum(room, margin)
    return best, room


def _slopes(network: Network, regions: Regions) -> np.ndarray:
    """Return D (R, k)."""
    return network.activation.derivative(regions.points @ network.W.T + network.b)


def _design_matrix(network: Network, regions: Regions) -> np.ndarray:
    """Return the matrix (R p, k) with D_rj A_oj in row (r, o)."""
    return (_slopes(network, regions)[:, None, :] * network.A).reshape(-1, network.n_hidden)


def solve_weighted(design: np.ndarray, right: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the least-squares solution of the equations, each multiplied by its weight."""
    from scipy.linalg import lstsq

    return lstsq(design * weight[:, None], right * weight[:, None], lapack_driver="gelsy", check_finite=False)[0]
