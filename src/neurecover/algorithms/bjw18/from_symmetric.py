"""Exact weights on top of a rough estimate, for any symmetric input distribution [BJW18, §4.3].

The exact step (`patterns.exact_weights`) only needs a start that identifies a fair share of the samples on which a unit
is off, so any method's directions will do, up to sign. As the paper proposes, this one takes those of [GKLW19], which
only require that x and −x have the same distribution.
"""

from __future__ import annotations

import numpy as np

from neurecover import activations
from neurecover.algorithms.base import Algorithm, Call
from neurecover.algorithms.bjw18.common import as_estimate, refuse_exact, samples_for_patterns, units_of_rank
from neurecover.algorithms.bjw18.patterns import ExactWeights
from neurecover.algorithms.bjw18.tensor import until_exact
from neurecover.algorithms.gklw19.learner import learn
from neurecover.algorithms.gklw19.reflection import symmetry_test
from neurecover.data import ArraySource
from neurecover.results import Estimate
from neurecover.search import Task


def exact_symmetric(X: np.ndarray, Y: np.ndarray, k: int, rng: np.random.Generator) -> ExactWeights:
    """Return the exact ReLU network behind noiseless samples of symmetric inputs."""
    relu = activations.get("relu")
    return until_exact(X, Y, learn(ArraySource(X, Y), k, relu, rng)[0].network.W, relu, rng)


def _refuse(task: Task) -> str | None:
    if str(task.activation) != "relu" and task.activation.rectified:
        return f"exact_symmetric begins with relu(z) − relu(−z) = z. Got {task.activation} instead; try exact_tensor."
    return refuse_exact("exact_symmetric", task)


def _run(call: Call) -> Estimate:
    X, Y = samples_for_patterns(call.source, call.rng)
    k = units_of_rank(call.task.n_hidden, Y)
    test = symmetry_test(ArraySource(X, Y), call.rng)
    return as_estimate(exact_symmetric(X, Y, k, call.rng), (test.sentence,))


ALGORITHM = Algorithm(
    name="exact_symmetric",
    paper="BJW18, Section 4.3",
    assumes="symmetric inputs, no biases, no noise; relu; A and W of rank k (k ≤ p, d)",
    refuse=_refuse,
    run=_run,
)
