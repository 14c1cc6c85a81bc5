"""What samples determine of the other units where one is on in fewer samples than it has weights.

Away from the samples S with that unit u on, the others are a network by themselves, and what is determined there is
determined. Any network of as many units that fits all samples has the same units up to sign away from S, and one more.
Units T that it has turned leave L_T x = Σ_T A_j w_j·x, up to a constant β, to that one, which would have to be on away
from S. On S it cannot be: A_u h would be zero. Off there it would take

    L_T x + β + A_u h = 0    for all samples in S,        h = w_u·x + b_u,

and no set T may come near to that. One sample in S meets it for every T, two or more are asked for. A sample on the
kink itself counts on neither side.

The mirror case is one unit that is *off* in few samples S (`others_may_turn`): where it is on it can take up L_T x + β,
and off in S it does not show if L_T x is the same for all of them.

Beside a free affine term both are one case. The others are determined away from S, up to signs that are a convention,
and as the unit u may be on away from S, whatever its weights are, C and c are open.
"""

from __future__ import annotations

import numpy as np

from neurecover.certificate.determined import Seen, seen_weights, signs_are_determined
from neurecover.data import ArraySource, Source
from neurecover.models import Network
from neurecover.search.signs import subsets

MOST_UNITS = 16  # whose subsets are looked at
MEETS = 1e-6  # relative size of L_T x + β + A_u h on S that counts as zero
AT_KINK = 1e-9  # of the largest |w·x + b|: nearer samples are on the kink
AT_A_TIME = 2**22  # numbers


def seen_of_others(normal: Network, inputs: Source, bias: bool, level: float, few: np.ndarray, fewest: int) -> Seen:
    """The weights of all units but the one of `few` (k,), which is seldom on; nothing where signs stay open.

    Beside an affine term it may be seldom off as well.

    `fewest` samples are wanted on either side of every other kink away from S.
    """
    unit = int(np.flatnonzero(few)[0])
    X, Y = (np.asarray(part, dtype=np.float64) for part in inputs.collect())
    z = X @ normal.W[unit] + normal.b[unit]
    on, away = z > AT_KINK * np.abs(z).max(), z < -AT_KINK * np.abs(z).max()
    if normal.C is not None and np.count_nonzero(on) > np.count_nonzero(away):
        on, away = away, on
    others = _without(normal, unit)
    count = np.count_nonzero(X[away] @ others.W.T + others.b > 0.0, axis=0)
    off = np.count_nonzero(away) - count
    rest, scarce = ArraySource(X[away], Y[away]), np.minimum(count, off) < fewest
    seen = seen_weights(others, rest, bias, level, scarce, off < fewest)
    all_seen = min(count.min(initial=fewest), off.min(initial=fewest)) >= fewest
    if normal.C is not None:
        open_ = ("C", "c") if all_seen else tuple(seen.errors)
    else:
        turn = not signs_are_determined(others, seen.errors) or _may_be_on(normal, unit, others, X[on])
        open_ = () if all_seen and not turn else tuple(seen.errors)
    errors = {name: np.full_like(e, np.inf) if name in open_ else e for name, e in seen.errors.items()}
    return Seen(_with_unit(errors, unit, np.inf), _with_unit(seen.unseen, unit, True))


def others_may_turn(normal: Network, unit: int, inputs: Source) -> bool:
    """Whether some of the other units could be turned beside this one, which is off in few of the samples."""
    X = np.asarray(inputs.collect()[0], dtype=np.float64)
    z = X @ normal.W[unit] + normal.b[unit]
    X = X[z < -AT_KINK * np.abs(z).max()]
    others = _without(normal, unit)
    if len(X) < 2 or others.n_hidden > MOST_UNITS:
        return True
    return _cancel(others, X, np.zeros((len(X), normal.n_outputs)), smallest=1)


def _without(network: Network, unit: int) -> Network:
    kept = np.delete(np.arange(network.n_hidden), unit)
    return network.take(kept)


def _may_be_on(normal: Network, unit: int, others: Network, X: np.ndarray) -> bool:
    """Whether the unit could be on away from S, X (m, d), with some of the others turned."""
    if len(X) < 2 or others.n_hidden > MOST_UNITS:
        return True
    return _cancel(others, X, np.outer(X @ normal.W[unit] + normal.b[unit], normal.A[:, unit]))


def _cancel(others: Network, X: np.ndarray, told: np.ndarray, smallest: int = 0) -> bool:
    """Whether L_T x + `told` (m, p) is the same for all rows of X (m, d), for a set T of so many units or more."""
    each = (X @ others.W.T)[:, None, :] * others.A  # of A_j w_j·x, (m, p, k − 1)
    size = np.linalg.norm(told) + np.linalg.norm(each)
    each, told = (each - each.mean(axis=0)).reshape(told.size, -1), (told - told.mean(axis=0)).ravel()
    sets = subsets(others.n_hidden)
    sets = sets[np.count_nonzero(sets, axis=1) >= smallest]
    some = max(AT_A_TIME // max(told.size, 1), 1)
    return any(
        bool((np.linalg.norm(sets[first : first + some] @ each.T + told, axis=1) <= MEETS * size).any())
        for first in range(0, len(sets), some)
    )


def _with_unit(arrays: dict[str, np.ndarray], unit: int, value: float | bool) -> dict[str, np.ndarray]:
    """Arrays of the other units with a value in the places of this one."""
    axes = {"W": 0, "b": 0, "A": 1}
    return {
        name: np.insert(array, unit, value, axis=axes[name]) if name in axes else array
        for name, array in arrays.items()
    }
