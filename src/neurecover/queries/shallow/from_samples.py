"""Units from random samples, when answers are too coarse for kinks to show on lines.

On a line a kink shows if the slopes beside it differ by more than the rounding of two answers over a piece; in a fit to
n answers a unit shows if it adds more than rounding/√n. `search.network` finds where the fit can start.
"""

from __future__ import annotations

import numpy as np

from neurecover.activations import Activation
from neurecover.data import ArraySource
from neurecover.exceptions import UnsolvableError
from neurecover.fit import FitOptions
from neurecover.models import Network
from neurecover.queries.box.black_box import Box
from neurecover.search import Task
from neurecover.search.network import search_network
from neurecover.solve import Deadline, steps_within


def n_search_answers(box: Box, n_units: int) -> int:
    """Return how many answers the search for about `n_units` units takes."""
    options = box.options.shallow
    weights = (n_units + 1) * (box.n_inputs + box.n_outputs + 1)
    return max(options.search_answers_least, options.search_answers * weights // box.n_outputs)


def fit_from_samples(
    box: Box, source: ArraySource, n_units: int, activation: Activation, rng: np.random.Generator, deadline: Deadline
) -> Network:
    """Search for a network that fits the answers; `n_units` is about its width.

    Raise UnsolvableError if the signs of its units are not determined.
    """
    options = box.options.shallow
    X, Y = source.collect()
    count = n_search_answers(box, n_units)
    X, Y = X[:count], Y[:count]
    level = len(Y) * box.n_outputs * (box.resolution * box.scale) ** 2 / float(np.sum(Y**2))
    task = Task(activation, box.n_inputs, box.n_outputs, len(X), True, None, level)
    n_weights = max(2 * n_units, options.search_units) * (box.n_inputs + 1)
    steps = steps_within(options.search_work, len(X), n_weights, dense=n_weights <= FitOptions().dense)
    found = search_network(ArraySource(X, Y), task, rng, deadline.within_steps(steps))
    if found.sign_choices != 1:
        raise UnsolvableError("The units that fit the answers leave an affine part, whichever signs they have.")
    assert isinstance(found.network, Network)
    return found.network
