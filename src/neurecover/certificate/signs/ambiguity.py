"""Find the signs of units that a network's function does not determine, because units can be reversed together.

If act(z) − act(−z) = m z (ReLU: m = 1), reversing the units j in a set S, (w, b) → (−w, −b), changes the function
by the affine function −m Σ_S A_j (w_j·x + b_j). Its constant goes into c, so the function stays the same if

    Σ_{j in S} A_j w_jᵀ = 0,   and Σ_{j in S} A_j b_j = 0 if c is fixed.         [ATV21, Theorem 3.4, eq. 5]

If no two rows of W are parallel, this is the only ambiguity besides the order and the scale of units. With a free
affine term C the linear part goes into C, and the sign of every unit is a convention (`normal_form`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from neurecover.models import Network, replace_arrays
from neurecover.models.signs import find_flips


@dataclass(frozen=True, eq=False)
class SignAmbiguities:
    """Every assignment of signs with the same function, the given one first.

    `signs` (s, k) has −1 for the units of `network` that are reversed; `complete` is False if the assignments are
    too many to be searched or listed.
    """

    network: Network
    signs: np.ndarray
    complete: bool

    @cached_property
    def networks(self) -> tuple[Network, ...]:
        """The networks themselves."""
        return tuple(turned(self.network, row) for row in self.signs)

    @property
    def unique(self) -> bool:
        """Whether the function determines the signs."""
        return self.complete and len(self.signs) == 1


def sign_ambiguities(
    network: Network, tolerance: float = 1e-9, most: int = 4_096, offset: bool = True
) -> SignAmbiguities:
    """Find the ways to reverse units that do not change the function [ATV21, eq. 5].

    Some reversals do not count: of a unit that is its own mirror image up to A and c (sigmoid, abs); of a unit with
    A_j w_jᵀ = 0; of two opposite units with the same A, which only exchanges them; and any that a free C absorbs.

    Parameters
    ----------
    network : Network
        The network.
    tolerance : float, default=1e-9
        Relative to the size of the A_j w_jᵀ.
    most : int, default=4096
        The largest number of assignments that are listed.
    offset : bool, default=True
        Whether c is free and absorbs the constant. Without c, as in the paper's model f(x) = aᵀσ(Wx + b),
        Σ_S A_j b_j = 0 is required as well, and fewer assignments remain.

    Returns
    -------
    SignAmbiguities
        The sets of units that may be reversed together.

    References
    ----------
    .. [ATV21] Equation (5), Theorem 3.4.

    Examples
    --------
    >>> import numpy as np
    >>> import neurecover as nr
    >>> nr.sign_ambiguities(nr.simulate.teacher(4, 3, random_state=0)).unique
    True
    """
    k, m = network.n_hidden, network.activation.odd_slope if network.C is None else None
    size = np.linalg.norm(network.A, axis=0) * np.linalg.norm(network.W, axis=1)
    live = np.flatnonzero(size > 0.0)
    flips, complete = np.zeros((1, len(live)), dtype=bool), True
    if m and len(live):
        A, W = network.A[:, live], network.W[live]
        W = W if offset else np.column_stack([W, network.b[live]])
        # ‖Σ_S A_j w_jᵀ‖² = sᵀ M s ≥ λ_min(M), so if the A_j w_jᵀ are independent there is nothing to search. λ_min has
        # an error of about ε tr M per unit; 1e-12 tr M is well above it.
        M = (A.T @ A) * (W @ W.T)
        if np.linalg.eigvalsh(M)[0] <= max(tolerance**2, 1e-12) * np.trace(M):
            nothing = np.zeros((network.n_outputs, W.shape[1]))
            search = find_flips(A, W, nothing, m, tolerance, max_solutions=most)
            flips = search.flips[search.misfit <= tolerance]
            flips = flips[~_exchanged(network.take(live), flips, tolerance)]
            complete = search.complete and len(flips) < most
    order = np.lexsort((*flips.T[::-1], flips.sum(axis=1)))  # the assignment without reversals comes first
    signs = np.ones((len(flips), k), dtype=int)
    signs[:, live] = np.where(flips[order], -1, 1)
    return SignAmbiguities(network, signs, complete)


def _exchanged(network: Network, flips: np.ndarray, tolerance: float) -> np.ndarray:
    """Return a mask of the assignments (s, k) that reverse both units of a pair A act(z) + A act(−z): the same pair."""
    rows = np.column_stack([network.W, network.b])
    size = np.linalg.norm(rows, axis=1)
    opposite = np.linalg.norm(rows[:, None] / size[:, None, None] + rows / size[:, None], axis=2) < tolerance
    scaled = network.A * size
    same = np.linalg.norm(scaled[:, :, None] - scaled[:, None, :], axis=0) < tolerance * np.linalg.norm(scaled, axis=0)
    first, second = np.nonzero(opposite & same)
    return np.asarray((flips[:, first] & flips[:, second]).any(axis=1))


def turned(network: Network, signs: np.ndarray) -> Network:
    """Return the network with the units of sign −1 reversed; c, and C if there is one, absorb the change."""
    m = network.activation.odd_slope or 0.0
    units = signs < 0
    c = network.c + m * network.A[:, units] @ network.b[units]
    C = None if network.C is None else network.C + m * network.A[:, units] @ network.W[units]
    return replace_arrays(network, W=network.W * signs[:, None], b=network.b * signs, c=c, C=C)
