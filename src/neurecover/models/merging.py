"""Pairs of units that are one unit: the same function with fewer units, and how far units are apart.

Units with the same (w, b), up to scale, are one unit, and so are mirror images with the same function; a unit that adds
only a constant belongs in c.
"""

import numpy as np

from neurecover.models.layered import mirror_of
from neurecover.models.network import Network, replace_arrays

EQUAL = 1e-12  # relative distance below which two units are one, and relative size below which a column cancels


def simplify(network: Network) -> tuple[Network, tuple[tuple[int, ...], ...]]:
    """Return the same function with fixed scales and without redundant units, and the original units behind each unit.

    A unit with w = 0 is a constant and goes into c. Equal units are merged into the first of them, and their columns
    of A are added; so are mirror images with the same function (up to a free affine term). Units whose column is zero,
    from the start or by cancellation, are dropped.
    """
    normal = network.fixed_scales()
    constant = np.linalg.norm(normal.W, axis=1) == 0
    c = normal.c + normal.A[:, constant] @ normal.activation(normal.b[constant])
    live = np.flatnonzero(~constant & np.any(normal.A != 0, axis=0))
    normal = replace_arrays(normal.take(live), c=c)

    owners, signs = _equal_units(normal)
    normal = mirror_units(normal, signs)
    together = owners[:, None] == np.arange(len(live))
    A = normal.A @ together
    size_before = np.linalg.norm(normal.A, axis=0) @ together
    kept = np.flatnonzero(np.linalg.norm(A, axis=0) > EQUAL * size_before)
    groups = tuple(tuple(live[owners == unit].tolist()) for unit in kept)
    return replace_arrays(normal, A=A).take(kept), groups


def _equal_units(network: Network) -> tuple[np.ndarray, np.ndarray]:
    """Return, for every unit, the first unit that equals it, and a sign, −1 if it equals that unit's mirror image."""
    distances, turns = unit_distances(network, network)
    equal = distances <= EQUAL * np.linalg.norm(np.column_stack([network.W, network.b]), axis=1)[:, None]
    owners = np.full(network.n_hidden, -1)
    signs = np.ones(network.n_hidden, dtype=int)
    for unit in range(network.n_hidden):
        if owners[unit] < 0:
            members = np.flatnonzero((owners < 0) & equal[unit])
            owners[members] = unit
            signs[members] = turns[unit, members]
    return owners, signs


def mirror_units(network: Network, signs: np.ndarray) -> Network:
    """Return the network with every unit of sign −1 written as its mirror image (−w, −b, s·a); κ·a goes to c, m·a·wᵀ to
    C and m·a·b to c, as act(z) = s·act(−z) + κ + m z.

    a is unchanged if act has no such s, κ and m, or if m ≠ 0 and there is no affine term.
    """
    s, kappa, slope = mirror_of(network) or (1.0, 0.0, 0.0)
    turned = signs < 0
    moved, C = network.A[:, turned], network.C
    return replace_arrays(
        network,
        W=signs[:, None] * network.W,
        b=signs * network.b,
        A=np.where(turned, s * network.A, network.A),
        c=network.c + kappa * moved.sum(axis=1) + slope * moved @ network.b[turned],
        C=C if C is None else C + slope * moved @ network.W[turned],
    )


def unit_distances(
    first: Network, second: Network, up_to_sign: bool = False, size: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the distances between all units, to the nearer mirror image if allowed, and signs, −1 if mirrored.

    Biases are measured in units of `size`.
    """
    from scipy.spatial.distance import cdist

    P, Q = (np.column_stack([net.W, net.b / size]) for net in (first, second))
    upright = cdist(P, Q)
    if mirror_of(first) is None and not up_to_sign:
        return upright, np.ones(upright.shape, dtype=int)
    mirrored = cdist(-P, Q)
    return np.minimum(upright, mirrored), np.where(mirrored < upright, -1, 1)
