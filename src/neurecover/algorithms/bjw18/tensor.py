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
from neurecover.algorithms.base import BEST, PAPER, Algorithm, Call
from neurecover.algorithms.bjw18.common import (
    OPTIONS,
    as_estimate,
    centred_whitening,
    gaussian_notes,
    refuse_exact,
    samples_for_patterns,
    units_of_rank,
)
from neurecover.algorithms.bjw18.options import ExactOptions
from neurecover.algorithms.bjw18.parallel import one_sparse
from neurecover.algorithms.bjw18.patterns import ExactWeights, exact_weights
from neurecover.algorithms.bjw18.printed import PrintedOptions, run_as_printed
from neurecover.data import Mapped, Source, Whitening, reduce
from neurecover.results import Estimate
from neurecover.statistics import HermiteSums, regression_degree
from neurecover.statistics.moments.hermite import hermite_features, n_features, root_factorials
from neurecover.tensors import joint_diagonalise, unpack


def tensor_directions(source: Source, k: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return unit rows (k, d), signs unknown, from the second Hermite coefficients; inputs of unit covariance."""
    d, p = source.n_inputs, source.n_outputs
    sums = HermiteSums(d, p, degree=2, regress=regression_degree(n, d, 2))
    T2 = reduce(source, sums).coefficients().packed(2)
    return joint_diagonalise(unpack(T2, d, 2), k, rng).V


def exact_tensor(
    source: Source, k: int, activation: Activation, rng: np.random.Generator, options: ExactOptions = OPTIONS
) -> ExactWeights:
    """Return the exact network of k units behind noiseless samples with Gaussian inputs of any covariance about 0.

    The rough directions come from all samples, the exact step from some.
    """
    whitening = centred_whitening(source)
    V = tensor_directions(Mapped(source, whitening), k, source.count(), rng)
    X, Y = samples_for_patterns(source, rng, options)
    return until_exact(X, Y, V @ whitening.matrix.T, activation, rng, options)


def until_exact(
    X: np.ndarray,
    Y: np.ndarray,
    W: np.ndarray,
    activation: Activation,
    rng: np.random.Generator,
    options: ExactOptions = OPTIONS,
) -> ExactWeights:
    """Run the exact step on some of the samples; repeat it for the units it missed, with the others known.

    A unit's run of samples has to hold one at which each other unit is on, so that a start has to be nearer to its
    unit than the others are. Where it is not, the directions of the missing units are taken anew: from a regression
    that the known ones join, and, from all samples, where a single one of the missing units is on.
    """
    few = slice(options.rows)

    def step(start: np.ndarray) -> ExactWeights:
        return exact_weights(X[few], Y[few], start, activation)

    exact = step(W)
    while exact.found < len(W):
        for more in (missing_directions, lone_directions):
            again = step(np.vstack([exact.network.W, more(X, Y, exact, rng, options.rows)])[: len(W)])
            if again.found > exact.found:
                break
        else:
            break
        exact = again
    return exact


def lone_directions(
    X: np.ndarray, Y: np.ndarray, exact: ExactWeights, rng: np.random.Generator, rows: int
) -> np.ndarray:
    """Return directions of the units not found, from samples at which only one unit is active and no known one.

    Their outputs are parallel, and the unit's weights the solution of a linear system (`one_sparse`). Where that shows
    fewer units than are missing, those of the regression follow.
    """
    known, act = exact.network.W, exact.network.activation
    if act.homogeneity is None:
        return missing_directions(X, Y, exact, rng, rows)
    rest = np.all(X @ known.T <= 0.0, axis=1)
    lone = one_sparse(X[rest], Y[rest], len(exact.units) - exact.found, rng, act).network.W
    return np.vstack([lone, missing_directions(X, Y, exact, rng, rows)])


def missing_directions(
    X: np.ndarray, Y: np.ndarray, exact: ExactWeights, rng: np.random.Generator, rows: int
) -> np.ndarray:
    """Return directions of the units not found, from the second coefficients after a regression on the known units too.

    The known rows take all of their units' part of the outputs, exactly, and with it their share of the variance.
    """
    d, missing = X.shape[1], len(exact.units) - exact.found
    X, Y = X[:rows], Y[:rows]
    if 8 * (n_features(d, 2) + exact.found) > len(X):  # too few samples for a regression
        return rng.standard_normal((missing, d))
    whitening = Whitening.of(np.zeros(d), X.T @ X / len(X))
    features = hermite_features(whitening.inputs(X), 2)
    start = n_features(whitening.rank, 1)
    joined = np.vstack([features, exact.network.hidden(X).T])
    T2 = np.linalg.lstsq(joined.T, Y, rcond=None)[0][start : len(features)].T * root_factorials(whitening.rank, 2)
    return joint_diagonalise(unpack(T2, whitening.rank, 2), missing, rng).V @ whitening.matrix.T


def _run(call: Call) -> Estimate:
    if call.form == PAPER:
        return run_as_printed(call, ica=False)
    options = call.options_as(ExactOptions)
    X, Y = samples_for_patterns(call.source, call.rng, options)
    k = units_of_rank(call.task.n_hidden, Y)
    exact = exact_tensor(call.source, k, call.task.activation, call.rng, options)
    return as_estimate(exact, gaussian_notes(X))


ALGORITHM = Algorithm(
    name="exact_tensor",
    paper="BJW18, Algorithms 4 and 5",
    assumes="Gaussian inputs of any covariance, no biases, no noise; rectified activation; A and W of rank k (≤ p, d)",
    refuse=lambda task: refuse_exact("exact_tensor", task),
    run=_run,
    forms=(BEST, PAPER),
    options={BEST: ExactOptions, PAPER: PrintedOptions},
)
