"""Weights of a few columns from a few samples, all else of the network given: many starts at once.

Given z (n, k) and t (n, c), min over w (c, k) of Σ ‖y − A·act(z + wᵀt) − c‖². Without noise the start that explains
most samples is right, so that samples with another column's wrong weights do no harm.
"""

from __future__ import annotations

import numpy as np

from neurecover.models import Network
from neurecover.solve import Deadline, within

STARTS, SOME, STEPS = 64, 100, 48  # of a round of fits of one column's weights: starts, samples, steps from each
EQUATIONS, MOST = 3, 0.9  # per unknown in a round; share of the samples that ends them
ROUNDS, MOST_ROUNDS = 2, 20  # more where samples are few, and a round takes no time
LEAKS = (0.5, 0.2, 0.05, 0.0)  # slopes of a unit that is off
REWEIGHTED = 30  # times
FARTHEST = 1e6  # of the largest value that the others give a unit, what a column may add to it
FITTED = 1e-20  # Σ r² / Σ y² of a sample that is fitted


def refit(
    W: np.ndarray,
    group: list[int],
    rows: np.ndarray,
    found: Network,
    moved: np.ndarray,
    Y: np.ndarray,
    rng: np.random.Generator,
    deadline: Deadline,
) -> None:
    """Some columns of W from some of the samples, the others given: many starts, the best of them kept.

    Every round of starts looks at a few samples of its own. Without noise the start that explains most of the others is
    right; else the one that leaves least. No round is begun after the deadline.
    """
    before, T = W[:, group].T, moved[rows][:, group]
    Z = moved[rows] @ W.T + found.b - T @ before
    size = np.std(Z) / np.maximum(np.abs(T).max(axis=0), 1e-300) + np.linalg.norm(found.W) / np.sqrt(found.W.size)
    floor = FITTED * float(np.mean(np.sum(Y**2, axis=1)))
    few = max(4, -(-EQUATIONS * before.size // found.n_outputs))
    best, score = before, _score(found, Z, T, Y[rows], before, floor)
    for _ in within(deadline, range(max(ROUNDS, min(MOST_ROUNDS, SOME // len(Z))))):
        starts = size[:, None] * rng.standard_normal((STARTS, *before.shape))
        starts[1::2] = best + np.where(rng.random(starts[1::2].shape) < 0.3, starts[1::2], 0.0)
        starts[0], starts[1] = 0.0, best
        some = rng.permutation(len(Z))[: min(few, SOME)]
        for w in _fitted(found, Z[some], T[some], Y[rows][some], starts)[0]:
            came = _score(found, Z, T, Y[rows], w, floor)
            best, score = (w, came) if came < score else (best, score)
        if -score[0] >= MOST * len(Z):
            break
    misfit = _misfit(found, Z, T, Y[rows], best)
    for own in (misfit <= floor, np.ones_like(misfit, dtype=bool)):
        if own.any():
            w = _fitted(found, Z[own], T[own], Y[rows][own], best[None])[0][0]
            came = _score(found, Z, T, Y[rows], w, floor)
            best, score = (w, came) if came < score else (best, score)
    W[:, group] = best.T


def fitting_most(T: np.ndarray, values: np.ndarray) -> np.ndarray:
    """w (c, p) with T w = values (n, p) in most rows: Σ ‖r‖ made least, by least squares weighted anew."""
    weight, smallest = np.ones((len(T), 1)), 1e-12 * np.abs(values).max(initial=1e-300)
    for _ in range(REWEIGHTED):
        w = np.linalg.lstsq(weight * T, weight * values, rcond=None)[0]
        left = np.linalg.norm(values - T @ w, axis=1, keepdims=True)
        weight = 1.0 / np.sqrt(np.maximum(left, smallest))
    return w


def _misfit(found: Network, Z: np.ndarray, T: np.ndarray, Y: np.ndarray, w: np.ndarray) -> np.ndarray:
    R = found.activation(Z + T @ w) @ found.A.T + found.c - Y
    return np.einsum("io,io->i", R, R)


def _score(
    found: Network, Z: np.ndarray, T: np.ndarray, Y: np.ndarray, w: np.ndarray, floor: float
) -> tuple[int, float]:
    """Less is better: more samples fitted, then a smaller Σ r²."""
    misfit = _misfit(found, Z, T, Y, w)
    return -int(np.count_nonzero(misfit <= floor)), float(misfit.sum())


def _fitted(
    network: Network, Z: np.ndarray, T: np.ndarray, Y: np.ndarray, w: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """min over w (c, k) of Σ ‖y − A·act(z + wᵀt) − c‖² by Levenberg–Marquardt, from every w (s, c, k) at once.

    A rectified unit that is off in all of the samples has no gradient to switch it on. So off it first has a slope too,
    max(z, s z), which falls to zero. Returned are the w and the Σ r² of each.
    """
    act = network.activation
    leaks = LEAKS if act.homogeneity == 1.0 and act.odd_slope == 1.0 else (0.0,)
    rss = np.zeros(len(w))
    for leak in leaks:
        w, rss = _descended(network, leak, Z, T, Y, w, STEPS // len(leaks))
    return w, rss


def _descended(
    network: Network, leak: float, Z: np.ndarray, T: np.ndarray, Y: np.ndarray, w: np.ndarray, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    shape, A, act = w.shape, network.A, network.activation
    AA = np.tile(A.T @ A, (shape[1], shape[1]))
    eye = np.eye(len(AA))
    # A unit that is to be off wherever a column shows has its best weight at infinity.
    most = FARTHEST * np.abs(Z).max(initial=1e-300) / np.maximum(np.abs(T).max(initial=0.0), 1e-300)

    def at(w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        z = Z + T @ w
        R = Y - network.c - (act(z) + leak * np.minimum(z, 0.0)) @ A.T
        slope = act.derivative(z) + leak * (z < 0.0)
        gated = (T[:, :, None] * slope[:, :, None, :]).reshape(len(w), len(Z), -1)
        return np.einsum("sio,sio->s", R, R), gated, (T.T @ (slope * (R @ A))).reshape(len(w), -1)

    damping, (rss, gated, gradient) = np.full(len(w), 1e-2), at(w)
    for _ in range(steps):
        curvature = (gated.transpose(0, 2, 1) @ gated) * AA
        scale = np.maximum(np.einsum("sjj->sj", curvature), 1e-12 * np.abs(curvature).max() + 1e-300)
        system = curvature + damping[:, None, None] * scale[:, None, :] * eye
        trial = w + np.linalg.solve(system, gradient[:, :, None]).reshape(shape)
        new = at(trial)
        better = (new[0] < rss) & (np.abs(trial).max(axis=(1, 2)) <= most)
        damping = np.where(better, np.maximum(0.2 * damping, 1e-14), np.minimum(4.0 * damping, 1e8))
        w, rss, gated, gradient = (
            np.where(better.reshape(-1, *[1] * (old.ndim - 1)), came, old)
            for came, old in zip((trial, *new), (w, rss, gated, gradient))
        )
    return w, rss
