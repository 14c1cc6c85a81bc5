"""[BJW18, Algorithms 3 to 6] as printed: Gaussian sketch, score tensor by plain means, patterns cut at a threshold τ.

Algorithm 3 unmixes T Y, T (k, p) Gaussian, by ICA, and Algorithm 4 decomposes E[θ·(y + g) S_j(x)] = Σᵢ λᵢ wᵢ^{⊗j} with
g ~ N(0, I) and θ random. Both give rough units for Algorithm 5, which takes the first ℓ samples, reads which units are
on from values above τ, and solves linear systems: u with u_r = 1 and u·y = 0 on every sample where the unit is off, the
first r that has a solution; then w·x = u·y where it is on. Algorithm 6 chooses signs by projection under noise.

The print takes j = 3, for which λᵢ = a·θ E[act‴] is zero for relu and what is decomposed is sampling error; the order
here is the least from 3 on whose coefficient is not zero, 4 for relu and 3 for its square, unless one is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from neurecover.activations import Activation
from neurecover.algorithms.base import Call
from neurecover.algorithms.bjw18.common import as_estimate, units_of_rank
from neurecover.algorithms.bjw18.options import SOLVED
from neurecover.algorithms.bjw18.patterns import EPS, ExactUnit, ExactWeights
from neurecover.data import ArraySource, reduce
from neurecover.exceptions import UnsolvableError
from neurecover.models import Network
from neurecover.results import Estimate
from neurecover.statistics import HermiteSums
from neurecover.tensors import decompose, flatten, joint_diagonalise, pack

_BLOCK = 100_000  # samples whose products of three are held at once


@dataclass(frozen=True)
class PrintedOptions:
    """The parameters of Algorithms 3 to 6, which the print gives as unnamed polynomials."""

    rows: int | None = None  # ℓ: 4 (k + d), so that half of them, off or on, are twice as many as the unknowns
    tau: float | None = None  # 1/(4ℓ) of the standard deviation, below which one unit in ten has a sample that is on
    noise: float = 1.0  # standard deviation of the g added in step 2 of Algorithm 4
    order: int | None = None  # of the score: the least from 3 on whose coefficient is not zero


def score_order(activation: Activation) -> int:
    """Return the least order from 3 on whose Hermite coefficient at b = 0 is not zero."""
    h = np.abs(activation.hermite(np.zeros(1), 6)[:, 0])
    for order in range(3, 7):
        if h[order] > 1e-9 * h.max():
            return order
    raise UnsolvableError(f"{activation} has no Hermite coefficient of order 3 to 6.")


def score_directions(
    X: np.ndarray, Y: np.ndarray, k: int, activation: Activation, rng: np.random.Generator, options: PrintedOptions
) -> np.ndarray:
    """Return unit rows (k, d), signs unknown, of the collapsed score tensor [BJW18, Alg. 4, steps 1–4], x ~ N(0, I)."""
    theta = rng.standard_normal((Y.shape[1],))
    order = score_order(activation) if options.order is None else options.order
    return directions_of_score(collapsed_score(X, Y, theta, order, rng, options), X.shape[1], k, order, rng)


def collapsed_score(
    X: np.ndarray, Y: np.ndarray, theta: np.ndarray, order: int, rng: np.random.Generator, options: PrintedOptions
) -> np.ndarray:
    """Return the mean of θ·(y + g) S_j(x), packed [BJW18, Alg. 4, steps 1 and 2]."""
    (own,) = rng.spawn(1)  # so that what follows is drawn alike for any number of samples
    collapsed = (Y + options.noise * own.standard_normal(Y.shape)) @ theta
    sums = reduce(ArraySource(X, collapsed), HermiteSums(X.shape[1], 1, degree=order, regress=-1))
    return np.asarray(sums.coefficients().packed(order)[0])


def directions_of_score(T: np.ndarray, d: int, k: int, order: int, rng: np.random.Generator) -> np.ndarray:
    """Return unit rows (k, d) of a packed tensor: an order above 3 is contracted with random vectors to 3, one pair of
    which Jennrich's algorithm decomposes.
    """
    cube = flatten(T, d, (1, 1, order - 2))
    return joint_diagonalise(np.moveaxis(cube, -1, 0), k, rng, pencils=1, max_iterations=0).V


def sketched(Y: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Return T y (n, k) with T (k, p) Gaussian, which keeps the rank [BJW18, Lemma 6]; y itself where p = k."""
    return Y if Y.shape[1] == k else Y @ rng.standard_normal((Y.shape[1], k))


