"""Units from answers to random questions, where answers are too coarse for lines to show the kinks.

On a line a kink shows if the slopes beside it differ by more than the rounding of two answers over a piece; in a fit to
n answers at once a unit shows if it adds more than rounding/√n. The fit has to begin somewhere, and a search that
begins anywhere finds where: `refine.finisher`.
"""

from __future__ import annotations

import numpy as np

from neurecover.activations import Activation
from neurecover.data import ArraySource
from neurecover.exceptions import UnsolvableError
from neurecover.models import Network
from neurecover.queries.box import Box
from neurecover.refine.finisher import finish
from neurecover.refine.task import Task
from neurecover.solve import Deadline

# Answers per parameter that the search is made on, at least so many.
_LOAD, _FEWEST = 12, 1_000
# Seconds after which the search is given up; networks of a few dozen units take less.
_SECONDS = 20.0


def network_from_samples(
    box: Box, source: ArraySource, n_units: int, activation: Activation, rng: np.random.Generator, deadline: Deadline
) -> Network:
    """A network for the answers, its number of units found; n_units is about how many there are.

    UnsolvableError where none has signs of its own.
    """
    X, Y = source.collect()
    count = max(_FEWEST, _LOAD * (n_units + 1) * (box.n_inputs + box.n_outputs + 1) // box.n_outputs)
    X, Y = X[:count], Y[:count]
    level = len(Y) * box.n_outputs * (box.resolution * box.scale) ** 2 / float(np.sum(Y**2))
    task = Task(activation, box.n_inputs, box.n_outputs, len(X), True, None, level)
    found = finish(ArraySource(X, Y), task, rng, Deadline.after(min(_SECONDS, deadline.seconds_left)))
    if found.sign_choices != 1:
        raise UnsolvableError("The units that fit the answers have no signs for which nothing affine is left over.")
    return found.network
