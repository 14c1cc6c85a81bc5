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

from neurecover.certificate.determined.weights import Seen, seen_weights, signs_are_determined
from neurecover.certificate.options import DEFAULTS, CertificateOptions
from neurecover.data import ArraySource, Source
from neurecover.models import DeepNetwork, Network
from neurecover.models.signs import subsets

AT_A_TIME = 2**22  # numbers


def exact_part(
    normal: Network | DeepNetwork,
    inputs: Source,
    bias: bool,
    level: float,
    few: np.ndarray,
    seldom_off: np.ndarray,
    needed: np.ndarray,
    options: CertificateOptions = DEFAULTS,
) -> Seen | None:
    """Return which weights are exact where not all are determined; None where none is vouched for.

    few (units,) have their kink seen by fewer than `needed` samples, some of them because they are seldom off. level is
    the rms of rounding.
    """
    if normal.activation.name == "exp" or normal.n_parameters > options.open.most:
        return None
    affine = normal.C is not None
    # On or off, what too few samples tell from an affine function hides in C.
    low = few if affine else few & seldom_off
    one_rare = few.sum() == 1 < len(few) and (affine or not low.any())
    if isinstance(normal, Network) and normal.activation.name == "relu" and one_rare:
        seen = seen_of_others(normal, inputs, bias, level, few, int(np.max(needed)), options)
    else:
        seen = seen_weights(normal, inputs, bias, level, few, low, options)
        if not signs_are_determined(normal, seen.errors, options.same):
            return None
    # What failed a check without any weight being open for it is not vouched for weight by weight either.
    return seen if 0 < seen.n_open < seen.n else None


def seen_of_others(
    normal: Network,
    inputs: Source,
    bias: bool,
    level: float,
    few: np.ndarray,
    fewest: int,
    options: CertificateOptions = DEFAULTS,
) -> Seen:
    """Return which weights are seen of all units but the one in `few` (k,), which is seldom on; none if signs are open.

    Beside an affine term that unit may be seldom off as well. Every other unit needs `fewest` samples on either side of
    its kink, away from S.
    """
    unit = int(np.flatnonzero(few)[0])
    X, Y = (np.asarray(part, dtype=np.float64) for part in inputs.collect())
    z = X @ normal.W[unit] + normal.b[unit]
    near = options.at_kink * np.abs(z).max()
    on, away = z > near, z < -near
    if normal.C is not None and np.count_nonzero(on) > np.count_nonzero(away):
        on, away = away, on
    others = _without(normal, unit)
    count = np.count_nonzero(X[away] @ others.W.T + others.b > 0.0, axis=0)
    off = np.count_nonzero(away) - count
    rest, scarce = ArraySource(X[away], Y[away]), np.minimum(count, off) < fewest
    seen = seen_weights(others, rest, bias, level, scarce, off < fewest, options)
    all_seen = min(count.min(initial=fewest), off.min(initial=fewest)) >= fewest
    if normal.C is not None:
        open_ = ("C", "c") if all_seen else tuple(seen.errors)
    else:
        turn = not signs_are_determined(others, seen.errors, options.same)
        turn = turn or _may_be_on(normal, unit, others, X[on], options)
        open_ = () if all_seen and not turn else tuple(seen.errors)
    errors = {name: np.full_like(e, np.inf) if name in open_ else e for name, e in seen.errors.items()}
    return Seen(_with_unit(errors, unit, np.inf), _with_unit(seen.unseen, unit, True))


def others_may_turn(normal: Network, unit: int, inputs: Source, options: CertificateOptions = DEFAULTS) -> bool:
    """Return whether other units could change signs together with this one, which is off in few of the samples."""
    X = np.asarray(inputs.collect()[0], dtype=np.float64)
    z = X @ normal.W[unit] + normal.b[unit]
    X = X[z < -options.at_kink * np.abs(z).max()]
    others = _without(normal, unit)
    if len(X) < 2 or others.n_hidden > options.open.most_units:
        return True
    return _cancel(others, X, np.zeros((len(X), normal.n_outputs)), options.open.meets, smallest=1)


def _without(network: Network, unit: int) -> Network:
    kept = np.delete(np.arange(network.n_hidden), unit)
    return network.take(kept)


def _may_be_on(
    normal: Network, unit: int, others: Network, X: np.ndarray, options: CertificateOptions = DEFAULTS
) -> bool:
    """Return whether the unit could be on away from S, X (m, d), with the signs of some others changed."""
    if len(X) < 2 or others.n_hidden > options.open.most_units:
        return True
    return _cancel(others, X, np.outer(X @ normal.W[unit] + normal.b[unit], normal.A[:, unit]), options.open.meets)


def _cancel(others: Network, X: np.ndarray, told: np.ndarray, meets: float, smallest: int = 0) -> bool:
    """Return whether L_T x + `told` (m, p) is the same for all rows of X (m, d), for a large enough set T of units."""
    each = (X @ others.W.T)[:, None, :] * others.A  # of A_j w_j·x, (m, p, k − 1)
    size = np.linalg.norm(told) + np.linalg.norm(each)
    each, told = (each - each.mean(axis=0)).reshape(told.size, -1), (told - told.mean(axis=0)).ravel()
    sets = subsets(others.n_hidden)
    sets = sets[np.count_nonzero(sets, axis=1) >= smallest]
    some = max(AT_A_TIME // max(told.size, 1), 1)
    return any(
        bool((np.linalg.norm(sets[first : first + some] @ each.T + told, axis=1) <= meets * size).any())
        for first in range(0, len(sets), some)
    )


def _with_unit(arrays: dict[str, np.ndarray], unit: int, value: float | bool) -> dict[str, np.ndarray]:
    """Return arrays of the other units with a value inserted at the places of this one."""
    axes = {"W": 0, "b": 0, "A": 1}
    return {
        name: np.insert(array, unit, value, axis=axes[name]) if name in axes else array
        for name, array in arrays.items()
    }
