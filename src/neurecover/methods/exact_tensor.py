"""Exact weights for Gaussian inputs: rough directions from a tensor, then linear systems [BJW18, Alg. 4 and 5].

For z ~ N(0, I) the second Hermite coefficients of all outputs together are a third-order tensor,

    T₂[o] = E[y_o He₂(z)] = Σᵢ A_oi h₂ wᵢ wᵢᵀ,      ‖wᵢ‖ = 1,

which determines the wᵢ up to sign when A has full column rank. The printed algorithm takes the third-order score,
but for a ReLU without bias that coefficient is zero, as are all odd ones above the first; h₂ = E[act(g)(g² − 1)] is
positive for every rectified power. The noise added there in step 2 is a device of the proof and is left out; the
coefficients are regressed and not averaged. Signs need no step of their own: the exact step tries both. Inputs of
any covariance are whitened first [BJW18, Remark 3].
"""

from __future__ import annotations

import numpy as np

from neurecover.activations import Activation
from neurecover.data import ArraySource, Mapped, Source, Whitening, reduce
from neurecover.methods.exact_checks import (
    as_estimate,
    kurtosis_sentence,
    n_units,
    refuse_exact,
    samples_for_patterns,
    short_of_rank,
)
from neurecover.methods.registry import Estimate, Method
from neurecover.refine.exact_patterns import ExactWeights, exact_weights
from neurecover.refine.search import Deadline, Task
from neurecover.statistics import HermiteSums, regression_degree
from neurecover.tensors import joint_diagonalise, unpack


def tensor_directions(source: Source, k: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Unit rows (k, d), signs unknown, from the second Hermite coefficients; inputs of unit covariance."""
    d, p = source.n_inputs, source.n_outputs
    sums = HermiteSums(d, p, degree=2, regress=regression_degree(n, d, 2))
    T2 = reduce(source, sums).coefficients().packed(2)
    return joint_diagonalise(unpack(T2, d, 2), k, rng).V


def exact_tensor(
    X: np.ndarray, Y: np.ndarray, k: int, activation: Activation, rng: np.random.Generator
) -> ExactWeights:
    """The exact network of k units behind noiseless samples X (n, d), Gaussian of any covariance about 0, and Y (n,
    p)."""
    whitening = Whitening.of(np.zeros(X.shape[1]), X.T @ X / len(X))
    V = tensor_directions(Mapped(ArraySource(X, Y), whitening), k, len(X), rng)
    return exact_weights(X, Y, V @ whitening.matrix.T, activation)


def _estimate(source: Source, task: Task, rng: np.random.Generator, deadline: Deadline) -> Estimate:
    X, Y = samples_for_patterns(source, rng)
    k = n_units(task, Y)
    if (reason := short_of_rank(Y, k)) is not None:
        return Estimate(None, (reason,))
    doubt = kurtosis_sentence(X)
    start = tensor_directions(source, k, task.n_samples, rng)
    exact = exact_weights(X, Y, start, task.activation)
    return as_estimate(exact, start, () if doubt is None else (doubt,))


METHOD = Method(
    name="exact_tensor",
    paper="BJW18, Algorithms 4 and 5",
    assumes="Gaussian inputs of any covariance, no biases, no noise; rectified activation; A and W of rank k (≤ p, d)",
    refuse=lambda task: refuse_exact("exact_tensor", task),
    estimate=_estimate,
)
