"""Sparse gross corruption: robust principal components first, then an exact method [BJW18, §8].

With more outputs than units Y = act(X Wᵀ) Aᵀ + E has a part of rank k < p and, where E hits few entries, a sparse
one. Principal component pursuit, or the agreement of small blocks where that fails, tells them apart whatever the size
of the entries of E, the corrupted ones are left out, and what remains is the noiseless problem of `exact_tensor`. The
corrupted entries come back as a mask.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neurecover.activations import Activation
from neurecover.algorithms.base import BEST, Algorithm, Call
from neurecover.algorithms.bjw18.aside import set_aside
from neurecover.algorithms.bjw18.common import as_estimate, gaussian_notes, refuse_exact
from neurecover.algorithms.bjw18.options import CORRUPTION, CorruptionOptions
from neurecover.algorithms.bjw18.patterns import ExactWeights
from neurecover.algorithms.bjw18.statements import incoherence
from neurecover.algorithms.bjw18.tensor import exact_tensor
from neurecover.certificate import Check
from neurecover.data import ArraySource, Source, subsample
from neurecover.exceptions import UnsolvableError
from neurecover.models import Model
from neurecover.results import Estimate
from neurecover.search import Task
from neurecover.tensors.robust import LowRankSparse, separate


@dataclass(frozen=True)
class SparseNoise:
    """The exact weights and the mask (n, p) of the corrupted entries, with the decomposition behind them."""

    exact: ExactWeights
    mask: np.ndarray
    parts: LowRankSparse
    notes: tuple[str, ...] = ()


def sparse_noise(
    source: Source,
    k: int | None,
    activation: Activation,
    rng: np.random.Generator,
    options: CorruptionOptions = CORRUPTION,
) -> SparseNoise:
    """Find the network behind outputs of which some entries are arbitrarily wrong, p > k; k=None takes the clean
    outputs' rank.

    UnsolvableError where the outputs are not of low rank but for few entries.
    """
    X, Y = subsample(source, options.rows, int(rng.integers(2**31))).collect()
    parts = separate(Y, k, rng=rng)
    if not parts.separated:
        raise UnsolvableError(
            f"the outputs are not low rank plus sparse: rank {parts.rank} of {Y.shape[1]}, {parts.mask.mean():.1%} of "
            f"the entries off it, and {parts.residual:.1e} left on the others"
        )
    if parts.rank > X.shape[1]:
        raise UnsolvableError(f"the clean outputs have rank {parts.rank}, more than the {X.shape[1]} inputs")
    # A row of which most entries look corrupted has been judged by the wrong ones; the network judges them below.
    known = parts.mask.mean(axis=1) <= options.most_of_row
    exact = exact_tensor(ArraySource(X[known], parts.L[known]), parts.rank, activation, rng)
    # The network judges every entry by itself, also in rows of which too few are clean for their neighbours to judge.
    scale = float(np.sqrt(np.mean(parts.L[known] ** 2)))
    mask = np.abs(Y - exact.network(X)) > options.gross * scale if exact.exact else parts.mask
    return SparseNoise(exact, mask, parts, gaussian_notes(X))


def _refuse(task: Task) -> str | None:
    k = task.n_hidden
    if k is not None and task.n_outputs <= k:
        return (
            f"sparse_noise needs more outputs than units, so that the clean outputs have low rank. "
            f"Got {task.n_outputs} outputs and {k} units instead."
        )
    return refuse_exact("sparse_noise", task)


def _run(call: Call) -> Estimate:
    options = call.options_as(CorruptionOptions)
    found = sparse_noise(call.source, call.task.n_hidden, call.task.activation, call.rng, options)
    mask = found.mask
    note = (
        f"{int(mask.sum())} of {mask.size} outputs are corrupted ({mask.mean():.2%}); rank {found.parts.rank} is left."
    )
    return as_estimate(found.exact, (note, *found.notes), found)


def _diagnose(network: Model, source: Source, rng: np.random.Generator) -> tuple[Check, ...]:
    """Return notes on how incoherent the clean outputs are, which is what tells them from sparse errors [BJW18, Theorem
    14].
    """
    X, _ = subsample(source, CORRUPTION.rows, int(rng.integers(2**31))).collect()
    mu = incoherence(network(X))
    sentence = (
        f"The clean outputs are incoherent with μ = {mu:.3g}, 1 being the best: the larger, the fewer errors "
        "Theorem 14 allows for."
    )
    return (Check("incoherence", True, mu, None, sentence),)


ALGORITHM = Algorithm(
    name="sparse_noise",
    paper="BJW18, Section 8",
    assumes="Gaussian inputs, no biases; few outputs grossly wrong, the others exact; rectified activation; k < p, d",
    refuse=_refuse,
    run=_run,
    options={BEST: CorruptionOptions},
    clean=set_aside,
    diagnose=_diagnose,
)
