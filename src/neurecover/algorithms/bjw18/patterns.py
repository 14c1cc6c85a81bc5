"""Exact weights from sparsity patterns: linear systems on top of a rough estimate [BJW18, Alg. 3 steps 4–8, Alg. 5,
§4.3].

Without noise and with A of full column rank the outputs span exactly the hidden rows: Y = H Aᵀ with H = act(X Wᵀ),
and for a rectified activation, act(z) = 0 for z ≤ 0. A combination q·u of the outputs that vanishes wherever unit i
is off is a multiple of that unit's row, because nothing else in the span is zero there [BJW18, Lemma 10]. So for
each unit

    samples where it is surely off  →  u, the null vector of their outputs  →  h = Q u = c·act(w·x) on every sample
    →  the zeros of h are the whole pattern, read off in the gap between the two groups of values
    →  u again from all samples where it is off, then w from act⁻¹(h) = w·x on all samples where it is on.

A start v ≈ ±w at angle ε is sure of the sign of w·x where |v·x| > tan(ε)·‖x‖. ε is not known, so samples are taken
in the order of |v·x|/‖x‖, as many as keep a null vector: the least singular value grows with every sample, and the
first one that is wrongly taken for "off" lifts it from rounding. Both ±v are tried; the wrong sign has no null
vector (the paper's "first of the k systems that has a solution" is this one null-space computation). The accuracy
of the start therefore does not enter the result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.activations import Activation
from neurecover.algorithms.bjw18.options import EXACT, SOLVED
from neurecover.data import Whitening
from neurecover.models import Network
from neurecover.solve import afford

EPS = float(np.finfo(np.float64).eps)
SIZES = 10.0 ** np.arange(-3.0, 3.01, 0.25)  # c over the largest h, the reciprocal of act at the unit's largest z


@dataclass(frozen=True)
class OutputSpan:
    """An orthonormal basis of the span of the hidden rows, seen on n samples.

    Q (n, k) has columns of length √n; `strength` is σ_k/σ_1 of Y and `excess` σ_{k+1}/σ_1, zero for p = k.
    """

    Q: np.ndarray
    strength: float
    excess: float

    @property
    def rounding(self) -> float:
        """What rounding leaves in an entry of Q u for a unit vector u."""
        return 30.0 * EPS / max(self.strength, EPS)


@dataclass(frozen=True)
class ExactUnit:
    """One unit: its weights w and row h, whether it was found, and the figures it was judged by.

    `null` is the least singular value of the outputs where the unit is off, `second` the next one, both for unit
    rows of mean square one; `gap` the ratio of the least value that is on to the largest that is off; `misfit` that
    of act(w·x) to the row; n_off the samples where the unit is off.
    """

    w: np.ndarray
    found: bool
    null: float
    second: float
    gap: float
    misfit: float
    n_off: int


@dataclass(frozen=True)
class ExactWeights:
    """The network of the units found, the figures of every unit tried, and the relative residual ‖Y − Ŷ‖_F / ‖Y‖_F.

    `start` (k, d) are the rough units from which the exact step began.
    """

    network: Network
    units: tuple[ExactUnit, ...]
    residual: float
    start: np.ndarray

    @property
    def found(self) -> int:
        return sum(unit.found for unit in self.units)

    @property
    def exact(self) -> bool:
        return self.found == len(self.units) and self.residual <= EXACT


def output_span(Y: np.ndarray, k: int) -> OutputSpan:
    """Return the span of the outputs Y (n, p), p ≥ k, in k coordinates."""
    left, s, _ = np.linalg.svd(Y, full_matrices=False)
    first = max(float(s[0]), np.finfo(np.float64).tiny)
    excess = float(s[k]) / first if len(s) > k else 0.0
    return OutputSpan(left[:, :k] * np.sqrt(len(Y)), float(s[k - 1]) / first, excess)


def output_rank(Y: np.ndarray, tolerance: float = EXACT) -> int:
    """Return the number of singular values of Y above rounding: the number of units, where the outputs are many and
    clean.
    """
    s = np.linalg.svd(Y, compute_uv=False)
    return int(np.count_nonzero(s > tolerance * s[0])) if s[0] > 0.0 else 0


def exact_weights(X: np.ndarray, Y: np.ndarray, W: np.ndarray, activation: Activation) -> ExactWeights:
    """Return the exact network on noiseless samples X (n, d), Y (n, p) from rough units W (k, d), signs unknown; k ≤
    min(d, p).

    Inputs may have any second moments: angles are measured, and systems solved, in whitened coordinates. Memory is that
    of the samples and of Q.
    """
    if not 1 <= len(W) <= min(Y.shape):
        raise ValueError(f"k must be between 1 and {min(Y.shape)}, the smaller side of Y. Got k = {len(W)}.")
    whitening = Whitening.of(np.zeros(X.shape[1]), X.T @ X / len(X))
    Z = whitening.inputs(X)
    starts = W @ np.linalg.pinv(whitening.matrix).T
    span = output_span(Y, len(W))
    size = np.linalg.norm(Z, axis=1)
    size = np.where(size > 0.0, size, 1.0)
    units: list[ExactUnit] = []
    for start in starts:
        unit = _exact_unit(Z, size, span, start, activation)
        repeated = any(other.found and _cosine(unit.w, other.w) > 1.0 - 1e-9 for other in units)
        units.append(replace(unit, found=False) if repeated else unit)
    found = np.array([unit.w for unit in units if unit.found]).reshape(-1, Z.shape[1])
    network, residual = with_outputs(X, Y, found @ whitening.matrix.T, activation)
    return ExactWeights(network, tuple(units), residual, W)


def with_outputs(X: np.ndarray, Y: np.ndarray, W: np.ndarray, activation: Activation) -> tuple[Network, float]:
    """Return the network of units W (k, d) with A by least squares, and its residual ‖Y − Ŷ‖_F / ‖Y‖_F."""
    H = activation(X @ W.T)
    A = np.linalg.lstsq(H, Y, rcond=None)[0].T
    residual = float(np.linalg.norm(Y - H @ A.T) / max(float(np.linalg.norm(Y)), np.finfo(np.float64).tiny))
    return Network(W, None, A, None, activation).normal_form(), residual


def null_vector(rows: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Return the unit u with ‖rows·u‖ least, that norm and the next singular value, both over √m."""
    m = len(rows)
    afford(2.0 * rows.size * rows.shape[1])
    if m < rows.shape[1]:
        rows = np.vstack([rows, np.zeros((rows.shape[1] - m, rows.shape[1]))])
    triangle = np.linalg.qr(rows, mode="r")
    _, s, right = np.linalg.svd(triangle)
    root = np.sqrt(max(m, 1))
    second = float(s[-2]) / root if len(s) > 1 else np.inf
    return right[-1], float(s[-1]) / root, second


