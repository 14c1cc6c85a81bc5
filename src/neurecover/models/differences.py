"""The difference of two networks, written so that no digits cancel if they nearly agree.

With θ = (w, b) and x̃ = (x, 1), f − g is a sum Σ_i a_i act(θ_i·x̃) over the units of both, plus the difference of their
affine terms and offsets. A spanning forest joins units that are near each other, after scaling and mirroring if act
allows it. Let p(i) be the parent of i and s_i the sum of a over i and all its descendants. Summation by parts gives

    f − g = Σ_roots s_i act(θ_i·x̃) + Σ_others s_i [act(θ_i·x̃) − act(θ_p(i)·x̃)] + L·x + c,

where equal units give s = 0 at a root, or a bracket that is zero. With δ = θ_i − θ_p and the midpoint θ̄, a bracket is

    act(θ_i·x̃) − act(θ_p·x̃) = act′(θ̄·x̃) (δ·x̃),

with a relative error of about δ²/24 for a smooth act. If act is linear or quadratic on either side of a kink, it is
exact except in the strip between the two kinks. The strip has a probability of order δ, which matters only for a relu.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.activations import Activation, SidedPower
from neurecover.models.layered import mirror
from neurecover.models.network import Network

LARGEST_POWER = 6  # of an activation with a closed form here; for higher powers the series is summed
# Units nearer than this are joined. The midpoint rule has a relative error of about δ/6 in a relu's mean square and of
# δ²/24 in a smooth unit's; the plain sum of all products has one of 1e-15/δ², for a step 1e-15/δ. They are equal here.
NEAR, NEAR_SMOOTH = 1e-5, 3e-4


@dataclass(frozen=True)
class Terms:
    """Σ_i A_i act(w_i·x + b_i), or if `moved`, Σ_i A_i act′(w_i·x + b_i)(u_i·x + v_i)."""

    A: np.ndarray
    W: np.ndarray
    b: np.ndarray
    U: np.ndarray
    v: np.ndarray
    moved: bool

    @classmethod
    def of_units(cls, A: np.ndarray, W: np.ndarray, b: np.ndarray) -> Terms:
        return cls(A, W, b, np.zeros_like(W), np.zeros_like(b), False)

    @property
    def own(self) -> np.ndarray:
        """u_i·w_i"""
        return np.einsum("ij,ij->i", self.U, self.W)


@dataclass(frozen=True)
class Difference:
    """f − g = units + moves + L·x + c; all rows w have length one if act is homogeneous."""

    act: Activation
    units: Terms
    moves: Terms
    L: np.ndarray
    c: np.ndarray

    @property
    def A(self) -> np.ndarray:
        return np.hstack([self.units.A, self.moves.A])


def has_closed_form(act: Activation) -> bool:
    """Return whether act(z) = z₊^n + λ z₋^n with a small whole number n."""
    return isinstance(act, SidedPower) and act.exponent in range(LARGEST_POWER + 1)


def joined(network: Network, truth: Network) -> tuple[Network, np.ndarray]:
    """Return f − g as one network without C and c, with the units of both that depend on x, and the array (C, c).

    (C, c), (p, d + 1), is in numpy's longest float; C is zero if neither network has one.
    """
    for what in ("n_inputs", "n_outputs", "activation"):
        ours, theirs = getattr(network, what), getattr(truth, what)
        if ours != theirs:
            raise ValueError(f"The risk needs two networks of the same {what}. Got {ours} and {theirs} instead.")
    both = Network(
        np.vstack([network.W, truth.W]),
        np.concatenate([network.b, truth.b]),
        np.hstack([network.A, -truth.A]),
        None,
        network.activation,
    )
    live = np.linalg.norm(both.W, axis=1) > 0.0
    affine = np.zeros((both.n_outputs, both.n_inputs + 1), dtype=np.longdouble)
    affine[:, -1] = network.c.astype(np.longdouble) - truth.c + both.A[:, ~live] @ both.activation(both.b[~live])
    for sign, C in ((1.0, network.C), (-1.0, truth.C)):
        if C is not None:
            affine[:, :-1] += sign * C
    return both.take(np.flatnonzero(live & np.any(both.A != 0.0, axis=0))), affine


def difference(network: Network, truth: Network) -> Difference:
    """Return f − g in the form given at the head of this file."""
    act = network.activation
    if act.homogeneity is None:
        network, truth = network.normal_form(), truth.normal_form()
    both, affine = joined(network, truth)
    theta = np.column_stack([both.W, both.b]).astype(np.longdouble)
    scale = np.ones(len(theta)) if act.homogeneity is None else np.linalg.norm(both.W, axis=1)
    forest = _forest(np.asarray(theta / scale[:, None], dtype=float), act)
    edges = _edges(theta, scale, forest, act)

    s = both.A.T.astype(np.longdouble)
    _, shift, slope = mirror(act) or (1.0, 0.0, 0.0)
    for i in reversed(forest.order):
        if forest.parent[i] >= 0:
            if forest.turned[i]:
                affine += slope * np.outer(s[i], theta[i])
                affine[:, -1] += shift * s[i]
            s[i] *= edges.factor[i]
            s[forest.parent[i]] += s[i]

    root = forest.parent < 0
    units = unit_rows(s[root], theta[root], np.zeros_like(theta[root]), act)
    moved = ~root & np.any(edges.delta != 0.0, axis=1) & (_near(act) > 0.0)
    moves = unit_rows(s[moved], (theta[forest.parent] + edges.delta / 2.0)[moved], edges.delta[moved], act)
    affine = np.asarray(affine, dtype=float)
    return Difference(act, Terms.of_units(units.A, units.W, units.b), moves, affine[:, :-1], affine[:, -1])


def unit_rows(s: np.ndarray, theta: np.ndarray, delta: np.ndarray, act: Activation) -> Terms:
    """Return the terms with ‖w‖ = 1, by act′(θ·x̃)(δ·x̃) = r^n act′(θ/r·x̃)(δ/r·x̃) if act is homogeneous of degree n."""
    theta, delta = np.asarray(theta, dtype=float), np.asarray(delta, dtype=float)
    A = np.asarray(s, dtype=float).T
    if act.homogeneity is not None:
        r = np.linalg.norm(theta[:, :-1], axis=1)
        A, theta, delta = A * r**act.homogeneity, theta / r[:, None], delta / r[:, None]
    return Terms(A, theta[:, :-1], theta[:, -1], delta[:, :-1], delta[:, -1], True)


def _near(act: Activation) -> float:
    if act.analytic:
        return NEAR_SMOOTH
    if not isinstance(act, SidedPower) or not has_closed_form(act):
        return 0.0
    return NEAR if act.exponent <= 1.0 else NEAR_SMOOTH


@dataclass(frozen=True)
class _Forest:
    """The parent of every unit, −1 for a root; whether it is the parent's mirror image; an order, parents first."""

    parent: np.ndarray
    turned: np.ndarray
    order: list[int]


