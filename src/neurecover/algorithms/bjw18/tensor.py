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
from neurecover.algorithms.base import Algorithm, Call
from neurecover.algorithms.bjw18.common import (
    as_estimate,
    centred_whitening,
    kurtosis_notes,
    refuse_exact,
    samples_for_patterns,
    units_of_rank,
)
from neurecover.algorithms.bjw18.patterns import ExactWeights, exact_weights
from neurecover.data import Mapped, Source, Whitening, reduce
from neurecover.results import Estimate
from neurecover.statistics import HermiteSums, regression_degree
from neurecover.statistics.moments.hermite import hermite_features, n_features, root_factorials
from neurecover.tensors import joint_diagonalise, unpack


def tensor_directions(source: Source, k: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Unit rows (k, d), signs unknown, from the second Hermite coefficients; inputs of unit covariance."""
    d, p = source.n_inputs, source.n_outputs
    sums = HermiteSums(d, p, degree=2, regress=regression_degree(n, d, 2))
    T2 = reduce(source, sums).coefficients().packed(2)
    return joint_diagonalise(unpack(T2, d, 2), k, rng).V


def exact_tensor(source: Source, k: int, activation: Activation, rng: np.random.Generator) -> ExactWeights:
    """The exact network of k units behind noiseless samples with Gaussian inputs of any covariance about 0.

    The rough directions come from all samples, the exact step from some.
    """
    whitening = centred_whitening(source)
    V = tensor_directions(Mapped(source, whitening), k, source.count(), rng)
    X, Y = samples_for_patterns(source, rng)
    return until_exact(X, Y, V @ whitening.matrix.T, activation, rng)


def until_exact(
    X: np.ndarray, Y: np.ndarray, W: np.ndarray, activation: Activation, rng: np.random.Generator
) -> ExactWeights:
    """The exact step, and again for the units it missed, whose directions are taken anew once the others are exact."""
    k = len(W)
    exact = exact_weights(X, Y, W, activation)
    while 0 < exact.found < k and 8 * (n_features(X.shape[1], 2) + k) <= len(X):
        known = exact.network.W
        again = exact_weights(X, Y, np.vstack([known, missing_directions(X, Y, exact, rng)]), activation)
        if again.found <= exact.found:
            break
        exact = again
    return exact


def missing_directions(X: np.ndarray, Y: np.ndarray, exact: ExactWeights, rng: np.random.Generator) -> np.ndarray:
    """Directions of the units not found: the second coefficients of a regression that the known units' rows join.

    The known rows take all of their units' part of the outputs, exactly, and with it their share of the variance.
    """
    d = X.shape[1]
    whitening = Whitening.of(np.zeros(d), X.T @ X / len(X))
    features = hermite_features(whitening.inputs(X), 2)
    start = n_features(whitening.rank, 1)
    rows = np.vstack([features, exact.network.hidden(X).T])
    T2 = np.linalg.lstsq(rows.T, Y, rcond=None)[0][start : len(features)].T * root_factorials(whitening.rank, 2)
    missing = len(exact.units) - exact.found
    return joint_diagonalise(unpack(T2, whitening.rank, 2), missing, rng).V @ whitening.matrix.T


def _run(call: Call) -> Estimate:
    X, Y = samples_for_patterns(call.source, call.rng)
    k = units_of_rank(call.task.n_hidden, Y)
    exact = exact_tensor(call.source, k, call.task.activation, call.rng)
    return as_estimate(exact, kurtosis_notes(X))


ALGORITHM = Algorithm(
    name="exact_tensor",
    paper="BJW18, Algorithms 4 and 5",
    assumes="Gaussian inputs of any covariance, no biases, no noise; rectified activation; A and W of rank k (≤ p, d)",
    refuse=lambda task: refuse_exact("exact_tensor", task),
    run=_run,
)
