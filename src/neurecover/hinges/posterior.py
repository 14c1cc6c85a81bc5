"""The posterior of the breaks, by quadrature, with all slopes integrated out.

With a flat prior on the breaks, p(σ) ∝ 1/σ, a flat prior on the affine part and p(δ | S) ∝ |A_S|^½ on the slope changes
(which cancels the factor by which integrating them would favour hinges that few inputs see), breaks S have the weight

    w_S ∝ RSS_S^(−(n − q − K)/2),

q = 2 the columns of the affine part. Given S the coefficients are Student's t with n − q − K degrees of freedom about
their least-squares values. So the posterior is a mixture: sets of breaks with weights and, for each, a multivariate t.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from neurecover.hinges.options import DEFAULTS, HingeOptions
from neurecover.hinges.points import Points
from neurecover.hinges.projection import HingeSums, Projection, hinge_columns, solve_sets, tangent_columns
from neurecover.hinges.search import BrokenLine, all_sets, beyond_doubt, coarse_grid

_CELLS = 200  # of the inputs, by which the prior of the breaks is summed
_ROUNDINGS = 64.0  # in units of the last digit of RSS without breaks: what sums of a few thousand rows lose


@dataclass(frozen=True, eq=False)
class Posterior:
    """A mixture over T sets of breaks (T, K) with `weight` (T,), in the units of `points`.

    Given a set, the coefficients (α, β, δ…) are t with `dof` degrees of freedom about `mean` (T, K + 2), with the
    scale matrices `scale` (T, K + 2, K + 2). `rss` (T,) are the sums of squares.
    """

    points: Points
    breaks: np.ndarray
    weight: np.ndarray
    mean: np.ndarray
    scale: np.ndarray
    rss: np.ndarray
    dof: float

    @property
    def n_hinges(self) -> int:
        return self.breaks.shape[1]


def posterior(fit: BrokenLine, rng: np.random.Generator, options: HingeOptions = DEFAULTS) -> Posterior:
    """Return the posterior of the breaks, for the number of breaks of the least-squares fit."""
    if beyond_doubt(fit, options):  # then no distance but the least one bounds its intervals
        fit = replace(fit, points=replace(fit.points, loose=True))
    points, K = fit.points, len(fit.breaks)
    base = Projection.of(points, hinge_columns(points.z, np.zeros(0)))
    dof = max(points.total - base.basis.shape[1] - K, 1.0)
    if K == 0:
        sets, places, log_prior = np.zeros((1, 0), dtype=int), np.zeros(0), np.zeros(1)
    else:
        size = options.nodes[K - 1] if len(options.nodes) >= K else options.chain_nodes
        nodes = _nodes(fit, base, size, options)
        places = nodes.places
        if len(options.nodes) >= K:
            sets, log_prior = nodes.sets(points, options)
        else:
            sets, log_prior = _sampled(fit, base, nodes, dof, rng, options)
    # The optimum itself, with no width of its own, so that a posterior narrower than any grid is that one point.
    sums = base.hinges(np.concatenate([places, fit.breaks]))
    sets = np.vstack([sets, len(places) + np.arange(K)])
    log_prior = np.append(log_prior, -np.inf if len(sets) > 1 else 0.0)
    L, u = solve_sets(sums.A, sums.b, sets)
    rss = _sums_of_squares(fit, base, sums.places[sets], u)
    log_weight = log_prior - 0.5 * dof * np.log(np.maximum(rss, np.finfo(float).tiny))
    if not np.isfinite(log_weight).any() or K == 0:
        log_weight = np.append(np.full(len(sets) - 1, -np.inf), 0.0)
    weight = np.exp(log_weight - log_weight.max())
    if len(options.nodes) >= K:
        order = np.argsort(weight)
        kept = np.zeros(len(weight), dtype=bool)
        kept[order[np.cumsum(weight[order]) > options.negligible * weight.sum()]] = True
    else:  # a chain has visited its sets as often as they weigh
        weight = np.append(np.exp(log_prior[:-1]), 0.0)
        kept = weight > 0.0
    weight, rss = weight[kept] / weight[kept].sum(), rss[kept]
    mean, unit = _coefficients(base, sums.R, sets[kept], L[:, :, kept], u[:, kept])
    scale = unit * (rss / dof)[:, None, None]
    return Posterior(points, sums.places[sets[kept]], weight, mean, scale, rss, dof)


def log_evidence(fit: BrokenLine, options: HingeOptions = DEFAULTS) -> float:
    """Return the log of p(data | K breaks) over p(data | none), by quadrature.

    Of places that keep their distance, p(S) ∝ Π (z_{j+1} − z_j) over the breaks and both ends of the inputs: breaks
    side by side are unlikely beforehand [Green, 1995]. A slope change's density has a height with which it costs
    ½ log n, as if one row were known beforehand [unit information; Kass and Wasserman, 1995]:

        p_K / p_0 = n^(−K/2) · ∫ p(S) (RSS_S / RSS_0)^(−(n − q − K)/2) dS.
    """
    points, K = fit.points, len(fit.breaks)
    if K == 0:
        return 0.0
    base = Projection.of(points, hinge_columns(points.z, np.zeros(0)))
    nodes = _nodes(fit, base, options.evidence_nodes[K - 1], options)
    sets, log_widths = nodes.sets(points, options)
    volume = _prior_volume(points, K, options)
    if len(sets) == 0 or volume <= 0.0:
        return -np.inf
    sums = base.hinges(nodes.places)
    rss = _sums_of_squares(fit, base, nodes.places[sets], solve_sets(sums.A, sums.b, sets)[1])
    dof = max(points.total - base.basis.shape[1] - K, 1.0)
    gaps = np.diff(nodes.places[sets], axis=1, prepend=-1.0, append=1.0)
    logs = log_widths + np.log(gaps).sum(axis=1)
    logs -= 0.5 * dof * np.log(np.maximum(rss, np.finfo(float).tiny) / base.rss)
    return float(np.logaddexp.reduce(logs)) - float(np.log(volume)) - 0.5 * K * float(np.log(points.n))


def _sums_of_squares(fit: BrokenLine, base: Projection, breaks: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return RSS_S (T,) of the breaks (T, K), whose hinges gain u² (K, T)."""
    Q = _curvature(fit, base)
    if Q is None:
        return np.maximum(base.rss - np.square(u).sum(axis=0), fit.rss)
    off = breaks - fit.breaks
    return np.asarray(fit.rss + np.einsum("tj,jk,tk->t", off, Q, off))


