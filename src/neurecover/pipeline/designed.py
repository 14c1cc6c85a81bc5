"""Smooth units of an oracle: what queries tell of them beforehand, and designed samples for the rest.

Far from the origin single bends show the activation, and with several outputs second differences the number of units
(`queries.smooth`). A search through samples that is told both is a short one.
"""

from __future__ import annotations

import numpy as np

from neurecover.activations import Activation
from neurecover.models import DeepNetwork, Network
from neurecover.pipeline.recovering import recover
from neurecover.pipeline.running import Run
from neurecover.queries.box.black_box import Box
from neurecover.queries.smooth.counting import count_units
from neurecover.queries.smooth.options import SmoothOptions
from neurecover.queries.smooth.shape import find_shape
from neurecover.results import Recovery

SETTLED = ("exact", "statistical")


def recover_smooth(
    box: Box, activation: Activation | None, width: int | None, run: Run
) -> Recovery[Network | DeepNetwork] | None:
    """Return the network of one hidden layer that designed samples give; None if its units have no known bend.

    All queries are those of the box; `width` and `activation` are found if they are not given.
    """
    options = box.options.smooth
    if activation is None and not box.coarse and not box.limits:
        activation = find_shape(box, run.rng)
        if activation is None:
            return None
        run.clock.stage("activation", f"{activation}, from single bends far from the origin.")
    if width is None and activation is not None and not box.coarse and not box.limits:
        width = count_units(box, activation, run.rng)
        if width is not None:
            run.clock.stage("number of units", f"{width}, the rank of second differences.")
    best: Recovery[Network | DeepNetwork] | None = None
    Z, Y = np.zeros((0, box.n_inputs)), np.zeros((0, box.n_outputs))
    for n in _sizes(box, width, options):
        more = min(n - len(Z), int(min(box.affordable, 1e9)))
        if more <= 0 or (best is not None and run.deadline.passed):
            break
        drawn = box.limits.pull_inside(run.rng.standard_normal((more, box.n_inputs)))
        Z, Y = np.vstack([Z, drawn]), np.vstack([Y, box(drawn)])
        left = run.deadline.seconds_left
        best = recover(
            box.inputs(Z),
            Y,
            n_hidden=width,
            activation="auto" if activation is None else activation,
            random_state=run.rng,
            time_budget=left if np.isfinite(left) else None,
            progress=run.report.tell,
        )
        run.clock.stage("designed samples", f"{len(Z):,} samples, {best.certificate.verdict}.")
        if best.certificate.verdict in SETTLED:
            break
        width = None  # one that was found may be wrong
    return best


def _sizes(box: Box, width: int | None, options: SmoothOptions) -> tuple[int, ...]:
    """Return how many samples to ask for, one number after another until they are enough."""
    if width is None:
        return options.rounds
    parameters = width * (box.n_inputs + 1 + box.n_outputs) + box.n_outputs
    n = max(options.least, int(options.equations * parameters / box.n_outputs))
    return (n, *(more for more in options.rounds if more > n))
