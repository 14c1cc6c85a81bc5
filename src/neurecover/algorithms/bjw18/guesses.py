"""Arbitrary noise that does not depend on the inputs, few units: guess rows of a left inverse of A [BJW18, §7, Alg. 8].

For y = A relu(W z) + e with z ~ N(0, I) and e any fixed matrix, independent of z, a row u of a left inverse of A gives
u·y = relu(w·z) + u·e. Its sign is a noisy label of the halfspace w·z > 0, and the convex program of step 3c,
max Σ label·(w·z) over ‖w‖ ≤ 1, has the solution w = Σ label·z / ‖Σ label·z‖. Smoothing, label = sign(u·y + g) with
Gaussian g, spreads the noise out; in the limit of much smoothing the label is u·y itself.

Guesses are organised so that few units are quick:
- The sketch is not random. E[y zᵀ] = ½ A W has the columns of A as its left singular space, to which noise adds only
  O(‖e‖_F √d / n): its k leading directions, scaled to E[t zᵀ] of orthonormal rows, leave u on the unit sphere of R^k.
- The rows of the left inverse are guessed one by one and not together: N guesses give N candidates w, and which k of
  them belong together is decided by the regression of step 4, from one Gram matrix G of all candidates' values and
  their products C with the outputs: tr(C_Sᵀ G_SS⁻¹ C_S) largest. The set S is chosen greedily, from several first
  members, and then every member is exchanged for a better one while there is any.
- The best choice is refined, one unit at a time, on finer and finer caps around its u.

The form "paper" sketches by a Gaussian matrix and compares all C(N, k) choices.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from math import comb

import numpy as np

from neurecover.algorithms.base import BEST, PAPER, Algorithm, Call
from neurecover.algorithms.bjw18.common import refuse_exact
from neurecover.algorithms.bjw18.options import GUESSES, GuessOptions
from neurecover.data import Whitening, subsample
from neurecover.exceptions import UnsolvableError
from neurecover.models import Network
from neurecover.results import Estimate
from neurecover.search import Task


@dataclass(frozen=True)
class NoiseFit:
    """The network, its residual ‖Y − Ŷ‖_F over all samples used, and how many choices of k candidates were compared.

    `ratio` is the residual over ‖Y‖_F.
    """

    network: Network
    residual: float
    n_choices: int
    ratio: float


def arbitrary_noise(
    X: np.ndarray,
    Y: np.ndarray,
    k: int,
    rng: np.random.Generator,
    *,
    printed: bool = False,
    options: GuessOptions = GUESSES,
) -> NoiseFit:
    """Find a ReLU network of k units that fits Y (n, p) about as well as the true one; X (n, d) is Gaussian about 0."""
    whitening = Whitening.of(np.zeros(X.shape[1]), X.T @ X / len(X))
    Z = whitening.inputs(X)
    T = Y @ rng.standard_normal((Y.shape[1], k)) / np.sqrt(k) if printed else sketch(Z, Y, k)
    directions = _sphere(k, rng, options.points(k))
    rows = np.concatenate([candidates(Z, T, directions, smoothing, rng) for smoothing in options.smoothing])
    guesses = np.concatenate([directions] * len(options.smoothing))
    G, C = _products(Z, Y, rows)
    if printed:
        chosen, compared = np.array(_best_choice(G, C, k)), comb(len(rows), k)
    else:
        chosen, compared = _greedy_choice(G, C, k, options.first)
    W, u = rows[chosen], guesses[chosen]
    W = _refined(Z, Y, T, W, u, rng, options) if not printed else W
    H = np.maximum(Z @ W.T, 0.0)
    A = np.linalg.lstsq(H, Y, rcond=None)[0].T
    residual = float(np.linalg.norm(Y - H @ A.T))
    ratio = residual / max(float(np.linalg.norm(Y)), np.finfo(np.float64).tiny)
    return NoiseFit(Network(W @ whitening.matrix.T, None, A).normal_form(), residual, compared, ratio)


def sketch(Z: np.ndarray, Y: np.ndarray, k: int) -> np.ndarray:
    """Return t (n, k), combinations of the outputs with E[t zᵀ] of orthonormal rows."""
    left, s, _ = np.linalg.svd(Y.T @ Z / len(Z), full_matrices=False)
    return Y @ (left[:, :k] / np.maximum(s[:k], 1e-12 * s[0]))


def candidates(
    Z: np.ndarray, T: np.ndarray, directions: np.ndarray, smoothing: float, rng: np.random.Generator
) -> np.ndarray:
    """Return the unit vector of Σ label·z for every direction u [BJW18, Alg. 8, steps 3a–3c]."""
    labels = T @ directions.T
    if np.isfinite(smoothing):
        scale = smoothing * np.sqrt(np.mean(labels**2, axis=0))
        labels = np.sign(labels + scale * rng.standard_normal(labels.shape))
    W = labels.T @ Z
    return W / np.linalg.norm(W, axis=1, keepdims=True)


def _products(Z: np.ndarray, Y: np.ndarray, W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Σ h hᵀ and Σ h yᵀ of the candidates' values."""
    H = np.maximum(Z @ W.T, 0.0)
    return H.T @ H, H.T @ Y