def _curvature(fit: BrokenLine, base: Projection) -> np.ndarray | None:
    """Return Q (K, K) of RSS_S = RSS + (S − Ŝ)ᵀ Q (S − Ŝ), if noise is so small that RSS_S by gains is rounding.

    The breaks' errors are then far smaller than the gaps between inputs, within which this is exact to first order.
    """
    points, K = fit.points, len(fit.breaks)
    if _ROUNDINGS * np.finfo(float).eps * base.rss <= 0.01 * fit.rss / points.total:  # 0.01 in n log RSS
        return None
    J = np.sqrt(points.w)[:, None] * tangent_columns(points.z, fit.breaks)
    P = np.linalg.qr(J[:, : 2 + K])[0]
    D = J[:, 2 + K :] * fit.coefficients[2:]
    D = D - P @ (P.T @ D)
    return np.asarray(D.T @ D)


def _prior_volume(points: Points, K: int, options: HingeOptions) -> float:
    """Return ∫ Π (z_{j+1} − z_j) over the sets of K breaks that keep their distance, one break after the other."""
    gap = points.gap(options)
    low, high = points.place(np.array([gap - 1.0, len(points) - gap]))
    cell = float(high - low) / _CELLS
    z = low + (np.arange(_CELLS) + 0.5) * cell
    ranks = points.rank(z)
    step = cell * np.where(ranks[:, None] - ranks >= gap, z[:, None] - z, 0.0)
    sums = z + 1.0
    for _ in range(K - 1):
        sums = step @ sums
    return float(cell * (1.0 - z) @ sums)


@dataclass(frozen=True, eq=False)
class _Nodes:
    """Quadrature nodes of all breaks, one break after the other: `places`, `widths` of their cells, and where each
    break begins.
    """

    places: np.ndarray
    widths: np.ndarray
    bounds: np.ndarray

    def sets(self, points: Points, options: HingeOptions) -> tuple[np.ndarray, np.ndarray]:
        """Return all sets (T, K) with one node per break that keep their distance, and the logarithms of their cells'
        volumes.
        """
        axes = np.meshgrid(*(np.arange(a, b) for a, b in pairwise(self.bounds)), indexing="ij")
        sets = np.stack([axis.ravel() for axis in axes], axis=1)
        sets = sets[points.apart(self.places[sets], options)]
        return sets, np.log(self.widths)[sets].sum(axis=1)


