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
from neurecover.algorithms.atv21.coefficients import estimate_coefficients
from neurecover.algorithms.atv21.errors import direction_errors
from neurecover.algorithms.atv21.steps import Units
from neurecover.algorithms.base import BEST, PAPER, Algorithm, Call
from neurecover.algorithms.bjw18.common import (
    OPTIONS,
    centred_whitening,
    gaussian_notes,
    refuse_exact,
)
from neurecover.algorithms.bjw18.printed import PrintedOptions, score_directions
from neurecover.data import ArraySource, Mapped, Source, reduce
from neurecover.models import Network, Student
from neurecover.results import Estimate
from neurecover.search import Task
from neurecover.statistics import ReadoutSums, regression_degree
from neurecover.tensors import joint_diagonalise, unpack


@dataclass(frozen=True)
class Signs:
    """Signed directions W (k, d), the A that goes with them, and how clear each sign was.

    `margins` (k,) is (larger − smaller)/(larger + smaller) of the two increases of the residual, in [0, 1].
    """

    W: np.ndarray
    A: np.ndarray
    margins: np.ndarray


def projection_signs(source: Source, V: np.ndarray, activation: Activation) -> Signs:
    """Return the signs of the rows of V (k, d), and A by regression [BJW18, Alg. 6 and Lemma 20]."""
    k, p = len(V), source.n_outputs
    both = np.vstack([V, -V])
    student = Student(activation, (both,), np.zeros((2 * k, p)), source.n_inputs, bias=0, skips=False)
    sums = reduce(source, ReadoutSums(student))
    G, cross = sums.sums["hh"], sums.sums["hr"]
    inverse = np.linalg.pinv(G, hermitian=True)
    beta = inverse @ cross
    increase = np.sum(beta**2, axis=1) / np.diag(inverse)
    plus, minus = increase[:k], increase[k:]
    signs = np.where(plus >= minus, 1.0, -1.0)
    kept = np.where(plus >= minus, np.arange(k), np.arange(k, 2 * k))
    A = cho_solve(cho_factor(G[np.ix_(kept, kept)]), cross[kept]).T
    return Signs(signs[:, None] * V, A, np.abs(plus - minus) / (plus + minus))


@dataclass(frozen=True)
class NoisyTensor:
    """The network, how clear each unit's sign was (see `Signs.margins`), and the expected error √E‖δw‖² (k,) of every
    direction in whitened coordinates, from the errors of the coefficients; None for the printed form.
    """

    network: Network
    margins: np.ndarray
    direction_errors: np.ndarray | None = None


def noisy_tensor(source: Source, k: int, activation: Activation, rng: np.random.Generator) -> NoisyTensor:
    """Return the network behind samples with Gaussian inputs of any covariance about 0, and noisy outputs."""
    whitening = centred_whitening(source)
    white = Mapped(source, whitening)
    degree = regression_degree(source.count(), white.n_inputs, 2)
    c = estimate_coefficients(white, 2, rng, regress=degree)
    V = joint_diagonalise(unpack(c.tensors[2], c.r, 2), k, rng).V
    signs = projection_signs(white, V, activation)
    network = Network(signs.W @ whitening.matrix.T, None, signs.A, None, activation)
    errors = direction_errors(Units(signs.W, np.zeros(k), signs.A), c, (2,), activation, bias=False)
    return NoisyTensor(network.normal_form(), signs.margins, errors)


def _as_printed(call: Call, k: int) -> NoisyTensor:
    """Return directions of the collapsed score by plain means, signs by projection on the first ℓ samples, and A by
    regression.
    """
    options = call.options_as(PrintedOptions)
    X, Y = call.source.collect()
    V = score_directions(X, Y, k, call.task.activation, call.rng, options)
    signs = projection_signs(ArraySource(X[: options.rows], Y[: options.rows]), V, call.task.activation)
    return NoisyTensor(Network(signs.W, None, signs.A, None, call.task.activation).normal_form(), signs.margins)


def _refuse(task: Task) -> str | None:
    if task.n_hidden is None:
        return "noisy_tensor needs the number of units: noise hides the rank of the outputs. Pass n_hidden."
    return refuse_exact("noisy_tensor", task)


def _run(call: Call) -> Estimate:
    k = call.task.n_hidden
    assert k is not None
    X, _ = next(call.source.blocks(OPTIONS.rows))
    act = call.task.activation
    found = _as_printed(call, k) if call.form == PAPER else noisy_tensor(call.source, k, act, call.rng)
    note = f"{k} directions were found; the least clear sign has a margin of {found.margins.min():.2f}."
    return Estimate(found.network, (*gaussian_notes(np.asarray(X, dtype=np.float64)), note), details=found)


ALGORITHM = Algorithm(
    name="noisy_tensor",
    paper="BJW18, Section 5 and Algorithm 6",
    assumes="Gaussian inputs of any covariance, no biases, noise of mean zero; rectified activation; A and W of rank k",
    refuse=_refuse,
    run=_run,
    forms=(BEST, PAPER),
    options={PAPER: PrintedOptions},
)