@dataclass(frozen=True)
class Mixture:
    """The central moments of mixtures q: Cov(q) (k, k) and E[q ⊗ q ⊗ q] (k, k, k)."""

    second: np.ndarray
    third: np.ndarray

    @classmethod
    def of(cls, Q: np.ndarray) -> Mixture:
        """Return the moments of samples (n, k)."""
        k, mean = Q.shape[1], Q.mean(axis=0)
        third = np.zeros((k * k, k))
        for rows in np.array_split(Q, 1 + len(Q) // _BLOCK):
            q = rows - mean
            third += (q[:, :, None] * q[:, None, :]).reshape(-1, k * k).T @ q / len(Q)
        return cls((Q - mean).T @ (Q - mean) / len(Q), third.reshape(k, k, k))


def unmixing(mixture: Mixture, rng: np.random.Generator) -> np.ndarray:
    """Return M (k, k) with q M the independent components: the third cumulants of whitened mixtures, an orthogonal
    tensor, are decomposed. Components have variance 1 and positive skewness.
    """
    k = len(mixture.second)
    values, vectors = np.linalg.eigh(mixture.second)
    if values[0] <= 0.0:
        raise UnsolvableError(f"The sketched outputs have rank below {k}.")
    whiten = vectors / np.sqrt(values)
    third = np.einsum("abc,ai,bj,cl->ijl", mixture.third, whiten, whiten, whiten, optimize=True)
    U = decompose({3: pack(third, 3)[None]}, k, k, rng).W if k > 1 else np.ones((1, 1))
    skewness = np.einsum("ijk,ai,aj,ak->a", third, U, U, U)
    return np.asarray(whiten @ U.T * np.where(skewness < 0.0, -1.0, 1.0))


def by_patterns(
    X: np.ndarray, Y: np.ndarray, Q: np.ndarray, on: np.ndarray, start: np.ndarray, activation: Activation
) -> ExactWeights:
    """Return the units of given patterns `on` (ℓ, m), several per unit allowed, by linear systems [BJW18, Alg. 5, steps
    3–5].

    Q (ℓ, k) are the sketched outputs and `start` (k, d) the rough units; pattern q belongs to unit q mod k, and the
    first that has a solution counts.
    """
    k, units = len(start), []
    for i in range(k):
        tries = [_by_pattern(X, Q, on[:, q], start[i], activation) for q in range(i, on.shape[1], k)]
        units.append(next((unit for unit in tries if unit.found), tries[0]))
    found = np.array([unit.w for unit in units if unit.found]).reshape(-1, X.shape[1])
    H = activation(X @ found.T)
    A = np.linalg.lstsq(H, Y, rcond=None)[0].T
    residual = float(np.linalg.norm(Y - H @ A.T) / max(float(np.linalg.norm(Y)), EPS))
    return ExactWeights(Network(found, None, A, None, activation).normal_form(), tuple(units), residual, start)


def _by_pattern(X: np.ndarray, Q: np.ndarray, on: np.ndarray, start: np.ndarray, activation: Activation) -> ExactUnit:
    off, size = Q[~on], float(np.sqrt(np.mean(Q**2)))
    unknown = ExactUnit(start, False, np.inf, np.inf, 0.0, np.inf, len(off))
    if len(off) < Q.shape[1] or np.count_nonzero(on) < X.shape[1]:
        return unknown
    for r in range(Q.shape[1]):
        others = np.delete(off, r, axis=1)
        rest = np.linalg.lstsq(others, -off[:, r], rcond=1e-12)[0]
        left = float(np.sqrt(np.mean((others @ rest + off[:, r]) ** 2)))
        unknown = replace(unknown, null=min(unknown.null, left))
        if left <= SOLVED * size:
            h = Q @ np.insert(rest, r, 1.0)
            h = h if h[on].sum() >= 0.0 else -h
            if np.any(h[on] <= 0.0):
                continue
            z = activation.inverse(h[on])
            w = np.linalg.lstsq(X[on], z, rcond=None)[0]
            misfit = float(np.linalg.norm(activation(X @ w) - h) / np.linalg.norm(h))
            if misfit <= SOLVED**0.5:
                return ExactUnit(w, True, left, np.nan, np.nan, misfit, len(off))
    return unknown


def algorithm_3(
    X: np.ndarray,
    Y: np.ndarray,
    k: int,
    activation: Activation,
    rng: np.random.Generator,
    options: PrintedOptions,
    moments: Callable[[np.ndarray], Mixture] = Mixture.of,
) -> ExactWeights:
    """Return the exact network for orthonormal W [BJW18, Alg. 3]; `moments` gives those of the sketched outputs."""
    Q = sketched(Y, k, rng)
    values = Q @ unmixing(moments(Q), rng)  # (T U)⁻¹ T y, steps 1 to 3
    ell = _rows(X, k, options)
    on = values[:ell] > _threshold(ell, options) * values.std(axis=0)
    start = (values - values.mean(axis=0)).T @ X / len(X)
    return by_patterns(X[:ell], Y[:ell], Q[:ell], on, start, activation)


def algorithm_4(
    X: np.ndarray, Y: np.ndarray, k: int, activation: Activation, rng: np.random.Generator, options: PrintedOptions
) -> ExactWeights:
    """Return the exact network for Gaussian inputs [BJW18, Alg. 4 and 5]."""
    return algorithm_5(X, Y, score_directions(X, Y, k, activation, rng, options), activation, rng, options)


def algorithm_5(
    X: np.ndarray,
    Y: np.ndarray,
    V: np.ndarray,
    activation: Activation,
    rng: np.random.Generator,
    options: PrintedOptions,
) -> ExactWeights:
    """Return the exact network from directions V (k, d), both signs of which are tried on the first ℓ samples."""
    ell = _rows(X, len(V), options)
    values = X[:ell] @ np.vstack([V, -V]).T
    on, Q = values > _threshold(ell, options), sketched(Y[:ell], len(V), rng)
    return by_patterns(X[:ell], Y[:ell], Q, on, V, activation)


def _rows(X: np.ndarray, k: int, options: PrintedOptions) -> int:
    return min(len(X), 4 * (k + X.shape[1]) if options.rows is None else options.rows)


def _threshold(ell: int, options: PrintedOptions) -> float:
    return 0.25 / ell if options.tau is None else options.tau


def run_as_printed(call: Call, ica: bool) -> Estimate:
    """Run Algorithm 3, or Algorithms 4 and 5, on the samples of a call; return the estimate with a note on the order of
    the score.
    """
    options = call.options_as(PrintedOptions)
    X, Y = call.source.collect()
    k, act = units_of_rank(call.task.n_hidden, Y), call.task.activation
    if ica:
        return as_estimate(algorithm_3(X, Y, k, act, call.rng, options))
    order = score_order(act) if options.order is None else options.order
    exact = algorithm_4(X, Y, k, act, call.rng, options)
    return as_estimate(exact, (f"score of order {order}: that of order 3 is zero for relu",) if order != 3 else ())