def _nodes(fit: BrokenLine, base: Projection, size: int, options: HingeOptions) -> _Nodes:
    """Return `size` nodes for every break: quantiles of a guess of its density, with the widths of their cells.

    The guess is a third each of the marginal on the coarse grid, a normal about the optimum with the asymptotic error,
    and one three times as wide.
    """
    points, K = fit.points, len(fit.breaks)
    gap = points.gap(options)
    low, high = points.place(np.array([gap - 1.0, len(points) - gap]))
    coarse = coarse_grid(points, options.grid[min(K, len(options.grid)) - 1], options)
    marginals, errors = _coarse_marginals(fit, coarse, base, options), _asymptotic_errors(fit)
    found_places, found_widths = [], []
    for own, error, marginal in zip(fit.breaks, errors, marginals):
        fine = np.unique(np.concatenate([
            np.linspace(low, high, 400),
            np.clip(own + error * np.linspace(-12.0, 12.0, 400), low, high),
        ]))  # fmt: skip
        middle = 0.5 * (fine[1:] + fine[:-1])
        cells = np.diff(fine)
        normals = [np.exp(-0.5 * ((middle - own) / max(times * error, 1e-300)) ** 2) for times in (1.0, 3.0)]
        parts = [np.interp(middle, coarse, marginal), *normals, np.ones(len(middle))]  # nowhere none
        density = np.zeros(len(middle))
        for share, part in zip((1.0, 1.0, 1.0, 0.1), parts):
            total = float(part @ cells)
            density += share * part / total if total > 0.0 else 0.0
        cumulative = np.concatenate([[0.0], np.cumsum(density * cells)])
        edges = np.interp(np.linspace(0.0, cumulative[-1], size + 1), cumulative, fine)
        widths = np.diff(edges)
        wide = widths > 0.0
        found_places.append(0.5 * (edges[1:] + edges[:-1])[wide])
        found_widths.append(widths[wide])
    bounds = np.cumsum([0, *map(len, found_places)])
    return _Nodes(np.concatenate(found_places), np.concatenate(found_widths), bounds)


def _coarse_marginals(fit: BrokenLine, coarse: np.ndarray, base: Projection, options: HingeOptions) -> list[np.ndarray]:
    """Return every break's density on the coarse grid, the others integrated out, or at their optimum beyond three."""
    points, K = fit.points, len(fit.breaks)
    if len(options.grid) >= K:
        sums = base.hinges(coarse)
        sets = all_sets(points, sums, K, options)
        masses = _masses(fit, sums, sets, base.rss)
        return [_smoothed(sets[:, j], masses, len(coarse)) for j in range(K)]
    found, between = [], np.concatenate([[-np.inf], fit.breaks, [np.inf]])
    for j in range(K):
        rest = Projection.of(points, hinge_columns(points.z, np.delete(fit.breaks, j)))
        sums = rest.hinges(coarse)
        sets = np.flatnonzero((coarse > between[j]) & (coarse < between[j + 2]))[:, None]
        found.append(_smoothed(sets[:, 0], _masses(fit, sums, sets, rest.rss), len(coarse)))
    return found


def _masses(fit: BrokenLine, sums: HingeSums, sets: np.ndarray, rss: float) -> np.ndarray:
    """Return the weights of all sets (T,), relative to the largest."""
    left = np.maximum(rss - np.square(solve_sets(sums.A, sums.b, sets)[1]).sum(axis=0), fit.rss)
    logs = -0.5 * (fit.points.total - 2.0 - len(fit.breaks)) * np.log(np.maximum(left, np.finfo(float).tiny))
    return np.exp(logs - logs.max(initial=-np.inf))


def _smoothed(places: np.ndarray, masses: np.ndarray, size: int) -> np.ndarray:
    """Return the density of places (T,) on a grid, smoothed over neighbouring nodes; flat if there are no places."""
    if len(places) == 0:
        return np.ones(size)
    return np.convolve(np.bincount(places, masses, minlength=size), [0.25, 0.5, 0.25], mode="same")


def _asymptotic_errors(fit: BrokenLine) -> np.ndarray:
    """Return the standard errors of the breaks to first order, no wider than the range."""
    J, K = tangent_columns(fit.points.z, fit.breaks), len(fit.breaks)
    J = np.sqrt(fit.points.w)[:, None] * J
    variance = fit.rss / max(fit.points.total - 2.0 - 2.0 * K, 1.0)
    steps = np.diag(np.linalg.pinv(J.T @ J))[2 + K :]
    with np.errstate(divide="ignore"):
        errors = np.sqrt(variance * np.maximum(steps, 0.0)) / np.abs(fit.coefficients[2:])
    return np.minimum(np.where(np.isfinite(errors), errors, 2.0), 2.0)


