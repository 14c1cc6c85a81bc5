"""What the theorems of [BJW18] ask of inputs and outputs, as figures: Corollary 1, Theorem 12, Definition 13."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neurecover.random import RandomStateLike, as_generator


def least_share(X: ArrayLike, random_state: RandomStateLike = None) -> float:
    """Return an upper bound of inf_v Pr[v·x > 0] over the inputs [BJW18, Corollary 1].

    The corollary asks for k log(1/δ)/n of Algorithms 1 and 2. It is ½ for symmetric inputs and 0 where all lie on one
    side of a plane.

    Parameters
    ----------
    X : array_like of shape (n, d)
        The inputs.
    random_state : int, Generator, RandomState or None, default=None
        The seed of the directions: the infimum is taken over random ones, each improved by moving against the mean of
        its side.

    Returns
    -------
    float
        The bound.

    References
    ----------
    .. [BJW18] Corollary 1.

    Examples
    --------
    >>> import numpy as np
    >>> import neurecover as nr
    >>> X = np.random.default_rng(0).standard_normal((1000, 2))
    >>> bool(0.4 < nr.least_share(X, random_state=0) <= 0.5)
    True
    """
    X = np.asarray(X, dtype=float)
    rng = as_generator(random_state, "least_share")
    V = np.vstack([rng.standard_normal((2_000, X.shape[1])), -X.mean(axis=0)])
    share = np.mean(X @ V.T > 0.0, axis=0)
    v, best = V[int(np.argmin(share))], float(share.min())
    for step in 0.5 ** np.arange(1.0, 12.0):
        on = X @ v > 0.0
        if not on.any():
            return 0.0
        mean = X[on].mean(axis=0)
        moved = v / np.linalg.norm(v) - step * mean / max(float(np.linalg.norm(mean)), 1e-300)
        if (lower := float(np.mean(X @ moved > 0.0))) < best:
            v, best = moved, lower
    return best


def halfspace_direction(X: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
    """Return w = Σ y x/‖Σ y x‖, the direction behind labels of ±1 [BJW18, Alg. 8, step 3c].

    Parameters
    ----------
    X : array_like of shape (n, d)
        The inputs.
    labels : array_like of shape (n,)
        The labels, 1 and −1.

    Returns
    -------
    ndarray of shape (d,)
        The solution of the paper's convex program in closed form, of unit length.

    References
    ----------
    .. [BJW18] Algorithm 8.

    Examples
    --------
    >>> import numpy as np
    >>> import neurecover as nr
    >>> X = np.random.default_rng(0).standard_normal((2000, 3))
    >>> bool(nr.halfspace_direction(X, np.sign(X[:, 0]))[0] > 0.99)
    True
    """
    total = np.asarray(labels, dtype=float) @ np.asarray(X, dtype=float)
    return np.asarray(total / max(float(np.linalg.norm(total)), 1e-300))


def halfspace_error_bound(n: int, d: int, noise: float, omega: float) -> float:
    """Return √ω ‖G‖_F/√n (√(d/n) + n^{−1/4} + log ω/ω), which bounds ‖ŵ − w‖² up to a constant [BJW18, Theorem 12].

    Parameters
    ----------
    n, d : int
        Samples and inputs.
    noise : float
        ‖G‖_F/√n, the root mean square of what is added to relu(w·x).
    omega : float
        ω, where the error matrix has ‖B‖_F ≤ √n/ω.

    Returns
    -------
    float
        The bound without its constant.

    References
    ----------
    .. [BJW18] Theorem 12.

    Examples
    --------
    >>> import neurecover as nr
    >>> nr.halfspace_error_bound(10**6, 10, 0.1, 100.0) < nr.halfspace_error_bound(10**4, 10, 0.1, 100.0)
    True
    """
    if n < 1 or d < 1 or noise < 0.0 or omega <= 1.0:
        raise ValueError(f"The bound needs n, d ≥ 1, noise ≥ 0 and ω > 1. Got {n}, {d}, {noise} and {omega} instead.")
    return float(np.sqrt(omega) * noise * (np.sqrt(d / n) + n**-0.25 + np.log(omega) / omega))


def incoherence(M: ArrayLike, rank: int | None = None) -> float:
    """Return the least μ for which a matrix is μ-incoherent; 1 is the best [BJW18, Definition 13].

    With M = P Σ Q, μ k/n and μ k/p bound the leverages of rows and columns, and √(μ k/(n p)) the entries of P Q. A
    matrix is told from sparse errors (Theorem 14) where k ≤ p/(μ log² n), up to a constant.

    Parameters
    ----------
    M : array_like of shape (n, p)
        The matrix.
    rank : int or None, default=None
        Its rank k; None for the numerical one.

    Returns
    -------
    float
        μ.

    References
    ----------
    .. [BJW18] Definition 13, Lemma 24.

    Examples
    --------
    >>> import numpy as np
    >>> import neurecover as nr
    >>> round(nr.incoherence(np.ones((4, 4))), 6)
    1.0
    """
    M = np.asarray(M, dtype=float)
    P, s, Q = np.linalg.svd(M, full_matrices=False)
    k = int(np.count_nonzero(s > 1e-10 * s[0])) if rank is None else rank
    (n, p), P, Q = M.shape, P[:, :k], Q[:k]
    rows, columns = np.sum(P**2, axis=1).max(), np.sum(Q**2, axis=0).max()
    entries = max(float(np.abs(P[i : i + 4096] @ Q).max()) for i in range(0, n, 4096))
    return float(max(n * rows / k, p * columns / k, n * p * entries**2 / k))