def _exact_unit(
    Z: np.ndarray, size: np.ndarray, span: OutputSpan, start: np.ndarray, activation: Activation
) -> ExactUnit:
    surety = Z @ start / size
    tries = []
    for sign in (1.0, -1.0):
        order = np.argsort(sign * surety)
        off = order[: np.count_nonzero(sign * surety < 0.0)]
        tries.append((_longest_off(span, off), sign, off))
    n_off, sign, off = max(tries, key=lambda t: t[0])
    best = _from_off_samples(Z, span, off[:n_off], sign * start, activation)
    if not best.found:
        # Where a neighbour is almost opposite, the longer run may be the neighbour's.
        n_off, sign, off = min(tries, key=lambda t: t[0])
        other = _from_off_samples(Z, span, off[:n_off], sign * start, activation)
        best = other if other.found else best
    return best


def _longest_off(span: OutputSpan, off: np.ndarray) -> int:
    """Return how many samples, in this order, have outputs with a null vector. σ_min grows with the rows: bisection."""
    k = span.Q.shape[1]
    low, high = min(k - 1, len(off)), len(off)
    while low < high:
        middle = (low + high + 1) // 2
        _, null, _ = null_vector(span.Q[off[:middle]])
        # One foreign row of value h among m lifts the norm over √m to about h/√m.
        if null * np.sqrt(middle) <= 10.0 * span.rounding * np.sqrt(k):
            low = middle
        else:
            high = middle - 1
    return low


