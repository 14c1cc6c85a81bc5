"""Gaussian inputs and noisy outputs: directions from a tensor, signs by projection, A by regression [BJW18, §5,
Alg. 6].

The directions vᵢ ≈ ξᵢ wᵢ come from the second Hermite coefficients, which see wᵢwᵢᵀ and not the sign ξᵢ. Noise
hides the sparsity patterns, so the signs are found by projection: with P₊ onto the rows {act(±vⱼ·x)}_{j≠i} ∪
{act(vᵢ·x)} and P₋ the same with act(−vᵢ·x),

    ξᵢ = +1   exactly when   ‖Y (I − P₊)‖² < ‖Y (I − P₋)‖².

(The projector onto the rows of Q is Qᵀ(QQᵀ)⁻¹Q; the text prints QᵀQ inside.) All 2k projections leave one of the same
2k rows out. With G the Gram matrix of all of them and β the coefficients of the regression on all, leaving row r out
raises the residual by ‖β_r‖² / (G⁻¹)_rr, so one pass over the data and one inverse decide every sign.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from neurecover.activations import Activation
from neurecover.algorithms.base import Estimate, Method
from neurecover.algorithms.bjw18.common import kurtosis_sentence, refuse_exact
from neurecover.algorithms.bjw18.tensor import tensor_directions
from neurecover.data import ArraySource, Mapped, Source, Whitening, reduce
from neurecover.models import Network, Student
from neurecover.refine.task import Task
from neurecover.solve import Deadline
from neurecover.statistics import ReadoutSums

GAUSSIANITY_ROWS = 20_000


@dataclass(frozen=True)
class Signs:
    """Signed directions W (k, d), the A that goes with them, and how clear each sign was.

    `margins` (k,) is (larger − smaller)/(larger + smaller) of the two increases of the residual, in [0, 1].
    """

    W: np.ndarray
    A: np.ndarray
    margins: np.ndarray


def projection_signs(source: Source, V: np.ndarray, activation: Activation) -> Signs:
    """The signs of the rows of V (k, d), and A by regression [BJW18, Alg. 6 and Lemma 20]."""
    k, p = len(V), source.n_outputs
    both = np.vstack([V, -V])
    sums = reduce(source, ReadoutSums(Student(activation, both, np.zeros((2 * k, p)), bias=False, affine=False)))
    G, cross = sums.sums["hh"], sums.sums["hr"]
    inverse = np.linalg.pinv(G, hermitian=True)
    beta = inverse @ cross
    increase = np.sum(beta**2, axis=1) / np.diag(inverse)
    plus, minus = increase[:k], increase[k:]
    signs = np.where(plus >= minus, 1.0, -1.0)
    kept = np.where(plus >= minus, np.arange(k), np.arange(k, 2 * k))
    A = cho_solve(cho_factor(G[np.ix_(kept, kept)]), cross[kept]).T
    return Signs(signs[:, None] * V, A, np.abs(plus - minus) / (plus + minus))


def noisy_tensor(X: np.ndarray, Y: np.ndarray, k: int, activation: Activation, rng: np.random.Generator) -> Network:
    """The network behind samples X (n, d), Gaussian of any covariance about 0, and noisy Y (n, p)."""
    whitening = Whitening.of(np.zeros(X.shape[1]), X.T @ X / len(X))
    source = Mapped(ArraySource(X, Y), whitening)
    signs = projection_signs(source, tensor_directions(source, k, len(X), rng), activation)
    return Network(signs.W @ whitening.matrix.T, None, signs.A, None, activation).normal_form()


def _refuse(task: Task) -> str | None:
    if task.n_hidden is None:
        return "noisy_tensor needs the number of units: noise hides the rank of the outputs. Pass n_hidden."
    return refuse_exact("noisy_tensor", task)


def _estimate(source: Source, task: Task, rng: np.random.Generator, deadline: Deadline) -> Estimate:
    assert task.n_hidden is not None
    X, _ = next(source.blocks(GAUSSIANITY_ROWS))
    doubt = kurtosis_sentence(np.asarray(X, dtype=np.float64))
    V = tensor_directions(source, task.n_hidden, task.n_samples, rng)
    signs = projection_signs(source, V, task.activation)
    network = Network(signs.W, None, signs.A, None, task.activation)
    note = f"{task.n_hidden} directions, the least clear sign by a margin of {signs.margins.min():.2f}"
    return Estimate(network, (note,) if doubt is None else (doubt, note))


METHOD = Method(
    name="noisy_tensor",
    paper="BJW18, Section 5 and Algorithm 6",
    assumes="Gaussian inputs of any covariance, no biases, noise of mean zero; rectified activation; A and W of rank k",
    refuse=_refuse,
    estimate=_estimate,
)
