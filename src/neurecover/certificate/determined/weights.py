"""Find which weights the samples determine, if they do not determine all.

The directions N along which no output of the samples changes are the null space of F = Σ JᵀJ on the original inputs.
Among them is the free scale of every unit, G_j, along which its row (w_j, b_j) grows while the column above shrinks.
The scale must be fixed by weights that are determined themselves; otherwise one undetermined weight would make the
whole row undetermined. For some set D_j of a row's weights, every null direction is proportional to the weights,

    n_i = α w_i  for i in D_j,        n ← n − α G_j,

and D_j is the largest such set. A weight is determined if all null directions then vanish at it. The network is written
with ‖w_j‖ = 1 over D_j, so that determined weights do not depend on undetermined ones. If signs are a convention,
weights are determined for the signs that are shown.

A weight can be determined to first order and still be wrong: if an input seldom differs from its usual value, whether
the unit is on in those rows depends on that very weight. So enough rows are needed to contradict another choice
(`seldom`), and an equation that no other contradicts does not count (`sole_equations`). A unit may even be negated,

    (w_j, A_j) → −(w_j, A_j)    with A_j z_j(x) moved by a null direction until z_j > 0 again,

unless for some sample with the unit on, z_j is the same along all null directions: then A_j z_j > 0 fixes the sign of
A_j. A sample with a unit on whose z_j changes along a null direction is left out: z_j may become negative further
along, and other weights explain that sample. So is one with a unit off that may as well be on (`_may_switch_on`). If
two units are proportional, z_i = α z_j, on all samples with one of them on, they may be one unit there. With an affine
term a unit that is off is equivalent to a negated unit that is on, so the same conditions hold for the samples with the
unit off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from neurecover.certificate.determined.places import (
    Layered,
    affine_columns,
    biases_of,
    columns_above,
    constants_above,
    rows_of,
)
from neurecover.certificate.determined.rare_columns import seldom, usual_rows
from neurecover.certificate.information.away import away_from_kinks
from neurecover.certificate.information.normal_form import by_name, signs_are_convention
from neurecover.certificate.information.sole_equations import sole_equations
from neurecover.certificate.options import DEFAULTS, CertificateOptions
from neurecover.certificate.signs.ambiguity import sign_ambiguities
from neurecover.data import ArraySource, Source, reduce
from neurecover.models import Network, are_biases, free_directions, jacobian, parameters, with_parameters
from neurecover.statistics import InformationSums

ROWS = 64  # samples whose derivatives are formed at a time: some megabytes


@dataclass(frozen=True, eq=False)
class Seen:
    """The errors of all weights, infinite for undetermined ones, with rows rescaled by `scaled_to_determined`.

    The masks `unseen` mark weights that too few samples show; any other undetermined weight shows only in combination
    with others.
    """

    errors: dict[str, np.ndarray]
    unseen: dict[str, np.ndarray]

    @property
    def n(self) -> int:
        return sum(error.size for error in self.errors.values())

    @property
    def n_open(self) -> int:
        return sum(int(np.count_nonzero(~np.isfinite(error))) for error in self.errors.values())


def seen_weights(
    normal: Layered,
    inputs: Source,
    bias: bool,
    level: float,
    few: np.ndarray,
    low: np.ndarray,
    options: CertificateOptions = DEFAULTS,
) -> Seen:
    """Return which weights of a network in normal form samples without noise determine; level is the rms of rounding.

    few (units,) marks hidden units with too few samples on one side of the kink, and low (units,) those of them that
    are seldom off: such a unit can be hidden in the constant of the layer above, and in C if there is one.
    """
    theta, P = parameters(normal), len(parameters(normal))
    inputs = inputs if normal.C is None else usual_rows(normal, inputs, options)
    inputs_away = away_from_kinks(inputs, normal, options.at_kink)
    F, _ = reduce(inputs_away, InformationSums.of(normal)).information()
    free = np.ones(P, dtype=bool) if bias else ~are_biases(normal)
    size = np.where(free, np.diag(F), 0.0)
    live = size > options.open.dead * size.max(initial=1e-300)
    G = free_directions(normal)
    unseen = free & ~live
    unseen |= free & (G[:, few[: G.shape[1]]] != 0.0).any(axis=1)
    unseen |= free & constants_above(normal, low)
    rare = seldom(normal, inputs, options=options)
    unseen[: rare.size] |= rare.ravel()
    unseen |= affine_columns(normal, rare)
    scale, floor = np.sqrt(size[live]), options.open.null
    scaled = F[np.ix_(live, live)] / scale / scale[:, None]
    values, vectors = np.linalg.eigh(scaled)
    root = vectors[:, values >= floor] / np.sqrt(values[values >= floor]) / scale[:, None]
    uncontradicted = sole_equations(normal, np.flatnonzero(live), root, inputs_away, options) / scale
    if len(uncontradicted):
        values, vectors = np.linalg.eigh(scaled - uncontradicted.T @ uncontradicted)
    null = values < floor
    N, scales = np.zeros((P, np.count_nonzero(null))), np.zeros((P, np.count_nonzero(null)))
    N[live], scales[live] = vectors[:, null] / scale[:, None], vectors[:, null]
    N = N / np.maximum(np.abs(N).max(axis=0, initial=0.0), 1e-300)
    open_ = unseen.copy()
    fixed = np.zeros_like(G)
    if G.shape[1]:
        for unit, row in enumerate(rows_of(normal)):
            N, members = _without_scale(N, G[:, unit], theta, row, unseen, options)
            fixed[members, unit] = theta[members]
        still, positive = _still(normal, inputs_away, N, options.exact)
        doubtful = np.any((positive & ~still)[:, ~few], axis=1)
        doubtful |= _may_switch_on(normal, inputs_away, ~positive & ~still, live, root, options)
        if doubtful.any() and not doubtful.all():
            X, Y = (np.asarray(part, dtype=np.float64)[~doubtful] for part in inputs_away.collect())
            return seen_weights(normal, ArraySource(X, Y), bias, level, few, low, options)
        sides_on = (still & positive, still & ~positive)[: 1 + signs_are_convention(normal)]
        loose = ~np.all([on.any(axis=0) for on in sides_on], axis=0)
        loose |= _in_proportion(normal, inputs_away, options.same)
        open_ |= free & (G[:, loose] != 0.0).any(axis=1)
    open_ |= free & (np.abs(N).max(axis=1, initial=0.0) > options.exact)
    half = np.zeros((P, np.count_nonzero(~null)))
    half[live] = vectors[:, ~null] / np.sqrt(values[~null]) / scale[:, None]
    if G.shape[1]:
        fixed = np.where(fixed.any(axis=0), fixed, G)
        half -= G @ np.linalg.solve(fixed.T @ G, fixed.T @ half)
    errors = level * np.linalg.norm(half, axis=1)
    open_ |= free & (errors > options.exact * np.maximum(1.0, np.abs(theta)))
    nothing_known = np.array([bool(open_[row].all()) for row in rows_of(normal)])
    open_ |= free & columns_above(normal, nothing_known)
    if normal.C is not None:  # such a unit may as well be always on and part of the affine term
        open_ |= free & constants_above(normal, nothing_known)
    errors = np.where(open_, np.inf, errors * _rescaled(normal, open_)[1])
    return Seen(by_name(normal, errors), by_name(normal, unseen))


def signs_are_determined(normal: Layered, errors: Mapping[str, np.ndarray], same: float = DEFAULTS.same) -> bool:
    """Return whether no other signs fit, layer by layer, judged by the columns that are determined for every unit."""
    if not normal.activation.odd_slope or signs_are_convention(normal):
        return True
    names = list(errors)
    for layer, ((W, b), (A, c)) in enumerate(pairwise(normal.layers)):
        known = np.isfinite(errors[names[2 * layer]]).all(axis=0)
        above = np.isfinite(errors[names[2 * layer + 2]]).all(axis=1)
        if not known.any() or not above.any():
            return False
        if not sign_ambiguities(Network(W[:, known], b, A[above], c[above], normal.activation), same).unique:
            return False
    return True


def _without_scale(
    N: np.ndarray,
    direction: np.ndarray,
    theta: np.ndarray,
    row: np.ndarray,
    unseen: np.ndarray,
    options: CertificateOptions = DEFAULTS,
) -> tuple[np.ndarray, np.ndarray]:
    """Remove a unit's free scale from N, so that N vanishes on the largest possible part D of its row; return N and D.

    The bias and the weights above count too, because a single weight is always proportional to itself. All weights in D
    have the same ‖n_i‖ / |w_i|, so the ratios that most weights share are tried first. The largest weights of a row
    would be a bad choice: they may be undetermined, as for a unit that most levels of a category never switch.
    """
    w, around = theta[row], np.flatnonzero((direction != 0.0) & ~unseen)
    shown = np.flatnonzero((w != 0.0) & ~unseen[row])
    moves = np.linalg.norm(N[row[shown]], axis=1) / np.abs(w[shown])
    place, alike, exact = np.sort(moves), options.open.alike, options.exact
    shared = place.searchsorted(moves * (1.0 + alike) + exact) - place.searchsorted(moves * (1.0 - alike) - exact)
    tried = shown[np.lexsort((-np.abs(w[shown]), -shared))][: options.open.references]
    best, members, most = N, np.zeros(0, dtype=int), 0
    for i in tried:
        if row[i] in members:
            continue
        left = N - np.outer(direction, N[row[i]] / w[i])
        still = np.abs(left).max(axis=1, initial=0.0) <= exact
        if np.count_nonzero(still[around]) > most:
            most = int(np.count_nonzero(still[around]))
            best, members = left, row[still[row] & ~unseen[row]]
    return best, members


def _may_switch_on(
    normal: Layered, inputs: Source, moving: np.ndarray, live: np.ndarray, root: np.ndarray, options: CertificateOptions
) -> np.ndarray:
    """Return a mask of the samples in which a unit that is off could be on as well, and other weights would fit.

    A null direction may bring a unit in `moving` (n, units) to z = 0 there. Beyond, its value h ≥ 0 is not known, and
    with it the equation along its column a_u. If that is a sole equation, of leverage one, no other contradicts it.
    With one output that is the sample's only equation, which `sole_equations` has looked at.
    """
    found, rows = np.zeros(len(moving), dtype=bool), np.flatnonzero(moving.any(axis=1))
    if not isinstance(normal, Network) or normal.n_outputs == 1 or not len(rows):
        return found
    X = np.asarray(inputs.collect()[0], dtype=np.float64)
    along = (normal.A / np.maximum(np.linalg.norm(normal.A, axis=0), 1e-300)).T
    for part in np.array_split(rows, -(-len(rows) // ROWS)):
        sample, unit = np.nonzero(moving[part])
        equations = np.einsum("mo,moq->mq", along[unit], jacobian(normal, X[part])[sample][:, :, live])
        leverage = np.sum((equations @ root) ** 2, axis=1)
        found[part[sample[leverage > 1.0 - options.alone]]] = True
    return found


def _in_proportion(normal: Layered, inputs: Source, same: float) -> np.ndarray:
    """Return a mask of the hidden units that are a multiple of another unit of their layer wherever either is on."""
    X = np.asarray(inputs.collect()[0], dtype=np.float64)
    both = signs_are_convention(normal)
    return np.concatenate([_multiples(Z, same) | (both & _multiples(-Z, same)) for Z in normal.preactivations(X)])


def _multiples(Z: np.ndarray, relative: float) -> np.ndarray:
    """Return a mask of the columns of Z (n, k) that are a multiple of another one wherever either is positive."""
    H = np.maximum(Z, 0.0)
    own = np.maximum(np.einsum("ni,ni->i", H, H), 1e-300)
    alike = np.zeros(len(own), dtype=bool)
    for i, share in enumerate((H.T @ Z) / own[:, None]):  # of z_i in z_j, by least squares where z_i > 0
        on = H[:, i] > 0.0
        left = np.linalg.norm(Z[on] - np.outer(Z[on, i], share), axis=0)
        same = left <= relative * np.linalg.norm(Z[on], axis=0)
        same[i] = False
        alike[same] = True
        alike[i] |= same.any()
    return alike


def _still(normal: Layered, inputs: Source, N: np.ndarray, exact: float) -> tuple[np.ndarray, np.ndarray]:
    """Return two masks (n, units): preactivations that do not change along any null direction N (P, q), and positive
    ones.
    """
    still, positive = list[np.ndarray](), list[np.ndarray]()
    X = np.asarray(inputs.collect()[0], dtype=np.float64)
    H, start = np.hstack([X, np.ones((len(X), 1))]), 0
    moved = np.zeros((N.shape[1], *X.shape))  # of the inputs of a layer
    for W, b in normal.layers[:-1]:
        steps = N[start : start + W.size + b.size].T
        V = np.concatenate([steps[:, : W.size].reshape(-1, *W.shape), steps[:, W.size :, None]], axis=2)
        Z, move = H @ np.column_stack([W, b]).T, H @ V.transpose(0, 2, 1) + moved @ W.T
        still.append(np.abs(move).max(axis=0, initial=0.0) <= exact * np.linalg.norm(H, axis=1)[:, None])
        positive.append(Z > 0.0)
        start += W.size + b.size
        moved = normal.activation.derivative(Z) * move
        H = np.hstack([normal.activation(Z), np.ones((len(X), 1))])
    return np.hstack(still), np.hstack(positive)


def scaled_to_determined(normal: Layered, determined: Mapping[str, np.ndarray]) -> Layered:
    """Rescale a network in normal form so that the determined weights of every row have norm one."""
    return _rescaled(normal, ~np.concatenate([mask.ravel() for mask in determined.values()]))[0]


def _rescaled(normal: Layered, open_: np.ndarray) -> tuple[Layered, np.ndarray]:
    """Rescale every row to norm one over its determined weights; return the network and every parameter's factor."""
    theta, factor = parameters(normal), np.ones(len(open_))
    G, biases = free_directions(normal), biases_of(normal)
    for unit, row in enumerate(rows_of(normal)):
        length = float(np.linalg.norm((theta * factor)[row][~open_[row]]))
        if G.shape[1] == 0 or length == 0.0:
            continue
        own = np.append(row, biases[unit])
        h = normal.activation.homogeneity or 0.0
        above = np.setdiff1d(np.flatnonzero(G[:, unit] != 0.0), own)
        factor[own] /= length
        factor[above] *= length**h
    return with_parameters(normal, theta * factor), factor