def _greedy_choice(G: np.ndarray, C: np.ndarray, k: int, first: int) -> tuple[np.ndarray, int]:
    """Return k candidates whose regression explains most, and how many sets were compared: greedy, then exchanges.

    With S given, a further candidate j explains ‖C_j − G_jS G_SS⁻¹ C_S‖² / (G_jj − G_jS G_SS⁻¹ G_Sj) more.
    """
    floor = 1e-6 * np.diag(G)
    compared = 0

    def gains(S: list[int]) -> np.ndarray:
        nonlocal compared
        compared += len(G)
        if not S:
            return np.asarray(np.sum(C**2, axis=1) / np.diag(G))
        B = np.linalg.lstsq(G[np.ix_(S, S)], np.hstack([G[S], C[S]]), rcond=1e-12)[0]
        left = np.diag(G) - np.einsum("sj,sj->j", G[S], B[:, : len(G)])
        rest = C - G[:, S] @ B[:, len(G) :]
        return np.where(left > floor, np.sum(rest**2, axis=1) / np.maximum(left, floor), 0.0)

    best, chosen = -np.inf, list(range(k))
    alone = gains([])
    for start in np.argsort(-alone)[:: max(1, len(alone) // first)][:first]:
        S, total = [int(start)], float(alone[start])
        while len(S) < k:
            more = gains(S)
            S.append(int(np.argmax(more)))
            total += float(more.max())
        i = stale = 0
        while stale < k and k > 1:
            others = S[:i] + S[i + 1 :]
            more = gains(others)
            j = int(np.argmax(more))
            if more[j] > more[S[i]] * (1.0 + 1e-9):
                total += float(more[j] - more[S[i]])
                S[i], stale = j, 0
            else:
                stale += 1
            i = (i + 1) % k
        if total > best:
            best, chosen = total, list(S)
    return np.array(chosen), compared


def _best_choice(G: np.ndarray, C: np.ndarray, k: int) -> tuple[int, ...]:
    """Return the k candidates whose regression explains most: those with the largest tr(Cᵀ G⁻¹ C) over their block."""
    N = len(G)
    if k == 1:
        return (int(np.argmax(np.sum(C**2, axis=1) / np.diag(G))),)
    CC = C @ C.T
    best, choice = -np.inf, (0,) * k
    for block in _choices(N, k):
        gains = _explained(G, CC, block)
        i = int(np.argmax(gains))
        if gains[i] > best:
            best, choice = float(gains[i]), tuple(block[i].tolist())
    return choice


def _explained(G: np.ndarray, CC: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return tr(Cᵀ G⁻¹ C) (m,) of sets of candidates (m, k)."""
    rows = chosen[:, :, None], chosen[:, None, :]
    gram = G[rows] + 1e-9 * np.trace(G) / len(G) * np.eye(chosen.shape[1])
    return np.trace(np.linalg.solve(gram, CC[rows]), axis1=1, axis2=2)


def _choices(N: int, k: int, size: int = 200_000) -> Iterator[np.ndarray]:
    """Yield all subsets of k of the N candidates, in blocks (m, k)."""
    if k == 2:
        yield from np.array_split(np.column_stack(np.triu_indices(N, 1)), max(1, comb(N, 2) // size))
        return
    subsets = itertools.combinations(range(N), k)
    while block := list(itertools.islice(subsets, size)):
        yield np.array(block)


def _refined(
    Z: np.ndarray,
    Y: np.ndarray,
    T: np.ndarray,
    W: np.ndarray,
    u: np.ndarray,
    rng: np.random.Generator,
    options: GuessOptions,
) -> np.ndarray:
    """Move one unit at a time to the best of several guesses on a cap around it, with caps that shrink; return the
    units.
    """
    k = len(W)
    width = 0.3
    for _ in range(options.refinements if k > 1 else 0):
        for i in range(k):
            near = u[i] + width * rng.standard_normal((options.cap_points, k))
            near /= np.linalg.norm(near, axis=1, keepdims=True)
            tried = np.vstack([np.delete(W, i, axis=0), W[i], candidates(Z, T, near, np.inf, rng)])
            G, C = _products(Z, Y, tried)
            block = np.array([[*range(k - 1), j] for j in range(k - 1, len(tried))])
            j = int(np.argmax(_explained(G, C @ C.T, block)))
            W[i] = tried[k - 1 + j]
            u[i] = u[i] if j == 0 else near[j - 1]
        width *= 0.6
    return W


def _sphere(k: int, rng: np.random.Generator, N: int) -> np.ndarray:
    """Return points spread over the unit sphere of R^k."""
    if k == 1:
        return np.array([[1.0], [-1.0]])
    if k == 2:
        angles = 2.0 * np.pi * np.arange(N) / N
        return np.column_stack([np.cos(angles), np.sin(angles)])
    points = rng.standard_normal((N, k))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def _refuse(task: Task) -> str | None:
    k = task.n_hidden
    if k is None:
        return "arbitrary_noise needs the number of units: noise hides it. Pass n_hidden."
    if str(task.activation) != "relu":
        return f"arbitrary_noise needs relu. Got {task.activation} instead."
    return refuse_exact("arbitrary_noise", task)


def _run(call: Call) -> Estimate:
    k, printed = call.task.n_hidden, call.form == "paper"
    assert k is not None
    options = call.options_as(GuessOptions)
    N = len(options.smoothing) * options.points(k)
    if printed and comb(N, k) > options.choices:
        raise UnsolvableError(
            f"Algorithm 8 would compare all choices of {k} among {N:,} guesses, "
            f"more than {options.choices:.0e}: give GuessOptions(choices=…), or take form='best'."
        )
    X, Y = subsample(call.source, options.rows, int(call.rng.integers(2**31))).collect()
    fit = arbitrary_noise(X, Y, k, call.rng, printed=printed, options=options)
    note = f"{fit.n_choices:,} choices were compared; the residual is {fit.ratio:.2f} of the outputs' size."
    return Estimate(fit.network, (note,), details=fit)


ALGORITHM = Algorithm(
    name="arbitrary_noise",
    paper="BJW18, Algorithm 8",
    assumes="Gaussian inputs, no biases; any noise that does not depend on them; relu; few units; A and W of rank k",
    refuse=_refuse,
    run=_run,
    forms=(BEST, PAPER),
    options={BEST: GuessOptions, PAPER: GuessOptions},
)