def _forest(points: np.ndarray, act: Activation) -> _Forest:
    """Return the shortest spanning tree of the points (w, b), by Prim's algorithm, without edges longer than `_near`.

    If act is homogeneous, an edge's length is relative to its points: moving a unit far from the inputs matters less.
    """
    from scipy.spatial.distance import cdist

    distance = cdist(points, points)
    turned = np.zeros(distance.shape, dtype=bool)
    if mirror(act) is not None:
        mirrored = cdist(points, -points)
        turned = mirrored < distance
        distance = np.minimum(distance, mirrored)
    if act.homogeneity is not None:
        size = np.linalg.norm(points, axis=1)
        distance /= np.maximum.outer(size, size)
    k = len(points)
    waiting, nearest, link = np.ones(k, dtype=bool), np.full(k, np.inf), np.full(k, -1)
    parent, order = np.full(k, -1), []
    for _ in range(k):
        i = int(np.flatnonzero(waiting)[np.argmin(nearest[waiting])])
        waiting[i] = False
        order.append(i)
        if nearest[i] <= _near(act):
            parent[i] = link[i]
        closer = waiting & (distance[i] < nearest)
        nearest[closer], link[closer] = distance[i, closer], i
    return _Forest(parent, turned[np.arange(k), parent], order)


@dataclass(frozen=True)
class _Edges:
    """For every unit except the roots, act(θ·x̃) = factor · act((θ_p + δ)·x̃), or of its mirror image."""

    factor: np.ndarray
    delta: np.ndarray


def _edges(theta: np.ndarray, scale: np.ndarray, forest: _Forest, act: Activation) -> _Edges:
    """Return the edges. Scaled like its parent, a unit is κ^{−n} act(κ θ·x̃) with κ = ‖w_p‖/‖w‖.

    κ is a power of two if that is close enough, so that δ = κ θ − θ_p is exact. Otherwise δ is computed in numpy's
    longest float, so that its error is below the rounding of the weights.
    """
    child = np.flatnonzero(forest.parent >= 0)
    parent, turned = forest.parent[child], forest.turned[child]
    ratio = scale[parent] / scale[child]
    power = np.exp2(np.rint(np.log2(ratio)))
    kappa = np.where(np.abs(ratio / power - 1.0) <= NEAR, power, ratio).astype(np.longdouble)
    factor, delta = np.ones(len(theta), dtype=np.longdouble), np.zeros_like(theta)
    delta[child] = np.where(turned, -kappa, kappa)[:, None] * theta[child] - theta[parent]
    sign = (mirror(act) or (1.0,))[0]
    factor[child] = np.where(turned, sign, 1.0) * kappa ** -(act.homogeneity or 0.0)
    return _Edges(factor, delta)
