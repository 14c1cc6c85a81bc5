"""Exact weights on top of a rough estimate, for any symmetric input distribution [BJW18, §4.3].

The exact step (`refine.exact_patterns.exact_weights`) asks of a start only that it tells a fair part of the samples
on which a unit is off; any method's directions will do, up to sign. This one takes those of [GKLW19], which need x
~ −x and no more, as the paper proposes.
"""

from __future__ import annotations

import numpy as np

from neurecover import activations
from neurecover.algorithms.base import Estimate, Method
from neurecover.algorithms.bjw18.common import as_estimate, n_units, refuse_exact, samples_for_patterns, short_of_rank
from neurecover.algorithms.bjw18.patterns import ExactWeights, exact_weights, is_rectified
from neurecover.algorithms.gklw19.learner import learn
from neurecover.algorithms.gklw19.reflection import symmetry_test
from neurecover.data import ArraySource, Source
from neurecover.refine.task import Task
from neurecover.solve import Deadline


def exact_from_symmetric(
    X: np.ndarray, Y: np.ndarray, k: int, rng: np.random.Generator
) -> tuple[ExactWeights, np.ndarray]:
    """The exact ReLU network behind noiseless samples of symmetric inputs, and the rough units (k, d) it started
    from."""
    found = learn(ArraySource(X, Y), k, activations.get("relu"), rng)
    start = found[0].network.W
    return exact_weights(X, Y, start, activations.get("relu")), start


def _refuse(task: Task) -> str | None:
    if str(task.activation) != "relu" and is_rectified(task.activation):
        return f"exact_from finds its start by relu(z) − relu(−z) = z. Got {task.activation} instead; try exact_tensor."
    return refuse_exact("exact_from", task)


def _estimate(source: Source, task: Task, rng: np.random.Generator, deadline: Deadline) -> Estimate:
    X, Y = samples_for_patterns(source, rng)
    k = n_units(task, Y)
    if (reason := short_of_rank(Y, k)) is not None:
        return Estimate(None, (reason,))
    test = symmetry_test(ArraySource(X, Y), rng)
    try:
        exact, start = exact_from_symmetric(X, Y, k, rng)
    except (ValueError, np.linalg.LinAlgError) as error:
        return Estimate(None, (test.sentence, str(error)))
    return as_estimate(exact, start, (test.sentence,))


METHOD = Method(
    name="exact_from",
    paper="BJW18, Section 4.3",
    assumes="symmetric inputs, no biases, no noise; relu; A and W of rank k (k ≤ p, d)",
    refuse=_refuse,
    estimate=_estimate,
)
