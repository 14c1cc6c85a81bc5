"""What the function of a network leaves open: the signs of its units, where they can be reversed together.

Where act(z) − act(−z) = m z (ReLU: m = 1), reversing units j in a set S, (w, b) → (−w, −b), changes the function
by the affine function −m Σ_S A_j (w_j·x + b_j). Its constant goes into c, so the function is the same whenever

    Σ_{j in S} A_j w_jᵀ = 0,   and Σ_{j in S} A_j b_j = 0 where c is fixed,      [ATV21, Theorem 3.4, eq. 5]

and no two rows of W being parallel this is all that the function leaves open but for the order and the scale of units.
With a free affine term C the linear part goes into it, and the sign of every unit is a convention (`normal_form`).
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

    `signs` (s, k) has −1 for the units of `network` that are reversed; `complete` is False where the assignments are
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

    Some ways do not count: to turn a unit that is its own mirror image up to A and c (sigmoid, abs), or whose A_j w_jᵀ
    is zero; to let two opposite units of the same A take each other's place; and any where a free C takes up the
    difference.

    Parameters
    ----------
    network : Network
        The network.
    tolerance : float, default=1e-9
        Relative to the size of the A_j w_jᵀ.
    most : int, default=4096
        How many ways are listed at most.
    offset : bool, default=True
        Whether c is free and takes up the constant. Without it, as in the paper's model f(x) = aᵀσ(Wx + b), Σ_S A_j b_j
        = 0 is asked as well, and fewer ways are left.

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
        # ‖Σ_S A_j w_jᵀ‖² = sᵀ M s ≥ λ_min(M), so that independent A_j w_jᵀ leave nothing to be searched. λ_min is known
        # to the rounding of the trace, ε tr M for every one of k units; 1e-12 of it is well above.
        M = (A.T @ A) * (W @ W.T)
        if np.linalg.eigvalsh(M)[0] <= max(tolerance**2, 1e-12) * np.trace(M):
            nothing = np.zeros((network.n_outputs, W.shape[1]))
            search = find_flips(A, W, nothing, m, tolerance, max_solutions=most)
            flips = search.flips[search.misfit <= tolerance]
            flips = flips[~_exchanged(network.take(live), flips, tolerance)]
            complete = search.complete and len(flips) < most
    order = np.lexsort((*flips.T[::-1], flips.sum(axis=1)))  # none turned comes first
    signs = np.ones((len(flips), k), dtype=int)
    signs[:, live] = np.where(flips[order], -1, 1)
    return SignAmbiguities(network, signs, complete)


def _exchanged(network: Network, flips: np.ndarray, tolerance: float) -> np.ndarray:
    """Return which assignments (s, k) reverse both units of a pair A act(z) + A act(−z), which gives the same pair."""
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
