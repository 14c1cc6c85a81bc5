"""How well the inputs tell hidden units apart: the distinguishing matrix of [GKLW19, Def. 1].

N has a column E[zᵢ zⱼ 1{zᵢ zⱼ ≤ 0} x ⊗ x] for every pair i < j of z = W x, and M has E[x ⊗ x] beside them. The
pure-neuron detector works when N (without noise) or M (with it) has full column rank, and the error of its null space
is inversely proportional to the smallest singular value [GKLW19, Lemma 11].

x ⊗ x is kept in orthonormal coordinates of the symmetric matrices, d(d+1)/2 of them; the singular values are those of
the paper's d² rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neurecover.algorithms.gklw19.options import DEFAULTS, SymmetricOptions
from neurecover.data import ArraySource, Source, reduce
from neurecover.models import Network
from neurecover.statistics.moments.opposite_signs import DistinguishingSums
from neurecover.tensors import pack, root_multiplicities


@dataclass(frozen=True)
class Distinguishing:
    """σ_min of M at the recovered weights, estimated from the inputs, and what standard Gaussian inputs would give.

    Rows of W are taken at unit length and the inputs at unit second moment, so the figures do not depend on units of
    measurement. `rank_possible` is False where M has more columns than rows and σ_min is zero whatever the inputs are.
    """

    sigma_min: float
    gaussian: float
    rank_possible: bool

    @property
    def sentence(self) -> str:
        if not self.rank_possible:
            return "There are more pairs of units than second moments of the inputs: no moments tell them all apart."
        return (
            f"These inputs distinguish the units by σ_min = {self.sigma_min:.2g} "
            f"(Gaussian inputs would by {self.gaussian:.2g})."
        )


def distinguish(network: Network, source: Source, options: SymmetricOptions = DEFAULTS) -> Distinguishing | None:
    """Return the diagnostic for a network on whitened inputs; None if there is no pair of units or M is too large."""
    W = network.normal_form().W
    k, d = W.shape
    columns, rows = k * (k - 1) // 2 + 1, d * (d + 1) // 2
    if k < 2 or rows * columns > options.entries:
        return None
    if columns > rows:
        return Distinguishing(0.0, 0.0, False)
    return Distinguishing(smallest(augmented(W, source)), smallest(gaussian_augmented(W)), True)


def distinguishing_matrix(W: NDArray[np.float64], X: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Return the distinguishing matrix M of hidden weights [GKLW19, Def. 1].

    M is N, a column for every pair of units, with E[x ⊗ x] beside it. The method needs its columns to be independent.

    Parameters
    ----------
    W : ndarray of shape (k, d)
        The hidden weights.
    X : ndarray of shape (n, d) or None, default=None
        The inputs over which means are taken; None for x ~ N(0, I), in closed form.

    Returns
    -------
    ndarray of shape (d(d + 1)/2, k(k − 1)/2 + 1)
        M; `M[:, :-1]` is N. Its singular values are those of the paper's d² rows.

    References
    ----------
    .. [GKLW19] Definition 1.

    Examples
    --------
    >>> import numpy as np
    >>> import neurecover as nr
    >>> int(np.linalg.matrix_rank(nr.distinguishing_matrix(np.eye(3))))
    4
    """
    W = np.atleast_2d(np.asarray(W, dtype=float))
    if X is None:
        return gaussian_augmented(W)
    X = np.asarray(X, dtype=float)
    if X.ndim != 2 or X.shape[1] != W.shape[1]:
        raise ValueError(f"X needs a column for each of the {W.shape[1]} columns of W. Got shape {X.shape} instead.")
    return augmented(W, ArraySource(X, np.zeros((len(X), 1))))


def augmented(W: np.ndarray, source: Source) -> np.ndarray:
    """Return M (d(d+1)/2, k(k−1)/2 + 1) estimated from the inputs; the last column is E[x ⊗ x], the others are N."""
    sums = reduce(source, DistinguishingSums(W))
    M = np.column_stack([sums.average("cross"), sums.average("psi")])
    return M * root_multiplicities(W.shape[1], 2)[:, None]


def gaussian_augmented(W: np.ndarray) -> np.ndarray:
    """Return M for x ~ N(0, I) in closed form [GKLW19, Lemma 19]: with φ the angle between wᵢ and wⱼ of lengths nᵢ, nⱼ,

    π mat(M_ij) = (φ cos φ − sin φ) nᵢ nⱼ I + φ (wᵢwⱼᵀ + wⱼwᵢᵀ) − sin φ (nᵢ/nⱼ wⱼwⱼᵀ + nⱼ/nᵢ wᵢwᵢᵀ).
    """
    k, d = W.shape
    i, j = np.triu_indices(k, 1)
    norm = np.linalg.norm(W, axis=1)
    unit = W / norm[:, None]
    # The half-angle form keeps its digits where two units are almost parallel.
    angle = 2.0 * np.arctan2(np.linalg.norm(unit[i] - unit[j], axis=1), np.linalg.norm(unit[i] + unit[j], axis=1))
    sine, product = np.sin(angle), norm[i] * norm[j]
    square = pack(unit[:, :, None] * unit[:, None, :], 2)
    both = pack(unit[i][:, :, None] * unit[j][:, None, :] + unit[j][:, :, None] * unit[i][:, None, :], 2)
    columns = np.outer(angle * np.cos(angle) - sine, pack(np.eye(d), 2))
    columns += angle[:, None] * both - sine[:, None] * (square[i] + square[j])
    M = np.vstack([columns * (product / np.pi)[:, None], pack(np.eye(d), 2)]).T
    return M * root_multiplicities(d, 2)[:, None]


def smallest(matrix: np.ndarray) -> float:
    """Return σ_min of a matrix with at least as many rows as columns."""
    return float(np.linalg.svd(matrix, compute_uv=False)[-1])
