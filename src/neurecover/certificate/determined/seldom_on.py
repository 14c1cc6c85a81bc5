"""Find what samples determine about the other units, if a unit is on (or off) in fewer samples than it has weights.

Let the unit u be on only in the few samples S. Away from S the other units are a network by themselves, and what is
determined there is determined. Consider another network with as many units that fits all samples. Away from S it has
the same other units up to sign, and one further unit. If it has negated the units T, the further unit must make up for
L_T x = Σ_T A_j w_j·x, up to a constant β, so it is on away from S. It cannot be on in S too, because A_u h would be
zero. If it is off in S, then

    L_T x + β + A_u h = 0    for all samples in S,        h = w_u·x + b_u.

The others are determined if no set T comes near to this. One sample in S satisfies it for every T, so two or more are
needed. A sample exactly at the kink counts on neither side.

The mirror case is one unit that is *off* only in few samples S (`others_may_turn`). Where it is on it can absorb
L_T x + β, and in S the change does not show if L_T x is the same for all samples of S.

**Several outputs** determine more, for any number of such units R, each on or off in few samples S. Another network
with as many units has the other units up to the signs of T, and |R| further units with output weights A′. Away from S
these add the affine function that T and the units of R that are on there would leave. Its slopes span the columns A_T
and A_on of the two, if their rows w_j are independent. In a sample of S they also add g(x) = Σ_R A_u (the unit minus
its affine form). So

    span A_T + B ⊂ span A′,        B = span A_on + span {g(x) : x in S}.

If B has |R| dimensions, then B = span A′, and T is empty if no column of another unit is in B (`outputs_tell`). If a
unit of R is on away from S, the constant c is not determined either.

With a free affine term both cases are the same. The others are determined away from S, up to signs that are a
convention. C and c are not determined, because the unit u, whatever its weights, may be on away from S.
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
    """Return which weights are exact although not all are determined; None if none can be certified.

    few (units,) marks units with fewer than `needed` samples on one side of the kink, and seldom_off those that are
    seldom off. level is the rms of rounding.
    """
    if normal.activation.name == "exp" or normal.n_parameters > options.open.most:
        return None
    affine = normal.C is not None
    rectified = isinstance(normal, Network) and normal.activation.name == "relu"
    if rectified and few.any() and not few.all() and (few.sum() == 1 or not affine):
        assert isinstance(normal, Network)
        seen = seen_of_others(normal, inputs, bias, level, few, int(np.max(needed)), options)
    else:
        # A unit that too few samples distinguish from an affine function, on or off, may be hidden in C.
        seen = seen_weights(normal, inputs, bias, level, few, few if affine else few & seldom_off, options)
        if not signs_are_determined(normal, seen.errors, options.same):
            return None
    # If a check failed although no weight is open, single weights cannot be certified either.
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
    """Return which weights of the units outside `few` (k,) are seen; units in `few` are on, or off, in few samples
    only.

    No weight is seen if the signs are not determined. With an affine term, `few` has one unit. S is the set of those
    few samples, and every other unit needs `fewest` samples outside S on either side of its kink.
    """
    X, Y = (np.asarray(part, dtype=np.float64) for part in inputs.collect())
    Z = X @ normal.W.T + normal.b
    near = options.at_kink * np.abs(Z).max(axis=0)
    n_on, n_off = (np.count_nonzero(sign * Z - near > 0.0, axis=0) for sign in (1.0, -1.0))
    low = few & (n_on > n_off)
    side = np.where(low, -1.0, 1.0)
    away = (side * Z < -near)[:, few].all(axis=1)
    # A unit that is on away from S stays, as an affine function, unless C absorbs it.
    gone = few if normal.C is not None else few & ~low
    others, kept = normal.take(np.flatnonzero(~gone)), ~few[~gone]
    count = np.count_nonzero(X[away] @ others.W.T + others.b > 0.0, axis=0)
    off = np.count_nonzero(away) - count
    rest, scarce = ArraySource(X[away], Y[away]), (np.minimum(count, off) < fewest) | ~kept
    seen = seen_weights(others, rest, bias, level, scarce, off < fewest, options)
    all_seen = bool(np.minimum(count, off)[kept].min(initial=fewest) >= fewest)
    if normal.C is not None:
        open_ = ("C", "c") if all_seen else tuple(seen.errors)
    else:
        told = outputs_tell(normal, few, low, X, seen.errors["W"][kept], seen.errors["A"][:, kept], options)
        if not told and few.sum() == 1 and not low.any():
            unit = int(np.flatnonzero(few)[0])
            told = signs_are_determined(others, seen.errors, options.same)
            told = told and not _may_be_on(normal, unit, others, X[Z[:, unit] > near[unit]], options)
        open_ = () if all_seen and told else tuple(seen.errors)
    errors = {name: np.full_like(e, np.inf) if name in open_ else e for name, e in seen.errors.items()}
    return Seen(_with_units(errors, gone, np.inf), _with_units(seen.unseen, gone, True))


def outputs_tell(
    normal: Network,
    few: np.ndarray,
    low: np.ndarray,
    X: np.ndarray,
    W_errors: np.ndarray,
    A_errors: np.ndarray,
    options: CertificateOptions = DEFAULTS,
) -> bool:
    """Return whether only units in `few` (k,) may be negated, because several outputs determine the signs of the
    others.

    Units in `low` (k,) are on in most samples. The errors are those of the other units, infinite for undetermined
    weights. Such a weight may have any value, so only samples with the usual values of its inputs count, and only
    outputs whose weights are known.
    """
    closed, meets = np.isfinite(W_errors).all(axis=0), options.open.meets
    X = X[(X[:, ~closed] == np.median(X[:, ~closed], axis=0)).all(axis=1)]
    A = normal.A[np.isfinite(A_errors).all(axis=1)]
    if few.sum() >= len(A) or len(X) == 0:
        return False
    Z = X @ normal.W.T + normal.b
    near = options.at_kink * np.abs(Z).max(axis=0)
    side = np.where(low, -1.0, 1.0)
    away, clear = (side * Z < -near)[:, few].all(axis=1), (np.abs(Z) > near)[:, few].all(axis=1)
    if not away.any():
        return False
    affine = Z[away][:, ~few | low]
    bends = np.maximum(side * Z[clear & ~away], 0.0)[:, few] @ A[:, few].T
    left, sizes, _ = np.linalg.svd(np.hstack([_unit_columns(A[:, low]), _unit_columns(bends.T)]), full_matrices=False)
    B = left[:, sizes > meets * sizes.max(initial=1e-300)]
    if B.shape[1] < few.sum() or not _independent(_unit_columns(affine - affine.mean(axis=0)), meets):
        return False
    columns = _unit_columns(A[:, ~few])
    return bool(np.linalg.norm(columns - B @ (B.T @ columns), axis=0).min() > meets)


def _unit_columns(M: np.ndarray) -> np.ndarray:
    return M / np.maximum(np.linalg.norm(M, axis=0), 1e-300)


def _independent(M: np.ndarray, meets: float) -> bool:
    sizes = np.linalg.svd(M, compute_uv=False)
    return bool(len(sizes) == M.shape[1] and sizes.min(initial=np.inf) > meets * sizes.max(initial=0.0))


def others_may_turn(normal: Network, unit: int, inputs: Source, options: CertificateOptions = DEFAULTS) -> bool:
    """Return whether other units could change signs together with `unit`, which is off in few of the samples."""
    X = np.asarray(inputs.collect()[0], dtype=np.float64)
    z = X @ normal.W[unit] + normal.b[unit]
    X = X[z < -options.at_kink * np.abs(z).max()]
    others = normal.take(np.delete(np.arange(normal.n_hidden), unit))
    if len(X) < 2 or others.n_hidden > options.open.most_units:
        return True
    return _cancel(others, X, np.zeros((len(X), normal.n_outputs)), options.open.meets, smallest=1)


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


def _with_units(arrays: dict[str, np.ndarray], gone: np.ndarray, value: float | bool) -> dict[str, np.ndarray]:
    """Return arrays of the other units, with a value inserted at the positions of the removed units `gone` (k,)."""
    axes, places = {"W": 0, "b": 0, "A": 1}, np.flatnonzero(gone) - np.arange(np.count_nonzero(gone))
    return {
        name: np.insert(array, places, value, axis=axes[name]) if name in axes else array
        for name, array in arrays.items()
    }