def _from_off_samples(
    Z: np.ndarray, span: OutputSpan, off: np.ndarray, start: np.ndarray, activation: Activation
) -> ExactUnit:
    k, d = span.Q.shape[1], Z.shape[1]
    u, null, second = null_vector(span.Q[off])
    unknown = ExactUnit(start, False, null, second, 0.0, np.inf, len(off))
    if second <= 1e3 * span.rounding:
        return unknown
    h = span.Q @ u
    is_off, gap = zero_group(h, span.rounding)
    if k > 1 and np.count_nonzero(is_off) >= k:
        u, null, second = null_vector(span.Q[is_off])
        h = span.Q @ u
    h = h if h.sum() >= 0.0 else -h
    # Values within a few digits of rounding say nothing of w, and for z³ there are some in every sample.
    on = ~is_off & (h > 1e3 * span.rounding)
    if np.count_nonzero(on) < d:
        return unknown
    w, size = _weights(Z[on], h[on], activation)
    misfit = float(np.linalg.norm(size * activation(Z @ w) - h) / np.linalg.norm(h))
    # A unit nearer to the start's opposite or to another start is not the one that was meant.
    found = misfit <= SOLVED and _cosine(w, start) > 0.5
    return ExactUnit(w, found, null, second, gap, misfit, int(np.count_nonzero(is_off)))


def zero_group(h: np.ndarray, rounding: float) -> tuple[np.ndarray, float]:
    """Return which entries of h are zero up to rounding, and the ratio of the smallest value above the gap to the
    largest below it.

    The threshold is put into the widest gap, on a logarithmic scale, between rounding and 1e-2 of the largest value.
    """
    values = np.sort(np.abs(h))
    floor = 1e-3 * rounding
    first = max(int(np.searchsorted(values, rounding)) - 1, 0)
    last = max(int(np.searchsorted(values, 1e-2 * values[-1])), first + 1)
    logs = np.log(np.maximum(values[first : last + 1], floor))
    cut = first + int(np.argmax(np.diff(logs)))
    return np.abs(h) <= values[cut], float(np.exp(logs[cut - first + 1] - logs[cut - first]))


def _weights(Z: np.ndarray, h: np.ndarray, activation: Activation) -> tuple[np.ndarray, float]:
    """Return w and c of c·act(w·z) = h on samples where the unit is on.

    A homogeneous act takes c into w. For another [BJW18, §9.1] act⁻¹(h/c) is linear in z at one c alone: the c that
    leaves the least misfit among those on a logarithmic grid, then Gauss–Newton steps in w and log c.
    """
    if activation.homogeneity is not None:
        return _linear(Z, h, activation)[0], 1.0
    with np.errstate(all="ignore"):  # h/c may be more than act can be
        few = slice(None, None, 1 + len(h) // 500)  # for a rough c
        tried = [_linear(Z[few], h[few] / c, activation) for c in h.max() * SIZES]
    best = int(np.argmin([misfit for _, misfit in tried]))
    w, log_c = tried[best][0], float(np.log(h.max() * SIZES[best]))
    for _ in range(30):  # the best c of the grid is within 1.4 of the right one, and five or six suffice
        z, c = Z @ w, np.exp(log_c)
        J = np.column_stack([c * activation.derivative(z)[:, None] * Z, c * activation(z)])
        step = np.linalg.lstsq(J, h - c * activation(z), rcond=None)[0]
        w, log_c = w + step[:-1], log_c + float(np.clip(step[-1], -1.0, 1.0))
        if np.linalg.norm(step) <= EPS * np.linalg.norm(w):
            break
    return w, float(np.exp(log_c))


def _linear(Z: np.ndarray, h: np.ndarray, activation: Activation) -> tuple[np.ndarray, float]:
    """Return w of act(w·z) = h, and the misfit relative to h.

    h carries the same rounding everywhere, and act⁻¹ multiplies it by 1/act′: the rows are weighted by act′.
    """
    z = activation.inverse(h)
    if not np.isfinite(z).all():  # more than act can be
        return np.zeros(Z.shape[1]), np.inf
    weight = activation.derivative(z)
    w = np.linalg.lstsq(Z * weight[:, None], z * weight, rcond=None)[0]
    misfit = float(np.linalg.norm(activation(Z @ w) - h) / np.linalg.norm(h))
    return w, misfit if np.isfinite(misfit) else np.inf


def _cosine(u: np.ndarray, v: np.ndarray) -> float:
    return float(u @ v / max(float(np.linalg.norm(u) * np.linalg.norm(v)), np.finfo(np.float64).tiny))