def _coefficients(
    base: Projection, R: np.ndarray, sets: np.ndarray, L: np.ndarray, u: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the least-squares coefficients (T, K + 2) of every set and (XᵀX)⁻¹.

    δ = A_S⁻¹ b_S, and the affine part in the orthonormal basis P is Pᵀy − R_S δ.
    """
    T, K = sets.shape
    inverse = np.zeros((K, K, T))  # L⁻¹ by forward substitution
    for i in range(K):
        inverse[i, i] = 1.0 / L[i, i]
        for j in range(i):
            inverse[i, j] = -np.einsum("kt,kt->t", L[i, j:i], inverse[j:i, j]) / L[i, i]
    delta = np.einsum("kit,kt->ti", inverse, u)
    own = np.einsum("kit,kjt->tij", inverse, inverse)
    RS = R[:, sets].transpose(1, 0, 2)  # (T, q, K)
    a = base.coordinates - np.einsum("tqk,tk->tq", RS, delta)
    cross = -np.einsum("tqk,tkl->tql", RS, own)
    first = np.eye(RS.shape[1]) - np.einsum("tqk,tpk->tqp", cross, RS)
    # From the orthonormal basis to (1, z): √w (1, z) = P B.
    root = np.sqrt(base.points.w)
    B = base.basis.T @ (root[:, None] * hinge_columns(base.points.z, np.zeros(0)))
    back = np.linalg.pinv(B)
    mean = np.concatenate([a @ back.T, delta], axis=1)
    unit = np.zeros((T, 2 + K, 2 + K))
    unit[:, :2, :2] = back @ first @ back.T
    unit[:, :2, 2:] = back @ cross
    unit[:, 2:, :2] = unit[:, :2, 2:].transpose(0, 2, 1)
    unit[:, 2:, 2:] = own
    return mean, unit


def _sampled(
    fit: BrokenLine,
    base: Projection,
    nodes: _Nodes,
    dof: float,
    rng: np.random.Generator,
    options: HingeOptions,
) -> tuple[np.ndarray, np.ndarray]:
    """Sample sets of nodes, break by break given the others, in chains side by side; return them with log counts."""
    points, K, C = fit.points, len(fit.breaks), options.chains
    places, widths, bounds = nodes.places, nodes.widths, nodes.bounds
    sums, gap, Q = base.hinges(places), points.gap(options), _curvature(fit, base)
    ranks, log_widths = points.rank(places), np.log(widths)
    nearest = [a + int(np.argmin(np.abs(places[a:b] - p))) for a, b, p in zip(bounds, bounds[1:], fit.breaks)]
    state = np.tile(nearest, (C, 1))
    visited = []
    for sweep in range(options.sweeps):
        for j in range(K):
            others = np.delete(state, j, axis=1)
            own = np.arange(bounds[j], bounds[j + 1])
            L = np.linalg.cholesky(sums.A[others[:, :, None], others[:, None, :]])
            u = np.linalg.solve(L, sums.b[others][:, :, None])[:, :, 0]
            V = np.linalg.solve(L, sums.A[others[:, :, None], own])
            square = np.diag(sums.A)[own] - np.square(V).sum(axis=1)
            more = (sums.b[own] - np.einsum("ck,ckg->cg", u, V)) ** 2 / np.where(square > 0.0, square, np.inf)
            rss = np.maximum(base.rss - np.square(u).sum(axis=1)[:, None] - more, fit.rss)
            if Q is not None:
                off, rest = places[own] - fit.breaks[j], np.delete(places[state] - fit.breaks, j, axis=1)
                cross, within = rest @ np.delete(Q[j], j), np.delete(np.delete(Q, j, 0), j, 1)
                rss = fit.rss + np.einsum("cj,jk,ck->c", rest, within, rest)[:, None]
                rss = rss + 2.0 * cross[:, None] * off + Q[j, j] * off**2
            logs = log_widths[own] - 0.5 * dof * np.log(np.maximum(rss, np.finfo(float).tiny))
            below = ranks[state[:, j - 1]] + gap if j else np.full(C, gap - 1.0)
            above = ranks[state[:, j + 1]] - gap if j < K - 1 else np.full(C, len(points) - gap)
            free = (ranks[own] >= below[:, None] - 1e-9) & (ranks[own] <= above[:, None] + 1e-9)
            free |= own == state[:, j, None]
            logs = np.where(free, logs, -np.inf)
            noise = rng.gumbel(size=logs.shape)
            state[:, j] = own[np.argmax(logs + noise, axis=1)]
        if 6 * sweep >= options.sweeps:
            visited.append(state.copy())
    sets, counts = np.unique(np.concatenate(visited), axis=0, return_counts=True)
    return sets, np.log(counts)
