"""What samples determine of the other units where one is on in fewer samples than it has weights.

Away from the samples S with that unit u on, the others are a network by themselves, and what is determined there is
determined. Any network of as many units that fits all samples has the same units up to sign away from S, and one more.
Units T that it has turned leave L_T x = Σ_T A_j w_j·x, up to a constant β, to that one, which would have to be on away
from S. On S it cannot be: A_u h would be zero. Off there it would take

    L_T x + β + A_u h = 0    for all samples in S,        h = w_u·x + b_u,

and no set T may come near to that. One sample in S meets it for every T, two or more are asked for.
"""

from __future__ import annotations

import numpy as np

from neurecover.certificate.determined import Seen, seen_weights, signs_are_determined
from neurecover.data import ArraySource, Source
from neurecover.models import Network
from neurecover.refine.signs import subsets

MOST_UNITS = 16  # whose subsets are looked at
MEETS = 1e-6  # relative size of L_T x + β + A_u h on S that counts as zero


def seen_of_others(normal: Network, inputs: Source, bias: bool, level: float, few: np.ndarray, fewest: int) -> Seen:
    """The weights of all units but the one of `few` (k,), which is seldom on; nothing where signs stay open.

    `fewest` samples are wanted on either side of every other kink away from S.
    """
    unit = int(np.flatnonzero(few)[0])
    X, Y = (np.asarray(part, dtype=np.float64) for part in inputs.collect())
    on = X @ normal.W[unit] + normal.b[unit] > 0.0
    kept = np.flatnonzero(~few)
    others = Network(normal.W[kept], normal.b[kept], normal.A[:, kept], normal.c, normal.activation)
    count = np.count_nonzero(X[~on] @ others.W.T + others.b > 0.0, axis=0)
    off = np.count_nonzero(~on) - count
    seen = seen_weights(others, ArraySource(X[~on], Y[~on]), bias, level, np.minimum(count, off) < fewest, off < fewest)
    all_seen = min(count.min(initial=fewest), off.min(initial=fewest)) >= fewest
    if not all_seen or not signs_are_determined(others, seen.errors) or _may_be_on(normal, unit, others, X[on]):
        seen = Seen({name: np.full_like(error, np.inf) for name, error in seen.errors.items()}, seen.unseen)
    return Seen(_with_unit(seen.errors, unit, np.inf), _with_unit(seen.unseen, unit, True))


def _may_be_on(normal: Network, unit: int, others: Network, X: np.ndarray) -> bool:
    """Whether the unit could be on away from S, X (m, d), with some of the others turned."""
    if len(X) < 2 or others.n_hidden > MOST_UNITS:
        return True
    told = (X @ normal.W[unit] + normal.b[unit])[:, None] * normal.A[:, unit]
    told = (told - told.mean(axis=0)).ravel()
    slopes = X @ others.W.T
    slopes -= slopes.mean(axis=0)
    each = (slopes[:, None, :] * others.A).reshape(-1, others.n_hidden)  # of A_j w_j·x, (m·p, k − 1)
    left = subsets(others.n_hidden) @ each.T + told
    size = np.linalg.norm(told) + np.linalg.norm(each)
    return bool((np.linalg.norm(left, axis=1) <= MEETS * size).any())


def _with_unit(arrays: dict[str, np.ndarray], unit: int, value: float | bool) -> dict[str, np.ndarray]:
    """Arrays of the other units with a value in the places of this one."""
    axes = {"W": 0, "b": 0, "A": 1}
    return {
        name: np.insert(array, unit, value, axis=axes[name]) if name in axes else array
        for name, array in arrays.items()
    }
