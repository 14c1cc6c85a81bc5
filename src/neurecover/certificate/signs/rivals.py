"""Find other signs of the units that the samples do not exclude.

Units in a set S can change their signs together without effect if v_S = Σ_{j∈S} A_j w_jᵀ is zero [ATV21, Theorem 3.4].
The estimate of v_S has the covariance of D_S θ̂ for the linear map

    δv_S = Σ_{j∈S} δA_j w_jᵀ + A_j δw_jᵀ,

and the signs of S are determined if a Wald test rejects v_S = 0. A set for which it might not reject has
‖v_S‖ ≤ z Σ_{j∈S} s_j with s_j² the total variance of A_j w_jᵀ; these sets are found first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import chdtrc, chdtri

from neurecover.certificate.options import DEFAULTS, CertificateOptions
from neurecover.certificate.signs.ambiguity import sign_ambiguities
from neurecover.models import Composite, Layered, Model, Network
from neurecover.solve import afford


@dataclass(frozen=True)
class SignRivals:
    """The sets of units, (s, k), whose signs may change together; the empty set comes first.

    `p_value` is the largest among the non-empty sets, 0 if there are none. `complete` is False if the sets are too
    many to be searched.
    """

    flips: np.ndarray
    p_value: float
    complete: bool


def sign_rivals(
    layer: Network,
    variances: np.ndarray,
    covariance: Callable[[], np.ndarray] | None,
    options: CertificateOptions = DEFAULTS,
) -> SignRivals:
    """Return the sign changes of a layer's units that their covariance does not exclude.

    `variances` are in the order W row by row, then A row by row. covariance() forms the matrix, which is needed only if
    some set comes near to zero; without it every such set counts as a rival.
    """
    (k, d), p = layer.W.shape, layer.n_outputs
    size = float(np.linalg.norm(np.linalg.norm(layer.A, axis=0) * np.linalg.norm(layer.W, axis=1)))
    tolerance = options.same
    if size > 0.0:
        spread = float(np.sqrt(chdtri(p * d, options.chance)) * np.sum(_spread(layer, variances)))
        tolerance = max(options.same, spread / size)
    found = sign_ambiguities(layer, tolerance=min(tolerance, 0.5))
    flips = found.signs < 0
    if len(flips) == 1:
        return SignRivals(flips, 0.0, found.complete)
    if covariance is None:
        return SignRivals(flips, 1.0, found.complete)
    maps, C = [_map(layer, j) for j in range(k)], covariance()
    afford(len(flips) * (p * d) ** 2 * len(C))
    values = np.array([_p_value(layer, np.flatnonzero(flip), maps, C, options.same) for flip in flips])
    kept = (values > options.chance) | ~flips.any(axis=1)
    others = values[kept & flips.any(axis=1)]
    return SignRivals(flips[kept], float(others.max(initial=0.0)), found.complete)


def _spread(layer: Network, variances: np.ndarray) -> np.ndarray:
    """Return a bound on s_j (k,): ‖A_j‖ times the error of w_j plus ‖w_j‖ times that of A_j."""
    k, d = layer.W.shape
    of_w = np.sqrt(variances[: k * d].reshape(k, d).sum(axis=1))
    of_A = np.sqrt(variances[k * d :].reshape(-1, k).sum(axis=0))
    return np.linalg.norm(layer.A, axis=0) * of_w + np.linalg.norm(layer.W, axis=1) * of_A


def _map(layer: Network, j: int) -> np.ndarray:
    """Return the matrices D_j (p·d, k·d + p·k) with δ(A_j w_jᵀ) = D_j δθ."""
    (k, d), p = layer.W.shape, layer.n_outputs
    D = np.zeros((p, d, k * d + p * k))
    for o in range(p):
        D[o, :, j * d : (j + 1) * d] = layer.A[o, j] * np.eye(d)
        D[o, :, k * d + o * k + j] = layer.W[j]
    return D.reshape(p * d, -1)


def _p_value(layer: Network, units: np.ndarray, maps: list[np.ndarray], covariance: np.ndarray, same: float) -> float:
    if len(units) == 0:
        return 1.0
    v = (layer.A[:, units] @ layer.W[units]).ravel()
    D = np.sum([maps[j] for j in units], axis=0)
    values, vectors = np.linalg.eigh(D @ covariance @ D.T)
    floor = 1e-12 * max(float(values[-1]), 1e-300)
    along = vectors.T @ v
    # In directions where v has no error, any component excludes the set.
    if np.any(np.abs(along[values <= floor]) > same * np.linalg.norm(layer.A[:, units]) + 1e-300):
        return 0.0
    seen = values > floor
    return float(chdtrc(max(np.count_nonzero(seen), 1), np.sum(along[seen] ** 2 / values[seen])))


@dataclass(frozen=True)
class SignChoices:
    """The number of sign choices that fit, in the layer that has the most, and the largest width that was searched,
    `n_units`.

    `p_value` is the largest p-value of another choice; `complete` is False if there were too many sets of units to
    search. `convention` says that an affine term absorbs the change of a unit's sign.
    """

    count: int
    p_value: float = 0.0
    complete: bool = True
    n_units: int = 0
    convention: bool = False

    @classmethod
    def of(cls, layers: list[SignRivals], found: int = 1) -> SignChoices:
        """Combine the choices of several layers; the search itself has found `found` choices."""
        count, p_value = max([found, *(len(one.flips) for one in layers)]), max([0.0, *(one.p_value for one in layers)])
        n_units = max([0, *(one.flips.shape[1] for one in layers)])
        return cls(count, p_value, all(one.complete for one in layers), n_units)


def rivals_of_layers(
    normal: Model,
    variances: np.ndarray,
    covariance: Callable[[np.ndarray], np.ndarray] | None,
    options: CertificateOptions,
) -> list[SignRivals]:
    """Return the rivals of every hidden layer; a layer and the weights above it form a network of one hidden layer.

    variances are those of all parameters, and covariance(own) is the matrix of some of them, if it is known.
    """
    rivals: list[SignRivals] = []
    if isinstance(normal, Composite):
        # Below a polynomial, nonlinear terms determine the signs. A threshold is a bias with the opposite sign.
        if not isinstance(normal.upper, Layered):
            return rivals
        layers = ((normal.W, -normal.threshold), *normal.upper.layers)
    else:
        layers = normal.layers
    sizes = [part.size for layer in layers for part in layer]
    starts = np.cumsum([0, *sizes])[::2]  # C comes after the last layer
    for number, act in enumerate(normal.hidden_activations):
        if not act.odd_slope:
            continue
        (W, b), (A, c) = layers[number], layers[number + 1]
        own = np.r_[starts[number] : starts[number] + W.size, starts[number + 1] : starts[number + 1] + A.size]
        layer = normal if isinstance(normal, Network) else Network(W, b, A, c, act)
        of_own = None if covariance is None else partial(covariance, own)
        rivals.append(sign_rivals(layer, variances[own], of_own, options))
    return rivals
