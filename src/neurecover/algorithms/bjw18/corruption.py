"""Sparse gross corruption: robust principal components first, then an exact method [BJW18, §8].

With more outputs than units Y = act(X Wᵀ) Aᵀ + E has a part of rank k < p and, where E hits few entries, a sparse
one. Principal component pursuit tells them apart whatever the size of the entries of E, the corrupted ones are left
out, and what remains is the noiseless problem of `exact_tensor`. The corrupted entries come back as a mask.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.activations import Activation
from neurecover.algorithms.base import Estimate, Method
from neurecover.algorithms.bjw18.common import as_estimate, kurtosis_sentence, refuse_exact
from neurecover.algorithms.bjw18.patterns import ExactWeights
from neurecover.algorithms.bjw18.tensor import exact_tensor
from neurecover.data import Source, subsample
from neurecover.refine.task import Task
from neurecover.solve import Deadline
from neurecover.tensors.robust import LowRankSparse, separate

MAX_ROWS = 10_000  # the pursuit holds about eight arrays of that many samples
MAX_CORRUPTED = 0.3  # share of entries beyond which a sparse part is none


@dataclass(frozen=True)
class SparseNoise:
    """The exact weights and the mask (n, p) of the corrupted entries, with the decomposition behind them."""

    exact: ExactWeights
    mask: np.ndarray
    parts: LowRankSparse


def sparse_noise(
    X: np.ndarray, Y: np.ndarray, k: int | None, activation: Activation, rng: np.random.Generator
) -> SparseNoise:
    """The network behind X (n, d) and Y (n, p), p > k, of which some entries are arbitrarily wrong; k None: its
    rank."""
    parts = separate(Y, k)
    exact = exact_tensor(X, parts.L, parts.rank, activation, rng)
    return SparseNoise(exact, parts.mask, parts)


def _refuse(task: Task) -> str | None:
    k = task.n_hidden
    if k is not None and task.n_outputs <= k:
        return (
            f"sparse_noise needs more outputs than units, so that the clean outputs have low rank. "
            f"Got {task.n_outputs} outputs and {k} units instead."
        )
    return refuse_exact("sparse_noise", task)


def _estimate(source: Source, task: Task, rng: np.random.Generator, deadline: Deadline) -> Estimate:
    X, Y = subsample(source, MAX_ROWS, int(rng.integers(2**31))).collect()
    parts = separate(Y, task.n_hidden)
    share = float(parts.mask.mean())
    if parts.rank >= min(Y.shape) or share > MAX_CORRUPTED or parts.residual > 1e-9:
        return Estimate(
            None,
            (
                f"the outputs are not low rank plus sparse: rank {parts.rank} of {Y.shape[1]}, {share:.1%} of the "
                f"entries off it, and {parts.residual:.1e} left on the others",
            ),
        )
    if parts.rank > X.shape[1]:
        return Estimate(None, (f"the clean outputs have rank {parts.rank}, more than the {X.shape[1]} inputs",))
    exact = exact_tensor(X, parts.L, parts.rank, task.activation, rng)
    notes = [f"{int(parts.mask.sum())} of {parts.mask.size} outputs corrupted ({share:.2%}), rank {parts.rank}"]
    if (doubt := kurtosis_sentence(X)) is not None:
        notes.append(doubt)
    return as_estimate(exact, exact.network.W, tuple(notes))


METHOD = Method(
    name="sparse_noise",
    paper="BJW18, Section 8",
    assumes="Gaussian inputs, no biases; few outputs grossly wrong, the others exact; rectified activation; k < p, d",
    refuse=_refuse,
    estimate=_estimate,
    sets_aside=True,
)
